"""`bread chat`: a conversation with an agent in one session, over all the questions that its runs ask."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...domain.errors import BreadError, InvalidInput, NotFound, Refused
from ...domain.names import check_session_id
from . import exits
from .asking import Asker
from .completion import agent_ids
from .crumbs import TalkPrinter
from .drive import final, outcome, stopping
from .options import Author, Cwd, Session, Skill, json_or_text, person
from .output import console
from .place import Place
from .words import one_line, shown

if TYPE_CHECKING:
    from ...domain.envelope import Principal
    from ...projections.lists import Run
    from ..agents import Agent
    from ..app import Bread
    from ..handles import RunHandle
    from .prompting import Lines

YOU = "you> "
HELP = """\
  /new        begin a new session
  /session    the id of this one, and how to come back
  /skill [ID] a skill for the next runs, or none
  /retry      let a failed run go on
  /exit       leave; so do /quit and Ctrl-D
To say what begins with /, put a blank before it. Alt-Enter begins a new line.
Ctrl-C clears the line; while the agent works it leaves, and the run can go on later."""


def chat(
    context: typer.Context,
    agent: Annotated[
        str | None,
        typer.Argument(metavar="AGENT", help="Which one, where there are several.", autocompletion=agent_ids),
    ] = None,
    session: Session = None,
    skill: Skill = None,
    author: Author = None,
    cwd: Cwd = None,
) -> None:
    """Talk with an agent, and answer what it asks.

    What you say is kept for the next chat, in `chat_history` beside the store. The exit code is that of the last run.
    """
    place: Place = context.obj
    by = person(author)
    if session is not None:
        check_session_id(session)

    async def work() -> int:
        from .prompting import lines_of_stdin

        place.announce()
        found = agent_of(place, agent)
        check_skill(found, skill)
        beside = Path(".bread/bread.db") if place.path is None else place.path.expanduser()
        async with place.open(executes=True) as bread:
            lines = lines_of_stdin(beside.with_name("chat_history"))
            try:
                return await Chat(place, bread, lines, found, session, skill, by).talk()
            finally:
                lines.close()

    place.perform(work)


def agent_of(place: Place, agent_id: str | None, pipelines: Sequence[str] = ()) -> Agent:
    """The agent of that id, if people may start it; else the first that the configuration names, or the only one.

    `pipelines` are what could have been named as well.
    """
    agents = {agent.id: agent for agent in place.entrypoints()}
    known = ", ".join([*agents, *pipelines]) or "none"
    if agent_id is None and place.config is not None:
        agent_id = next((name for name in place.config.entrypoints if name in agents), None)
    if agent_id is None and len(agents) == 1:
        agent_id = next(iter(agents))
    if agent_id is None:
        raise InvalidInput("INPUT_INVALID", f"which agent? There are: {known}")
    if agent_id not in agents:
        what = "agent or pipeline" if pipelines else "agent"
        raise NotFound("AGENT_NOT_FOUND", f"no {what} {agent_id!r} to start here; there are: {known}")
    return agents[agent_id]


def check_skill(agent: Agent, skill: str | None) -> None:
    """SKILL_NOT_FOUND before anything is said."""
    from ..skills import find_skill

    if skill is not None:
        find_skill(agent.skills, skill, agent.id)


class Chat:
    """One person, one agent, one session at a time."""

    def __init__(
        self,
        place: Place,
        bread: Bread,
        lines: Lines,
        agent: Agent,
        session: str | None,
        skill: str | None,
        by: Principal,
    ) -> None:
        from ..ids import new_id

        self._place, self._bread, self._lines, self._agent = place, bread, lines, agent
        self._session, self._is_known = session or new_id("s"), session is not None
        self._skill, self._by = skill, by
        self._printer = TalkPrinter()
        self._asker = Asker(bread, lines, by, self._tell_session)
        self._failed: str | None = None

    async def talk(self) -> int:
        """Until the person leaves; the exit code of the last run."""
        self._print(f"agent {self._agent.id}  model {one_line(self._agent.model.name)}  session {self._session}")
        self._print("/help says what can be typed; Ctrl-D leaves")
        code = await self._try(self._catch_up(), exits.STOPPED)
        while code != exits.RESTS and (line := await self._lines.line(YOU)) is not None:
            if not line.startswith("/"):
                code = await self._try(self._say(line), exits.STOPPED) if line.strip() else code
                continue
            word, _, rest = line[1:].strip().partition(" ")
            if word in ("exit", "quit"):
                break
            code = await self._try(self._command(word, rest.strip(), code), code)
        if self._is_known:
            self._print(f"To come back:  {self._way_back()}")
        return code

    async def _try(self, work: Coroutine[Any, Any, int], otherwise: int) -> int:
        """An error ends what was tried, and not the chat."""
        try:
            return await work
        except BreadError as error:
            self._printer.rest()
            exits.report(error.code, error.message)
            return otherwise

    async def _command(self, word: str, rest: str, code: int) -> int:
        from ..ids import new_id

        match word:
            case "help":
                self._print(HELP)
            case "session":
                self._tell_session()
            case "new":
                self._session, self._is_known, self._failed = new_id("s"), False, None
                self._print(f"session {self._session}")
            case "skill":
                check_skill(self._agent, rest or None)
                self._skill = rest or None
                self._print(f"skill: {self._skill or 'none'}")
            case "retry" if self._failed is not None:
                return await self._follow(self._failed, self._bread.retry(self._failed, by=self._by))
            case "retry":
                self._print("no run of this chat has failed")
            case "later" | "cancel" | "fields":
                self._print(f"/{word} is for questions; there is none now")
            case _:
                self._print(f"there is no command /{one_line(word)} (/help); to say it, begin with a blank")
        return code

    # --- runs

    async def _say(self, line: str) -> int:
        said = line if self._agent.input_schema is None else json_or_text(line)
        while True:
            handle = self._bread.run(self._agent.id, said, session=self._session, skill=self._skill, by=self._by)
            try:
                return await self._follow(handle.run_id, handle)
            except Refused as error:
                if error.code not in ("SESSION_BUSY", "SESSION_SUSPENDED"):
                    raise
            self._print("Another run of this session is under way: it comes first, then what you said.")
            if (code := await self._catch_up()) == exits.RESTS:
                return code

    async def _catch_up(self) -> int:
        """Where the session stands: its last run is shown, or followed to its rest; what it asks is asked."""
        run = await self._last_run()
        if run is None:
            return exits.DONE
        if run.status == "suspended":
            self._print(f"run {run.id} of this session waits for you")
            async for crumb in self._bread.observe(run.id, until="rest"):
                self._printer.keep(crumb)
            return await self._settle(run.id)
        if run.status == "running":
            self._check_performer(run)
        self._print(f"the last run of this session, {run.id}; you said: {shown(run.input)}")
        return await self._follow(run.id, self._bread.observe(run.id, until="rest"))

    async def _last_run(self) -> Run | None:
        for run in (await self._bread.list_runs(session=self._session, limit=1)).items:
            return await final(self._bread, run.root_run_id)
        return None

    def _check_performer(self, run: Run) -> None:
        """Nobody would go on with a run whose agent is not here, and whose process is gone."""
        if run.agent_id not in self._bread.agents and (run.owner is None or run.orphaned):
            raise NotFound("AGENT_NOT_FOUND", f"run {run.id} waits for a process that has agent {run.agent_id!r}")

    async def _follow(self, run_id: str, handle: RunHandle) -> int:
        """Show a run until it has ended, asking what it asks on the way."""
        await self._show(run_id, handle)
        return await self._settle(run_id)

    async def _show(self, run_id: str, handle: RunHandle) -> None:
        with stopping(self._printer):
            async for crumb in handle:
                self._is_known = True
                self._place.if_interrupted = (
                    f"What was recorded is kept; the run goes on with: {self._way_back()}"
                    f" (or is stopped for good with: {self._place.command('runs', 'cancel', run_id)})"
                )
                self._printer.show(crumb)

    async def _settle(self, run_id: str) -> int:
        """Go on from where the stream of a run has ended: at its end, at its questions, or because it runs again."""
        while True:
            run = await final(self._bread, run_id)
            if run is None or run.status not in ("running", "suspended"):
                self._place.if_interrupted = None
                self._failed = run.id if run is not None and run.status == "failed" else None
                return exits.DONE if run is not None and run.status == "completed" else exits.STOPPED
            if run.status == "running":
                self._check_performer(run)
            elif not await self._ask(run_id):
                self._place.if_interrupted = None
                return outcome(self._place, run, self._printer)
            last = self._printer.last
            after = last.cursor if last is not None and last.root_run_id == run_id else None
            await self._show(run_id, self._bread.observe(run_id, after=after, until="rest"))

    async def _ask(self, run_id: str) -> bool:
        """Ask the first question that is open. False if the person leaves it for later."""
        questions = [
            question
            for question in self._printer.open.values()
            if question.root_run_id == run_id and question.kind != "delegation"
        ]
        which = f" (1 of {len(questions)})" if len(questions) > 1 else ""
        return bool(questions) and await self._asker.ask(questions[0], which)

    # --- words

    def _tell_session(self) -> None:
        self._print(f"session {self._session}; to come back:  {self._way_back()}")

    def _way_back(self) -> str:
        skill = ("--skill", self._skill) if self._skill else ()
        return self._place.command("chat", self._agent.id, "-s", self._session, *skill)

    def _print(self, text: str) -> None:
        console().print(text)
