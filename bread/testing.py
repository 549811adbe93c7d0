"""What tests need: a model that says what is written, and the same kits that bread's own tests use.

`Bread(always_replay=True)` forgets and reloads every run after each commit: what passes under it keeps nothing that
matters in memory.
"""

from bread.runtime.kit import (
    ManualClock,
    MemoryStreams,
    checkpoint_decider,
    given,
    run_decider,
    session_decider,
)
from bread.runtime.scripted import ScriptedModel, call, fail, pause, reasoning, text

__all__ = [
    "ManualClock",
    "MemoryStreams",
    "ScriptedModel",
    "call",
    "checkpoint_decider",
    "fail",
    "given",
    "pause",
    "reasoning",
    "run_decider",
    "session_decider",
    "text",
]
