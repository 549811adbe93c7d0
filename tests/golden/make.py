"""Writes the golden logs of a schema: `python -m tests.golden.make v1`, by hand, once. What is written stays.

After a change of an event's fields: raise its version, write its upcaster, put what is new into LOGS and SPECIMENS and
make the next generation (`v2`). The older ones stay as they are and have to be read for ever.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from bread.domain.envelope import APP, Meta, Recorded
from bread.domain.events import Event
from bread.transport.codec import stored_form

from .logs import LOGS, Script
from .reading import HERE, Line, reading, shapes
from .specimens import SPECIMENS
from .tape import ANN, A, recording

# What the first release does not decide yet may come to mean more; what is sure of it is this.
SURE = ("id", "version", "status", "kind", "agent", "session", "root", "started", "parent", "output", "code", "message")
BARE = Meta(1_760_000_000.5, APP, "c_000000000001")
FULL = Meta(1_760_000_000.5, ANN, "c_000000000002", 12, "run_00", "s1", "cmd_1", A, "acme", "00-4bf92f35-00f067aa-01")


def specimens() -> list[Line]:
    """Every event with the least and with the most that it can hold, under the least and the most of facts."""
    lines: list[Line] = []
    for cls, least, rest in SPECIMENS:
        for fields, meta in ((least, BARE), (least | rest, FULL)):
            event: Event = cls.model_validate(fields)
            recorded = Recorded(f"x_{cls.NAME}", 1 + len(lines) % 2, event, meta, len(lines) + 1)
            lines.append(Line(recorded.position, recorded.stream, recorded.version, *stored_form(recorded)))
    return lines


def expected(name: str, lines: list[Line]) -> dict[str, Any]:
    """What is to be read from a log for ever."""
    found = reading([line.recorded() for line in lines])
    if name == "composed":
        found["states"] = {
            stream: {fact: value for fact, value in state.items() if fact in SURE or stream.startswith("cp_")}
            for stream, state in found["states"].items()
        }
        for crumbs in found["crumbs"].values():
            for crumb in crumbs:
                crumb.pop("path")
                crumb.pop("parent", None)
    return {"about": " ".join((LOGS[name].__doc__ or "").split()), **found}


def write_log(file: Path, lines: list[Line]) -> None:
    file.write_text("".join(f"{line.text()}\n" for line in lines))


def write_json(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content, indent=1) + "\n")


async def record(script: Script) -> list[Line]:
    """What a script leaves in the log of a new store."""
    with tempfile.TemporaryDirectory() as place:
        async with recording(Path(place, "bread.db")) as tape:
            await script(tape)
            report = await tape.workers[A].check()
            if not report.ok:
                raise ValueError(f"{script.__name__}: {report.problems}")
            return await tape.lines()


def make(folder: Path) -> None:
    folder.mkdir()  # refuses to write over what is there
    write_json(folder / "fields.json", shapes())
    write_log(folder / "events.jsonl", specimens())
    for name, script in LOGS.items():
        lines = asyncio.run(record(script))
        write_log(folder / f"{name}.jsonl", lines)
        write_json(folder / f"{name}.json", expected(name, lines))


if __name__ == "__main__":
    make(HERE / sys.argv[1])
