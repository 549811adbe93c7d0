"""Records the turns that `test_traps.py` loads for ever: one a protocol, as they are stored today.

    PYTHONPATH=tests .venv/bin/python -m models.record

A new version of the model layer adds a file; those that are there stay as they are.
"""

from __future__ import annotations

import asyncio
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

from models.kit import ASK, CHAT, CLAUDE, FETCH, GEMINI, HI, PROTOCOLS, RESPONSES, done, model_at, request, told, used
from models.protocols import Part, Thought, calls, says
from models.stub import Stub

TURNS = Path(__file__).parent / "turns"
THOUGHT = Thought("They want a page. é😀", "c2lnbmVk")
CALLS = [*calls("tool_fetch", '{"url": "https://x.test/é"}', id="call_a"), *calls("human_ask", id="call_b", index=1)]
BROKEN = calls("tool_fetch", '{"url": "https://x.t', id="call_c", index=2)
TEXT = ["Let me ", "see. 你好\n"]
PARTS: dict[str, list[Part]] = {
    CHAT: [THOUGHT, *TEXT, *CALLS, *BROKEN],
    CLAUDE: [THOUGHT, *TEXT, *CALLS, *BROKEN],
    RESPONSES: [*TEXT, *CALLS, *BROKEN],
    GEMINI: [THOUGHT, *TEXT, *CALLS],
}


async def turns() -> dict[str, Any]:
    """The stored data of one turn of each protocol."""
    found = {}
    async with Stub() as stub:
        for name in PROTOCOLS:
            stub.plays(says(*PARTS[name]))
            async with used(model_at(stub, name)) as model:
                found[name] = done(await told(model, request(HI, tools=[FETCH, ASK]))).message.data
    return found


if __name__ == "__main__":
    file = TURNS / f"pydantic-ai-{version('pydantic-ai-slim')}.json"
    TURNS.mkdir(exist_ok=True)
    file.write_text(json.dumps(asyncio.run(turns()), ensure_ascii=False, indent=1) + "\n")
    print(file)
