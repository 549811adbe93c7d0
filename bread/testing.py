"""What tests need: a model that says what is written, and the same kits that bread's own tests use."""

from bread.runtime.kit import MemoryStreams, given
from bread.runtime.scripted import ScriptedModel, call, fail, pause, reasoning, text

__all__ = ["MemoryStreams", "ScriptedModel", "call", "fail", "given", "pause", "reasoning", "text"]
