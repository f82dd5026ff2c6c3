"""What applications say about their own state: digests behind the same messages of a group must be the same.

Compared are counts of ordered messages within one view of a group, which all its members count alike. The last count at which two
sides were equal and the first at which they were not enclose the messages of which one is to blame.
"""

from __future__ import annotations

from typing import Final

import msgspec

from transis.model.groups import GroupId, GroupViewId
from transis.pipeline.follow.telling import REPLICAS, Divergence, named
from transis.trace.events import CheckpointEvent

VIEWS_MAX: Final = 64
"""Views of groups that are remembered; then the one goes of which nothing was told for longest."""
COUNTS_MAX: Final = 4096


class Said(msgspec.Struct):
    """What these processes said of their state, and behind which message."""

    digest: bytes
    behind: str
    processes: list[str]


class Checkpoints(msgspec.Struct):
    """Of one view of one group."""

    group: GroupId
    name: str
    view: GroupViewId
    touched_us: int = 0
    counts: dict[int, list[Said]] = {}
    settled: int = -1
    """At this count all that had said anything said the same; what is below is forgotten."""
    settled_behind: str = ""
    said: bool = False
    """That they differ was told."""


class Replicas(msgspec.Struct):
    views: list[Checkpoints] = []
    checked: int = 0
    lost: int = 0

    def take(self, process: str, event: CheckpointEvent, now_us: int) -> None:
        of_view = self._of(event)
        of_view.touched_us = max(of_view.touched_us, now_us)
        if event.count <= of_view.settled:
            return
        said = of_view.counts.setdefault(event.count, [])
        same = next((one for one in said if one.digest == event.digest), None)
        if same is None:
            behind = "the view" if event.sender is None else f"{event.sender}:{event.counter}"
            said.append(same := Said(event.digest, behind, []))
        if process not in same.processes:
            self.checked += any(one.processes for one in said)
            same.processes.append(process)

    def _of(self, event: CheckpointEvent) -> Checkpoints:
        found = next((one for one in self.views if (one.group, one.view) == (event.group, event.view)), None)
        if found is None:
            self.views.append(found := Checkpoints(event.group, event.name, event.view))
        return found

    def judge(self) -> list[Divergence]:
        """Views in which two sides differ, and of which that was not said before; the cluster is for the caller to add."""
        found = [divergence for one in self.views if (divergence := _parting(one)) is not None]
        for one in self.views:
            one.said = one.said or _first_difference(one) is not None
            _settle(one)
            self._bound_counts(one)
        for one in sorted(self.views, key=lambda one: one.touched_us)[: max(0, len(self.views) - VIEWS_MAX)]:
            self.views.remove(one)
        return found

    def _bound_counts(self, one: Checkpoints) -> None:
        while len(one.counts) > COUNTS_MAX:
            said = one.counts.pop(min(one.counts))
            self.lost += len(said) == 1 and len(said[0].processes) == 1


def _first_difference(one: Checkpoints) -> int | None:
    return min((count for count, said in one.counts.items() if len(said) > 1), default=None)


def _parting(one: Checkpoints) -> Divergence | None:
    differs_at = _first_difference(one)
    if differs_at is None or one.said:
        return None
    said = sorted(one.counts[differs_at], key=lambda each: (-len(each.processes), each.processes))
    sides = tuple(tuple(sorted(each.processes)) for each in said)
    equal_at, equal_behind = _last_equal(one, differs_at)
    equal = f"equal up to {equal_behind}" if equal_at >= 0 else "never seen equal"
    told = " against ".join(named(side) for side in sides)
    guilty = f"one of the {differs_at - max(equal_at, 0)} messages between made them so"
    words = f"{equal}, different at {said[0].behind}: {told}; {guilty}"
    where = f"replicas of {one.name!r} in {one.view} are not the same: {words}"
    conf = one.view.configuration
    return Divergence("", REPLICAS, conf, conf, max(equal_at, 0), differs_at, sides, where)


def _last_equal(one: Checkpoints, below: int) -> tuple[int, str]:
    """The highest count at which several said the same."""
    equal = (count for count, said in one.counts.items() if count < below and len(said) == 1 and len(said[0].processes) > 1)
    count = max(equal, default=None)
    return (one.settled, one.settled_behind) if count is None else (count, one.counts[count][0].behind)


def _settle(one: Checkpoints) -> None:
    """Forget what lies before the highest count at which all that said anything in this view said the same."""
    everybody = {process for said in one.counts.values() for each in said for process in each.processes}
    for count in sorted(one.counts, reverse=True):
        said = one.counts[count]
        if len(said) == 1 and len(said[0].processes) > 1 and everybody <= set(said[0].processes):
            one.settled, one.settled_behind = count, said[0].behind
            one.counts = {later: each for later, each in one.counts.items() if later > count}
            return
