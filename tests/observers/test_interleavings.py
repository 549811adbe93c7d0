"""Every interleaving that chance finds of readers, commits, late frames, text, crashes and clients that come and go."""

from __future__ import annotations

from collections import Counter

import pytest

from bread.runtime import observer
from bread.transport import local
from support import trials

from .promises import check
from .stage import Stage


async def test_b123_b124_b130_c53_no_interleaving_shows_a_gap_a_duplicate_or_another_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: Counter[str] = Counter()
    for seed in range(trials(250, 20_000)):
        stage = Stage(seed)
        monkeypatch.setattr(local, "QUEUE", stage.random.choice((1, 2, 5, 512)))
        monkeypatch.setattr(local, "RECENT", stage.random.choice((1, 3, 64)))
        monkeypatch.setattr(observer, "PAGE", stage.random.choice((1, 2, 7, 200)))
        try:
            stage.play(viewers=3, length=stage.random.choice((60, 150, 300)))
            check(stage)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        seen.update(stage.counts)
        seen["resets"] += sum(viewer.client.resets for viewer in stage.viewers)
    # The trials are of no use unless all of this happens in them.
    for what in ("said", "failed", "taken", "answered", "retried", "cancelled", "deleted", "crashed", "resets"):
        assert seen[what], seen
