"""An Observer that turns outputs into events, evidence before effect.

The recorder: turns what a node hands out into events, one step per run, and hands a turn's events to a sink.

Rules of this file:
1. `lseq` is dense from 1 over everything the recorder was told, dropped or not; a Gap names what was dropped.
2. The recorder never blocks its node: a turn has a limit, a sink may refuse a batch, and both end in a Gap.
3. Evidence precedes effect: the driver calls `flush` before a datagram leaves and before a client sees a message.
4. After the end of a life nothing more is recorded.
5. What clients are handed is gathered, one number a run, and becomes one event: at the end of the turn, or before anything
   that changes who gets what (handing.py).

What client processes were handed since the last event about them: a number a run, whatever number of processes and messages.

Runs of one address have the same recipients until a view changes, so they are gathered by address. A run that comes right behind
its DELIVERs is known by the numbers of those events; any other waited, and is named by its messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from transis.trace.events import (
    CheckpointEvent,
    ClientDelivery,
    ClientLeft,
    ClientLife,
    Conf,
    Delivery,
    End,
    Event,
    Fault,
    Gap,
    GroupConf,
    Handed,
    NoteEvent,
    Prefix,
    Refuse,
    Sent,
    Submit,
    Waited,
)
from transis.trace.tape import Telling
from transis.types.ids import NodeId, Place, ProcessId, ViewId, ViewKind
from transis.types.outputs import (
    Accepted,
    Configure,
    Delivered,
    GroupDelivered,
    GroupLeft,
    GroupOutput,
    GroupRefused,
    GroupViewInstalled,
    NodeOutput,
    Note,
    Originated,
    Recipient,
    Refused,
    Stopped,
)
from transis.types.views import GroupId, GroupViewId

# --- handing ----------------------------------------------------------------------------------------------------------

Recipients = tuple[Recipient, ...]


class Handing:
    """`_gathered` has, by address, who gets its runs and the runs so far."""

    def __init__(self) -> None:
        self._last: Delivered | None = None
        self._last_lseqs = range(0)
        self._gathered: dict[bytes, tuple[Recipients, list[int]]] = {}
        self._waited: list[Waited] = []

    def delivered(self, run: Delivered, lseqs: range) -> None:
        self._last, self._last_lseqs = run, lseqs

    def add(self, run: Delivered, recipients: Recipients) -> bool:
        """Note a run for these; False if the same address had others before, and what was gathered must be told first."""
        if run is not self._last:
            self._waited += [
                Waited(groups, processes, part.process, part.first_counter, len(part.payloads))
                for part in run.parts()
                for groups, processes in _together(recipients)
            ]
            return True
        known, runs = self._gathered.setdefault(run.address, (recipients, []))
        if known is not recipients and known != recipients:
            return False
        runs += self._last_lseqs
        return True

    def take(self) -> tuple[tuple[Handed, ...], tuple[Waited, ...]]:
        if not self._gathered and not self._waited:
            return (), ()
        handed = tuple(
            Handed(groups, processes, tuple(runs))
            for recipients, runs in self._gathered.values()
            for groups, processes in _together(recipients)
        )
        waited = tuple(self._waited)
        self._gathered, self._waited = {}, []
        return handed, waited


def _together(recipients: Recipients) -> list[tuple[tuple[GroupId, ...], tuple[int, ...]]]:
    """Processes that get something through the same groups, together."""
    found: dict[tuple[GroupId, ...], list[int]] = {}
    for process, groups in recipients:
        found.setdefault(groups, []).append(process)
    return [(groups, tuple(processes)) for groups, processes in found.items()]


# --- recorder ---------------------------------------------------------------------------------------------------------

TURN_EVENTS_MAX: Final = 1 << 20
"""Events between two flushes: one turn of a driver makes hundreds, so this is a bound on memory, not a tuning knob."""

NOTES_FOR_COVERAGE: Final = frozenset({"event", "trap"})
"""Notes that only the coverage table wants: several a packet, and nothing an audit reads."""


NUMBER_MAX: Final = 1 << 63
INDEX_MAX: Final = 1 << 31
"""Numbers that a client tells of a position are recorded below these: tables have them in so many bits."""


class Checkpoint(NamedTuple):
    """What a client said about its state, and behind which message of its group (events.CheckpointEvent)."""

    group: GroupId
    name: str
    view: GroupViewId
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody wants of a checkpoint
    sender: ProcessId | None
    counter: int
    place: Place
    digest: bytes

    @property
    def is_possible(self) -> bool:
        numbers = (self.count, self.counter, self.place.seq, *self.view.place)
        return all(0 <= number < NUMBER_MAX for number in numbers) and 0 <= self.place.index < INDEX_MAX


class Sink(Protocol):
    """Where a turn's events go. False means that the batch was not taken; the recorder then writes a Gap."""

    def write(self, events: Sequence[Event]) -> bool: ...


class MemorySink:
    """Keeps everything: for the simulator and for tests, whose runs are bounded."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def write(self, events: Sequence[Event]) -> bool:
        self.events.extend(events)
        return True


class Recorder:
    """The events of one life of one node."""

    def __init__(self, node: NodeId, sink: Sink | None = None, turn_max: int = TURN_EVENTS_MAX) -> None:
        self.node = node
        self._memory = MemorySink()
        self._sink: Sink = self._memory if sink is None else sink
        self._turn_max = turn_max
        self._turn: list[Event] = []
        self._lseq = 0
        self._tpos = 0
        self._conf: ViewId | None = None
        self._overflow_from = 0
        self._handing = Handing()
        self._handed_us = 0
        self.ended = False

    @property
    def events(self) -> list[Event]:
        """Everything recorded, when the recorder keeps it in memory; a recorder with a sink of its own has none here."""
        self.flush()
        return self._memory.events

    def observe(self, now_us: int, output: NodeOutput | GroupOutput) -> None:
        """Record one output of the node; outputs that are no evidence (packets, writes, room) pass unrecorded."""
        match output:
            case Delivered():
                self._delivered(now_us, output)
            case Originated():
                self._originated(now_us, output)
            case Accepted(ids):
                process, first, count, service, address = ids
                self._append(Submit(self._next(), now_us, process, first, count, service, address))
            case Refused(ids, why):
                self._append(Refuse(self._next(), now_us, ids.process, ids.first_counter, ids.count, why))
            case GroupDelivered(run, recipients):
                self._handed_us = now_us
                if not self._handing.add(run, recipients):
                    self._hand_over(now_us)
                    self._handing.add(run, recipients)
            case GroupViewInstalled(view, processes):
                self._hand_over(now_us)
                self._append(GroupConf(self._next(), now_us, view, processes))
            case GroupLeft(process, group, name, why) | GroupRefused(process, group, name, why):
                self._hand_over(now_us)
                refused = isinstance(output, GroupRefused)
                self._append(ClientLeft(self._next(), now_us, process, group, name, why, refused))
            case Configure(view):
                self._hand_over(now_us)
                self._conf = view.id
                if view.id.kind is ViewKind.REGULAR:
                    self._tpos = 0
                self._append(Conf(self._next(), now_us, view))
            case Note(what, detail):
                if what not in NOTES_FOR_COVERAGE:
                    self._append(NoteEvent(self._next(), now_us, what, detail))
            case Stopped():
                self.end(now_us, "stopped")
            case _:
                pass

    def client(self, now_us: int, process: int, connected: bool) -> None:
        """A process connected, or is gone; whoever owns the doors of processes says so, for the node hands out nothing then."""
        self._hand_over(now_us)
        self._append(ClientLife(self._next(), now_us, process, connected))

    def checkpoint(self, now_us: int, process: int, told: Checkpoint) -> None:
        """A process told of its state. It may have invented the position, but not one that no table can hold."""
        if told.is_possible:
            self._hand_over(now_us)
            self._append(CheckpointEvent(self._next(), now_us, process, *told))

    def telling(self, now_us: int, telling: Telling) -> None:
        """Digests of what was delivered (tape.py)."""
        conf, regular, (count, a, b), last = telling
        self._append(Prefix(self._next(), now_us, conf, regular, count, a, b, last))

    def fault(self, now_us: int, what: str) -> None:
        """The harness did something to this node."""
        self._append(Fault(self._next(), now_us, what))

    def end(self, now_us: int, how: str) -> None:
        """The life is over; only the first word about it counts."""
        if not self.ended:
            self._hand_over(now_us)
            self._append(End(self._next(), now_us, how))
            self.ended = True

    def flush(self) -> None:
        """Hand the turn to the sink in one write; what could not be kept is named by a Gap that opens the next turn."""
        self._hand_over(self._handed_us)
        if not self._turn:
            return
        batch, self._turn = self._turn, []
        if not self._sink.write(batch):
            opening = batch[0]
            self._overflow_from = opening.first_lseq if isinstance(opening, Gap) else opening.lseq
        if self._overflow_from:
            last = self._lseq
            self._turn.append(Gap(self._next(), batch[-1].time_us, self._overflow_from, last))
            self._overflow_from = 0

    def _originated(self, now_us: int, output: Originated) -> None:
        (process, first, _, service, address), view, stretches, timestamp = output
        for seq, index, count in stretches:
            what = (process, first, count, service, address, Place(seq, index))
            self._append(Sent(self._next(), now_us, view, *what, timestamp))
            first += count

    def _delivered(self, now_us: int, run: Delivered) -> None:
        """One event for each datagram that messages end in, so that all nodes tell of the same runs."""
        first = self._lseq + 1
        for part in run.parts():
            self._delivered_part(now_us, part)
        self._handing.delivered(run, range(first, self._lseq + 1))

    def _delivered_part(self, now_us: int, run: Delivered) -> None:
        count = len(run.payloads)
        tpos = -1
        if run.ordered:
            tpos = self._tpos
            self._tpos += count
        conf = run.view if self._conf is None else self._conf
        lseq, size = self._next(), getattr(run.payloads, "size", None)
        if size is None:  # Not cut out of a burst, whose runs know it without looking at each message.
            size = sum(map(len, run.payloads))
        what = (run.process, run.first_counter, count, run.service, run.address, run.place)
        self._append(Delivery(lseq, now_us, conf, run.view, *what, tpos, run.origin_us, run.timestamp, size))

    def _hand_over(self, now_us: int) -> None:
        handed, waited = self._handing.take()
        if handed or waited:
            self._append(ClientDelivery(self._next(), now_us, handed, waited))

    def _next(self) -> int:
        self._lseq += 1
        return self._lseq

    def _append(self, event: Event) -> None:
        if self.ended:
            self._lseq -= 1
            return
        if len(self._turn) < self._turn_max:
            self._turn.append(event)
            return
        if not self._overflow_from:
            self._overflow_from = event.lseq
