"""The recorder: an observer that turns a node's outputs into events, one step a run, and hands a turn's events to a sink.

1. `lseq` is dense from 1 over everything that was observed, dropped or not; a Gap names what was dropped.
2. The recorder never blocks its node: a turn has a limit, a sink may refuse a batch, and both end in a Gap.
3. Evidence precedes effect: the driver calls `flush` before a datagram leaves and before a client sees a message.
4. After the end of a life nothing more is recorded.
5. Client deliveries are gathered by address, because runs with one address have the same recipients until a view changes. They
   become one event: at the end of the turn, or before anything that changes who gets what. A run right after its DELIVERs is
   identified by the numbers of those events; any other had to wait, and is named by its messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

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
    HandedRuns,
    LateRuns,
    NoteEvent,
    Prefix,
    Refuse,
    Sent,
    Submit,
)
from transis.trace.tape import PrefixDigest
from transis.types.ids import NodeId, Place, ViewId, ViewKind
from transis.types.outputs import (
    Accepted,
    Checkpoint,
    Configure,
    Delivered,
    GroupDelivered,
    GroupLeft,
    GroupRefused,
    GroupViewInstalled,
    NodeOutput,
    Note,
    Observer,
    Originated,
    ProcessConnected,
    ProcessGone,
    Recipient,
    Refused,
    Stopped,
)
from transis.types.views import GroupId

# --- deliveries -------------------------------------------------------------------------------------------------------

Recipients = tuple[Recipient, ...]


class ClientDeliveries:
    """What client processes were handed since the last event about them.

    `_gathered` has, by address, who gets its runs and the runs so far.
    """

    def __init__(self) -> None:
        self._last: Delivered | None = None
        self._last_lseqs = range(0)
        self._gathered: dict[bytes, tuple[Recipients, list[int]]] = {}
        self._waited: list[LateRuns] = []

    def delivered(self, run: Delivered, lseqs: range) -> None:
        self._last, self._last_lseqs = run, lseqs

    def add(self, run: Delivered, recipients: Recipients) -> bool:
        """Note a run for these; False if the address had other recipients before: then what was gathered is recorded first."""
        if run is not self._last:
            self._waited += [
                LateRuns(groups, processes, part.process, part.first_counter, len(part.payloads))
                for part in run.parts()
                for groups, processes in _together(recipients)
            ]
            return True
        known, runs = self._gathered.setdefault(run.address, (recipients, []))
        if known is not recipients and known != recipients:
            return False
        runs += self._last_lseqs
        return True

    def take(self) -> tuple[tuple[HandedRuns, ...], tuple[LateRuns, ...]]:
        if not self._gathered and not self._waited:
            return (), ()
        handed = tuple(
            HandedRuns(groups, processes, tuple(runs))
            for recipients, runs in self._gathered.values()
            for groups, processes in _together(recipients)
        )
        waited = tuple(self._waited)
        self._gathered, self._waited = {}, []
        return handed, waited


def _together(recipients: Recipients) -> list[tuple[tuple[GroupId, ...], tuple[int, ...]]]:
    """Recipients grouped by the groups through which they get a run."""
    found: dict[tuple[GroupId, ...], list[int]] = {}
    for process, groups in recipients:
        found.setdefault(groups, []).append(process)
    return [(groups, tuple(processes)) for groups, processes in found.items()]


# --- recorder ---------------------------------------------------------------------------------------------------------

TURN_EVENTS_MAX: Final = 1 << 20
"""Events between two flushes: one turn of a driver makes hundreds, so this is a bound on memory, not a tuning knob."""

NOTES_FOR_COVERAGE: Final = frozenset({"event", "trap"})
"""Notes that only the coverage table needs: several for each packet, and nothing an audit reads."""


NUMBER_MAX: Final = 1 << 63
INDEX_MAX: Final = 1 << 31
"""A client's numbers for a position are recorded only below these limits: tables have so many bits for them."""


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


class Recorder(Observer):
    """The events of one life of one node."""

    keeps_evidence = True

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
        self._client_deliveries = ClientDeliveries()
        self._handed_us = 0
        self.ended = False

    @property
    def events(self) -> list[Event]:
        """Everything recorded, when the recorder keeps it in memory; a recorder with a sink of its own has none here."""
        self.flush()
        return self._memory.events

    def observe(self, now_us: int, outputs: Sequence[NodeOutput]) -> None:
        for output in outputs:
            record = _RECORD.get(type(output))
            if record is not None:
                record(self, now_us, output)

    def prefix(self, now_us: int, digest: PrefixDigest) -> None:
        """Digests of what was delivered (tape.py)."""
        conf, regular, (count, a, b), last = digest
        self._append(Prefix(self._next(), now_us, conf, regular, count, a, b, last))

    def fault(self, now_us: int, what: str) -> None:
        """The harness did something to this node."""
        self._append(Fault(self._next(), now_us, what))

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

    def close(self, now_us: int, how: str) -> None:
        self.end(now_us, how)
        self.flush()

    def end(self, now_us: int, how: str) -> None:
        """The life is over; only the first call counts."""
        if not self.ended:
            self._hand_over(now_us)
            self._append(End(self._next(), now_us, how))
            self.ended = True

    # --- outputs ----------------------------------------------------------------------------------------------------

    def _originated(self, now_us: int, output: Originated) -> None:
        (process, first, _, service, address), view, stretches, timestamp = output
        for seq, index, count in stretches:
            what = (process, first, count, service, address, Place(seq, index))
            self._append(Sent(self._next(), now_us, view, *what, timestamp))
            first += count

    def _delivered(self, now_us: int, run: Delivered) -> None:
        """One event for each datagram that messages end in, so that all nodes record the same runs."""
        first = self._lseq + 1
        for part in run.parts():
            self._delivered_part(now_us, part)
        self._client_deliveries.delivered(run, range(first, self._lseq + 1))

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

    def _accepted(self, now_us: int, output: Accepted) -> None:
        process, first, count, service, address = output.ids
        self._append(Submit(self._next(), now_us, process, first, count, service, address))

    def _refused(self, now_us: int, output: Refused) -> None:
        ids = output.ids
        self._append(Refuse(self._next(), now_us, ids.process, ids.first_counter, ids.count, output.why))

    def _configured(self, now_us: int, output: Configure) -> None:
        self._hand_over(now_us)
        self._conf = output.view.id
        if output.view.id.kind is ViewKind.REGULAR:
            self._tpos = 0
        self._append(Conf(self._next(), now_us, output.view))

    def _noted(self, now_us: int, output: Note) -> None:
        if output.what not in NOTES_FOR_COVERAGE:
            self._append(NoteEvent(self._next(), now_us, output.what, output.detail))

    def _stopped(self, now_us: int, output: Stopped) -> None:
        self.end(now_us, "stopped")

    # --- client processes -------------------------------------------------------------------------------------------

    def _connected(self, now_us: int, output: ProcessConnected) -> None:
        self._client(now_us, output.process, True)

    def _gone(self, now_us: int, output: ProcessGone) -> None:
        self._client(now_us, output.process, False)

    def _client(self, now_us: int, process: int, connected: bool) -> None:
        self._hand_over(now_us)
        self._append(ClientLife(self._next(), now_us, process, connected))

    def _checkpoint(self, now_us: int, output: Checkpoint) -> None:
        if is_possible(output):
            self._hand_over(now_us)
            self._append(CheckpointEvent(self._next(), now_us, *output))

    def _handed(self, now_us: int, output: GroupDelivered) -> None:
        run, recipients = output
        self._handed_us = now_us
        if not self._client_deliveries.add(run, recipients):
            self._hand_over(now_us)
            self._client_deliveries.add(run, recipients)

    def _group_view(self, now_us: int, output: GroupViewInstalled) -> None:
        self._hand_over(now_us)
        self._append(GroupConf(self._next(), now_us, output.view, output.processes))

    def _left(self, now_us: int, output: GroupLeft | GroupRefused) -> None:
        self._hand_over(now_us)
        process, group, name, why = output
        self._append(ClientLeft(self._next(), now_us, process, group, name, why, isinstance(output, GroupRefused)))

    # --- writing ----------------------------------------------------------------------------------------------------

    def _hand_over(self, now_us: int) -> None:
        handed, waited = self._client_deliveries.take()
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


_RECORD: Final[dict[type[NodeOutput], Callable[[Recorder, int, Any], None]]] = {
    Delivered: Recorder._delivered,
    Originated: Recorder._originated,
    Accepted: Recorder._accepted,
    Refused: Recorder._refused,
    Configure: Recorder._configured,
    Note: Recorder._noted,
    Stopped: Recorder._stopped,
    GroupDelivered: Recorder._handed,
    GroupViewInstalled: Recorder._group_view,
    GroupLeft: Recorder._left,
    GroupRefused: Recorder._left,
    ProcessConnected: Recorder._connected,
    ProcessGone: Recorder._gone,
    Checkpoint: Recorder._checkpoint,
}
"""How to record each kind of output. The others (packets, writes, room) are not evidence."""
Recorder.kinds = frozenset(_RECORD)


def is_possible(checkpoint: Checkpoint) -> bool:
    """A process may invent a position, but not one that no table can hold."""
    numbers = (checkpoint.count, checkpoint.counter, checkpoint.place.seq, *checkpoint.view.place)
    return all(0 <= number < NUMBER_MAX for number in numbers) and 0 <= checkpoint.place.index < INDEX_MAX
