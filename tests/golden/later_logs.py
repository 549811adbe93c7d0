"""The golden logs that a later schema brought, as scripts."""

from __future__ import annotations

from bread.domain.events import JsonValue
from bread.domain.messages import Message
from bread.domain.plans import Accept, Delegate, Execute, FinishLoop, Iterate, Reject, StartLoop

from .tape import Call, Tape, ask


async def answers_that_fit(tape: Tape) -> None:
    """A provider's turns; skills of the caller and of the model; an answer with a schema is asked for again."""

    def provider(*parts: JsonValue) -> Message:
        usage: JsonValue = {"input_tokens": 30, "output_tokens": 9, "details": {}}
        message: JsonValue = {"parts": list(parts), "usage": usage, "model_name": "m-2026", "finish_reason": "stop"}
        assert isinstance(message, dict)
        return Message(codec="pydantic-ai/2", data=message | {"kind": "response", "timestamp": "2026-12-01T18:00:00Z"})

    thought: JsonValue = {"content": "A date is needed.", "signature": "c2ln", "part_kind": "thinking"}
    said: JsonValue = {"content": "I load the other one. ", "part_kind": "text"}
    load: JsonValue = {"tool_name": "core_load_skill", "args": '{"skill": "dates"}', "part_kind": "tool-call"}
    assert isinstance(load, dict)
    loading: Call = ("core_load_skill", {"skill": "dates"}, "call_1", Execute(True))
    await tape.start("run_01", "s1", "When?", skill="law")
    turn = provider(thought, said, load | {"tool_call_id": "call_1"})
    await tape.turn("run_01", "", loading, message=turn, finish="tool_call")
    await tape.returns("run_01", 0, {"skill": "dates"})
    await tape.turn("run_01", "", ("human_approve_publish", {"url": "1"}, "call_2", ask("cp_01")))
    await tape.answer("cp_01", "answered", True)
    text: JsonValue = {"content": "Soon.", "part_kind": "text"}
    await tape.turn("run_01", "", message=provider(text), verified=Reject("(answer): not JSON", 1))
    await tape.turn("run_01", "Later.", verified=Reject("(answer): not JSON", 1))
    await tape.retry("run_01")
    fits: JsonValue = {"content": '{"year": 2027}', "part_kind": "text"}
    await tape.turn("run_01", "", message=provider(fits), verified=Accept({"year": 2027}))


async def delegated_and_looped(tape: Tape) -> None:
    """What the decisions make of a pipeline: an agent, a parallel of a supervisor and of a host with a loop."""
    leaf: JsonValue = {"kind": "agent", "agent": "left", "max_steps": 5}
    both: JsonValue = [{"kind": "agent", "agent": "boss"}, {"kind": "agent", "agent": "host", "skill": "law"}]
    await tape.start("run_01", "s1", "go", steps=[leaf, {"kind": "parallel", "steps": both}])
    [writer] = await tape.children("run_01")
    await tape.turn(writer, "Written.")
    boss, host = (await tape.children("run_01"))[1:]
    plan = Delegate("helper", "x", 5, "hidden")
    delegate: Call = ("core_delegate", {"agentId": "helper", "input": "x"}, "call_1", plan)
    await tape.turn(boss, "Help. ", delegate)
    loop: Call = ("core_start_loop", {"pipeline": ["left"]}, "call_1", StartLoop([leaf], "go", 2))
    await tape.turn(host, "", loop, ("core_iterate_loop", {}, "call_2", Iterate()))
    [helper], [iteration] = await tape.children(boss), await tape.children(host)
    await tape.turn(helper, "", ("human_approve_publish", {"url": "1"}, "", ask("cp_01")))
    [inner] = await tape.children(iteration)
    await tape.turn(inner, "First.")
    await tape.turn(host, "", ("core_finish_loop", {"result": "R"}, "call_3", FinishLoop("R")))
    await tape.turn(host, "Hosted.")
    await tape.answer("cp_01", "answered", "yes")
    await tape.turn(helper, "Helped.")
    await tape.turn(boss, "All done.")
