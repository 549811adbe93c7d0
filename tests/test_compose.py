"""What docker-compose.yml and deploy/nats.conf start is watched, closed to the outside and has no default passwords."""

import asyncio
import json
import os
import re
import subprocess
import sysconfig
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import nats
import pytest
import yaml
from nats.js.errors import NotFoundError
from typer.main import get_command

from bread.runtime.cli.root import app
from bread.runtime.servers import NatsServer
from nats_server import outside

ROOT = Path(__file__).parent.parent
NATS_CONF = ROOT / "deploy" / "nats.conf"
SECRET = re.compile(r"password|passwd|secret|token|credential|(^|_)key", re.IGNORECASE)
SERVING = ("api-1", "api-2", "worker")
BREAD = ("migrate", *SERVING)
REQUIRED = re.compile(r"\$\{[A-Z][A-Z0-9_]*:\?.+\}")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    assert isinstance(loaded, dict)
    return loaded


@pytest.fixture(scope="module")
def services(compose: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = compose["services"]
    return found


def settings(services: dict[str, dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for service in services.values():
        for name, value in service["environment"].items():
            yield name, str(value)


def test_images_are_pinned_to_a_major_version(services: dict[str, dict[str, Any]]) -> None:
    images = {name: service["image"] for name, service in services.items()}
    ours = dict.fromkeys(BREAD, f"bread-runtime:{bread_version()}")
    assert images == {"postgres": "postgres:17", "nats": "nats:2.15-alpine"} | ours
    assert {name for name, service in services.items() if "build" in service} == set(BREAD)


def test_every_service_has_a_healthcheck(services: dict[str, dict[str, Any]]) -> None:
    """Of what goes on; of what ends by itself the others wait for the exit code."""
    for name, service in services.items():
        check = service["healthcheck"]
        if name == "migrate":
            assert check == {"disable": True}
            continue
        assert check["test"][0] == "CMD", name
        assert {"interval", "timeout", "retries"} <= check.keys(), name
    assert "pg_isready" in services["postgres"]["healthcheck"]["test"]
    assert "http://127.0.0.1:8222/healthz?js-enabled-only=true" in services["nats"]["healthcheck"]["test"]
    image = next(words for name, words in instructions() if name == "HEALTHCHECK")
    for name in SERVING:
        assert services[name]["healthcheck"]["test"] == ["CMD", *json.loads(image.partition("CMD ")[2])]


def test_what_one_waits_for_is_there_first(services: dict[str, dict[str, Any]]) -> None:
    """Tables before servers, and a database before tables; nobody waits for what never ends or never is healthy."""
    for name in SERVING:
        assert services[name]["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}
    for service in services.values():
        for other, wanted in service.get("depends_on", {}).items():
            ends = wanted["condition"] == "service_completed_successfully"
            assert ends == (services[other]["restart"] == "no")
    assert services["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    assert all("stop_grace_period" in service for service in services.values())


def test_ports_are_bound_to_loopback(services: dict[str, dict[str, Any]]) -> None:
    ports = [port for service in services.values() for port in service.get("ports", ())]
    assert ports == [f"127.0.0.1:{port}" for port in ("5432:5432", "4222:4222", "7331:7331", "7332:7331")]
    assert not any("network_mode" in service for service in services.values())


def test_there_is_no_default_password(compose: dict[str, Any], services: dict[str, dict[str, Any]]) -> None:
    secrets = {f"/run/secrets/{name}" for name in compose["secrets"]}
    named = {(name, value) for name, value in settings(services) if SECRET.search(name)}
    assert {name for name, _ in named} == {
        "POSTGRES_PASSWORD_FILE",
        "NATS_BREAD_PASSWORD",
        "BREAD_NATS_PASSWORD",
        "BREAD_STORE_PASSWORD_FILE",
        "BREAD_KEYS",
    }
    for name, value in named:
        assert value in secrets if name.endswith(("_FILE", "_KEYS")) else REQUIRED.fullmatch(value), name
    for name, value in settings(services):
        assert not re.search(r"://[^@/]*:[^@/]*@", value), name
    assert not any(name == "POSTGRES_HOST_AUTH_METHOD" for name, _ in settings(services))

    passwords = re.findall(r"^\s*(?:password|token):\s*(.+)$", NATS_CONF.read_text(), re.MULTILINE)
    assert passwords == ["$NATS_BREAD_PASSWORD"]


def test_secrets_are_files_that_git_ignores(compose: dict[str, Any], services: dict[str, dict[str, Any]]) -> None:
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    for secret in compose["secrets"].values():
        assert Path(secret["file"]).parent == Path("deploy/secrets")
    assert {"deploy/secrets/", ".env"} <= set(ignored)
    for service in services.values():
        needed = {Path(value).name for value in service["environment"].values() if str(value).startswith("/run/")}
        assert needed == set(service.get("secrets", ()))


def test_the_example_of_an_environment_names_each_variable_and_no_secret() -> None:
    lines = [line for line in (ROOT / ".env.example").read_text().splitlines() if line and line[0] != "#"]
    there = dict(line.split("=", 1) for line in lines)
    text = (ROOT / "docker-compose.yml").read_text()
    assert there.keys() == set(re.findall(r"\$\{([A-Z_]+)", text))
    assert {name: value for name, value in there.items() if SECRET.search(name)} == {"NATS_BREAD_PASSWORD": ""}
    for name, default in re.findall(r"\$\{([A-Z_]+):-([^}]+)\}", text):
        assert there[name] == default
    assert (ROOT / there["BREAD_APP_FOLDER"] / "agents").is_dir()


def test_what_a_service_keeps_lies_in_a_named_volume(
    compose: dict[str, Any], services: dict[str, dict[str, Any]]
) -> None:
    mounts = [mount.rsplit(":", mount.count(":/") + mount.endswith(":ro")) for mount in every_mount(services)]
    assert {source for source, *_ in mounts if source[0] not in ".$"} == set(compose["volumes"])
    for source, *rest in mounts:
        if source[0] in ".$":
            assert rest[-1] == "ro"
    assert (ROOT / "deploy/nats.conf").is_file()
    targets = {target for _, target, *_ in mounts}
    assert targets == {"/var/lib/postgresql/data", "/etc/nats/nats.conf", "/data", "/app"}


def every_mount(services: dict[str, dict[str, Any]]) -> Iterator[str]:
    for service in services.values():
        yield from service["volumes"]


@pytest.mark.parametrize("name", BREAD)
def test_the_commands_are_commands_of_bread(services: dict[str, dict[str, Any]], name: str) -> None:
    """The image begins with `bread`; each word after it is a command or an option of that command."""
    command, *words = services[name]["command"]
    there = {option for param in get_command(app).commands[command].params for option in param.opts}  # type: ignore[attr-defined]
    assert {word for word in words if word.startswith("-")} <= there


def test_what_runs_bread_can_do_little(services: dict[str, dict[str, Any]]) -> None:
    """It is not root, writes nothing but /tmp, and gains no rights."""
    for name in BREAD:
        service = services[name]
        assert service["user"] == "${BREAD_UID:-10001}"
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert not service.get("privileged")


# --- the image --------------------------------------------------------------------------------------------------------


def test_the_image_is_small_runs_as_nobody_special_and_says_whether_it_is_ready() -> None:
    steps = [*instructions()]
    bases = [words.split() for name, words in steps if name == "FROM"]
    assert [base[0] for base in bases] == ["python:3.13-slim"] * 2
    last = max(number for number, (name, _) in enumerate(steps) if name == "FROM")
    final = steps[last:]
    user = [words for name, words in final if name == "USER"]
    assert len(user) == 1
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", user[0])
    assert [words for name, words in final if name == "COPY"] == ["--from=build /opt/bread /opt/bread"]
    entry, command = ([json.loads(words) for name, words in final if name == kind] for kind in ("ENTRYPOINT", "CMD"))
    assert (entry, command) == ([["bread"]], [["start", "--host", "0.0.0.0"]])  # noqa: S104
    assert not any(name == "ARG" or SECRET.search(words) for name, words in steps)


def test_the_image_takes_what_is_there_and_nothing_else() -> None:
    """What it copies is not ignored; the extras that it installs are extras."""
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied: set[str] = set()
    for name, words in instructions():
        if name == "COPY" and not words.startswith("--from"):
            copied |= set(words.split()[:-1])
    assert copied == kept
    assert all((ROOT / name).exists() for name in copied)
    assert "*" in (ROOT / ".dockerignore").read_text().splitlines()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    rooms = {folder.split("/")[0] for folder in project["tool"]["setuptools"]["package-dir"].values()}
    assert rooms <= copied
    [install] = [words for name, words in instructions() if name == "RUN" and "pip install" in words]
    extras = re.findall(r"'\.\[([a-z,]+)\]'", install)[0].split(",")
    assert set(extras) <= project["project"]["optional-dependencies"].keys()
    assert {"server", "postgres"} <= set(extras)


def instructions() -> Iterator[tuple[str, str]]:
    """Those of the Dockerfile: name and words."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    for line in text.splitlines():
        if line.strip():
            name, words = line.split(None, 1)
            yield name, " ".join(words.split())


def bread_version() -> str:
    """The version without its last number."""
    return version("bread-runtime").rpartition(".")[0]


# --- NATS -------------------------------------------------------------------------------------------------------------


def test_nats_takes_its_configuration_only_with_a_password() -> None:
    server = Path(sysconfig.get_path("scripts"), "nats-server")
    without = {name: value for name, value in os.environ.items() if name != "NATS_BREAD_PASSWORD"}

    def check(env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run([server, "-c", NATS_CONF, "-t"], env=env, capture_output=True, text=True, timeout=30)

    accepted = check(without | {"NATS_BREAD_PASSWORD": "n0t-a-number"})
    assert accepted.returncode == 0, accepted.stderr
    refused = check(without)
    assert refused.returncode != 0
    assert "NATS_BREAD_PASSWORD" in refused.stderr


@pytest.fixture
def nats_server(tmp_path: Path) -> Iterator[NatsServer]:
    """A server of this file, on ports and a folder of the test."""
    conf = NATS_CONF.read_text()
    for line, other in {
        "listen: 0.0.0.0:4222": "",
        "http: 127.0.0.1:8222": "http: 127.0.0.1:-1",
        "store_dir: /data": f'store_dir: "{tmp_path}/data"',
    }.items():
        assert line in conf
        conf = conf.replace(line, other)
    with NatsServer(tmp_path, conf, jetstream=False, env={"NATS_BREAD_PASSWORD": "n-secret"}) as server:
        yield server


async def test_a_user_of_nats_may_do_what_bread_does_and_no_more(nats_server: NatsServer) -> None:
    """Make, fill, read and purge a stream; neither delete it nor hear the answers to others."""
    denied: list[str] = []
    news = asyncio.Event()

    async def note(error: Exception) -> None:
        denied.append(str(error))
        news.set()

    client = await outside(nats_server, user="bread", password="n-secret", inbox_prefix=b"_INBOX.bread", error_cb=note)
    try:
        stream = client.jetstream(timeout=1.0)
        await stream.add_stream(name="BREAD_CRUMBS", subjects=["bread.v1.*.crumbs.>"])
        sent = await stream.publish("bread.v1.default.crumbs.a.s.r.r", b"1")
        heard = await stream.subscribe("bread.v1.default.crumbs.>", ordered_consumer=True)
        assert (await heard.next_msg(5)).data == b"1"
        assert (await stream.get_msg("BREAD_CRUMBS", sent.seq)).data == b"1"
        assert await stream.delete_msg("BREAD_CRUMBS", sent.seq)
        assert await stream.purge_stream("BREAD_CRUMBS")
        with pytest.raises(NotFoundError):
            await stream.get_msg("BREAD_CRUMBS", sent.seq)
        assert denied == []
        with pytest.raises(nats.errors.TimeoutError):
            await stream.delete_stream("BREAD_CRUMBS")
        await client.subscribe("_INBOX.>")
        await client.publish("elsewhere", b"")
        while len(denied) < 3:  # the server tells of each when it comes to it
            news.clear()
            await news.wait()
        assert {error.rpartition(" to ")[2].strip('"') for error in denied} == {
            "$js.api.stream.delete.bread_crumbs",
            "_inbox.>",
            "elsewhere",
        }, denied
    finally:
        await client.close()
