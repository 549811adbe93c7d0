"""The curl lines of the pages do what the pages say: each is run, in the order of its page, against `bread start`."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cli_kit import PATIENCE
from doc_kit import blocks_of, environment
from serve_kit import served

ROOT = Path(__file__).parent.parent
SHOWN = "http://127.0.0.1:7331"
APP = "painter:painter"
ANSWER = "\n%{stderr}%{http_code} %{content_type}"


@dataclass
class Typist:
    """Types lines of a page into a shell, with the ids that came for those that the page only names."""

    folder: Path
    url: str = ""
    ids: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)

    def type(self, line: str) -> tuple[str, str]:
        """What a line prints on stdout and stderr."""
        for name, found in self.ids.items():
            line = re.sub(rf"\b{name}\b(?=[ /]|$)", found, line.partition("  #")[0])
        env = environment(Path(sys.executable).parent, ROOT) | self.variables | {"NO_PROXY": "*"}
        done = subprocess.run(
            ["sh", "-c", line.replace(SHOWN, self.url)],
            cwd=self.folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        return done.stdout, done.stderr

    def assign(self, line: str) -> None:
        """A line like NAME=$(command)."""
        name = line.partition("=")[0]
        self.variables[name] = self.type(f'{line.partition("  #")[0]} && printf %s "${name}"')[0]

    def curl(self, line: str) -> None:
        """Run it, and look at what came: by the route that it asks."""
        assert SHOWN in line, line
        out, told = self.type(line.replace("curl ", f"curl -sS -w '{ANSWER}' ", 1))
        status, _, media = told.strip().partition(" ")
        assert status == "200", f"{line}\n{told}\n{out}"
        path = line.partition(SHOWN)[2].split()[0]
        if re.search("/run$|/stream$|^/resume/", path):
            assert media.startswith("text/event-stream")
            self.streamed(path, line, events(out))
        else:
            assert media == "application/json"
            self.listed(path, json.loads(out))

    def streamed(self, path: str, line: str, found: list[dict[str, Any]]) -> None:
        kinds = [event["type"] for event in found]
        if path.endswith("/run"):
            assert (kinds[0], kinds[-1]) == ("agent:run:start", "human:required")
            return
        assert kinds[-1] == "agent:run:end"
        after = re.search("Last-Event-ID: ([0-9]+)", line)
        assert kinds[0] == ("human:resumed" if path.startswith("/resume/") else "agent:run:start") or after
        if after:
            assert min(event["payload"]["seq"] for event in found) > int(after[1])

    def listed(self, path: str, found: dict[str, Any]) -> None:
        assert found.keys() == {"items", "next"}
        first = found["items"][0]
        if path == "/checkpoints":
            self.ids = {"CHECKPOINT": first["id"], "RUN": first["runId"]}
        else:
            assert (path, first["status"]) == ("/runs", "completed")


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line.partition(": ")[2]) for line in text.splitlines() if line.startswith("data: ")]


@pytest.mark.parametrize(("name", "lines"), [("README.md", 4), ("docs/http.md", 5)])
def test_what_a_page_types(tmp_path: Path, name: str, lines: int) -> None:
    """B139, B141, B135, B148, B149: a run, its question, the answer, the stream of it all; with keys, where there are
    some."""
    assert shutil.which("curl"), "these lines need curl"
    [agent] = [block.text for block in blocks_of(ROOT / "README.md") if block.file == "painter.py"]
    (tmp_path / "painter.py").write_text(agent)
    typed = [line for block in blocks_of(ROOT / name) for line in block.text.splitlines()]
    curls = [line.removeprefix("$ ") for line in typed if re.match(r"(\$ )?curl ", line)]
    assert len(curls) == lines
    typist = Typist(tmp_path)
    keys = [line for line in typed if line.startswith("KEY=")]
    with_key = [line for line in curls if "$KEY" in line]
    assert len(keys) == len(with_key)
    with served(tmp_path, "start", app=APP) as (_, typist.url):
        for line in curls:
            if line not in with_key:
                typist.curl(line)
    if keys:  # a server that runs has to be started again
        typist.assign(keys[0])
        with served(tmp_path, "start", app=APP) as (_, typist.url):
            for line in with_key:
                with pytest.raises(AssertionError, match="UNAUTHORIZED"):
                    typist.curl(line.replace("$KEY", "none"))
                typist.curl(line)


def test_every_page_with_curl_is_typed() -> None:
    """B139: no other page has a line that nobody tries."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
    found = {
        str(page.relative_to(ROOT)) for page in pages if re.search(r"^(\$ )?curl ", page.read_text(), re.MULTILINE)
    }
    assert found == {"README.md", os.path.join("docs", "http.md")}
