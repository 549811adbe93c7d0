"""The command tree and the options that come before every command."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ...domain.errors import BreadError, InvalidInput
from . import audit, build, chat, checkpoints, doctor, exits, invoke, loops, migrate, new, runs, server, sessions
from .output import lenient_streams
from .place import Place

app = typer.Typer(
    name="bread",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=exits.HELP,
)
app.command("chat")(chat.chat)
app.command("invoke")(invoke.invoke)
app.command("new")(new.new)
app.command("build")(build.build)
app.command("doctor")(doctor.doctor)
app.command("migrate")(migrate.migrate)
app.command("start")(server.start)
app.command("dev")(server.dev)
app.add_typer(checkpoints.app, name="checkpoints")
app.add_typer(runs.app, name="runs")
app.add_typer(sessions.app, name="sessions")
app.add_typer(loops.app, name="loops")
app.add_typer(audit.app, name="audit")
app.add_typer(server.app, name="keys")


@app.callback()
def bread(
    context: typer.Context,
    store: Annotated[
        str | None,
        typer.Option(
            envvar="BREAD_STORE", metavar="URL", help="Where the data is [default: sqlite:///.bread/bread.db]."
        ),
    ] = None,
    agents: Annotated[
        str | None,
        typer.Option(
            "--app",
            envvar="BREAD_APP",
            metavar="MODULE:ATTR",
            help="The agents of this process: an Agent, a list of Agents, or a Bread [default: those of agents/].",
        ),
    ] = None,
    nats: Annotated[
        str | None,
        typer.Option(
            envvar="BREAD_NATS",
            metavar="URL",
            help="A NATS server by which processes and programs outside hear of runs.",
        ),
    ] = None,
    cwd: Annotated[
        str | None, typer.Option("--cwd", metavar="DIR", help="Work in this folder, not where you are.")
    ] = None,
) -> None:
    """Durable agents that stop, ask a person, and go on from where they stood.

    Start with `bread demo`, then `bread new myapp`.
    """
    context.obj = Place(store or None, agents or None, cwd, nats or None)


@app.command()
def demo(
    context: typer.Context,
    composition: Annotated[
        bool,
        typer.Option("--composition", help="Two branches of a pipeline ask at once, and are answered at once."),
    ] = False,
    cluster: Annotated[
        bool,
        typer.Option("--cluster", help="Processes that share PostgreSQL and NATS; the one that performs is killed."),
    ] = False,
) -> None:
    """An agent asks, you answer, it goes on; kill it in between. Without a terminal it plays all of it by itself."""
    from .demo import play

    place: Place = context.obj
    if cluster and composition:
        raise InvalidInput("INPUT_INVALID", "expected --composition or --cluster, one play at a time")
    if cluster:
        from .demo_cluster import play_cluster

        place.perform(play_cluster)
    by_itself = sys.stdin is None or not sys.stdin.isatty()
    place.perform(lambda: play(place, by_itself=by_itself, composition=composition))


def run() -> None:
    """Parse, perform, exit. An error is one line; a traceback is shown to nobody."""
    lenient_streams()
    try:
        app(prog_name="bread")
    except BreadError as error:
        exits.report(error.code, error.message)
    except Exception as error:
        exits.report("INTERNAL_ERROR", f"{type(error).__name__}: {error}")
    else:
        return
    sys.exit(exits.ERROR)
