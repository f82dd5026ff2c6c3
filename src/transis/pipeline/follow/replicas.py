"""What applications say about their own state: digests behind the same messages of a group must be the same.

Compared are counts of ordered messages within one view of a group, which all its members count alike. The last count at which two
sides were equal and the first at which they were not enclose the messages of which one is to blame.

Who is a member of a group is not told here, so nothing is settled: whoever speaks later is held against what the others said
earlier, at those counts that are left of them (positions.py).

Of what a process says several times behind one count its last word counts, as in the audit of traces: at the beginning of a view
it may speak before and after it was given its state. A first word that was compared before the second was sealed stays told.
"""

from __future__ import annotations

from typing import Final

import msgspec

from transis.pipeline.follow.positions import Parting, Positions
from transis.pipeline.follow.telling import REPLICAS, Divergence, named
from transis.trace.events import CheckpointEvent
from transis.types.views import GroupId, GroupViewId

COUNTS_MAX: Final = 256
"""Counts that are remembered of one view; then they are thinned out."""
ALL_COUNTS_MAX: Final = 65_536
"""Of all views together; then the views go of which nothing was told for longest."""
TOLD_MAX: Final = 4096
"""Views that differed and are forgotten: that they did is not told again."""


class Checkpoints(msgspec.Struct):
    """Of one view of one group."""

    group: GroupId
    name: str
    view: GroupViewId
    touched_us: int = 0
    counts: Positions[bytes, str] = msgspec.field(default_factory=Positions)
    behind: dict[int, str] = {}
    """The message behind which each count is."""
    spoke: dict[int, dict[str, int]] = {}
    """Where in the record of its node the last word of each process stands, by count."""
    told: bool = False
    """That they differ was."""

    def take(self, process: str, event: CheckpointEvent) -> bool:
        """True if it was held against what another process said."""
        spoke = self.spoke.setdefault(event.count, {})
        if event.lseq < spoke.get(process, 0):
            return False
        spoke[process] = event.lseq
        self.counts.take_back(event.count, process, but=event.digest)
        self.behind.setdefault(event.count, "the view" if event.sender is None else f"{event.sender}:{event.counter}")
        return bool(self.counts.tell(event.count, event.digest, process))

    def bound(self) -> None:
        self.counts.thin_out(COUNTS_MAX)
        self.behind = {count: self.behind[count] for count in self.counts.at}
        self.spoke = {count: spoke for count, spoke in self.spoke.items() if count in self.counts.at}


class Replicas(msgspec.Struct):
    """All views of a cluster's groups, by group and view."""

    views: dict[bytes, Checkpoints] = {}
    forgotten: list[bytes] = []
    """Views of which it was told that they differ."""
    checked: int = 0


class ReplicaFold:
    def __init__(self, state: Replicas) -> None:
        self._state = state
        self._touched: dict[bytes, Checkpoints] = {}

    def take(self, process: str, event: CheckpointEvent, now_us: int) -> None:
        key = msgspec.msgpack.encode((event.group, event.view))
        found = self._state.views.get(key)
        if found is None:
            found = Checkpoints(event.group, event.name, event.view, told=key in self._state.forgotten)
            self._state.views[key] = found
        found.touched_us = max(found.touched_us, now_us)
        self._state.checked += found.take(process, event)
        self._touched[key] = found

    def judge(self) -> list[Divergence]:
        """Views in which two sides differ, and of which that was not told before; the cluster is for the caller to add."""
        found: list[Divergence] = []
        for one in self._touched.values():
            parting = one.counts.parting()
            if parting is not None and not one.told:
                found.append(_divergence(one, parting))
                one.told = True
            one.bound()
        self._touched = {}
        self._bound()
        return found

    def _bound(self) -> None:
        state = self._state
        excess = sum(len(one.counts.at) for one in state.views.values()) - ALL_COUNTS_MAX
        for key, one in sorted(state.views.items(), key=lambda item: (item[1].touched_us, item[0])) if excess > 0 else ():
            if excess <= 0:
                return
            excess -= len(one.counts.at)
            state.forgotten = [*state.forgotten, key][-TOLD_MAX:] if one.told else state.forgotten
            del state.views[key]


def _divergence(one: Checkpoints, parting: Parting[bytes, str]) -> Divergence:
    said = sorted(parting.sides, key=lambda each: (-len(each.parties), each.parties))
    sides = tuple(tuple(sorted(each.parties)) for each in said)
    equal_at, differs_at = parting.equal_at, parting.differs_at
    equal = "never seen equal" if equal_at is None else f"equal up to {one.behind[equal_at]}"
    told = " against ".join(named(side) for side in sides)
    between = differs_at - (equal_at or 0)
    guilty = f"one of the {between} messages between made them so" if between else "no message came between"
    words = f"{equal}, different at {one.behind[differs_at]}: {told}; {guilty}"
    where = f"replicas of {one.name!r} in {one.view} are not the same: {words}"
    conf = one.view.configuration
    return Divergence("", REPLICAS, conf, conf, equal_at or 0, differs_at, sides, where)
