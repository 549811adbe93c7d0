"""A process of its own, for tests that race and kill: bread on a store, led by lines on its standard input.

    python child.py '{"store": "sqlite:///...", "effects": "...", "kill": ["committed", 3]}'

A line in is a command, `{"id": 1, "do": "start", ...}`; a line out answers it, `{"id": 1, "gives": ...}`, or tells that
something has happened here, `{"event": "in_tool", ...}`. Commands run at the same time as each other. What a run does
stands in its input (see `script_of`), and what it did, tool by tool and model call by model call, in the effects file.
With `trees` the process also has the agents and the pipelines of these compositions (see `compositions/trees.py`).
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from bread import (
    AnswerCheckpoint,
    Bread,
    BreadError,
    StartPipeline,
    StartRun,
    StoreUnavailable,
)
from bread.domain.envelope import SYSTEM
from bread.domain.events import Event, event
from crash.child_agents import GATES, HITS, ME, SPEC, agent, counting, emit, fault

# --- commands ---------------------------------------------------------------------------------------------------------


async def open_(**_: Any) -> str:
    for name in SPEC.get("knows", ()):
        event(name)(type("Unheard", (Event,), {}))
    await BREAD.open()
    if SPEC.get("deaf"):  # others commit, and this process has not heard of it yet
        BREAD._running().journal.on_foreign = lambda entries: None
    return BREAD.worker


async def start(script: Any, run: str | None = None, agent: str = "worker", **options: Any) -> str:
    accepted = await BREAD.send(StartRun(agent=agent, input=script, run_id=run, **options))
    return str(accepted.run_id)


async def plant(tree: str, run: str | None = None, **_: Any) -> str:
    """Start a composition by the id of its root."""
    if tree in BREAD.pipelines:
        return str((await BREAD.send(StartPipeline(pipeline=tree, input="go", run_id=run))).run_id)
    return await start("go", run, tree)


async def settled(run: str, **_: Any) -> dict[str, Any]:
    """A tree as soon as all of it rests or it has ended: what came out, and the questions that are open."""
    async for _crumb in BREAD.observe(run, until="rest"):
        pass
    found = await BREAD.get_run(run)
    asked = [await BREAD.get_checkpoint(checkpoint) for checkpoint in found.checkpoints]
    return {
        "status": found.status,
        "output": found.output,
        "questions": [{"id": one.id, "kind": one.kind, "args": one.args} for one in asked],
    }


async def rest(run: str, **_: Any) -> dict[str, Any]:
    """The run as soon as nothing of it is under way: ended, or waiting for the questions that are given."""
    found = await BREAD.get_run(run)
    if found.status == "running":
        async for _crumb in BREAD.observe(run):
            found = await BREAD.get_run(run)
            if found.status != "running":
                break
        found = await BREAD.get_run(run)
    questions = [await BREAD.get_checkpoint(checkpoint) for checkpoint in found.checkpoints]
    return {
        "status": found.status,
        "output": found.output,
        "code": found.code,
        "questions": [{"id": q.id, "kind": q.kind, "tool": q.tool_name, "args": q.args} for q in questions],
    }


async def questions(session: str, **_: Any) -> list[dict[str, Any]]:
    """What is listed now, whether it has surfaced or not."""
    page = await BREAD.list_checkpoints(session=session)
    return [{"id": q.id, "kind": q.kind, "tool": q.tool_name, "args": q.args} for q in page.items]


async def answer(checkpoint: str, response: Any, times: int = 1, hows: Any = ("send",), **options: Any) -> list[str]:
    """What became of `times` answers to one checkpoint at once: "won", or the code of the error."""
    asking = [_answer(hows[n % len(hows)], checkpoint, response, options) for n in range(times)]
    return list(await asyncio.gather(*asking))


async def answers(given: list[list[Any]], **options: Any) -> list[str]:
    """The same for answers to different checkpoints at once."""
    return list(await asyncio.gather(*(_answer("send", c, response, options) for c, response in given)))


async def _answer(how: str, checkpoint: str, response: Any, options: dict[str, Any]) -> str:
    async def by_hand() -> None:
        if how in ("send", "detach"):
            await BREAD.send(
                AnswerCheckpoint(checkpoint_id=checkpoint, response=response, detach=how == "detach", **options)
            )
        elif how == "iterate":
            async for _ in BREAD.resume(checkpoint, response, **options):
                pass
        else:
            await BREAD.resume(checkpoint, response, **options)

    return await outcome(by_hand())


async def outcome(work: Coroutine[Any, Any, Any]) -> str:
    try:
        await work
    except BreadError as error:
        return error.code
    except Exception as error:
        return f"raised {type(error).__name__}: {error}"
    return "won"


async def cycles(count: int, **_: Any) -> list[str]:
    """`count` whole runs at once: start, tool, question, answer, end."""
    script = {
        "turns": [
            [{"call": "tool_note", "args": {"what": "a"}}],
            [{"say": "And now? "}, {"call": "human_question", "args": {"what": "b"}}],
            [{"say": "Done."}],
        ]
    }

    async def cycle() -> None:
        run = BREAD.run("worker", script)
        question = [crumb async for crumb in run][-1]
        assert question.type == "human:required"
        if await BREAD.resume(question.checkpoint_id, "yes") != "Done.":
            raise BreadError("INTERNAL_ERROR", "a cycle has another output")

    return list(await asyncio.gather(*(outcome(cycle()) for _ in range(count))))


async def get(run: str, **_: Any) -> dict[str, Any]:
    return (await BREAD.get_run(run)).model_dump(mode="json")


async def runs(**_: Any) -> list[dict[str, Any]]:
    return [run.model_dump(mode="json") for run in (await BREAD.list_runs(limit=1000)).items]


async def seen(run: str, **_: Any) -> list[dict[str, Any]]:
    """Every crumb of a run from its beginning to its end."""
    return [crumb.wire() async for crumb in BREAD.observe(run)]


async def watch(run: str, **_: Any) -> list[dict[str, Any]]:
    """The same, over as many streams as it takes: who is cut off comes back with the last cursor."""
    found: list[dict[str, Any]] = []
    while True:
        try:
            async for crumb in BREAD.observe(run, after=found[-1]["cursor"] if found else None):
                found.append(crumb.wire())
            return found
        except StoreUnavailable:
            continue


async def retry(run: str, **_: Any) -> str:
    return str(await BREAD.retry(run))


async def cancel(run: str, **_: Any) -> str:
    return await BREAD.cancel(run)


async def delete(session: str, **_: Any) -> bool:
    return await BREAD.sessions.delete(session)


async def hits(**_: Any) -> dict[str, int]:
    return dict(HITS)


async def let(gate: str, **_: Any) -> None:
    GATES.setdefault(gate, asyncio.Event()).set()


# A barrier in front of the journal: everybody has looked and found the question pending, then all claim at once.

DOOR = asyncio.Event()


async def door(count: int, **_: Any) -> None:
    """The next `count` commits that are not bread's own wait until all of them are there and the test says `go`."""
    journal, arrived = BREAD._running().journal, 0
    commit: Callable[..., Awaitable[Any]] = journal.commit

    async def held(decide: Any, *, by: Any, **context: Any) -> Any:
        nonlocal arrived
        if by != SYSTEM and arrived < count:
            arrived += 1
            if arrived == count:
                emit({"event": "at_door"})
            await DOOR.wait()
        return await commit(decide, by=by, **context)

    DOOR.clear()
    journal.commit = held


async def go(**_: Any) -> None:
    DOOR.set()


async def faint(**_: Any) -> None:
    """The heart is not heard any more, and the time has passed until this process knows that it may count as dead."""
    heart: Any = BREAD._running().liveness
    loop, silent = asyncio.get_running_loop(), asyncio.Event()

    def unheard(*_: Any) -> None:
        loop.call_soon_threadsafe(silent.set)
        raise StoreUnavailable("nobody hears this heart")

    heart._beat = unheard
    heart._news.set()
    await silent.wait()  # no beat is under way by now
    heart._acknowledged -= 3600.0


async def wake(**_: Any) -> None:
    """The heart is heard again."""
    heart: Any = BREAD._running().liveness
    del heart._beat
    heart._news.set()


async def close(**_: Any) -> None:
    await BREAD.close()


COMMANDS: dict[str, Callable[..., Coroutine[Any, Any, Any]]] = {
    "answer": answer,
    "answers": answers,
    "cancel": cancel,
    "close": close,
    "cycles": cycles,
    "delete": delete,
    "door": door,
    "faint": faint,
    "get": get,
    "go": go,
    "hits": hits,
    "let": let,
    "open": open_,
    "plant": plant,
    "questions": questions,
    "rest": rest,
    "retry": retry,
    "runs": runs,
    "seen": seen,
    "settled": settled,
    "start": start,
    "wake": wake,
    "watch": watch,
}


async def carry_out(command: dict[str, Any]) -> None:
    number, do = command.pop("id"), command.pop("do")
    try:
        emit({"id": number, "gives": await COMMANDS[do](**command)})
    except BreadError as error:
        emit({"id": number, "code": error.code, "message": error.message})
    except Exception as error:
        logging.exception("%s failed", do)
        emit({"id": number, "code": f"raised {type(error).__name__}", "message": str(error)})
    if do == "close":
        asyncio.get_running_loop().stop()


async def listen() -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    emit({"event": "loaded"})
    tasks = set()
    while line := await reader.readline():
        task = asyncio.create_task(carry_out(json.loads(line)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    os._exit(3)  # the test is gone


def build() -> Bread:
    now = SPEC.get("clock")
    options: dict[str, Any] = {} if now is None else {"clock": lambda: float(now)}
    if beats := SPEC.get("heartbeat"):
        options["heartbeat"] = tuple(beats)
    if nats := SPEC.get("nats"):
        options["nats"] = nats
    agents = [agent(name) for name in SPEC.get("agents", ["worker"])]
    if trees := SPEC.get("trees"):
        from compositions.trees import Shape, agents_of, steps_of

        shapes = [Shape.of(tree) for tree in trees]
        agents += [
            one for shape in shapes for one in agents_of(shape, counting(idempotent=SPEC.get("idempotent", False)))
        ]
        options["pipelines"] = {shape.id: [steps_of(shape)] for shape in shapes if not shape.is_agent}
    if patience := SPEC.get("patience"):
        from bread.runtime import postgres

        postgres.PATIENCE = patience
    bread = Bread(
        agents=agents,
        store=SPEC["store"],
        executes=SPEC.get("executes", True),
        grace=SPEC.get("grace", 5.0),
        fault=fault,
        **options,
    )
    bread.worker = SPEC["worker"]
    return bread


BREAD = build()
ME["worker"] = BREAD.worker

if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    loop = asyncio.new_event_loop()
    listening = loop.create_task(listen())  # noqa: RUF006  # it ends with the process
    loop.run_forever()
    gc.collect()  # an error that nobody has looked at is heard now
    os._exit(0)
