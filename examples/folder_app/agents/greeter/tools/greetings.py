"""Every tool and human tool at the module level is the agent's."""

from bread import define_human_tool, define_tool


@define_tool
def time_of_day(hour: int) -> str:
    """Whether it is morning or evening."""
    return "morning" if hour < 12 else "evening"


first_name = define_human_tool(
    "first_name",
    {"type": "object", "properties": {"hello": {"type": "string"}}},
    response={"type": "string", "minLength": 1},
    prompt="{hello}! What is your first name?",
)
