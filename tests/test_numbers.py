"""Every line of observable behaviour, every known fault and every error code that is due has a test that names it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("domain", "projections", "transport", "runtime")

LINES = {
    "agents, runs, sessions, tools": {*range(1, 16), 17, 18} - {14},
    "human tools": range(19, 31),
    "permissions and approvals": range(31, 43),
    "suspending is atomic": range(43, 49),
    "resuming": range(49, 62),
    "races on one checkpoint": range(62, 65),
    "restarts and other processes": range(65, 69),
    "skills": range(70, 73),
    "deletion and cleanup": range(73, 79),
    "pipelines": range(79, 96),
    "supervisors": range(98, 114),
    "loops": {*range(114, 122)} - {119},
    "crumbs": [122, 123, 124, 129, 130, 133, 134],
    "streams over HTTP": range(135, 139),
    "routes": {*range(139, 152)} - {145},
    "command line": range(152, 158),
}
LINES_LATER: dict[int, str] = {}

FAULTS = [
    *(1, 2, 3, 4, 6, 7, 8, 9, 10, 12, 13, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 26, 27, 28, 29, 30, 31, 32, 33),
    *(35, 37, 39, 40, 43, 44, 45, 46, 47, 48, 49, 50, 51, 53, 54, 55, 56, 58, 59, 60, 61, 63),
]
FAULTS_LATER: dict[int, str] = {}

# What programs match on. A code that can be raised here and is missing below is a gap in this list, and a failure.
CODES = {
    "AGENT_ERROR",
    "AGENT_NOT_FOUND",
    "AGGREGATE_ERROR",
    "APP_NOT_FOUND",
    "BODY_TOO_LARGE",
    "CHECKPOINT_NOT_FOUND",
    "CONCURRENCY_LIMIT",
    "CONFIG_INVALID",
    "DELEGATE_AGENT_NOT_CONFIGURED",
    "DELEGATION_LIMIT",
    "DEMO_BUSY",
    "EVENT_UNKNOWN",
    "EXPIRED",
    "FORBIDDEN",
    "IDEMPOTENCY_CONFLICT",
    "INPUT_INVALID",
    "INTERNAL_ERROR",
    "INVALID_NAME",
    "INVALID_PERMISSION",
    "LOG_DAMAGED",
    "LOOP_AGENT_NOT_IN_POOL",
    "LOOP_ALREADY_ACTIVE",
    "LOOP_ERROR",
    "LOOP_NOT_FOUND",
    "METHOD_NOT_ALLOWED",
    "MODEL_ERROR",
    "MODEL_NOT_READY",
    "NOT_FOUND",
    "NOT_OPEN",
    "NOT_STARTED",
    "NO_ACTIVE_LOOP",
    "OUTPUT_INVALID",
    "PIPELINE_NOT_FOUND",
    "PROMISE_BROKEN",
    "PROTOCOL_DECODE_ERROR",
    "REJECTED",
    "RESPONSE_INVALID",
    "RUN_CANCELLED",
    "RUN_NOT_FOUND",
    "RUN_NOT_RETRYABLE",
    "RUN_SUSPENDED",
    "SESSION_BUSY",
    "SESSION_DELETED",
    "SESSION_NOT_FOUND",
    "SESSION_SUSPENDED",
    "SKILL_NOT_FOUND",
    "STEPS_EXCEEDED",
    "STORE_INVALID",
    "STORE_UNAVAILABLE",
    "SUPERVISOR_CHECKPOINT_NOT_RESUMABLE",
    "TOOL_ERROR",
    "TOOL_NAME_COLLISION",
    "TOOL_NOT_FOUND",
    "TRANSPORT_TOO_OLD",
    "TRANSPORT_UNAVAILABLE",
    "UNAUTHORIZED",
}
# Text in capitals that is no code: names in the environment of the program and of the store's library, a stream of
# NATS, and the key under which the model layer sends what is not JSON.
NO_CODES = {
    *(
        "BREAD_APP",
        "BREAD_CRUMBS",
        "BREAD_KEYS",
        "BREAD_NATS",
        "BREAD_WORK",
        "BREAD_NATS_PASSWORD",
        "BREAD_STORE",
        "BREAD_STORE_PASSWORD_FILE",
        "ORIGINATOR_ID_TYPE",
        "SQLITE_DBNAME",
        "SQLITE_LOCK_TIMEOUT",
    ),
    "INVALID_JSON",
    # settings of the library for PostgreSQL
    *("CREATE_TABLE", "POSTGRES_CONNECT_TIMEOUT", "POSTGRES_DBNAME", "POSTGRES_HOST", "POSTGRES_LOCK_TIMEOUT"),
    *("POSTGRES_PASSWORD", "POSTGRES_PORT", "POSTGRES_SCHEMA", "POSTGRES_USER"),
}
CODE = re.compile(r"[A-Z]+(?:_[A-Z]+)+|EXPIRED|REJECTED|FORBIDDEN|UNAUTHORIZED")


def parsed(*folders: str) -> Iterator[tuple[Path, ast.Module]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path, ast.parse(path.read_text())


@pytest.fixture(scope="module")
def named() -> set[str]:
    """The numbers in the names and docstrings of tests: B36, C21."""
    found: set[str] = set()
    for _, tree in parsed("tests"):
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
                words = f"{node.name.replace('_', ' ').upper()} {ast.get_docstring(node) or ''}"
                found |= set(re.findall(r"\b[BC]\d+\b", words))
    return found


@pytest.mark.parametrize("group", LINES)
def test_every_line_has_a_test(named: set[str], group: str) -> None:
    """A line without a test is a promise that nobody keeps."""
    missing = [f"B{line}" for line in LINES[group] if f"B{line}" not in named and line not in LINES_LATER]
    assert missing == []


def test_every_fault_has_a_test(named: set[str]) -> None:
    """The faults of comparable systems, each shown to be impossible here."""
    missing = [f"C{fault}" for fault in FAULTS if f"C{fault}" not in named and fault not in FAULTS_LATER]
    assert missing == []


def test_what_is_left_to_later_is_in_the_lists() -> None:
    """And says which issue it is left to."""
    assert LINES_LATER.keys() <= {line for group in LINES.values() for line in group}
    assert FAULTS_LATER.keys() <= set(FAULTS)
    for reason in (*LINES_LATER.values(), *FAULTS_LATER.values()):
        assert re.match(r"issue [3-6]: ", reason)


def codes_in(*folders: str) -> set[str]:
    """Texts that are a code, whole."""
    return {
        node.value
        for _, tree in parsed(*folders)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.fullmatch(node.value)
    }


def test_every_code_is_listed() -> None:
    """What the rooms can raise or record is what this list has."""
    assert codes_in(*ROOMS) - NO_CODES == CODES


def test_every_code_has_a_test() -> None:
    """Each is expected somewhere, as a text that is compared."""
    expected: set[str] = set()
    for path, tree in parsed("tests"):
        if path == Path(__file__):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.fullmatch(node.value):
                expected.add(node.value)
    assert expected >= CODES
