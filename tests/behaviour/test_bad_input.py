"""Bad input from programs, models and tools: one clear error with a code, and nothing lost by it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from bread import AnswerCheckpoint
from bread.testing import call, text
from scenes import (
    OpenBread,
    Spy,
    agent,
    ask_first,
    asking,
    asks,
    ended,
    names,
    output_of,
    refused,
)
from support import wire

from .bad_input import IN_MEMORY, nested

# --- ids, cursors and options -----------------------------------------------------------------------------------------

NO_IDS = ["nope", "", "\ud800", "x" * 100_000, "run_\x00", "session:s1", "'; DROP TABLE stored_events; --", "%", "ⅷ"]


@IN_MEMORY
@pytest.mark.parametrize("wrong", NO_IDS, ids=lambda text: ascii(text[:12]))
async def test_an_id_of_nothing_is_not_found(open_bread: OpenBread, wrong: str) -> None:
    """B53, Q RUN_NOT_FOUND, Q SESSION_NOT_FOUND, Q AGENT_NOT_FOUND: whatever is sent, one code, nothing written."""
    async with open_bread(agent(asks(), asking())) as bread:
        asked = await ask_first(bread, session="s1")
        before = await names(bread, asked.run_id)
        cases: list[tuple[Callable[[], Any], str]] = [
            (lambda: bread.get_run(wrong), "RUN_NOT_FOUND"),
            (lambda: bread.cancel(wrong), "RUN_NOT_FOUND"),
            (lambda: output_of(bread.retry(wrong)), "RUN_NOT_FOUND"),
            (lambda: output_of(bread.observe(wrong)), "RUN_NOT_FOUND"),
            (lambda: anext(bread.audit(wrong)), "RUN_NOT_FOUND"),
            (lambda: bread.get_checkpoint(wrong), "CHECKPOINT_NOT_FOUND"),
            (lambda: output_of(bread.resume(wrong, "yes")), "CHECKPOINT_NOT_FOUND"),
            (lambda: output_of(bread.resume(wrong, "yes", idempotency_key="k")), "CHECKPOINT_NOT_FOUND"),
            (lambda: bread.sessions.get(wrong), "SESSION_NOT_FOUND"),
            (lambda: bread.sessions.messages(wrong), "SESSION_NOT_FOUND"),
            (lambda: output_of(bread.run(wrong, "go")), "AGENT_NOT_FOUND"),
        ]
        broken = wrong == "\ud800"  # half a character: nothing can be looked up by it
        for one, code in cases:
            with refused("INPUT_INVALID" if broken else code):
                await one()
        lists: list[Callable[[], Any]] = [
            lambda: bread.list_checkpoints(agent=wrong),
            lambda: bread.list_checkpoints(tool=wrong),
            lambda: bread.list_checkpoints(session=wrong),
            lambda: bread.list_runs(agent=wrong),
            lambda: bread.list_runs(session=wrong),
        ]
        for look in lists:
            if broken:
                with refused("INPUT_INVALID"):
                    await look()
            else:
                assert (await look()).items == []
        for choose in (lambda: bread.list_checkpoints(kind=wrong), lambda: bread.list_runs(status=wrong)):
            with refused("INPUT_INVALID"):
                await choose()
        if not broken:
            assert not await bread.sessions.delete(wrong)
        assert await names(bread, asked.run_id) == before
        assert [one.id for one in (await bread.sessions.list()).items] == ["s1"]


@IN_MEMORY
@pytest.mark.parametrize(
    "wrong",
    [
        {"session": ""},
        {"session": " s"},
        {"session": "s\n"},
        {"session": "\ud800"},
        {"session": "s" * 201},
        {"session": 7},
        {"tags": {"": "x"}},
        {"tags": {"a": ""}},
        {"tags": {"a": 1}},
        {"tags": {"a": "x" * 201}},
        {"tags": {"a": "\ud800"}},
        {"tags": {"\ud800": "a"}},
        {"tags": {str(n): "x" for n in range(33)}},
        {"tags": ["a"]},
        {"tags": "a"},
        {"max_steps": 0},
        {"max_steps": "many"},
        {"idempotency_key": ""},
        {"idempotency_key": "k" * 201},
        {"idempotency_key": 7},
        {"on_busy": "panic"},
        {"on_pending": "panic"},
    ],
    ids=lambda options: ascii(options)[:30],
)
async def test_an_option_that_does_not_fit_is_refused(open_bread: OpenBread, wrong: dict[str, Any]) -> None:
    """B3, B55, Q INPUT_INVALID: before anything is written."""
    async with open_bread(agent([[text("Hi.")]])) as bread:
        with refused("INPUT_INVALID"):
            await bread.run("a", "go", **wrong)
        assert (await bread.list_runs()).items == []
        assert (await bread.sessions.list()).items == []


@IN_MEMORY
@pytest.mark.parametrize(
    "wrong",
    [
        {"limit": 0},
        {"limit": -1},
        {"limit": 1001},
        {"limit": "5"},
        {"limit": None},
        {"limit": 2.0},
        {"cursor": "x"},
        {"cursor": "-1"},
        {"cursor": ""},
        {"cursor": "9" * 30},
        {"cursor": "٣"},
        {"cursor": 7},
        {"tags": {"a": 1}},
        {"tags": {"": "x"}},
        {"tags": {"a": "\ud800"}},
        {"tags": "a"},
    ],
    ids=lambda options: ascii(options)[:30],
)
async def test_a_page_that_is_none_is_refused(open_bread: OpenBread, wrong: dict[str, Any]) -> None:
    """B46, Q INPUT_INVALID: limits, cursors and tags of lists."""
    async with open_bread() as bread:
        with refused("INPUT_INVALID"):
            await bread.list_checkpoints(**wrong)
        if "cursor" not in wrong:
            with refused("INPUT_INVALID"):
                await bread.sessions.list(**wrong)
        if "limit" in wrong:
            with refused("INPUT_INVALID"):
                await bread.list_runs(**wrong)


@IN_MEMORY
@pytest.mark.parametrize("wrong", [7, None, {}, ["x"], b"\xff", object()], ids=lambda value: type(value).__name__)
async def test_an_id_of_another_type_is_refused(open_bread: OpenBread, wrong: Any) -> None:
    """B55, Q INPUT_INVALID: or not found; never an error of the driver, never an undecided one."""
    async with open_bread(agent([[text("Hi.")]])) as bread:
        for one in (
            lambda: output_of(bread.run(wrong, "go")),
            lambda: output_of(bread.resume(wrong, "yes")),
            lambda: bread.cancel(wrong),
            lambda: output_of(bread.retry(wrong)),
            lambda: bread.sessions.delete(wrong),
            lambda: output_of(bread.resume("cp_x", "yes", comment=wrong)) if wrong is not None else bread.get_run("x"),
            lambda: output_of(bread.resume("cp_x", "yes", author=wrong)) if wrong else bread.get_run("x"),
            lambda: bread.get_run(wrong),
            lambda: bread.get_checkpoint(wrong),
            lambda: bread.sessions.get(wrong),
            lambda: bread.sessions.messages(wrong),
            lambda: output_of(bread.observe(wrong)),
        ):
            with pytest.raises(Exception) as caught:  # noqa: PT011
                await one()
            code = getattr(caught.value, "code", repr(caught.value))
            assert code == "INPUT_INVALID" or code.endswith("_NOT_FOUND"), code


@IN_MEMORY
@pytest.mark.parametrize(
    "wrong",
    [object(), b"\xff", nested(300), 10**5000, {object(): 1}, open],
    ids=["object", "bytes", "deep", "huge", "key", "function"],
)
async def test_a_value_without_a_json_form_is_refused(open_bread: OpenBread, wrong: Any) -> None:
    """B4, B58, Q INPUT_INVALID: as input and as answer; nothing is written, the question stays."""
    async with open_bread(agent(asks(), asking())) as bread:
        with refused("INPUT_INVALID"):
            await bread.run("a", wrong)
        assert (await bread.list_runs()).items == []
        asked = await ask_first(bread)
        with refused("INPUT_INVALID"):
            await bread.resume(asked.checkpoint_id, wrong)
        assert (await bread.get_checkpoint(asked.checkpoint_id)).status == "pending"


@pytest.mark.parametrize(
    "value",
    ["\ud800", "a\x00b", "🥖" * 1000, 10**300, -(10**30), 1e308, float("nan"), float("inf"), nested(200), ""],
    ids=lambda value: ascii(value)[:12],
)
async def test_strange_but_fitting_values_are_kept(open_bread: OpenBread, value: Any) -> None:
    """B4, B28: lone surrogates, NUL, huge numbers, deep lists: as input, answer and arguments; crumbs stay JSON."""
    spy = Spy([[call("human_ask", {"v": value})], [text("Thanks.")]])
    async with open_bread(agent(spy, asking(prompt="{v}"))) as bread:
        asked = await ask_first(bread, input=[value], session="s1")
        await bread.resume(asked.checkpoint_id, [value], comment="c")
        crumbs = await ended(bread, asked.run_id)
        start, resumed = (wire(crumb) for crumb in crumbs if crumb.type in ("agent:run:start", "human:resumed"))
        plain = "NaN" if value != value else "Infinity" if value == float("inf") else value
        assert start["input"] == resumed["response"] == [plain]
        for crumb in crumbs:
            json.dumps(wire(crumb), allow_nan=False)
        assert (await bread.sessions.messages("s1"))[-1]["text"] == "Thanks."


# --- wrong commands ---------------------------------------------------------------------------------------------------


def test_a_command_refuses_what_it_does_not_know() -> None:
    """C54, B56: fields by name, so that a typing error or a forgery is no silent default."""
    for fields in ({"checkpoint": "cp_x"}, {"checkpoint_id": "cp_x", "approved": True}, {}):
        with pytest.raises(ValueError, match=r"checkpoint|approved"):
            AnswerCheckpoint(**fields)


async def test_a_cleanup_takes_an_age(open_bread: OpenBread) -> None:
    """B74, Q INPUT_INVALID: of a timedelta."""
    async with open_bread() as bread:
        for wrong in (30, "30d", timedelta(-1)):
            with refused("INPUT_INVALID"):
                await bread.sessions.cleanup(older_than=wrong)  # type: ignore[arg-type]
