"""Crumbs on a terminal as they come, one line each, text in between as it is said; or as JSON lines."""

from __future__ import annotations

from typing import assert_never

from rich.text import Text

from ...projections.crumbs import (
    AgentError,
    AnyCrumb,
    HumanDiscarded,
    HumanRequired,
    HumanResumed,
    LoopEnd,
    LoopIterationEnd,
    LoopIterationStart,
    LoopStart,
    ModelRetry,
    ReasoningDelta,
    RunEnd,
    RunRetry,
    RunStart,
    StepEnd,
    StepError,
    StepStart,
    SubagentEnd,
    SubagentStart,
    TextDelta,
    TextReset,
    ToolCall,
    ToolError,
    ToolInputDelta,
    ToolInputEnd,
    ToolInputStart,
    ToolResult,
    ToolResultPartial,
)
from .output import console, print_json
from .words import one_line, plain, shown

INDENT = " " * 23


class CrumbPrinter:
    """Prints a stream, and keeps what was seen last and which questions are open. `quiet` only keeps."""

    def __init__(self, *, as_json: bool = False, quiet: bool = False, stderr: bool = False) -> None:
        self.as_json = as_json
        self.last: AnyCrumb | None = None
        self.open: dict[str, HumanRequired] = {}
        self._quiet, self._stderr = quiet, stderr
        self._screen = console(stderr=stderr)
        self._speaking: int | None = None

    def keep(self, crumb: AnyCrumb) -> None:
        self.last = crumb
        match crumb:
            case HumanRequired():
                self.open[crumb.checkpoint_id] = crumb
            case HumanResumed() | HumanDiscarded():
                self.open.pop(crumb.checkpoint_id, None)
            case AgentError() if crumb.run_id == crumb.root_run_id:
                self.open.clear()

    def show(self, crumb: AnyCrumb) -> None:
        self.keep(crumb)
        if self.as_json and not self._quiet:
            print_json(crumb.wire(), stderr=self._stderr)
        elif not self._quiet:
            self._print(crumb)

    def _print(self, crumb: AnyCrumb) -> None:
        match crumb:
            case TextDelta():
                self._say(crumb)
            case RunStart():
                self._line(crumb, "run started", shown(crumb.input))
            case RunEnd():
                output = "" if isinstance(crumb.output, str) else shown(crumb.output, None)
                self._line(crumb, "run finished", output, "bold green")
            case RunRetry():
                self._line(crumb, "run goes on", "after its failure")
            case AgentError():
                self._line(crumb, "run stopped", f"{crumb.code}: {crumb.message}", "bold red")
            case TextReset():
                self._line(crumb, "cut off", "what the model was saying is void; it is asked again", "yellow")
            case ToolCall():
                self._line(crumb, "tool call", f"{crumb.tool_name} {shown(crumb.args)}")
            case ToolResult():
                self._line(crumb, "tool result", f"{crumb.tool_name} -> {shown(crumb.result)}")
            case ToolError():
                self._line(crumb, "tool error", f"{crumb.tool_name}: {crumb.code}: {crumb.message}", "yellow")
            case ToolResultPartial():
                self._line(crumb, "...", f"{crumb.tool_name} {shown(crumb.result)}", "dim", numbered=False)
            case ModelRetry():
                self._line(
                    crumb, "model failed", f"attempt {crumb.attempt}: {crumb.message}; it is tried again", "yellow"
                )
            case HumanRequired():
                self._ask(crumb)
            case HumanResumed():
                who = f"by {crumb.author}" if crumb.author else f"({crumb.verdict})"
                self._line(crumb, crumb.verdict, f"{who} {shown(crumb.response)}", "bold")
            case HumanDiscarded():
                self._line(crumb, "discarded", f"{crumb.checkpoint_id}: {crumb.reason}", "yellow")
            case StepStart():
                self._line(crumb, "step", f"{crumb.path[-1]} {crumb.agent_id}")
            case StepEnd():
                self._line(crumb, "step done", f"{crumb.path[-1]} -> {shown(crumb.output)}")
            case StepError():
                self._line(crumb, "step failed", f"{crumb.path[-1]}: {crumb.code}: {crumb.message}", "yellow")
            case SubagentStart():
                self._line(crumb, "delegated", f"{crumb.sub_agent_id} {shown(crumb.input)}")
            case SubagentEnd():
                why = f": {crumb.code}: {crumb.message}" if crumb.code else ""
                self._line(crumb, "delegation", f"{crumb.sub_agent_id} {crumb.status}{why}")
            case LoopStart():
                self._line(crumb, "loop", f"{crumb.loop_id} of at most {crumb.max_iterations} iterations")
            case LoopIterationStart():
                self._line(crumb, "iteration", f"{crumb.iteration}")
            case LoopIterationEnd():
                self._line(crumb, "iteration", f"{crumb.iteration} -> {shown(crumb.output)}")
            case LoopEnd():
                self._line(crumb, "loop ended", f"{crumb.status} after {crumb.iterations}")
            case ReasoningDelta() | ToolInputStart() | ToolInputDelta() | ToolInputEnd():
                pass
            case _:
                assert_never(crumb)

    def rest(self) -> None:
        """End a line of text that is open."""
        if self._speaking is not None:
            self._screen.print()
            self._speaking = None

    def _say(self, crumb: TextDelta) -> None:
        if self._speaking != crumb.base:
            self.rest()
            self._screen.print(Text(f"       {'model':<15} "), end="")
            self._speaking = crumb.base
        self._screen.print(Text(plain(crumb.text).replace("\n", f"\n{INDENT}")), end="")

    def _ask(self, crumb: HumanRequired) -> None:
        # What a person decides on is shown whole.
        self._line(crumb, "WAITING", f"{crumb.tool_name}  {crumb.checkpoint_id}  ({crumb.kind})", "bold yellow")
        for text in (crumb.prompt, shown(crumb.args, None)):
            self._screen.print(Text(INDENT + one_line(text)))

    def _line(self, crumb: AnyCrumb, what: str, text: str, style: str = "", *, numbered: bool = True) -> None:
        self.rest()
        number = f"#{crumb.seq}" if numbered else ""
        agent = "" if crumb.run_id == crumb.root_run_id else f"[{one_line(crumb.agent_id)}] "
        self._screen.print(Text.assemble(f"  {number:<4} ", (f"{what:<15} ", style), agent + one_line(text)))


class TalkPrinter(CrumbPrinter):
    """A stream as the other side of a conversation: what is said as it is said, and a short line for all else that
    happens. Questions are left to who asks them, and so is what the person has said."""

    def _print(self, crumb: AnyCrumb) -> None:
        match crumb:
            case RunStart() | HumanRequired():
                self.rest()
            case RunEnd() if isinstance(crumb.output, str):
                self.rest()
            case _:
                super()._print(crumb)

    def _say(self, crumb: TextDelta) -> None:
        if self._speaking != crumb.base:
            self.rest()
            self._screen.print(Text(f"{one_line(crumb.agent_id)}: ", style="bold"), end="")
            self._speaking = crumb.base
        self._screen.print(Text(plain(crumb.text)), end="")

    def _line(self, crumb: AnyCrumb, what: str, text: str, style: str = "", *, numbered: bool = True) -> None:
        self.rest()
        agent = "" if crumb.run_id == crumb.root_run_id else f"[{one_line(crumb.agent_id)}] "
        self._screen.print(Text.assemble("  ", (what, style or "dim"), " ", agent + one_line(text)))
