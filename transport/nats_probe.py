"""What a NATS server lets us do, found out without doing it.

A server checks whether a user may publish, and then refuses a reply subject that is reserved for itself, before it
hands anything on (measured from 2.11 to 2.15). So a message with such a reply is refused in one of two ways, and shows
in the server's log alone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from ..domain.errors import BreadError
from .nats_link import FAILURES, Link, barrier, is_refusal, words_of

CONNECT_SECONDS = 6.0
ANSWER_SECONDS = 2.0
RESERVED = "_R_.bread.doctor"
# What a server that did not refuse would do with it: nothing. No stream and no subject has these names, and of the
# requests only a purge, of that subject, is written so.
HEADERS = {"Nats-Expected-Stream": "doctor"}
DATA = b'{"filter":"bread.doctor"}'


class NoAnswer(Exception):
    """The server cannot be used now; the words are for people."""


class Answer(NamedTuple):
    """What the JetStream API says: what was asked for, or the number and the words of an error."""

    found: dict[str, Any]
    code: int = 0
    words: str = ""


class Probe:
    """A connection that is there to be asked."""

    def __init__(self, client: Client, complaints: list[str]) -> None:
        self.client, self._complaints = client, complaints

    async def denied(self, publishes: Iterable[str], subscribes: Iterable[str]) -> set[str]:
        """What is not permitted, as `publish SUBJECT` and `subscribe SUBJECT`. NoAnswer where it does not say."""
        asked = dict(enumerate(publishes))
        heard = list(subscribes)
        try:
            for subject in heard:
                await self.client.subscribe(subject, cb=_ignore)
            for number, subject in asked.items():
                await self.client.publish(sample(subject), DATA, reply=f"{RESERVED}.{number}", headers=HEADERS)
            await barrier(self.client)
        except FAILURES as error:
            raise NoAnswer(words_of(error)) from error
        said = set(self._complaints)
        denied = {f"subscribe {subject}" for subject in heard if _no("subscription to", subject) in said}
        for number, subject in asked.items():
            if _no("publish to", sample(subject)) in said:
                denied.add(f"publish {subject}")
            elif _no("publish with reply of", f"{RESERVED}.{number}") not in said:
                raise NoAnswer(f"it does not say who may publish to {subject}")
        return denied

    async def ask(self, request: str) -> Answer:
        """A question to the JetStream API."""
        try:
            message = await self.client.request(f"$JS.API.{request}", b"", timeout=ANSWER_SECONDS)
            found = json.loads(message.data)
        except nats.errors.NoRespondersError:
            return Answer({}, 503, "JetStream is not switched on")
        except (*FAILURES, ValueError) as error:
            raise NoAnswer(f"the JetStream API does not answer: {words_of(error)}") from error
        wrong = found.get("error")
        return Answer(found) if wrong is None else Answer({}, wrong["code"], wrong.get("description", ""))


def sample(pattern: str) -> str:
    """A subject that a pattern fits."""
    return ".".join({"*": "default", ">": "doctor"}.get(part, part) for part in pattern.split("."))


def _no(what: str, subject: str) -> str:
    """What the server says, in the small letters that the client library makes of it."""
    return f'permissions violation for {what} "{subject}"'.lower()


async def _ignore(message: Msg) -> None:
    return


@asynccontextmanager
async def probing(link: Link, server: str) -> AsyncIterator[Probe]:
    """A connection to one server, which has to come about soon. NoAnswer, or TRANSPORT_UNAVAILABLE if it refuses us."""
    complaints: list[str] = []
    client = Client()

    async def complain(error: Exception) -> None:
        complaints.append(words_of(error))

    options = link.options | {
        "servers": [server],
        "allow_reconnect": False,
        "max_reconnect_attempts": 1,
        "reconnect_time_wait": 0.05,
        "pending_size": 1 << 20,
        "error_cb": complain,
        "disconnected_cb": None,
        "reconnected_cb": None,
        "closed_cb": None,
    }
    link.check_credentials()
    try:
        try:
            await asyncio.wait_for(client.connect(**options), CONNECT_SECONDS)
        except FAILURES as error:
            words = next((one for one in complaints if one), "") or words_of(error)
            raise (link.refused() if is_refusal(words) else NoAnswer(words)) from error
        yield Probe(client, complaints)
    finally:
        with suppress(BreadError, *FAILURES):
            await asyncio.wait_for(client.close(), ANSWER_SECONDS)
