"""What docker-compose.yml and deploy/nats.conf start is watched, closed to the outside and has no default passwords."""

import os
import re
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
NATS_CONF = ROOT / "deploy" / "nats.conf"
SECRET = re.compile(r"password|passwd|secret|token|credential|(^|_)key", re.IGNORECASE)
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


def test_services_are_postgresql_and_nats_with_pinned_images(services: dict[str, dict[str, Any]]) -> None:
    assert {name: service["image"] for name, service in services.items()} == {
        "postgres": "postgres:17",
        "nats": "nats:2.15-alpine",
    }


def test_every_service_has_a_healthcheck(services: dict[str, dict[str, Any]]) -> None:
    for name, service in services.items():
        check = service["healthcheck"]
        assert check["test"][0] == "CMD", name
        assert {"interval", "timeout", "retries"} <= check.keys(), name
    assert "pg_isready" in services["postgres"]["healthcheck"]["test"]
    assert "http://127.0.0.1:8222/healthz?js-enabled-only=true" in services["nats"]["healthcheck"]["test"]


def test_ports_are_bound_to_loopback(services: dict[str, dict[str, Any]]) -> None:
    ports = [port for service in services.values() for port in service["ports"]]
    assert ports == ["127.0.0.1:5432:5432", "127.0.0.1:4222:4222"]
    assert not any("network_mode" in service for service in services.values())


def test_there_is_no_default_password(compose: dict[str, Any], services: dict[str, dict[str, Any]]) -> None:
    secrets = {f"/run/secrets/{name}" for name in compose["secrets"]}
    named = [(name, value) for name, value in settings(services) if SECRET.search(name)]
    assert [name for name, _ in named] == ["POSTGRES_PASSWORD_FILE", "NATS_BREAD_PASSWORD"]
    for name, value in named:
        assert value in secrets if name.endswith("_FILE") else REQUIRED.fullmatch(value), name
    assert not any(name == "POSTGRES_HOST_AUTH_METHOD" for name, _ in settings(services))

    passwords = re.findall(r"^\s*(?:password|token):\s*(.+)$", NATS_CONF.read_text(), re.MULTILINE)
    assert passwords == ["$NATS_BREAD_PASSWORD"]


def test_secrets_are_files_that_git_ignores(compose: dict[str, Any]) -> None:
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    for secret in compose["secrets"].values():
        assert Path(secret["file"]).parent == Path("deploy/secrets")
    assert "deploy/secrets/" in ignored


def test_what_a_service_keeps_lies_in_a_named_volume(
    compose: dict[str, Any], services: dict[str, dict[str, Any]]
) -> None:
    mounts = [mount.split(":") for service in services.values() for mount in service["volumes"]]
    assert {source for source, *_ in mounts if not source.startswith(".")} == set(compose["volumes"])
    for source, *rest in mounts:
        if source.startswith("."):
            assert (ROOT / source).is_file()
            assert rest[-1] == "ro"
    targets = {target for _, target, *_ in mounts}
    assert targets == {"/var/lib/postgresql/data", "/etc/nats/nats.conf", "/data"}


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
