"""Messages that wait to be sent: each process has its own queue, and processes take turns.

Deficit round robin (Shreedhar and Varghese 1995): a turn is worth a quantum of bytes, and what a process could not use of it is
kept for its next turn. Messages larger than a datagram can be cut at the end of a turn or visit, so one of 16 MiB never holds up
the others. A process that is alone takes all the room there is.

1. Within a process, messages leave in the order they came in.
2. A turn that a full visit interrupts goes on in the next visit.
3. At most PARTIALS_MAX messages are partly sent at a time, because receivers keep no more.
4. A visit that takes one kind of messages skips processes with another kind at the head of their queue; so 1 holds across kinds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final

from transis.types.ids import DatagramClass, Service, ViewId
from transis.types.limits import RUN_MESSAGES_MAX
from transis.types.outputs import OutboundRun, RunIds
from transis.wire.items import FRAGMENT_HEAD_SIZE, LENGTH_SIZE, RUN_HEAD_SIZE, Fragment, Run, VisitWriter, timed_address

PARTIALS_MAX: Final = 8
"""Messages of one lane that may be partly sent as fragments: half of what receivers keep for a sender."""
TURN_DATAGRAMS: Final = 4
"""The length of a turn in datagrams: small enough to mix processes, large enough that run headers stay cheap."""


class QueuedRun:
    """Messages of one process with one address, service, time and binding, not yet sent.

    `length` is that of every message, or None when they differ; then `ends` are running sums of lengths with their length fields,
    and `base` is the sum where the first message that is still here begins. `placed` bytes of the first message's address and
    payload have left as fragments. `head` is the address with the time, as it travels. `bytes` is what the run occupies of its
    lane.
    """

    __slots__ = (
        "address",
        "base",
        "bound_to",
        "bytes",
        "ends",
        "event_us",
        "first_counter",
        "for_primary",
        "head",
        "length",
        "payloads",
        "placed",
        "process",
        "service",
    )

    def __init__(self, run: OutboundRun, payloads: Sequence[bytes], first_counter: int, bound_to: ViewId | None) -> None:
        self.process = run.process
        self.address = run.address
        self.event_us = run.event_us
        self.head = timed_address(run.address, run.event_us)
        self.service = run.service
        self.first_counter = first_counter
        self.bound_to = bound_to
        self.for_primary = run.for_primary
        self.payloads: list[bytes] = []
        self.length: int | None = len(payloads[0])
        self.ends: list[int] = []
        self.base = 0
        self.placed = 0
        self.bytes = RUN_HEAD_SIZE + len(self.head)
        self.extend(payloads)

    @property
    def ids(self) -> RunIds:
        return RunIds(self.process, self.first_counter, len(self.payloads), self.service, self.address)

    @property
    def kind(self) -> DatagramClass:
        """The weakest class of datagrams that may carry pieces of messages and still keeps what this service promises."""
        return DatagramClass.CAUSAL if self.service <= Service.CAUSAL else DatagramClass.ORDERED

    def continues_with(self, run: OutboundRun, first_counter: int, count: int, bound_to: ViewId | None) -> bool:
        """Whether these messages can simply be appended, so that many small submits cost one run header."""
        return (
            self.first_counter + len(self.payloads) == first_counter
            and self.service is run.service
            and self.address == run.address
            and self.event_us == run.event_us
            and self.bound_to == bound_to
            and self.for_primary is run.for_primary
            and len(self.payloads) + count <= RUN_MESSAGES_MAX
        )

    def extend(self, payloads: Sequence[bytes]) -> None:
        sizes = list(map(len, payloads))
        if self.length is not None and (self.length != min(sizes) or self.length != max(sizes)):
            self.length = None
            self._sum_up(list(map(len, self.payloads)))
        if self.length is None:
            self._sum_up(sizes)
        self.payloads.extend(payloads)
        self.bytes += sum(sizes) + LENGTH_SIZE * len(sizes)

    def _sum_up(self, sizes: list[int]) -> None:
        total = self.ends[-1] if self.ends else self.base
        self.ends.extend(list(accumulate((size + LENGTH_SIZE for size in sizes), initial=total))[1:])

    def fitting(self, room: int) -> int:
        """How many messages fit `room` bytes of stream as one run."""
        room -= RUN_HEAD_SIZE + len(self.head)
        if self.length is None:
            return bisect_right(self.ends, self.base + room) if room > 0 else 0
        room -= LENGTH_SIZE
        if room < 0 or self.length == 0:
            return len(self.payloads) if room >= 0 else 0
        return min(len(self.payloads), room // self.length)

    def take(self, count: int) -> tuple[Run, list[bytes]]:
        """Remove the first messages and return them as a run."""
        payloads = self.payloads[:count]
        length, size = self.length, 0
        ends: Sequence[int] = ()
        if length is None:
            ends = list(accumulate(map(len, payloads)))
            size = ends[-1]
        else:
            size = length * count
        run = Run(self.process, self.service, self.address, self.first_counter, count, length, ends, self.event_us)
        self._remove(count, size + LENGTH_SIZE * count)
        return run, payloads

    def _remove(self, count: int, size: int) -> None:
        del self.payloads[:count]
        if self.length is None:
            self.base = self.ends[count - 1]
            del self.ends[:count]
        self.first_counter += count
        self.bytes -= size

    @property
    def whole(self) -> int:
        """Bytes of the first message as fragments count them: address, time and payload."""
        return len(self.head) + len(self.payloads[0])

    def cut(self, size: int) -> tuple[Fragment, bytes]:
        """The next fragment of the first message, of at most `size` bytes; the last one removes the message."""
        payload = self.payloads[0]
        border = len(self.head)
        offset, total = self.placed, self.whole
        end = min(total, offset + size)
        share = self.head[offset:end] + payload[max(0, offset - border) : max(0, end - border)]
        what = (self.process, self.service, self.first_counter, border, total)
        fragment = Fragment(*what, offset, end - offset, self.event_us > 0)
        self.placed = end
        self.bytes -= end - offset
        if end == total:
            self._remove(1, LENGTH_SIZE - border)
            self.placed = 0
        return fragment, share

    def restart(self) -> int:
        """Forget that part of the first message was placed; return how many bytes must be sent again."""
        again, self.placed = self.placed, 0
        self.bytes += again
        return again


class FairQueue:
    """The queues of all processes of a lane, for one kind of datagram."""

    __slots__ = ("_body_max", "_credits", "_queues", "_turn_open", "_turns", "bytes", "partials")

    def __init__(self, body_max: int) -> None:
        self.bytes = 0
        self._body_max = body_max
        self._queues: dict[int, deque[QueuedRun]] = {}
        self._turns: deque[int] = deque()
        self._credits: dict[int, int] = {}
        self._turn_open = False
        self.partials = 0

    def __bool__(self) -> bool:
        return bool(self._turns)

    def push(self, run: OutboundRun, payloads: Sequence[bytes], first_counter: int, bound_to: ViewId | None) -> None:
        queue = self._queues.get(run.process)
        if queue is None:
            queue = self._queues[run.process] = deque()
            self._turns.append(run.process)
            self._credits[run.process] = 0
        if queue and queue[-1].continues_with(run, first_counter, len(payloads), bound_to):
            self.bytes -= queue[-1].bytes
            queue[-1].extend(payloads)
        else:
            queue.append(QueuedRun(run, payloads, first_counter, bound_to))
        self.bytes += queue[-1].bytes

    def drain(self, writer: VisitWriter, kind: DatagramClass | None = None) -> bool:
        """Write what the visit has room for, of one kind or of all. False if it is full, True if nothing more may be sent.

        A process that only used up the rest of an interrupted turn has not had its chance yet, so it does not count as idle.
        """
        idle = 0
        while idle < len(self._turns):
            process = self._turns[0]
            continued = self._turn_open
            before = writer.size
            if kind is None or self._queues[process][0].kind is kind:
                if not continued:
                    self._begin_turn(process)
                if not self._serve(process, writer, kind):
                    return False
            else:
                continued = False
            idle = 0 if writer.size > before else idle + (not continued)
            self._end_turn(process)
        return True

    def _begin_turn(self, process: int) -> None:
        quantum = TURN_DATAGRAMS * self._body_max
        self._credits[process] = min(quantum, self._credits[process]) + quantum
        self._turn_open = True

    def _end_turn(self, process: int) -> None:
        self._turn_open = False
        self._turns.popleft()
        if self._queues[process]:
            self._turns.append(process)
        else:
            del self._queues[process], self._credits[process]

    def _serve(self, process: int, writer: VisitWriter, kind: DatagramClass | None) -> bool:
        """One turn. False if the end of the visit cut it short."""
        queue = self._queues[process]
        while queue and (kind is None or queue[0].kind is kind):
            alone = len(self._turns) == 1
            credit = writer.room if alone else self._credits[process]
            taken = self._place(queue[0], writer, min(writer.room, credit))
            if taken == 0:
                return writer.room > credit or self._is_blocked(queue[0])
            if not alone:
                self._credits[process] -= taken
            if not queue[0].payloads:
                self.bytes -= queue.popleft().bytes
        return True

    def _place(self, head: QueuedRun, writer: VisitWriter, room: int) -> int:
        """Write as much of the head as `room` allows; return the bytes of stream it took."""
        before = head.bytes
        count = 0 if head.placed else head.fitting(room)
        if count:
            taken = writer.add_run(*head.take(count))
        else:
            taken = self._place_fragment(head, writer, room - FRAGMENT_HEAD_SIZE)
        self.bytes += head.bytes - before
        return taken

    def _place_fragment(self, head: QueuedRun, writer: VisitWriter, room: int) -> int:
        """Only large messages are fragmented, small ones wait for the next visit; and no fragment is uselessly small."""
        if room < min(head.whole - head.placed, self._body_max // 4) or not self._is_large(head) or self._is_blocked(head):
            return 0
        begins = head.placed == 0
        fragment, share = head.cut(room)
        self.partials += begins - (fragment.offset + fragment.length == fragment.total)
        return writer.add_fragment(fragment, share, head.address)

    def _is_large(self, head: QueuedRun) -> bool:
        return RUN_HEAD_SIZE + LENGTH_SIZE + head.whole > self._body_max

    def _is_blocked(self, head: QueuedRun) -> bool:
        """Would starting this message's fragments be one more than receivers keep?"""
        return self._is_large(head) and head.placed == 0 and self.partials >= PARTIALS_MAX

    def restart(self) -> int:
        """A new view: receivers forgot partial messages, so these start again. Return how many bytes must be sent again."""
        again = sum(queue[0].restart() for queue in self._queues.values())
        self.bytes += again
        self.partials = 0
        return again

    def drop(self, unwanted: Callable[[QueuedRun], bool]) -> list[RunIds]:
        """Remove and return what is unwanted, by process and in order."""
        dropped: list[RunIds] = []
        for process in sorted(self._queues):
            queue = self._queues[process]
            for queued in [queued for queued in queue if unwanted(queued)]:
                dropped.append(queued.ids)
                self.bytes -= queued.bytes
                self.partials -= queued.placed > 0
                queue.remove(queued)
            if not queue:
                self._forget(process)
        return dropped

    def _forget(self, process: int) -> None:
        if self._turns[0] == process:
            self._turn_open = False
        self._turns.remove(process)
        del self._queues[process], self._credits[process]
