"""Requests that are made up from the document, some valid and some not: a real server answers each as it says there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from support import trials
from web.conftest import Served

# What it would report by design, each for as few routes as can be.
CONFIG = """
[[operations]]
# A cursor is opaque: the document does not say which texts are one, and another text is refused.
include-path = ["/runs", "/checkpoints", "/loops"]
checks.positive_data_acceptance.enabled = false

[[operations]]
# It is the path of a session called "cleanup", too, which GET shows and DELETE erases.
include-path = "/sessions/cleanup"
checks.allow_header_conformance.enabled = false
"""
STREAMS = "/run$|/stream$|/resume/|/retry$"


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[Served]:
    """A server with something in each list."""
    server = Served(f"sqlite:///{tmp_path}/bread.db")
    for agent in ("clerk", "host", "broken"):
        body = {"input": "go", "session": {"tags": {"a": "b"}}}
        httpx2.post(f"{server.url}/agents/{agent}/run", json=body, trust_env=False).read()
    yield server
    server.kill()


def test_the_plain_routes_answer_as_the_document_says(busy: Served, tmp_path: Path) -> None:
    """B139, B142, B143, B144, B147, B149: statuses, types, shapes, headers; nothing invalid gets through, nothing valid
    is refused, and no request makes it fail."""
    (tmp_path / "schemathesis.toml").write_text(CONFIG)
    words = [
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{busy.url}/openapi.json"),
        *("--exclude-path-regex", STREAMS, "--phases", "examples,coverage,fuzzing", "--warnings", "off"),
        *("--seed", "1", "--max-examples", str(trials(10, 200)), "--continue-on-failure", "--no-color"),
    ]
    env = os.environ | {"NO_PROXY": "*"}
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=1700, check=False)
    assert done.returncode == 0, done.stdout
    selected, tested, generated, passed = map(
        int,
        re.search(  # type: ignore[union-attr]
            r"Selected: (\d+)/.*Tested: (\d+).* (\d+) generated, (\d+) passed", done.stdout, re.DOTALL
        ).groups(),
    )
    assert tested == selected == 17
    assert generated == passed >= 300
