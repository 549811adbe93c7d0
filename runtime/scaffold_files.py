"""The files of a new app, as they are written. `{name}` becomes its name."""

from __future__ import annotations

README = """\
# {name}

An app on bread. Its one agent, `publisher`, reads the house style (a skill), asks a person whether a post may go out
(a human tool), and publishes it (a tool). It works as it is, without a key: its model is scripted.

## Set-up

Python 3.11 or newer, with bread and pytest in an environment of yours:

```
python3 -m venv .venv
. .venv/bin/activate
pip install bread-runtime pytest
```

## Try it

```sh
bread build                                        # loads everything and names what is wrong
bread invoke publisher "publish the launch post"   # stops at the question, says its id, and exits with 1
bread checkpoints list                             # the question waits, for as long as it takes
bread checkpoints approve cp_... --author ann      # with that id: answers, and performs the rest of the run
bread runs list
bread audit verify
```

The post is now in `published/`. `bread checkpoints reject cp_... --reason "too early"` says no. In a terminal
`bread chat publisher` asks you on the spot.

```sh
pytest                                             # the same, as tests: no network, no key
bread doctor                                       # is everything there that bread needs?
```

## A real model

`BREAD_MODEL` names it, as provider:model, and the provider's own variable has the key:

```
pip install 'bread-runtime[anthropic]'
cp .env.example .env        # then write the two lines in it
bread build --strict        # also fails where a key or a package is missing
bread chat publisher
```

## What is where

```
bread.config.py             the store, and which agents may be started from outside
agents/publisher/agent.py   the agent: its model and permissions
    prompt.md               what the model is told
    tools/*.py              every tool in these files is the agent's
    skills/house_style/     SKILL.md, with scripts/ (tools) and references/ (texts)
    _script.py              what the scripted model says; names that begin with _ are yours
tests/                      the agent with its scripted model
```

Data is in `.bread/`. `bread --help` lists what else there is.
"""

CONFIG = '''\
"""What bread reads of this app. BREAD_STORE, BREAD_CONCURRENCY and the like in the environment beat what is here."""

from pathlib import Path

from bread import Config
from dotenv import load_dotenv

load_dotenv(Path(__file__).with_name(".env"))  # keys, and what differs from machine to machine; not in git

config = Config(
    store="sqlite:///.bread/bread.db",
    entrypoints=("publisher",),
)
'''

AGENT = '''\
"""The agent. prompt.md, the tools in tools/ and the skills in skills/ come to it by themselves."""

import os

from bread import define_agent

from ._script import scripted

agent = define_agent(
    "publisher",
    # A real model is provider:model, in BREAD_MODEL (see .env.example) or here:
    # model="anthropic:claude-sonnet-4-5",
    model=os.environ.get("BREAD_MODEL") or scripted,
    # A person has to approve every call of a tool that is named under "ask": {"ask": ["tool:publish"]}
    permissions={},
)
'''

SCRIPT = '''\
"""What the scripted model says, turn by turn. It needs no key and no network: to try the app, and for its tests."""

from typing import Any

from bread import ModelRequest
from bread.testing import ScriptedModel, call, text

POST: dict[str, Any] = {
    "title": "We have launched",
    "body": "Runs that wait for people, and cost nothing while they wait.",
}


def script(request: ModelRequest) -> list[Any]:
    """The next turn; `request.turn` counts the model calls of the run."""
    if request.turn == 0:
        return [text("I read the house style first. "), call("core_load_skill", {"skill": "house_style"})]
    if request.turn == 1:
        return [call("skill_house_style_check_title", {"title": POST["title"]})]
    if request.turn == 2:
        return [text("The post is ready. May it go out? "), call("human_approve_post", POST)]
    if request.turn == 3:
        answer = getattr(request.messages[-1], "content", None)
        if not isinstance(answer, dict) or answer.get("approved") is not True:
            return [text("Not published.")]
        return [call("tool_publish", POST)]
    return [text("Published.")]


scripted = ScriptedModel(script)
'''

PROMPT = """\
You publish posts.

Load the skill house_style and write the post by it. Then ask a person with human_approve_post whether it may go out.
Publish it with tool_publish only if they say so; if they do not, say in one sentence what they told you.
"""

APPROVAL = '''\
"""A question to a person. The run stops at it, costs nothing, and goes on with the answer: in minutes or in weeks."""

from bread import define_human_tool
from pydantic import BaseModel


class Post(BaseModel):
    title: str
    body: str


class Decision(BaseModel):
    approved: bool
    reason: str | None = None


approve_post = define_human_tool(
    "approve_post",
    Post,
    response=Decision,
    prompt='May "{title}" go out?',
    description="Ask a person whether a post may be published.",
)
'''

PUBLISH = '''\
"""A tool that changes the world, and may be called again after a crash."""

from pathlib import Path

from bread import ToolContext, define_tool


@define_tool(idempotent=True)
def publish(title: str, body: str, ctx: ToolContext) -> str:
    """Publish a post."""
    # The key is the same each time this very call is made: the second time writes the same file, not another one.
    # Where a service does the work, hand the key on to it.
    file = Path("published") / f"{ctx.idempotency_key.replace('/', '-')}.md"
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"# {title}\\n\\n{body}\\n", encoding="utf-8")
    return f"published as {file}"
'''

SKILL = """\
---
name: house_style
description: How posts of this house are written. Load it before you write or change one.
---

Short sentences. One thought each. Say what the reader can do now, then why it matters.

Check every title with skill_house_style_check_title, and mend what it finds. Words that we avoid are listed in
references/words.md.
"""

CHECK_TITLE = '''\
"""A tool of the skill: the model sees it as skill_house_style_check_title, once it has loaded the skill."""

from bread import define_tool


@define_tool
def check_title(title: str) -> list[str]:
    """What is wrong with a title; nothing if the list is empty."""
    problems = []
    if len(title) > 60:
        problems.append("longer than 60 characters")
    if title.endswith("!"):
        problems.append("ends with an exclamation mark")
    return problems
'''

WORDS = """\
We say "use", not "leverage"; "start", not "kick off"; "now", not "at this point in time".
"""

TESTS = '''\
"""The agent from its start to a person's answer: no network, no key, nothing left behind."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from bread import Bread, RunSuspended

AGENTS = Path(__file__).parent.parent / "agents"


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Every test has a folder of its own, and the scripted model."""
    monkeypatch.delenv("BREAD_MODEL", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def answered(decision: dict[str, Any]) -> Any:
    """The output of a run whose question was answered so."""
    async with Bread(agents_dir=AGENTS, store="memory://") as bread:
        with pytest.raises(RunSuspended) as rest:
            await bread.run("publisher", "publish the launch post")
        [checkpoint] = rest.value.checkpoints
        assert (await bread.get_checkpoint(checkpoint)).tool_name == "approve_post"
        return await bread.resume(checkpoint, decision, author="ann")


def test_a_post_that_was_approved_is_published(place: Path) -> None:
    assert asyncio.run(answered({"approved": True})) == "Published."
    [post] = (place / "published").iterdir()
    assert post.read_text().startswith("# We have launched")


def test_a_post_that_was_rejected_is_not(place: Path) -> None:
    assert asyncio.run(answered({"approved": False, "reason": "too early"})) == "Not published."
    assert not (place / "published").exists()
'''

ENV = """\
# Copy this file to .env: bread.config.py reads it, and git does not.
# BREAD_MODEL=anthropic:claude-sonnet-4-5
# ANTHROPIC_API_KEY=
# BREAD_STORE=sqlite:///.bread/bread.db
# BREAD_CONCURRENCY=8
"""

IGNORED = """\
.bread/
.env
.venv/
.pytest_cache/
__pycache__/
published/
"""

HOME = "agents/publisher"
FILES = {
    "README.md": README,
    "bread.config.py": CONFIG,
    f"{HOME}/agent.py": AGENT,
    f"{HOME}/_script.py": SCRIPT,
    f"{HOME}/prompt.md": PROMPT,
    f"{HOME}/tools/approval.py": APPROVAL,
    f"{HOME}/tools/publish.py": PUBLISH,
    f"{HOME}/skills/house_style/SKILL.md": SKILL,
    f"{HOME}/skills/house_style/scripts/check_title.py": CHECK_TITLE,
    f"{HOME}/skills/house_style/references/words.md": WORDS,
    "tests/test_agents.py": TESTS,
    ".env.example": ENV,
    ".gitignore": IGNORED,
}
