"""Where an application stands in the stream of a group: what a digest of its state is a digest of.

A position is the group view in force and how many agreed and safe messages of the group came since. All who installed that view
and went on together count the same messages, on any engine, however the frames are cut that bring them. Basic and causal messages
are not counted, as members need not have them at the same place. Nothing is worked out before somebody asks.
"""

from __future__ import annotations

from typing import NamedTuple

from transis.sessions.frames import Stream
from transis.types.errors import UsageError
from transis.types.ids import Place, ProcessId, Service
from transis.types.views import GroupViewId


class Position(NamedTuple):
    """Behind the `count`-th counted message since the view; the other fields name it, or are None, 0, (0, 0) if there is none."""

    view: GroupViewId
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody wants of a position
    sender: ProcessId | None = None
    counter: int = 0
    place: Place = Place(0, 0)


class Passed(NamedTuple):
    """The position before a frame, and the frame, of which an application may have taken a part."""

    before: Position
    frame: Stream | None = None

    def then(self, frame: Stream) -> Passed:
        """Behind all of what was passed comes this frame."""
        return Passed(self.at(), frame)

    def at(self, rank: int | None = None) -> Position:
        """Behind the first `rank` messages of the frame, or behind all of it."""
        frame = self.frame
        if frame is None or not _is_counted(frame):
            return self.before
        taken = len(frame.payloads) if rank is None else rank
        if not taken:
            return self.before
        counter = frame.first + taken - 1
        return Position(self.before.view, self.before.count + taken, frame.sender, counter, _place(frame, taken - 1))

    def is_due(self, every: int, rank: int | None = None) -> bool:
        """Whether the last message taken is one that all who count by `every` stop at."""
        if every < 1:
            raise UsageError(f"every = {every}: must be 1 or more")
        if self.frame is None or not _is_counted(self.frame):
            return False
        return self.at(rank).count % every == 0


def beginning(view: GroupViewId) -> Passed:
    return Passed(Position(view, 0))


def _is_counted(frame: Stream) -> bool:
    return frame.service >= Service.AGREED


def _place(frame: Stream, rank: int) -> Place:
    """Of the message with this rank in the frame."""
    seq, index, count = frame.stretches[-1]
    rank_in_last = rank - (len(frame.payloads) - count)
    if rank_in_last >= 0:
        return Place(seq, index + rank_in_last)
    for seq, index, count in frame.stretches:
        if rank < count:
            return Place(seq, index + rank)
        rank -= count
    raise AssertionError("every message of a frame has a place")
