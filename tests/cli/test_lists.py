"""What the command lists and shows, for people and for programs."""

from __future__ import annotations

from cli_kit import Shell


def test_without_configuration_the_data_is_in_the_folder(shell: Shell) -> None:
    """B157: the first line says where the data is, and that it travels in-process; JSON stands alone."""
    first = shell.fresh("checkpoints", "list")
    assert (first.code, first.err) == (0, "")
    assert first.out.splitlines()[0].split("  ")[1:] == ["data: SQLite .bread/bread.db (new)", "bus: in-process"]
    assert (shell.folder / ".bread" / "bread.db").is_file()
    again = shell.plain("runs", "list", "--json")
    assert again.json == {"items": [], "next": None}


def test_the_store_is_named_by_option_environment_or_app(shell: Shell) -> None:
    """B157: whatever names the store, the first line says it."""
    named = {
        "option.db": shell.plain("--store", "sqlite:///option.db", "sessions", "list"),
        "environment.db": shell.plain("sessions", "list", BREAD_STORE="sqlite:///environment.db"),
        "named-by-the-app.db": shell.plain("sessions", "list", BREAD_APP="cli_agents:elsewhere"),
    }
    for name, done in named.items():
        assert f"data: SQLite {name} (new)" in done.out.splitlines()[0], done
        assert (shell.folder / name).is_file()


async def test_checkpoints_are_listed_and_shown(shell: Shell) -> None:
    """B156, B46, B45: pending questions oldest first, filtered and paged; one with all that is needed to answer it."""
    run, first = await shell.ask("asker", "s1", team="red")
    _, second = await shell.ask("buyer", "s2", team="blue")
    whole = shell.bread("checkpoints", "list", "--json").json
    assert [item["id"] for item in whole["items"]] == [first, second]
    assert whole["next"] is None
    page = shell.bread("checkpoints", "list", "--limit", "1", "--json").json
    assert [item["id"] for item in page["items"]] == [first]
    rest = shell.bread("checkpoints", "list", "--cursor", page["next"], "--json").json
    assert [item["id"] for item in rest["items"]] == [second]
    red = shell.bread("checkpoints", "list", "--tag", "team=red", "--json").json
    assert [item["id"] for item in red["items"]] == [first]
    filters = ("--agent", "buyer", "--tool", "order", "--kind", "approval", "--session", "s2", "--answerable")
    human = shell.bread("checkpoints", "list", *filters).out
    assert second in human
    assert first not in human
    shown = shell.bread("checkpoints", "show", first, "--json").json
    assert shown["runId"] == run
    assert {
        "kind": "input",
        "status": "pending",
        "toolName": "approve",
        "prompt": "Go on with it?",
    }.items() <= shown.items()
    assert {"args", "schema", "responseSchema", "sessionId", "createdAt", "version"} <= shown.keys()


async def test_runs_and_sessions_are_listed_and_shown(shell: Shell) -> None:
    """B156: runs with status and questions, sessions with tags and messages."""
    run, checkpoint = await shell.ask("asker", "s1", team="red")
    assert shell.bread("runs", "list", "--status", "completed", "--json").json["items"] == []
    [listed] = shell.bread("runs", "list", "--status", "suspended", "--json").json["items"]
    assert (listed["id"], listed["agentId"], listed["orphaned"]) == (run, "asker", False)
    shown = shell.bread("runs", "show", run, "--json").json
    assert (shown["input"], shown["checkpoints"], shown["output"]) == ("go", [checkpoint], None)
    human = shell.bread("runs", "show", run)
    assert "suspended" in human.out
    assert checkpoint in human.out
    [session] = shell.bread("sessions", "list", "--json").json["items"]
    assert (session["id"], session["tags"]) == ("s1", {"team": "red"})
    whole = shell.bread("sessions", "show", "s1", "--json").json
    assert [message["role"] for message in whole["messages"]] == ["user", "assistant", "tool"]
    assert "user: go" in shell.bread("sessions", "show", "s1").out.splitlines()


async def test_malformed_tags_are_reported_and_ignored(shell: Shell) -> None:
    """B154: a tag that is none is named on stderr; the list is that of the others."""
    await shell.ask("asker", "s1", team="red")
    done = shell.bread("sessions", "list", "--tag", "team", "--tag", "=red", "--tag", "team=red", "--json")
    assert (done.code, [item["id"] for item in done.json["items"]]) == (0, ["s1"])
    assert [line.split(" is ignored")[0] for line in done.err.splitlines()] == ["--tag 'team'", "--tag '=red'"]


async def test_sessions_are_deleted_and_cleaned_up(shell: Shell) -> None:
    """B154, B156, B73-B75: an unknown id is deleted already; without an age nothing is cleaned up."""
    run, checkpoint = await shell.ask("asker", "s1", team="red")
    await shell.ask("asker", "s2", team="blue")
    assert shell.bread("sessions", "cleanup", "--tag", "team=red", "--json").json == {"deleted": 0}
    assert shell.bread("sessions", "cleanup", "--older-than", "0", "--keep-pending", "--json").json == {"deleted": 0}
    assert shell.bread("sessions", "cleanup", "--older-than", "0", "--tag", "team=blue", "--json").json == {
        "deleted": 1
    }
    assert shell.bread("sessions", "delete", "s1", "--author", "ann", "--json").json == {
        "session": "s1",
        "deleted": True,
    }
    again = shell.bread("sessions", "delete", "s1")
    assert (again.code, "nothing to delete" in again.out) == (0, True)
    assert shell.bread("checkpoints", "show", checkpoint).code == 1
    [tombstone] = shell.bread("audit", "show", run, "--json").json["items"]
    assert (tombstone["name"], tombstone["by"]) == ("bread.erased", {"kind": "user", "id": "ann"})


async def test_what_models_say_cannot_steer_the_terminal(shell: Shell) -> None:
    """C54: control and direction characters of a question are written out, markup is text."""
    _, checkpoint = await shell.ask("steering")
    for words in (("checkpoints", "list"), ("checkpoints", "show", checkpoint)):
        out = shell.bread(*words).out
        assert "\x1b" not in out
        assert "\u202e" not in out
        assert "\\x1b[2K" in out
        assert "[bold]nothing[/bold]" in out
