"""What was promised to those who observed a trial, whatever has happened on the stage."""

from __future__ import annotations

from .clients import crumbs_of, durable
from .stage import Stage
from .viewers import INFO, Viewer, is_deletion


def check(stage: Stage) -> None:
    for viewer in stage.viewers:
        if viewer.rest_from is not None:
            check_to_rest(stage, viewer)
        elif stage.run.status == "erased":
            check_erased(stage, viewer)
        else:
            viewer.client.check(stage.log, INFO)


def check_erased(stage: Stage, viewer: Viewer) -> None:
    """A prefix of what there was and, for whoever was there or came later than that, the end."""
    shown = durable(viewer.client.crumbs)
    told = bool(shown) and is_deletion(shown[-1])
    assert told or viewer.gone, shown[-1:]
    shown = shown[:-1] if told else shown
    assert shown == stage.crumbs()[: len(shown)]


def check_to_rest(stage: Stage, viewer: Viewer) -> None:
    if viewer.gone or stage.run.status == "erased":
        return
    if viewer.past_rests:
        # To the rest in which the tree was then: that of the beginning or a later one, never one that was left.
        shown = durable(viewer.client.crumbs)
        ends = [seq for seq in stage.rests() if seq >= viewer.from_rest]
        (end,) = {len(durable(crumbs_of(stage.log[:seq], INFO))) for seq in ends} & {len(shown)}
        assert shown == stage.crumbs()[:end]
        return
    start = viewer.rest_from or 0
    viewer.client.check(stage.log[start : min(seq for seq in stage.rests() if seq > start)], INFO)
