"""A chat as tests hold it, and what they see of it."""

from __future__ import annotations

from typing import Any

from cli_kit import Shell, Terminal

APP = "chat_agents:everybody"


def chatting(shell: Shell, *words: str, app: str = APP) -> Terminal:
    """A chat at a terminal that answers no queries about its cursor."""
    argv = shell.argv("--store", shell.store, "--app", app, "chat", *words)
    return Terminal(argv, shell.folder, PROMPT_TOOLKIT_NO_CPR="1")


def bread(shell: Shell, *words: str, stdin: str = "", **env: str) -> Any:
    return shell.plain("--store", shell.store, "--app", APP, *words, stdin=stdin, **env)


def pending(shell: Shell) -> list[Any]:
    found: list[Any] = bread(shell, "checkpoints", "list", "--json").json["items"]
    return found
