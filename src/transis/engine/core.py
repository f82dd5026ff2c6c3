"""What the parts of both engines share, and the way from the Outbox to the network.

    Timers           named timers: an event, and the absolute time at which it happens
    is_..._in_reach  which numbers an engine adopts from others
    BaseCore         identity, state, time, outputs, timers, known addresses, the Outbox
    DatagramStore    numbered datagrams of one ring or one sender, as intervals over bursts
    Health           how well this node keeps time itself
    originate        turns what the Outbox filled into a burst: stamped datagrams, with the ids and places of their messages

Numbers of views and timestamps only grow, and nodes adopt larger ones from each other. One absurd claim would carry everybody to
the largest number, from which nobody could go on. So members of a view adopt no number that a cluster could not reach honestly. A
node that is alone adopts any that leaves room: it may be new to a cluster that has worked for a long time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar

from transis.types.config import Config
from transis.types.errors import InternalError, Rejection
from transis.types.ids import NodeId, RingTag, Stretch, ViewId
from transis.types.limits import PROC_SET_MAX, RING_SEQ_MAX
from transis.types.outputs import NEVER, Audience, Note, Originated, Output, Port, Refused, Room, RunIds, Send, Stopped
from transis.types.views import Cause
from transis.wire.burst import COUNTER_MAX, Burst, DataHeader, body_max, encode_ramp
from transis.wire.control import ControlPacket, config_digest, encode_control, split
from transis.wire.envelope import ENVELOPE_SIZE, SEAL_SIZE
from transis.wire.outbox import FilledDatagram, Outbox

# --- timers -----------------------------------------------------------------------------------------------------------

E = TypeVar("E", bound=Enum)


class Timers(Generic[E]):
    """At most one deadline per event. Ties fire in the order of the engine's enumeration, so runs are repeatable."""

    def __init__(self, events: type[E]) -> None:
        self._order = {event: rank for rank, event in enumerate(events)}
        self._deadlines: dict[E, int] = {}
        self._postponed: set[E] = set()

    def arm(self, event: E, at: int) -> None:
        self._deadlines[event] = at
        self._postponed.discard(event)

    def postpone(self, event: E, at: int) -> bool:
        """Let a timer that just fired fire once more; False if it already had this second chance."""
        if event in self._postponed:
            return False
        self._deadlines[event] = at
        self._postponed.add(event)
        return True

    def cancel(self, *events: E) -> None:
        for event in events:
            self._deadlines.pop(event, None)

    def cancel_all(self) -> None:
        self._deadlines.clear()

    def armed(self, event: E) -> bool:
        return event in self._deadlines

    def deadline(self) -> int:
        return min(self._deadlines.values(), default=NEVER)

    def take_due(self, now: int) -> tuple[E, int] | None:
        """Remove and return the earliest timer that is due, with the time it was due at."""
        due = [(at, self._order[event], event) for event, at in self._deadlines.items() if at <= now]
        if not due:
            return None
        at, _, event = min(due)
        del self._deadlines[event]
        return event, at


# --- numbers ----------------------------------------------------------------------------------------------------------

AHEAD_MAX: Final = 1 << 40
"""What a million views a second reach in two weeks, or, for timestamps, a million bursts a second."""


TIMESTAMP_TAKEN_MAX: Final = COUNTER_MAX >> 1
"""Timestamps beyond it are never adopted: this node's own ticks must not reach what receivers reject."""


def is_seq_in_reach(seq: int, mine: int, *, is_alone: bool) -> bool:
    """May this node adopt the number of a view or ring?"""
    return seq <= RING_SEQ_MAX // 2 if is_alone else seq <= min(RING_SEQ_MAX, mine + AHEAD_MAX)


def is_clock_in_reach(clock: int, mine: int, *, is_alone: bool) -> bool:
    return clock < TIMESTAMP_TAKEN_MAX and (is_alone or clock <= mine + AHEAD_MAX)


# --- core -------------------------------------------------------------------------------------------------------------

S = TypeVar("S", bound=Enum)


class BaseCore(Generic[S, E]):
    """`S` is the enumeration of the engine's states, `E` that of its events, some of which are timers."""

    stopped: ClassVar[Any]
    """The state of a stopped engine."""
    beacon_due: ClassVar[Any]
    leave_due: ClassVar[Any]
    """The timer that ends a graceful leave."""

    def __init__(self, config: Config, me: NodeId, state: S, transitions: Mapping[S, Collection[S]], events: type[E]) -> None:
        self.config = config
        self.me = me
        self.state = state
        self.events = events
        self._transitions = transitions
        self.is_leaving = False
        self.now = 0
        self.out: list[Output] = []
        self.timers = Timers(events)
        self.outbox = Outbox(body_max(config.datagram), config.window.outbox_bytes)
        self.digest = config_digest(config.digest_fields())
        self.clock = 0
        self.cause = Cause("start")
        self.rejections: Counter[str] = Counter()
        self.heard_at: dict[NodeId, int] = {}
        self.addresses: dict[NodeId, str] = {me: config.address}
        self._packet_id = 0

    def shift(self, state: S, why: str) -> None:
        """Change the state, if the engine's table of transitions allows it."""
        if state not in self._transitions[self.state]:
            raise InternalError(f"{self.me}: {self.state.value} -> {state.value} on {why} is not a transition of the protocol")
        self.note("state", **{"from": self.state.value, "to": state.value, "event": why})
        self.state = state

    def stop(self, why: str) -> None:
        """Stop at once. Messages that were taken and have no place in any order are refused."""
        if self.state is self.stopped:
            return
        self.refuse(self._take_unsent(), why)
        self.timers.cancel_all()
        self.shift(self.stopped, why)
        self.emit(Stopped(why))

    def _take_unsent(self) -> list[RunIds]:
        return self.outbox.drop_all()

    def emit(self, output: Output) -> None:
        self.out.append(output)

    def note(self, what: str, **detail: str | int) -> None:
        self.out.append(Note(what, tuple(detail.items())))

    def reject(self, rejection: Rejection) -> None:
        """Count what nobody should have said; an operator is told of the first."""
        self.rejections[rejection.field] += 1
        if self.rejections[rejection.field] == 1:
            self.note("rejected", field=rejection.field, why=rejection.why)

    def reject_own(self, burst: Burst) -> None:
        """Data in my name that I did not send: whoever hears it takes it for mine, and may drop what I send under its number."""
        self.reject(Rejection("own name", f"{burst!r} is in the name of {self.me}, which never sent it"))

    def reject_content(self, node: NodeId, seq: int) -> None:
        why = f"datagram {seq} of {node} came with another content than before: somebody else wrote in its name"
        self.reject(Rejection("content", why))

    def trap(self, trap: Enum) -> None:
        """Note that one of the engine's traps was met; its value is the text that coverage counts."""
        self.out.append(Note("trap", (("number", trap.value),)))

    def tick(self) -> int:
        """Advance the Lamport clock for something originated here."""
        self.clock += 1
        return self.clock

    def observe(self, timestamp: int) -> None:
        """Adopt a peer's later timestamp, but never one so large that receivers would reject ours."""
        self.clock = max(self.clock, min(timestamp, TIMESTAMP_TAKEN_MAX))

    def arm(self, event: E, after_us: int) -> None:
        self.timers.arm(event, self.now + after_us)

    def packet(self, packet: ControlPacket) -> list[bytes]:
        """Encode a control packet, in parts if it is large. A retransmission sends these very bytes (D25)."""
        return self.in_parts(encode_control(packet))

    def in_parts(self, encoded: bytes) -> list[bytes]:
        """Split a packet that does not fit one datagram. Its number lets the receiver put the parts together."""
        self._packet_id += 1
        return split(self._packet_id, encoded, self.config.datagram - ENVELOPE_SIZE - SEAL_SIZE)

    def broadcast(self, packet: ControlPacket) -> None:
        self.emit(Send(Audience.WORLD, Port.CONTROL, self.packet(packet)))

    def meet(self, node: NodeId, address: str) -> None:
        """A node introduced itself. No more nodes are remembered than one change of membership can name."""
        if node in self.addresses or len(self.addresses) < PROC_SET_MAX:
            self.heard_at[node] = self.now
            self.addresses[node] = address

    def forget_strangers(self, members: Iterable[NodeId]) -> None:
        """After an installation only the members' addresses matter; others introduce themselves again.

        The record of who was heard starts afresh too: a node heard before the change may be out of reach now.
        """
        self.heard_at.clear()
        self.addresses = {node: self.addresses.get(node, "") for node in members}

    def refuse(self, dropped: Iterable[RunIds], why: str) -> None:
        for ids in dropped:
            self.emit(Refused(ids, why))
        self.announce_room()

    def announce_room(self) -> None:
        """Say which lanes take messages again after a submit was cut short."""
        for lane in self.outbox.take_room():
            self.emit(Room(lane))


# --- health -----------------------------------------------------------------------------------------------------------

HEALTH_MAX: Final = 7
CURE: Final = 64
"""This many good events in a row lower the score by one."""


class Health:
    """`score` rises when this node's own timers fire late: a pause, a garbage collection, a starved machine. 0 is healthy."""

    def __init__(self) -> None:
        self.score = 0
        self._good = 0

    def fired_late(self, late_us: int, limit_us: int) -> bool:
        """True if a timer fired so late that this node, not its peers, was away."""
        if late_us < limit_us:
            return False
        self.score = min(HEALTH_MAX, self.score + 1)
        self._good = 0
        return True

    def went_well(self) -> None:
        """Something happened in time that takes a healthy node, such as a rotation of the token."""
        self._good += 1
        if self._good >= CURE and self.score:
            self.score -= 1
            self._good = 0


# --- origination ------------------------------------------------------------------------------------------------------


class Stamp(NamedTuple):
    """What all datagrams of a burst have in common: the view they were sent in, the sender's rank, the time."""

    view: ViewId
    tag: RingTag
    rank: int
    round: int
    timestamp: int
    encapsulated: bool = False


def originate(core: BaseCore[Any, Any], stamp: Stamp, first_seq: int, place_seq: int, filled: Iterable[FilledDatagram]) -> Burst:
    """Number datagrams of one class from `first_seq` on and make them a burst; their places count up from `place_seq`."""
    view, tag, rank, round_, timestamp, encapsulated = stamp
    parts = list(filled)
    first, is_last = parts[0], parts[-1].last
    header = DataHeader(first.klass, tag, rank, first_seq, round_, timestamp, core.now, first.index, first.last, encapsulated)
    for ids, stretches in _placed(parts, place_seq):
        core.emit(Originated(ids, view, stretches, timestamp))
    return Burst(header, encode_ramp(header, [part.body for part in parts], is_last))


def _placed(parts: Iterable[FilledDatagram], place_seq: int) -> Iterator[tuple[RunIds, list[Stretch]]]:
    """The runs that end in these datagrams, with the places of their messages. A run over several datagrams comes as one."""
    run: RunIds | None = None
    stretches: list[Stretch] = []
    behind = 0
    for seq, part in enumerate(parts, place_seq):
        index = 0
        for ids in part.ended:
            if run is None or ids.first_counter != behind or not _is_alike(run, ids):
                if run is not None:
                    yield run._replace(count=behind - run.first_counter), stretches
                run, stretches = ids, []
            stretches.append((seq, index, ids.count))
            index += ids.count
            behind = ids.first_counter + ids.count
    if run is not None:
        yield run._replace(count=behind - run.first_counter), stretches


def _is_alike(run: RunIds, ids: RunIds) -> bool:
    return ids.process == run.process and ids.service is run.service and ids.address == run.address


def multicast(core: BaseCore[Any, Any], bursts: Iterable[Burst]) -> None:
    """Multicast bursts, new or old: a datagram is sent again byte for byte."""
    for burst in bursts:
        core.emit(Send(Audience.RING, Port.DATA, burst.datagrams))


# --- store ------------------------------------------------------------------------------------------------------------


class DatagramStore:
    """The received store.

    Invariants
    1. The intervals are disjoint and sorted by sequence number.
    2. Every number above the start and up to `aru` is held, or was discarded after it had become safe everywhere.
    3. `aru` + 1 is not held. 4. `discarded` <= `aru` <= `highest`.
    """

    def __init__(self, start: int = 0) -> None:
        """Numbers up to `start` are not this store's concern: they count as received and discarded."""
        self._firsts: list[int] = []
        self._bursts: list[Burst] = []
        self.aru = start
        self.highest = start
        self.discarded = start

    def insert(self, burst: Burst) -> list[Burst]:
        """Keep the new parts of a burst and return them, in order."""
        if burst.first_seq > self.highest:
            fresh = [burst]
            self._firsts.append(burst.first_seq)
            self._bursts.append(burst)
            self.highest = burst.last_seq
        else:
            fresh = [_part(burst, first, last) for first, last in self._absent(burst.first_seq, burst.last_seq)]
            for part in fresh:
                at = bisect_right(self._firsts, part.first_seq)
                self._firsts.insert(at, part.first_seq)
                self._bursts.insert(at, part)
            self.highest = max(self.highest, burst.last_seq)
        if fresh:
            self._advance_aru()
        return fresh

    def _advance_aru(self) -> None:
        at = bisect_right(self._firsts, self.aru + 1) - 1
        while 0 <= at < len(self._bursts) and self._firsts[at] <= self.aru + 1:
            self.aru = max(self.aru, self._bursts[at].last_seq)
            at += 1

    def _absent(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """The ranges within [first, last] that are not held and were not discarded."""
        next_seq = max(first, self.discarded + 1)
        at = max(0, bisect_right(self._firsts, next_seq) - 1)
        while at < len(self._bursts) and self._firsts[at] <= last:
            burst = self._bursts[at]
            if burst.first_seq > next_seq:
                yield next_seq, burst.first_seq - 1
            next_seq = max(next_seq, burst.last_seq + 1)
            at += 1
        if next_seq <= last:
            yield next_seq, last

    def missing(self, upto: int, most: int) -> list[tuple[int, int]]:
        """At most `most` ranges above aru that are not held, up to and including `upto`."""
        ranges: list[tuple[int, int]] = []
        for gap in self._absent(self.aru + 1, upto):
            if len(ranges) == most:
                break
            ranges.append(gap)
        return ranges

    def at(self, seq: int) -> Burst | None:
        """The rest of the burst from `seq` on, or None if `seq` is not held."""
        index = bisect_right(self._firsts, seq) - 1
        if index < 0 or self._bursts[index].last_seq < seq:
            return None
        burst = self._bursts[index]
        return burst.slice(seq, burst.last_seq)

    def after(self, seq: int) -> Iterator[Burst]:
        """Everything held above `seq`, in order."""
        index = max(0, bisect_right(self._firsts, seq + 1) - 1)
        for burst in self._bursts[index:]:
            if burst.last_seq > seq:
                yield burst.slice(max(burst.first_seq, seq + 1), burst.last_seq)

    def between(self, first: int, last: int) -> Iterator[Burst]:
        """What is held of [first, last], in order."""
        for burst in self.after(first - 1):
            if burst.first_seq > last:
                return
            yield burst.slice(burst.first_seq, min(burst.last_seq, last))

    def contradiction(self, burst: Burst) -> Burst | None:
        """What is held of these numbers with other content; a datagram that is sent again is the same, byte for byte."""
        for held in self.between(burst.first_seq, burst.last_seq):
            if held.datagrams != burst.slice(held.first_seq, held.last_seq).datagrams:
                return held
        return None

    def discard(self, upto: int) -> None:
        """Forget whole bursts up to `upto`: they are safe and delivered, nobody will ask for them."""
        upto = min(upto, self.aru)
        count = 0
        while count < len(self._bursts) and self._bursts[count].last_seq <= upto:
            self.discarded = self._bursts[count].last_seq
            count += 1
        if count:
            del self._bursts[:count]
            del self._firsts[:count]

    @property
    def held(self) -> int:
        """Datagrams held now: bounded by the window, and a figure for the statistics."""
        return sum(len(burst) for burst in self._bursts)

    def check(self) -> None:
        assert self.discarded <= self.aru <= self.highest
        assert self.at(self.aru + 1) is None
        assert self._firsts == [burst.first_seq for burst in self._bursts]
        for before, after in zip(self._bursts, self._bursts[1:], strict=False):
            assert before.last_seq < after.first_seq


def _part(burst: Burst, first: int, last: int) -> Burst:
    """What to keep of a burst: the burst itself if all of it, else a copy of the part."""
    part = burst.slice(first, last)
    return part if part is burst else part.by_itself()
