"""`bread start`, `bread dev` and `bread keys`: the HTTP API, for programs, while developing, and who may use it."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...domain.errors import BreadError, InvalidInput
from ..origins import check_origins
from . import exits
from .exits import note
from .options import AsJson, Cwd
from .output import console, print_json, print_table
from .place import Place

if TYPE_CHECKING:
    from ..http.auth import Auth, Keys

PORT = 7331
Port = Annotated[int, typer.Option("--port", "-p", min=0, max=65535, help="0 takes a free one.")]
Host = Annotated[str, typer.Option("--host", "-H", metavar="ADDRESS", help="Where to listen.")]
KeysFile = Annotated[
    str, typer.Option("--keys", metavar="FILE", envvar="BREAD_KEYS", help="The API keys of those who may call.")
]
NamedKeys = Annotated[
    str | None,
    typer.Option(
        "--keys",
        metavar="FILE",
        envvar="BREAD_KEYS",
        help="The API keys of those who may call. Without it those of bread.keys, if it is there.",
    ),
]
OpenToAll = Annotated[
    bool, typer.Option("--open-to-all", help="Listen where others can call without asking who they are.")
]
Cors = Annotated[
    list[str] | None,
    typer.Option(
        "--cors",
        metavar="ORIGIN",
        help="Pages that may call from a browser, as https://app.example; repeatable. * is all.",
    ),
]
DEFAULT_KEYS = "bread.keys"


class Role(StrEnum):
    """What a process is there for, where several share a store."""

    ALL = "all"
    API = "api"
    WORKER = "worker"


RoleOption = Annotated[
    Role, typer.Option("--role", help="api serves and performs nothing; worker performs, and serves only its health.")
]


def start(
    context: typer.Context,
    role: RoleOption = Role.ALL,
    port: Port = PORT,
    host: Host = "127.0.0.1",
    keys: NamedKeys = None,
    cors: Cors = None,
    open_to_all: OpenToAll = False,
    cwd: Cwd = None,
) -> None:
    """Serve the HTTP API and perform runs, until SIGTERM or Ctrl-C. Where there are API keys, callers need one."""
    place: Place = context.obj
    if role is not Role.ALL and place.is_memory:
        raise InvalidInput("INPUT_INVALID", f"--role {role.value}: memory has no second process that would do the rest")
    place.announce(*([] if role is Role.ALL else [f"role: {role.value}"]))
    _serve(place, host, port, keys, cors, open_to_all, role)
    raise typer.Exit(exits.DONE)


def dev(
    context: typer.Context,
    port: Port = PORT,
    host: Host = "127.0.0.1",
    keys: NamedKeys = None,
    cors: Cors = None,
    cwd: Cwd = None,
) -> None:
    """Serve the HTTP API and begin anew whenever a file of the folder changes. Runs go on over that."""
    place: Place = context.obj
    watchfiles = _imported("watchfiles")
    _auth(keys)  # what no change of a file mends is said at once
    check_origins(cors or ())
    place.announce("reloads on change")
    spec: dict[str, Any] = {"store": place.store, "nats": place.nats, "app": place.app, "host": host, "port": port}
    spec |= {"keys": keys, "cors": cors}
    watchfiles.run_process(
        ".", target=_serve_again, args=(spec,), watch_filter=watchfiles.PythonFilter(extra_extensions=(".md",))
    )
    raise typer.Exit(exits.DONE)


def _serve_again(spec: dict[str, Any]) -> None:
    """One life of the server, in a process of its own. What is wrong with the agents is said, and a change awaited."""
    try:
        place = Place(spec["store"], spec["app"], nats=spec["nats"])
        _serve(place, spec["host"], spec["port"], spec["keys"], spec["cors"], False)
    except BreadError as error:
        exits.report(error.code, error.message)


def _auth(keys: str | None) -> Auth | None:
    """What is asked of callers. Who names a file wants them asked: only the usual one may be missing."""
    auth = _imported("bread.runtime.http.auth")
    if keys is None and not os.path.exists(DEFAULT_KEYS):
        return None
    asks: Auth = auth.Auth(keys=auth.Keys.load(Path(keys or DEFAULT_KEYS), must_exist=True))
    return asks


def _serve(
    place: Place,
    host: str,
    port: int,
    keys: str | None,
    cors: list[str] | None,
    open_to_all: bool,
    role: Role = Role.ALL,
) -> None:
    http = _imported("bread.runtime.http.serve")
    asks = _auth(keys)

    def ready(address: str) -> None:
        who = "" if asks else "  without keys"
        print(f"{'health' if role is Role.WORKER else 'API'} {address}{who}", flush=True)

    origins = cors or (place.config.cors if place.config else ())
    bread = place.open(executes=True, performs=role is not Role.API)
    only_health = role is Role.WORKER
    http.serve(
        bread, host, port, auth=asks, cors=origins, open_to_all=open_to_all, ready=ready, only_health=only_health
    )


def _imported(module: str) -> Any:
    from importlib import import_module

    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise InvalidInput(
            "INPUT_INVALID",
            f"the server needs a package ({error.name} is missing): pip install 'bread-runtime[server]'",
        ) from error


# --- keys -------------------------------------------------------------------------------------------------------------

app = typer.Typer(no_args_is_help=True, help="API keys: make them, list them, forget them.")


def _keys(file: str) -> Keys:
    keys: Keys = _imported("bread.runtime.http.auth").Keys.load(Path(file))
    return keys


@app.command("add")
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose it is: the author in the log.")],
    role: Annotated[
        list[str], typer.Option("--role", help="run, answer, observe or admin; repeatable.", show_default=False)
    ],
    keys: KeysFile = DEFAULT_KEYS,
    json: AsJson = False,
) -> None:
    """Make a key. It is shown this once; the file has its hash. A server that runs has to be started again."""
    key = _keys(keys).add(name, role)
    if json:
        print_json({"name": name, "key": key})
    else:
        console().print(key)
        note(f"keep it: {keys} has only its hash")


@app.command("list")
def list_keys(keys: KeysFile = DEFAULT_KEYS, json: AsJson = False) -> None:
    """Whose keys there are, and their roles."""
    known = [{"name": name, "roles": [*roles]} for name, roles in _keys(keys).known.values()]
    if json:
        print_json({"items": known})
    else:
        rows = [(str(one["name"]), ", ".join(one["roles"])) for one in known]
        print_table(("name", "roles"), rows, "There are no keys.", None)


@app.command("remove")
def remove(
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False)],
    keys: KeysFile = DEFAULT_KEYS,
) -> None:
    """Forget every key of a name. A server that runs has to be started again."""
    gone = _keys(keys).remove(name)
    if not gone:
        raise InvalidInput("INPUT_INVALID", f"{keys} has no key of {name!r}")
    console().print(f"{gone} gone")
