"""What a model of your own is made of: `Model` is any object with `name` and `stream(request)`.

class Parrot:
    name = "parrot"

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        text = request.messages[-1].text
        yield TextDelta(text)
        yield TurnDone(native_message(text))
"""

from bread.domain.messages import (
    AnyMessage,
    AssistantMessage,
    Message,
    ToolMessage,
    ToolUse,
    UserMessage,
    native_message,
)
from bread.domain.ports import (
    ManagedModel,
    Model,
    ModelError,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    ToolInputDelta,
    ToolSpec,
    TurnDone,
)
from bread.domain.run_events import Usage

__all__ = [
    "AnyMessage",
    "AssistantMessage",
    "ManagedModel",
    "Message",
    "Model",
    "ModelError",
    "ModelEvent",
    "ModelRequest",
    "ReasoningDelta",
    "TextDelta",
    "ToolInputDelta",
    "ToolMessage",
    "ToolSpec",
    "ToolUse",
    "TurnDone",
    "Usage",
    "UserMessage",
    "native_message",
]
