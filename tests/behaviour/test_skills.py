"""Skills: of the caller and of the model, their tools, and what becomes of them over a suspension."""

from __future__ import annotations

from typing import Any

import pytest

from bread import Agent, AnswerCheckpoint, Skill, define_agent, define_human_tool, define_skill, define_tool
from bread.testing import call, text
from scenes import (
    DURABLE,
    Counter,
    OpenBread,
    Spy,
    agent,
    ask_first,
    asking,
    ended,
    question,
    questions,
    refused,
)
from support import read, types


def lint(ran: Counter | None = None, name: str = "lint") -> Any:
    async def function(path: str = "") -> str:
        return f"{name} {path} {ran(path) if ran else 0}"

    return define_tool(name=name, description="Look for mistakes.")(function)


def review(*tools: Any, id: str = "review", **options: Any) -> Skill:
    fields: dict[str, Any] = {"description": f"Use it to {id}.", "prompt": f"Do {id} with care.", "tools": tools}
    return define_skill(id, **(fields | options))


def offered(spy: Spy) -> list[list[str]]:
    return [[spec.name for spec in request.tools] for request in spy.requests]


ALL = [[call("skill_review_lint", {"path": "x"}), call("human_ask", {"n": 1})], [text("Reviewed.")]]


@DURABLE
async def test_the_skill_of_the_caller_is_there_again_after_the_answer(open_bread: OpenBread) -> None:
    """B70, B72, B1, B45, C50: prompt and tools of turn 2 are those of turn 1, in another process; the id is on it."""
    spy, ran = Spy(ALL), Counter()
    a = agent(spy, asking(), prompt="You work.", skills=[review(lint(ran)), review(id="other")])
    async with open_bread(a) as bread:
        crumbs = await read(bread.run("a", "go", skill="review"))
        assert crumbs[0].skill == "review"  # type: ignore[union-attr]
        asked = question(crumbs)
        assert asked.skill == "review"
        assert (await bread.get_checkpoint(asked.checkpoint_id)).skill == "review"
    async with open_bread(a) as bread:
        assert await bread.resume(asked.checkpoint_id, "yes") == "Reviewed."
        assert types(await ended(bread, asked.run_id)).count("tool:result") == 1
    first, second = spy.requests
    assert first.prompt == second.prompt
    assert first.prompt.startswith("You work.\n\nSkills that core_load_skill loads")
    assert "- other: Use it to other." in first.prompt
    assert first.prompt.endswith("# Skill review\n\nDo review with care.")
    assert offered(spy)[0] == offered(spy)[1] == ["human_ask", "core_load_skill", "skill_review_lint"]
    assert ran.total == 1


@DURABLE
async def test_the_model_loads_a_skill_and_has_it_from_then_on(open_bread: OpenBread) -> None:
    """B72, B70, B6: only the summary before; prompt, tools and a question of the skill after, over a restart."""
    sign = define_human_tool("sign", {"type": "object"})
    script = [
        [call("core_load_skill", {"skill": "review"})],
        [call("skill_review_lint", {"path": "x"}), call("human_sign")],
        [text("Reviewed.")],
    ]
    spy = Spy(script)
    a = agent(spy, skills=[review(lint(), sign, references={"rules.md": "Be kind."})])
    async with open_bread(a) as bread:
        crumbs = await read(bread.run("a", "go"))
        loaded = next(crumb for crumb in crumbs if crumb.type == "tool:result")
        assert (loaded.tool_name, loaded.result) == ("load_skill", {"skill": "review"})
        asked = question(crumbs)
        assert (asked.tool_name, asked.skill) == ("sign", "review")
    async with open_bread(a) as bread:
        assert await bread.resume(asked.checkpoint_id, {"ok": True}) == "Reviewed."
    skill_tools = ["skill_review_lint", "human_sign"]
    assert offered(spy) == [["core_load_skill"], ["core_load_skill", *skill_tools], ["core_load_skill", *skill_tools]]
    assert "Do review with care." not in spy.requests[0].prompt
    for request in spy.requests[1:]:
        assert request.prompt.endswith("# Skill review\n\nDo review with care.\n\n## rules.md\n\nBe kind.")


async def test_a_tool_of_a_skill_that_is_not_loaded_does_not_run(open_bread: OpenBread) -> None:
    """B72, B33: the model is told, also in the turn that loads it; a skill that is not there is an error for it."""
    ran = Counter()
    script = [
        [call("skill_review_lint"), call("core_load_skill", {"skill": "revue"})],
        [call("skill_review_lint"), call("core_load_skill", {"skill": "review"})],
        [call("core_load_skill", {"skill": "../review"}), call("core_load_skill", {"skill": "review"})],
        [text("Done.")],
    ]
    spy = Spy(script)
    async with open_bread(agent(spy, skills=[review(lint(ran))])) as bread:
        crumbs = await read(bread.run("a", "go"))
    errors = [(crumb.tool_name, crumb.code) for crumb in crumbs if crumb.type == "tool:error"]
    gone = ("review_lint", "TOOL_NOT_FOUND")
    assert sorted(errors) == sorted([gone, gone, ("load_skill", "TOOL_ERROR"), ("load_skill", "TOOL_ERROR")])
    messages = [crumb.message for crumb in crumbs if crumb.type == "tool:error"]
    assert "'skill_review_lint' belongs to skill 'review', which is not loaded" in messages
    assert any("there are: review" in message for message in messages)
    assert ran.total == 0
    assert spy.requests[-1].prompt.count("# Skill review") == 1


async def test_the_caller_names_a_skill_that_there_is(open_bread: OpenBread) -> None:
    """B71: SKILL_NOT_FOUND, and INVALID_NAME for what leads out of the skills; nothing is written."""
    async with open_bread(agent([[text("Done.")]], skills=[review()])) as bread:
        with refused("SKILL_NOT_FOUND") as caught:
            await bread.run("a", "go", skill="revue", session="s")
        assert "there are: review" in caught.value.message
        for bad in ("../review", "Review", "a/b", "", "review\n"):
            with refused("INVALID_NAME"):
                await bread.run("a", "go", skill=bad, session="s")
        with refused("SESSION_NOT_FOUND"):
            await bread.sessions.get("s")


@DURABLE
async def test_a_skill_that_is_gone_keeps_the_question(open_bread: OpenBread) -> None:
    """B70, B41, B57, C37: SKILL_NOT_FOUND before the claim; with the skill back the same answer works."""
    by_model = [[call("core_load_skill", {"skill": "review"})], [call("human_ask")], [text("Done.")]]
    for script, skill in (([[call("human_ask")], [text("Done.")]], "review"), (by_model, None)):
        with_skill = agent(script, asking(), skills=[review(lint())])
        async with open_bread(with_skill) as bread:
            asked = question(await read(bread.run("a", "go", skill=skill)))
        async with open_bread(agent(script, asking())) as bread:
            with refused("SKILL_NOT_FOUND"):
                await bread.resume(asked.checkpoint_id, "yes")
            [pending] = (await bread.list_checkpoints()).items
            assert pending.id == asked.checkpoint_id
        async with open_bread(with_skill) as bread:
            assert await bread.resume(asked.checkpoint_id, "yes") == "Done."


@DURABLE
async def test_a_run_that_needs_a_skill_that_is_gone_can_be_retried(open_bread: OpenBread) -> None:
    """B70, B59: it fails with what is missing, everything kept."""
    script = [[call("core_load_skill", {"skill": "review"})], [call("human_ask")], [text("Done.")]]
    with_skill, without = agent(script, asking(), skills=[review()]), agent(script, asking())
    async with open_bread(with_skill) as bread:
        asked = await ask_first(bread)
    async with open_bread(executes=False) as bread:
        await bread.send(AnswerCheckpoint(checkpoint_id=asked.checkpoint_id, response="yes"))
    async with open_bread(without) as bread:
        crumbs = await ended(bread, asked.run_id)
        assert (crumbs[-1].type, crumbs[-1].code) == ("agent:error", "SKILL_NOT_FOUND")  # type: ignore[union-attr]
    async with open_bread(with_skill) as bread:
        assert await bread.retry(asked.run_id) == "Done."


@DURABLE
async def test_the_skill_of_now_is_used(open_bread: OpenBread) -> None:
    """B57, B70: the id comes from the store, what the skill says from the present configuration."""
    spy = Spy([[call("human_ask")], [text("Done.")]])
    async with open_bread(agent(spy, asking(), skills=[review(prompt="Old.")])) as bread:
        asked = question(await read(bread.run("a", "go", skill="review")))
    async with open_bread(agent(spy, asking(), skills=[review(lint(), prompt="New.")])) as bread:
        await bread.resume(asked.checkpoint_id, "yes")
    assert [request.prompt[-4:] for request in spy.requests] == ["Old.", "New."]
    assert offered(spy)[1] == ["human_ask", "core_load_skill", "skill_review_lint"]


async def test_another_run_of_the_session_begins_without_the_skill(open_bread: OpenBread) -> None:
    """B72: a skill belongs to the run that has loaded it."""
    spy = Spy([[call("core_load_skill", {"skill": "review"})], [text("Done.")]])
    async with open_bread(agent(spy, skills=[review(lint())])) as bread:
        await bread.run("a", "go", session="s")
        await bread.run("a", "go", session="s", skill=None)
    assert offered(spy)[2] == ["core_load_skill"]


# --- permissions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lists", "tools"),
    [
        ({}, "core_load_skill skill_review_lint skill_review_fix"),
        ({"allow": ["skill:review/lint"]}, "skill_review_lint"),
        ({"allow": ["skill:*/*"]}, "skill_review_lint skill_review_fix"),
        ({"deny": ["skill:review/l*"]}, "core_load_skill skill_review_fix"),
        ({"deny": ["core:*"]}, "skill_review_lint skill_review_fix"),
        ({"deny": ["tool:lint", "skill:other/lint"]}, "core_load_skill skill_review_lint skill_review_fix"),
    ],
)
async def test_selectors_reach_skills_and_what_is_built_in(open_bread: OpenBread, lists: Any, tools: str) -> None:
    """B42, B31, B32, B34."""
    spy = Spy([[text("Done.")]])
    skills = [review(lint(), lint(name="fix"))]
    async with open_bread(agent(spy, skills=skills, permissions=lists)) as bread:
        await bread.run("a", "go", skill="review")
    assert offered(spy) == [tools.split()]
    assert ("core_load_skill" in spy.requests[0].prompt) == ("core_load_skill" in tools)


async def test_tools_with_one_leaf_name_are_told_apart_at_the_approval(open_bread: OpenBread) -> None:
    """B35, B36, B42, C61: `tool_review_lint` and lint of skill review have one leaf name."""
    own, scripts = Counter(), Counter()
    script = [
        [call("tool_review_lint", {"path": "own"}), call("skill_review_lint", {"path": "script"})],
        [text("Done.")],
    ]
    spy = Spy(script)
    lists = {"ask": ["skill:review/lint", "tool:*", "core:*"]}
    a = agent(spy, lint(own, "review_lint"), skills=[review(lint(scripts))], permissions=lists)
    async with open_bread(a) as bread:
        asked = questions(await read(bread.run("a", "go", skill="review")))
        assert [(one.tool_name, one.kind) for one in asked] == [("review_lint", "approval")] * 2
        by_path = {one.args["path"]: one.checkpoint_id for one in asked}  # type: ignore[index,call-overload]
        await read(bread.resume(by_path["script"], {"approved": True}))
        assert (own.total, scripts.total) == (0, 1)
        assert await bread.resume(by_path["own"], {"approved": True}) == "Done."
        assert (own.total, scripts.total) == (1, 1)


@DURABLE
async def test_an_approved_script_that_is_gone_keeps_the_question(open_bread: OpenBread) -> None:
    """B41: the skill is there, its script is not."""
    script, lists = [[call("skill_review_lint")], [text("Done.")]], {"ask": ["skill:*/*"]}
    async with open_bread(agent(script, skills=[review(lint())], permissions=lists)) as bread:
        asked = question(await read(bread.run("a", "go", skill="review")))
    async with open_bread(agent(script, skills=[review()], permissions=lists)) as bread:
        with refused("TOOL_NOT_FOUND"):
            await bread.resume(asked.checkpoint_id, {"approved": True})
        assert await bread.resume(asked.checkpoint_id, {"approved": False}) == "Done."


# --- definitions ------------------------------------------------------------------------------------------------------


def test_definitions_of_another_shape_are_refused() -> None:
    """B12, B13, B71: at load time, with what is wrong."""
    for bad in ("Review", "re view", "../x", "", "a" * 65):
        with refused("INVALID_NAME"):
            review(id=bad)
    for options in ({"description": ""}, {"description": "x" * 1025}, {"description": None}, {"tools": [print]}):
        with refused("INPUT_INVALID"):
            review(**options)
    with refused("INVALID_NAME"):
        made(skills=[review(), review()])
    with refused("TOOL_NAME_COLLISION"):
        made(skills=[review(lint(), lint())])
    with refused("TOOL_NAME_COLLISION"):
        made(skills=[review(asking()), review(asking(), id="other")])
    with refused("TOOL_NAME_COLLISION"):
        made(skills=[review(lint(), id="a_b"), review(lint(name="b_lint"), id="a")])


def test_a_name_that_no_provider_takes_is_refused() -> None:
    """B13: providers take 64 characters, and the scope counts."""
    with refused("INVALID_NAME") as caught:
        made(tools=[lint(name="a" * 60)])
    assert "64" in caught.value.message
    made(tools=[lint(name="a" * 59)])
    with refused("INVALID_NAME"):
        made(skills=[review(lint(name="b" * 40), id="c" * 40)])


def made(**options: Any) -> Agent:
    return define_agent("a", model=Spy([]), **options)
