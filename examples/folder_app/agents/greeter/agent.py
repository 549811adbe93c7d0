"""The agent. The prompt in prompt.md, the tools in tools/ and the skills in skills/ come to it by themselves."""

from bread import define_agent
from bread.testing import ScriptedModel, call, text

model = ScriptedModel(
    [
        [call("tool_time_of_day", {"hour": 9})],
        [text("One question first. "), call("human_first_name", {"hello": "Good morning"})],
        [text("Good morning!")],
    ]
)
agent = define_agent("greeter", model=model)
