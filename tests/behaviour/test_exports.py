"""The public names, and their signatures, on which others build."""

from __future__ import annotations

import importlib
import inspect
from datetime import timedelta
from typing import Any

import pytest

import bread
import bread.models
import bread.testing
from bread import AnswerCheckpoint, Bread, CancelRun, DeleteSession, RetryRun, StartRun, define_tool
from bread.runtime.sessions import Sessions
from bread.testing import ScriptedModel, call, text
from scenes import OpenBread, agent, ask_first, asking, asks
from support import read


def test_all_names_of_the_package_exist() -> None:
    """Each is importable by `from bread import ...`, sorted, and documented."""
    for module in (bread, bread.models, bread.testing):
        names = module.__all__
        assert list(names) == sorted(names)
        for name in names:
            found = getattr(importlib.import_module(module.__name__), name)
            if inspect.isclass(found) or inspect.isfunction(found):
                assert inspect.getdoc(found), name


def test_the_names_that_others_build_on() -> None:
    """As the README and the examples use them."""
    for name in ("Bread", "BreadError", "ToolContext", "define_agent", "define_tool", "define_human_tool"):
        assert name in bread.__all__
    for name in ("StartRun", "AnswerCheckpoint", "CancelRun", "RetryRun", "DeleteSession"):
        assert name in bread.__all__
    assert {"ScriptedModel", "call", "text"} <= set(bread.testing.__all__)


def parameters(function: Any) -> dict[str, Any]:
    """Names and defaults; what has to be given is `...`."""
    return {
        name: ... if parameter.default is parameter.empty else parameter.default
        for name, parameter in inspect.signature(function).parameters.items()
        if name != "self"
    }


@pytest.mark.parametrize(
    ("function", "promised"),
    [
        (Bread.run, {"agent": ..., "input": ..., "session": None, "idempotency_key": None}),
        (Bread.resume, {"checkpoint_id": ..., "author": None, "comment": None, "idempotency_key": None}),
        (Bread.retry, {"run_id": ..., "max_steps": None}),
        (Bread.observe, {"run_id": ..., "after": None}),
        (Bread.cancel, {"run_id": ...}),
        (Bread.get_run, {"run_id": ...}),
        (Bread.get_checkpoint, {"checkpoint_id": ...}),
        (Bread.list_runs, {"limit": 50, "cursor": None}),
        (
            Bread.list_checkpoints,
            {"agent": None, "tool": None, "session": None, "tags": None, "kind": None, "answerable": None}
            | {"limit": 50, "cursor": None},
        ),
        (Sessions.get, {"session_id": ...}),
        (Sessions.list, {"tags": None}),
        (Sessions.messages, {"session_id": ...}),
        (Sessions.delete, {"session_id": ...}),
        (Sessions.cleanup, {"older_than": None, "tags": None, "keep_pending": False}),
        (bread.define_human_tool, {"name": ..., "schema": ..., "response": None, "prompt": None, "timeout": None}),
        (bread.define_agent, {"id": ..., "model": ..., "prompt": "", "tools": (), "permissions": None}),
    ],
    ids=lambda value: value.__qualname__ if callable(value) else "",
)
def test_the_signatures_that_others_build_on(function: Any, promised: dict[str, Any]) -> None:
    """Names and defaults; more may stand beside them, with defaults of their own."""
    found = parameters(function)
    assert {name: found.get(name, "missing") for name in promised} == promised
    assert [name for name, default in found.items() if default is ... and name not in promised] == []


def test_a_tool_is_made_with_or_without_options() -> None:
    """`@define_tool` and `@define_tool(idempotent=True)`; name, description and schema from the function."""

    @define_tool
    async def fetch_draft(url: str) -> str:
        """Fetch a draft."""
        return url

    @define_tool(idempotent=True, name="fetch", description="Again.")
    def again(url: str, times: int = 1) -> str:
        return url * times

    assert (fetch_draft.name, fetch_draft.description, fetch_draft.idempotent) == (
        "fetch_draft",
        "Fetch a draft.",
        False,
    )
    assert (again.name, again.description, again.idempotent) == ("fetch", "Again.", True)
    schema: Any = again.schema
    assert schema["required"] == ["url"]
    assert schema["properties"]["times"]["default"] == 1
    assert again("ab", times=2) == "abab"  # it stays a function


def test_commands_have_the_fields_of_what_they_ask_for() -> None:
    """Frozen, with who wants it."""
    StartRun(agent="a", input="go")
    AnswerCheckpoint(checkpoint_id="cp_x", response={"approved": True})
    CancelRun(run_id="run_x", reason="enough")
    RetryRun(run_id="run_x")
    command = DeleteSession(session="s1")
    assert command.by.kind == "app"
    with pytest.raises(ValueError, match="frozen"):
        command.session = "s2"


async def test_it_reads_as_in_the_readme(open_bread: OpenBread) -> None:
    """B1, B2, B49: the calls of the public interface, one after the other."""
    model = ScriptedModel(
        [[text("I need approval. "), call("human_ask", {"url": "https://x.test"})], [text("Published.")]]
    )
    publisher = bread.define_agent("publisher", model=model, prompt="...", tools=[asking("ask")])
    async with open_bread(publisher, agent(asks(), asking())) as app:
        crumbs = await read(app.run("publisher", "go", session="s1"))
        question = crumbs[-1]
        assert question.type == "human:required"
        page = await app.list_checkpoints(agent="publisher", tool="ask", session="s1", kind="input", limit=5)
        assert [one.id for one in page.items] == [question.checkpoint_id]
        assert page.next is None
        assert await app.resume(question.checkpoint_id, {"approved": True}, author="ann", comment="ok") == "Published."
        run_id = await app.start("publisher", "go", idempotency_key="order-17")
        assert (await app.get_run(run_id)).session_id != "s1"
        assert (await app.list_runs(agent="publisher")).items[0].id == run_id
        asked = await ask_first(app)
        assert await app.cancel(asked.run_id, reason="enough") == "cancelled"
        assert (await anext(app.audit(asked.run_id))).name == "run.started"
        assert (await app.sessions.get("s1")).id == "s1"
        assert [m["role"] for m in await app.sessions.messages("s1")] == ["user", "assistant", "tool", "assistant"]
        assert await app.sessions.cleanup(older_than=timedelta(days=30), tags=None, keep_pending=False) == 0
        await app.sessions.delete("s1")
