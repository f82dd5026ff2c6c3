"""The Outbox: what a node wants to send, bounded, and packed into datagrams when the engine has a permit.

1. Each lane holds at most `limit_bytes`. A submit that does not fit is cut short, never refused silently: the number taken is
   returned, and `take_room` names the lane as soon as the first message that was left out would fit.
2. Control goes first and is never held. Within a lane processes take turns (fair_queue.py).
3. Basic messages travel in datagrams of their own, each self-contained; one that does not fit such a datagram travels
   in the ordered stream, which knows how to straddle and fragment.
4. A message leaves the Outbox when its last byte is placed. Until then it can be dropped, or sent from its start in a new view.
5. The ring fills visits (`fill`), where causal messages are ordered ones. Lansis fills bursts of one kind each (`fill_burst`):
   basic, causal (with basic ones that fit no datagram), ordered. The kinds take turns.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import accumulate, groupby
from typing import Final

from transis.types.errors import MessageTooLarge, UsageError
from transis.types.ids import DatagramClass, Service, ViewId
from transis.types.limits import ADDRESS_MAX, MESSAGE_MAX, RUN_MESSAGES_MAX
from transis.types.outputs import Lane, OutboundRun, RunIds
from transis.wire.fair_queue import FairQueue, QueuedRun
from transis.wire.items import FRAGMENT_HEAD_SIZE, LENGTH_SIZE, Filled, FilledDatagram, VisitWriter, head_size

__all__ = ["Filled", "FilledDatagram", "Outbox"]

_KINDS: Final = (DatagramClass.BASIC, DatagramClass.CAUSAL, DatagramClass.ORDERED)


class _LaneQueues:
    """The queues of a lane. `cut_short` is what the first message that a submit had to leave out would occupy, or 0."""

    __slots__ = ("basic", "cut_short", "held", "ordered")

    def __init__(self, body_max: int) -> None:
        self.ordered = FairQueue(body_max)
        self.basic = FairQueue(body_max)
        self.held = False
        self.cut_short = 0

    @property
    def bytes(self) -> int:
        return self.ordered.bytes + self.basic.bytes

    def __bool__(self) -> bool:
        return bool(self.ordered) or bool(self.basic)


class Outbox:
    __slots__ = ("_basic_next", "_body_max", "_kinds", "_lanes", "_limit")

    def __init__(self, body_max: int, limit_bytes: int) -> None:
        assert body_max >= 2 * FRAGMENT_HEAD_SIZE, f"a body of {body_max} bytes has no room for fragments"
        self._body_max = body_max
        self._limit = limit_bytes
        self._lanes = {lane: _LaneQueues(body_max) for lane in Lane}
        self._basic_next = False
        self._kinds = deque(_KINDS)

    def submit(self, lane: Lane, run: OutboundRun, bound_to: ViewId | None) -> int:
        """Take as many of the run's messages as the lane has room for; return how many."""
        _check_run(run)
        queues = self._lanes[lane]
        taken = self._room_for(queues, run)
        if taken < len(run.payloads):
            queues.cut_short = head_size(run.address, run.event_us) + LENGTH_SIZE + len(run.payloads[taken])
        for queue, first, payloads in self._sorted_out(queues, run, run.payloads[:taken]):
            queue.push(run, payloads, run.first_counter + first, bound_to)
        return taken

    def _room_for(self, queues: _LaneQueues, run: OutboundRun) -> int:
        """How many messages fit. One larger than the whole limit is taken if the lane is empty: else it could never be sent."""
        room = self._limit - queues.bytes - head_size(run.address, run.event_us)
        if sum(map(len, run.payloads)) + LENGTH_SIZE * len(run.payloads) <= room:
            return len(run.payloads)
        taken = bisect_right(list(accumulate(len(payload) + LENGTH_SIZE for payload in run.payloads)), room)
        return taken if queues else max(1, taken)

    def _sorted_out(
        self, queues: _LaneQueues, run: OutboundRun, payloads: Sequence[bytes]
    ) -> Iterator[tuple[FairQueue, int, Sequence[bytes]]]:
        """Pieces of the run with the queue that each belongs to, none longer than a run may be."""
        first = 0
        for fits, piece in self._by_fit(run, payloads):
            for start in range(0, len(piece), RUN_MESSAGES_MAX):
                yield queues.basic if fits else queues.ordered, first + start, piece[start : start + RUN_MESSAGES_MAX]
            first += len(piece)

    def _by_fit(self, run: OutboundRun, payloads: Sequence[bytes]) -> Iterator[tuple[bool, Sequence[bytes]]]:
        """Cut a basic run into pieces that fit basic datagrams and pieces that do not; others are one piece."""
        if run.service is not Service.BASIC:
            yield False, payloads
            return
        largest = self._body_max - head_size(run.address, run.event_us) - LENGTH_SIZE
        for fits, piece in groupby(payloads, lambda payload: len(payload) <= largest):
            yield fits, list(piece)

    def hold(self, lane: Lane) -> None:
        assert lane is not Lane.CONTROL, "the control lane is never held"
        self._lanes[lane].held = True

    def open(self, lane: Lane) -> None:
        self._lanes[lane].held = False

    def _open_lanes(self, only: Lane | None = None) -> list[_LaneQueues]:
        return [queues for lane, queues in sorted(self._lanes.items()) if not queues.held and only in (None, lane)]

    def is_open(self, lane: Lane) -> bool:
        return not self._lanes[lane].held

    def is_halfway(self, lane: Lane) -> bool:
        """Is a message of this lane in the middle of its fragments?"""
        return self._lanes[lane].ordered.partials > 0

    def backlog(self) -> int:
        """Bytes that could be sent now."""
        return sum(queues.bytes for queues in self._open_lanes())

    def queued(self) -> int:
        """Bytes that wait, those of held lanes included."""
        return sum(queues.bytes for queues in self._lanes.values())

    def has_work(self, only: Lane | None = None) -> bool:
        """Could anything be sent now, from all lanes or from one?"""
        return any(self._open_lanes(only))

    def was_refused(self, lane: Lane) -> bool:
        return self._lanes[lane].cut_short > 0

    def take_room(self) -> list[Lane]:
        """Lanes that cut a submit short and would now take the message they left out; each is named once.

        A lane must also be half empty, so that it is refilled in batches.
        """
        lanes = [lane for lane, queues in sorted(self._lanes.items()) if queues.cut_short and self._has_room(queues)]
        for lane in lanes:
            self._lanes[lane].cut_short = 0
        return lanes

    def _has_room(self, queues: _LaneQueues) -> bool:
        return not queues or (queues.bytes <= self._limit // 2 and queues.bytes + queues.cut_short <= self._limit)

    def fill(self, permit: int) -> list[FilledDatagram]:
        """At most `permit` datagrams: basic ones, then one ordered visit. Neither kind can starve the other."""
        if permit <= 0:
            return []
        lanes = self._open_lanes()
        ordered = self._fill_ordered(lanes, self._ordered_share(lanes, permit))
        return self._fill_basic(lanes, permit - len(ordered)) + ordered

    def _ordered_share(self, lanes: list[_LaneQueues], permit: int) -> int:
        """The ordered datagrams: all but what basic ones may need, which is at most half. A single datagram alternates."""
        waiting = sum(queues.basic.bytes for queues in lanes)
        if permit > 1 or waiting == 0:
            # Whole messages only: a basic datagram may stay half empty, so they may need twice their bytes.
            return max(permit // 2, permit - 2 * -(-waiting // self._body_max))
        self._basic_next = not self._basic_next or not any(queues.ordered for queues in lanes)
        return 0 if self._basic_next else 1

    def _fill_ordered(self, lanes: list[_LaneQueues], datagrams: int) -> list[FilledDatagram]:
        writer = VisitWriter(self._body_max, datagrams)
        _drain([queues.ordered for queues in lanes], writer)
        return writer.ordered()

    def _fill_basic(self, lanes: list[_LaneQueues], datagrams: int) -> list[FilledDatagram]:
        filled: list[FilledDatagram] = []
        queues = [lane.basic for lane in lanes]
        while len(filled) < datagrams and any(queues):
            writer = VisitWriter(self._body_max, 1)
            _drain(queues, writer)
            filled.append(writer.basic())
        return filled

    def fill_burst(self, permit: int, prefix: bytes, only: Lane | None = None) -> Filled | None:
        """One burst of one kind after the engine's prefix, from all open lanes or from one; None if there is nothing to send.

        At most `permit` datagrams, but always room for one body of messages besides the prefix: otherwise a small permit and a
        long prefix would starve this node.
        """
        if permit <= 0:
            return None
        lanes = self._open_lanes(only)
        for _ in _KINDS:
            kind = self._kinds[0]
            self._kinds.rotate(-1)
            filled = self._basic_burst(lanes, prefix) if kind is DatagramClass.BASIC else self._burst(lanes, kind, permit, prefix)
            if filled is not None:
                return filled
        return None

    def _burst(self, lanes: list[_LaneQueues], kind: DatagramClass, permit: int, prefix: bytes) -> Filled | None:
        datagrams = max(permit, 1 + -(-len(prefix) // self._body_max))
        writer = VisitWriter(self._body_max, datagrams, prefix)
        _drain([queues.ordered for queues in lanes], writer, kind)
        return None if writer.is_empty else writer.burst(kind)

    def _basic_burst(self, lanes: list[_LaneQueues], prefix: bytes) -> Filled | None:
        """Basic messages are whole in the last datagram, so that it can be read on receipt, even if the prefix is missing."""
        queues = [lane.basic for lane in lanes]
        if not any(queues):
            return None
        if len(prefix) <= self._body_max:
            writer = VisitWriter(self._body_max, 1, prefix)
            _drain(queues, writer)
            if not writer.is_empty:
                return writer.burst(DatagramClass.BASIC)
        return self._basic_behind(queues, prefix)

    def _basic_behind(self, queues: list[FairQueue], prefix: bytes) -> Filled:
        """The prefix in datagrams of its own, then one of basic messages."""
        writer = VisitWriter(self._body_max, 1)
        _drain(queues, writer)
        starts = range(0, len(prefix), self._body_max)
        ahead = [prefix[start : start + self._body_max] for start in starts]
        datagrams = [FilledDatagram(DatagramClass.BASIC, body, index, False, ()) for index, body in enumerate(ahead)]
        return Filled(DatagramClass.BASIC, [*datagrams, writer.basic()._replace(index=len(ahead))])

    def restart(self, lanes: Collection[Lane] = tuple(Lane)) -> int:
        """A new view: messages that were partly placed start again from their first byte. Return how many bytes that adds."""
        return sum(self._lanes[lane].ordered.restart() for lane in sorted(lanes))

    def drop_bound(self, view: ViewId) -> list[RunIds]:
        """Remove messages that only made sense in another view."""
        return self._drop(lambda queued: queued.bound_to is not None and queued.bound_to != view)

    def drop_for_primary(self) -> list[RunIds]:
        """Remove messages that are sent only in a primary view."""
        return self._drop(lambda queued: queued.for_primary)

    def drop_all(self) -> list[RunIds]:
        return self._drop(lambda _: True)

    def _drop(self, unwanted: Callable[[QueuedRun], bool]) -> list[RunIds]:
        dropped: list[RunIds] = []
        for _, queues in sorted(self._lanes.items()):
            dropped += queues.basic.drop(unwanted) + queues.ordered.drop(unwanted)
        return dropped


def _drain(queues: list[FairQueue], writer: VisitWriter, kind: DatagramClass | None = None) -> None:
    """Drain in the order of lanes: each gets the room that the one before it left."""
    for queue in queues:
        if not queue.drain(writer, kind):
            return


def _check_run(run: OutboundRun) -> None:
    if not run.payloads:
        raise UsageError("a run has at least one message")
    if len(run.address) > ADDRESS_MAX:
        raise UsageError(f"an address of {len(run.address)} bytes; at most {ADDRESS_MAX} are allowed")
    largest = max(map(len, run.payloads))
    if largest > MESSAGE_MAX:
        raise MessageTooLarge(f"a message of {largest} bytes; at most {MESSAGE_MAX} are allowed")
