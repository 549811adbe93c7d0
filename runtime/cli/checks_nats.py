"""The checks of `bread doctor` on NATS. None of them makes a stream, or leaves anything in one."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from typing import Any

from nats.js.api import StreamConfig

from ...domain.errors import BreadError
from ...transport.jetstream import JetStream
from ...transport.nats_probe import Answer, NoAnswer, Probe, probing
from ...transport.port import Transport
from ...transport.subjects import EVENTS, KEPT, PREFIX, STREAM, WORK, WORK_STREAM
from .checks import Finding, failed, ok, size, warn

SKEW_SECONDS = 5.0
NEARLY = 0.9
START = "start it, or name the right one: --nats or BREAD_NATS; runs go on without it"
PERMIT = "permit it in the configuration of the server: docs/nats.md, Rights"
SWITCH_ON = "switch it on in the configuration of the server, and for this account"
REMAKE = "delete it, as a user who may: bread makes it as it has to be"
LOOK, CREATE, UPDATE = (f"$JS.API.STREAM.{verb}.{STREAM}" for verb in ("INFO", "CREATE", "UPDATE"))
# What bread has to be allowed to publish, and what the work queue needs beside that.
NEEDS = (
    *KEPT,
    f"{PREFIX}.*.live.>",
    EVENTS,
    f"$JS.API.STREAM.PURGE.{STREAM}",
    f"$JS.API.STREAM.MSG.DELETE.{STREAM}",
)
QUEUE = (
    WORK,
    f"$JS.API.STREAM.INFO.{WORK_STREAM}",
    f"$JS.API.STREAM.CREATE.{WORK_STREAM}",
    f"$JS.API.CONSUMER.CREATE.{WORK_STREAM}.*.{WORK}",
    f"$JS.API.CONSUMER.MSG.NEXT.{WORK_STREAM}.*",
    f"$JS.ACK.{WORK_STREAM}.>",
)


async def server(bus: Transport) -> AsyncIterator[Finding]:
    """Whether it answers, what it is, whether bread may use it, and what is kept there."""
    if not isinstance(bus, JetStream):
        return  # there is no other
    probed = False
    for one in bus.link.address.servers:
        shown = one.partition("://")[2]
        try:
            async with probing(bus.link, one) as probe:
                bus.check_version(probe.client)
                yield ok("transport", f"NATS {_version(probe)} at {shown}")
                if not probed:  # they are one cluster
                    probed = True
                    async for finding in _inside(bus, probe):
                        yield finding
        except NoAnswer as error:
            yield warn("transport", f"NATS at {shown} cannot be used now: {error}", START)
        except BreadError as error:
            yield failed("transport", error, "" if error.code == "TRANSPORT_UNAVAILABLE" else "use a newer one")


def _version(probe: Probe) -> str:
    version = probe.client.connected_server_version
    return f"{version.major}.{version.minor}.{version.patch}"


async def _inside(bus: JetStream, probe: Probe) -> AsyncIterator[Finding]:
    inbox = f"{probe.client.new_inbox()}.*"
    denied = await probe.denied([*NEEDS, *QUEUE, LOOK, CREATE, UPDATE, "$JS.API.INFO"], [EVENTS, inbox])
    hears = {EVENTS: EVENTS, inbox: f"{inbox.rsplit('.', 2)[0]}.>"}
    lacks = [f"publish {subject}" for subject in NEEDS if f"publish {subject}" in denied]
    lacks += [f"subscribe {shown}" for subject, shown in hears.items() if f"subscribe {subject}" in denied]
    if lacks:
        yield failed("nats rights", _unavailable(f"this user may not {', '.join(lacks)}"), PERMIT)
    else:
        yield ok("nats rights", "all that bread needs")
    if f"subscribe {inbox}" in denied:
        return  # no answer could be heard
    room = None if "publish $JS.API.INFO" in denied else await probe.ask("INFO")
    if room is not None and room.code == 503:
        yield failed("jetstream", _unavailable(f"JetStream cannot be used: {room.words}"), SWITCH_ON)
        return
    if f"publish {LOOK}" in denied:
        yield warn("stream", f"{STREAM} is not looked at, since this user may not", f"permit {LOOK}")
    else:
        before = time.time()
        answer = await probe.ask(LOOK.removeprefix("$JS.API."))
        after = time.time()
        for finding in _stream(
            _plain(bus.stream), answer, {CREATE, UPDATE} - {one.partition(" ")[2] for one in denied}
        ):
            yield finding
        if "ts" in answer.found:
            yield _clock(_seconds(answer.found["ts"]), before, after)
    yield await _queue(probe, [f"publish {subject}" for subject in QUEUE if f"publish {subject}" in denied])
    if room is not None and room.found:
        yield from_room(room.found)


async def _queue(probe: Probe, lacks: list[str]) -> Finding:
    """Whether ready runs can go through it: without it they are found in the store, a little later."""
    if lacks:
        words = f"ready runs are found in the store, a little later: this user may not {', '.join(lacks)}"
        return warn("work queue", words, PERMIT)
    answer = await probe.ask(f"STREAM.INFO.{WORK_STREAM}")
    if answer.code == 404:
        return ok("work queue", f"{WORK_STREAM}, which the first process makes that needs it")
    if answer.code:
        return warn("work queue", f"{WORK_STREAM}: {answer.words}")
    config, jobs = answer.found["config"], answer.found["state"]["messages"]
    if config["retention"] != "workqueue" or WORK not in config.get("subjects", ()):
        return warn("work queue", f"{WORK_STREAM} is no work queue of {WORK}", REMAKE)
    return ok("work queue", f"{WORK_STREAM}: {jobs} jobs")


def _unavailable(message: str) -> BreadError:
    return BreadError("TRANSPORT_UNAVAILABLE", message)


# --- a stream


def _stream(wanted: dict[str, Any], answer: Answer, may: set[str]) -> Iterator[Finding]:
    name = wanted["name"]
    if answer.code == 503:
        yield failed("jetstream", _unavailable(f"JetStream cannot be used: {answer.words}"), SWITCH_ON)
    elif answer.code == 404 and CREATE in may:
        yield ok("stream", f"{name}, which the first process makes")
    elif answer.code == 404:
        error = _unavailable(f"there is no stream {name}, and this user may not make it")
        yield failed("stream", error, f"make it as a user who may, or permit {CREATE}")
    elif answer.code:
        yield warn("stream", f"{name}: {answer.words}")
    else:
        config, state = answer.found["config"], answer.found["state"]
        problems = list(_problems(wanted, config, may))
        yield from problems
        if not problems:
            yield _fullness(name, config, state)


def _plain(config: StreamConfig) -> dict[str, Any]:
    """As the API has it: durations in nanoseconds, and words for what is chosen."""
    return {name: getattr(value, "value", value) for name, value in config.as_dict().items()}


def _problems(wanted: dict[str, Any], config: dict[str, Any], may: set[str]) -> Iterator[Finding]:
    """What is otherwise than bread needs it."""
    name = wanted["name"]
    missing = [one for one in wanted["subjects"] if one not in config.get("subjects", ())]
    if missing:
        words = f"{name} does not keep {', '.join(missing)}"
        if UPDATE in may:
            yield warn("stream", words, "nothing: the next process that opens adds it")
        else:
            yield failed("stream", _unavailable(words), f"nats stream edit {name}, as a user who may")
    if config["retention"] != wanted["retention"]:
        words = f"{name} has the retention {config['retention']}; bread needs {wanted['retention']}"
        yield failed("stream", _unavailable(words), REMAKE)
    forbidden = [one for one in ("sealed", "no_ack", "deny_purge", "deny_delete") if config.get(one)]
    if forbidden:
        words = f"{name} is set to {', '.join(forbidden)}: bread publishes acknowledged, and removes what was deleted"
        yield failed("stream", _unavailable(words), REMAKE)
    if config["storage"] != wanted["storage"]:
        words = f"{name} is kept in {config['storage']}: it is gone with the server"
        yield warn("stream", words, "delete it, as a user who may: bread makes it on the disk")
    if config["discard"] != wanted["discard"]:
        words = f"{name} discards {config['discard']} messages when it is full; bread needs {wanted['discard']}"
        yield warn("stream", words, f"nats stream edit {name} --discard={wanted['discard']}")
    if config["duplicate_window"] < wanted["duplicate_window"]:
        words = f"{name} knows duplicates for {config['duplicate_window'] / 1e9:.0f} s only"
        window = f"{wanted['duplicate_window'] / 1e9:.0f}s"
        yield warn("stream", words, f"nats stream edit {name} --dupe-window={window}")
    if wanted.get("allow_direct") and not config.get("allow_direct"):
        yield warn("stream", f"{name} does not allow direct reads", f"nats stream edit {name} --allow-direct")
    if config["max_bytes"] <= 0:
        yield warn("stream", f"{name} may grow without an end", f"nats stream edit {name} --max-bytes=1GiB")


def _fullness(name: str, config: dict[str, Any], state: dict[str, Any]) -> Finding:
    most, copies = config["max_bytes"], config["num_replicas"]
    age = f", for {config['max_age'] / 1e9:.0f} s" if config.get("max_age") else ""
    detail = f"{name}: {state['messages']} messages, {size(state['bytes'])} of {size(most)}{age}, replicas: {copies}"
    if state["bytes"] < NEARLY * most:
        return ok("stream", detail)
    then = "what is new is refused" if config["discard"] == "new" else "the oldest go before their time"
    return warn("stream", f"{detail}; when it is full {then}", f"nats stream edit {name} --max-bytes=...")


def from_room(found: dict[str, Any]) -> Finding:
    """How much of what the account may store is taken, or promised to streams."""
    most = found["limits"]["max_storage"]
    taken = max(found["storage"], found.get("reserved_storage", 0))
    if most <= 0:
        return ok("nats storage", f"{size(found['storage'])} are taken; the account has no limit of its own")
    detail = f"{size(taken)} of {size(most)} are taken or promised to streams"
    if taken < NEARLY * most:
        return ok("nats storage", detail)
    return warn("nats storage", detail, "raise max_file of the account, or lower max_bytes of its streams")


def _clock(at: float, before: float, after: float) -> Finding:
    # What the message took is no difference of clocks.
    ahead = at - after if at > after else min(0.0, at - before)
    if abs(ahead) > SKEW_SECONDS:
        order = "ahead of" if ahead > 0 else "behind"
        return warn("nats clock", f"it is {abs(ahead):.0f} s {order} this machine's", "set the clocks of the machines")
    return ok("nats clock", "this machine and NATS agree")


def _seconds(at: str) -> float:
    """Of a time with nanoseconds, which Python reads to the microsecond."""
    whole, _, parts = at.removesuffix("Z").partition(".")
    return datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{parts or 0}")
