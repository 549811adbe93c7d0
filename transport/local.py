"""The hub of one process: hands frames to whoever observes a root, without ever waiting for them.

Truth comes from the store, liveness from here. A subscription that falls behind loses its frames and is told to read
the store; live text that is under way is kept whole, so that a late observer can join in the middle of a turn.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from ..domain.errors import BreadError
from ..domain.events import Erased
from ..domain.ports import Logged
from ..domain.run_events import ModelFailed, ModelResponded, RunCancelled, RunFailed, RunTaken

QUEUE = 512
RECENT = 64
HEARD_TEXTS = 1024
ENDS_ATTEMPT = (ModelResponded, ModelFailed, RunTaken, RunCancelled, RunFailed, Erased)


@dataclass(frozen=True, slots=True)
class TextFrame:
    """Text of a model attempt from code point `offset` on; `seq` of the event from which it started is `base`."""

    run_id: str
    base: int
    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class HintFrame:
    """Something live that is shown at most once and never replayed."""

    run_id: str
    kind: Literal["reasoning", "input_start", "input_delta", "input_end", "partial"]
    payload: dict[str, Any]


Frame = Logged | TextFrame | HintFrame


class Lagging(Exception):
    """The subscription was too slow, or others have written: read the store."""


class Subscription:
    """The frames of one root for one observer, at most QUEUE of them."""

    def __init__(self, hub: LocalHub, root: str) -> None:
        self._hub, self.root = hub, root
        self._frames: deque[Frame] = deque()
        self._lagging = False
        self._news = asyncio.Event()

    def put(self, frame: Frame) -> None:
        if self._lagging:
            return
        if len(self._frames) >= QUEUE:
            self.poke()
            return
        self._frames.append(frame)
        self._news.set()

    def poke(self) -> None:
        """Drop what waits; the next `get` raises Lagging."""
        self._frames.clear()
        self._lagging = True
        self._news.set()

    def wake(self) -> None:
        self._news.set()

    async def get(self) -> Frame:
        while not self._frames and not self._lagging and not self._hub.closed:
            self._news.clear()
            await self._news.wait()
        if self._hub.closed and not self._frames:
            raise BreadError("NOT_OPEN", "bread was closed while this stream was open")
        if self._lagging:
            self._lagging = False
            raise Lagging
        return self._frames.popleft()

    def close(self) -> None:
        self._hub.unsubscribe(self)


@dataclass(slots=True)
class LiveText:
    """What an attempt has said so far."""

    run_id: str
    text: str


class LocalHub:
    """Fans frames out by root. Everything here runs on the event loop and returns at once."""

    def __init__(self) -> None:
        self.tell: Callable[[str, Frame], None] = lambda root, frame: None
        self.closed = False
        self._subscriptions: dict[str, set[Subscription]] = {}
        self._live: dict[str, dict[int, LiveText]] = {}
        self._heard: OrderedDict[tuple[str, int], LiveText] = OrderedDict()
        self._recent: dict[str, deque[Logged]] = {}

    def subscribe(self, root: str) -> Subscription:
        subscription = Subscription(self, root)
        self._subscriptions.setdefault(root, set()).add(subscription)
        return subscription

    @property
    def count(self) -> int:
        """How many observers there are."""
        return sum(map(len, self._subscriptions.values()))

    def unsubscribe(self, subscription: Subscription) -> None:
        others = self._subscriptions.get(subscription.root, set())
        others.discard(subscription)
        if not others:
            self._subscriptions.pop(subscription.root, None)

    def publish(self, root: str, frame: Frame) -> None:
        """A frame of this process: for its own observers, and for others by `tell`."""
        self.hand_on(root, frame)
        self.tell(root, frame)

    def hand_on(self, root: str, frame: Frame) -> None:
        """A frame, wherever it comes from, for the observers here."""
        for subscription in tuple(self._subscriptions.get(root, ())):
            subscription.put(frame)

    def heard(self, root: str, frame: Frame) -> None:
        """A frame that another process told, for the observers here, and for those who come in the middle of a text."""
        if isinstance(frame, TextFrame):
            self._keep_heard(root, frame)
        elif isinstance(frame, Logged):
            self._end_heard(root, frame)
        self.hand_on(root, frame)

    def _keep_heard(self, root: str, frame: TextFrame) -> None:
        # Whoever kept a text of which a piece is missing would show what was never said.
        key = (root, frame.base)
        text = self._heard.pop(key, None) or LiveText(frame.run_id, "")
        if frame.offset == len(text.text):
            text.text += frame.text
            self._heard[key] = text
            if len(self._heard) > HEARD_TEXTS:
                self._heard.popitem(last=False)

    def _end_heard(self, root: str, entry: Logged) -> None:
        if self._heard and isinstance(entry.recorded.event, ENDS_ATTEMPT):
            run_id = entry.recorded.stream
            for key in [key for key, text in self._heard.items() if key[0] == root and text.run_id == run_id]:
                del self._heard[key]

    def publish_events(self, entries: Iterable[Logged], *, own: bool = True) -> None:
        """Committed events in order, of this process or of another one."""
        for entry in entries:
            root = entry.recorded.meta.root
            if root is None:
                continue
            if root in self._recent:
                self._recent[root].append(entry)
            if own:
                self._end_heard(root, entry)
                self.publish(root, entry)
            else:
                self.heard(root, entry)

    def remember(self, root: str) -> None:
        """Keep the last events of a root that runs here, for observers that come a moment after them."""
        self._recent.setdefault(root, deque(maxlen=RECENT))

    def forget(self, root: str) -> None:
        self._recent.pop(root, None)

    def recent(self, root: str, after: int) -> list[Logged]:
        """The events after seq `after` up to now without a gap; none if they are not all here."""
        found = [entry for entry in self._recent.get(root, ()) if entry.recorded.meta.seq > after]
        whole = [entry.recorded.meta.seq for entry in found] == list(range(after + 1, after + 1 + len(found)))
        return found if whole else []

    def publish_text(self, root: str, run_id: str, base: int, text: str) -> None:
        """The next piece of the text of attempt `base`."""
        live = self._live.setdefault(root, {}).setdefault(base, LiveText(run_id, ""))
        self.publish(root, TextFrame(run_id, base, len(live.text), text))
        live.text += text

    def end_text(self, root: str, base: int) -> None:
        """Attempt `base` is over, however it ended."""
        texts = self._live.get(root, {})
        texts.pop(base, None)
        if not texts:
            self._live.pop(root, None)

    def live_texts(self, root: str) -> list[TextFrame]:
        """What is being said right now, each from its beginning."""
        own = self._live.get(root, {})
        heard = {base: text for (of, base), text in self._heard.items() if of == root and base not in own}
        return [TextFrame(live.run_id, base, 0, live.text) for base, live in (own | heard).items()]

    def close(self) -> None:
        """End every subscription: with what it has still got, then with NOT_OPEN."""
        self.closed = True
        for subscriptions in self._subscriptions.values():
            for subscription in subscriptions:
                subscription.wake()

    def poke_all(self) -> None:
        """Make every observer look at the store once."""
        for subscriptions in self._subscriptions.values():
            for subscription in subscriptions:
                subscription.poke()
