"""Skills as folders: SKILL.md with its front matter, scripts, references; nothing from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from bread import Bread, InvalidInput, RunSuspended
from bread.runtime.loader import load_agents, load_skill
from folders import HEAD, agent_py, skill_md, tool_py, write, write_agent


def refused(folder: Path) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        load_skill(folder)
    return caught.value


def test_a_skill_is_its_files(app: Path) -> None:
    """B72: description and body, references inlined by their names, scripts as tools of the skill."""
    home = write(
        app / "skills/style",
        {
            "SKILL.md": skill_md(more="license: MIT\nmetadata:\n  nested: [1, 2]\n", body="# Style\n\n---\n\nShort."),
            "references/b.md": "Second.\n",
            "references/a.md": "First.\n",
            "references/_draft.md": "Unseen.\n",
            "references/picture.png": "Unseen.\n",
            "scripts/check.py": f"{tool_py('check', 'mend')}\nagain = check\n",
            "scripts/_words.py": tool_py("hidden"),
        },
    )
    skill = load_skill(home)
    assert (skill.id, skill.description) == ("style", "How we write.")
    assert skill.prompt == "# Style\n\n---\n\nShort.\n\n## references/a.md\n\nFirst.\n\n## references/b.md\n\nSecond."
    assert [tool.model_name for tool in skill.tools] == ["skill_style_check", "skill_style_mend"]


def test_front_matter_is_text(app: Path) -> None:
    """B72: nothing is taken for a number, a date or a truth value; quotes, folds and Windows' line ends are read."""
    (app / "style").mkdir()
    for given, expected in (
        ("yes", "yes"),
        ("2026-12-01", "2026-12-01"),
        ("'with: colon'", "with: colon"),
        (">\n  two\n  lines", "two lines"),
        ('"#1"', "#1"),
    ):
        text = f"---\nname: style\ndescription: {given}\n---\nBody.\n"
        (app / "style/SKILL.md").write_bytes(text.replace("\n", "\r\n").encode())
        assert load_skill("style").description == expected
        assert load_skill("style").prompt == "Body."


WRONG = {
    "": "SKILL.md:1: expected front matter between two --- lines, with name and description",
    "Body.": "SKILL.md:1: expected front matter",
    "---\nname: style\n": "SKILL.md:1: expected front matter",
    "\n---\nname: style\ndescription: x\n---\n": "SKILL.md:1: expected front matter",
    "---\n---\n": "SKILL.md:1: expected front matter",
    "---\n- name\n---\n": "SKILL.md:1: expected front matter",
    "---\nname: style\n---\n": "SKILL.md:1: front matter: description is missing",
    "---\ndescription: x\n---\n": "SKILL.md:1: front matter: name is missing",
    "---\ndescription: x\nname: other\n---\n": "SKILL.md:3: name is 'other', expected 'style' as its folder is called",
    "---\nname: style\ndescription: [x]\n---\n": "SKILL.md:3: front matter: description: expected text",
    "---\nname: style\ndescription: a: b\n---\n": "SKILL.md:3: front matter: mapping values are not allowed here; a t",
    "---\nname: 'style\n---\n": "SKILL.md:2: front matter: found unexpected end of stream",
    "---\nname: style\ndescription: ' '\n---\n": "SKILL.md:3: skill style: description: expected a text",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_in_a_skill_is_named_with_its_line(app: Path, text: str) -> None:
    """B72."""
    write(app / "skills/style", {"SKILL.md": text})
    error = refused(app / "skills/style")
    assert error.message.startswith(f"skills/style/{WRONG[text]}")
    assert error.code == ("INPUT_INVALID" if "' '" in text else "CONFIG_INVALID")


def test_missing_and_broken_files_are_named(app: Path) -> None:
    """B72: with their place; a script as any file of Python."""
    (app / "skills/style").mkdir(parents=True)
    assert refused(app / "skills/style").message.startswith("skills/style/SKILL.md: expected a file with front matter")
    write(app / "skills/style", {"SKILL.md": skill_md(), "scripts/check.py": f"{HEAD}\n1 / 0\n"})
    assert refused(app / "skills/style").message.startswith("skills/style/scripts/check.py:3: ZeroDivisionError")
    assert refused(app / "skills/none").message == "skills/none: expected a folder with SKILL.md"


@pytest.mark.parametrize("name", ["my-style", "Style", "2style", "style.v2"])
def test_a_skill_is_called_in_snake_case(app: Path, name: str) -> None:
    """B71."""
    write(app / "skills" / name, {"SKILL.md": skill_md(name)})
    error = refused(app / "skills" / name)
    assert (error.code, error.message.partition(": ")[0]) == ("INVALID_NAME", f"skills/{name}")


@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("style", "outside"),
        ("kept/references/secret.md", "outside/secret.md"),
        ("kept/references", "outside"),
        ("kept/scripts", "outside/scripts"),
        ("kept/more/SKILL.md", "outside/SKILL.md"),
        ("kept/scripts/deep/none", "none"),
    ],
)
def test_nothing_comes_from_outside_of_the_skills(app: Path, link: str, target: str) -> None:
    """B71: a link that leads out of the skills folder is INVALID_NAME, be it a whole skill or a part of one."""
    write(app / "outside", {"SKILL.md": skill_md(), "secret.md": "secret", "scripts/x.py": "1 / 0"})
    home = write_agent(app / "agents", files={"skills/kept/SKILL.md": skill_md("kept")})
    place = home / "skills" / link
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(app / target)
    with pytest.raises(InvalidInput, match="is a link that leads out of agents/writer/skills") as caught:
        load_agents("agents")
    assert caught.value.code == "INVALID_NAME"
    place.unlink()
    assert load_agents("agents")[0].skills["kept"].tools == ()


def test_links_within_and_a_shared_folder_of_skills_are_fine(app: Path) -> None:
    """B71: what stays inside is no way out, wherever the skills folder itself lies."""
    write(app / "shared", {"common.md": "Common.", "style/SKILL.md": skill_md(), "style/references/own.md": "Own."})
    (app / "shared/style/references/common.md").symlink_to(app / "shared/common.md")
    write_agent(app / "agents")
    (app / "agents/writer/skills").symlink_to(app / "shared")
    [agent] = load_agents("agents")
    assert agent.skills["style"].prompt.endswith("## references/common.md\n\nCommon.\n\n## references/own.md\n\nOwn.")


async def test_the_skill_of_a_folder_is_there_again_after_the_answer(app: Path) -> None:
    """B70, B72: on another Bread, which has read the folder anew, its prompt and its scripts are part of the run."""
    script = (
        'lambda request: ([call("skill_style_look")], [call("human_approve")], [call("skill_style_look")],'
        ' [text(str("Short sentences." in request.prompt))])[request.turn]'
    )
    write_agent(
        app / "agents",
        files={
            "agent.py": agent_py().replace('[[text("Hi.")]]', script),
            "tools/ask.py": f'{HEAD}approve = define_human_tool("approve", {{}})\n',
            "skills/style/SKILL.md": skill_md(),
            "skills/style/scripts/look.py": tool_py("look"),
        },
    )
    store = f"sqlite:///{app}/bread.db"
    async with Bread(agents_dir="agents", store=store) as bread:
        with pytest.raises(RunSuspended) as rests:
            await bread.run("writer", "go", skill="style")
        [checkpoint] = rests.value.checkpoints
        assert (await bread.get_checkpoint(checkpoint)).agent_id == "writer"
    async with Bread(agents_dir="agents", store=store) as bread:
        crumbs = [crumb async for crumb in bread.resume(checkpoint, 1)]
        assert [crumb.tool_name for crumb in crumbs if crumb.type == "tool:result"] == ["style_look"]
        assert crumbs[-1].type == "agent:run:end"
        assert crumbs[-1].output == "True"
