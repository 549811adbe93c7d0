"""Permissions: what an agent may use, and what a person approves first."""

from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from bread.domain.errors import InvalidInput
from bread.domain.permissions import Access, Permissions

from .support import soaking, trials


@pytest.mark.parametrize(
    ("lists", "target", "access"),
    [
        pytest.param({}, "tool:fetch", "allow", id="no lists allow everything"),
        pytest.param(None, "tool:fetch", "allow", id="none either"),
        pytest.param({"allow": []}, "tool:fetch", "allow", id="empty allow list"),
        pytest.param({"allow": ["tool:fetch"]}, "tool:fetch", "allow", id="listed"),
        pytest.param({"allow": ["tool:fetch"]}, "tool:delete", "deny", id="B34 unlisted tools are absent"),
        pytest.param({"allow": ["tool:fetch"], "ask": ["tool:delete"]}, "tool:delete", "ask", id="ask adds to allow"),
        pytest.param({"allow": ["tool:fetch"], "ask": ["tool:fetch"]}, "tool:fetch", "ask", id="ask beats allow"),
        pytest.param({"ask": ["tool:fetch"], "deny": ["tool:*"]}, "tool:fetch", "deny", id="B33 deny beats all"),
        pytest.param({"ask": ["tool:delete_*"]}, "tool:delete_page", "ask", id="a part"),
        pytest.param({"ask": ["tool:delete_*"]}, "tool:undelete_page", "allow", id="from its beginning"),
        pytest.param({"ask": ["tool:*_page"]}, "tool:delete_page", "ask", id="to its end"),
        pytest.param({"ask": ["tool:*"]}, "core:delegate", "allow", id="one scope only"),
        pytest.param({"deny": ["core:*"]}, "core:start_loop", "deny", id="B42 built-ins"),
        pytest.param({"ask": ["skill:review/*"]}, "skill:review/lint", "ask", id="B42 scripts of a skill"),
        pytest.param({"ask": ["skill:*/lint"]}, "skill:review/lint", "ask", id="of any skill"),
        pytest.param({"ask": ["skill:review/*"]}, "skill:deploy/lint", "allow", id="of no other skill"),
    ],
)
def test_b31_what_is_granted(lists: Any, target: str, access: Access) -> None:
    assert Permissions.of(lists).access(target) == access


SHAPELESS = """
* fetch tool tool: Tool:fetch tools:fetch tool:Fetch tool:a/b tool:a-b mcp:x :fetch core:a/b
skill:review skill:review/ skill:/lint skill:a/b/c
"""


@pytest.mark.parametrize("selector", [*SHAPELESS.split(), "", "tool:a b", "tool:fetch\n", 7, None])
@pytest.mark.parametrize("key", ["allow", "ask", "deny"])
def test_b32_anything_else_is_refused(key: str, selector: Any) -> None:
    with pytest.raises(InvalidInput, match="INVALID_PERMISSION"):
        Permissions.of({key: [selector]})


@pytest.mark.parametrize("selector", ["human:approve", "human:*"])
def test_b25_human_tools_are_exempt(selector: str) -> None:
    with pytest.raises(InvalidInput, match=r"INVALID_PERMISSION.*human"):
        Permissions.of({"deny": [selector]})


def test_other_lists_and_bare_texts_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"INVALID_PERMISSION.*'allowed'"):
        Permissions.of({"allowed": ["tool:fetch"]})
    with pytest.raises(InvalidInput, match=r"INVALID_PERMISSION.*allow"):
        Permissions.of({"allow": "tool:fetch"})


tools = st.sampled_from(["tool:a", "tool:ab", "tool:b", "core:a"])
selectors = st.lists(st.sampled_from(["tool:*", "tool:a", "tool:a*", "tool:*b", "core:*", "core:b"]), max_size=3)


@for_all(allow=selectors, ask=selectors, deny=selectors, tool=tools)
@settings(max_examples=trials(200), derandomize=not soaking(), database=None, deadline=None)
def test_b31_the_effective_set(allow: list[str], ask: list[str], deny: list[str], tool: str) -> None:
    """B31: (allow or ask) without deny; what is both allowed and asked about is asked about."""

    def named(selectors: list[str]) -> bool:
        return any(fnmatchcase(tool, selector) for selector in selectors)

    access = Permissions.of({"allow": allow, "ask": ask, "deny": deny}).access(tool)
    granted = (named(allow) or not allow or named(ask)) and not named(deny)
    assert (access != "deny") == granted
    assert (access == "ask") == (granted and named(ask))
