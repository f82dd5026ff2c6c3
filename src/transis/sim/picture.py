"""What a diagram shows, read from a recorded history and the harness's log.

1. A lane is a row of the diagram: the lives of one name, one after the other. Two lives of one name that overlap (a
   copied state directory) get a lane each.
2. Several events of a node happen at one instant, a transitional view and the regular one after it nearly always: a
   `Moment` has a step beside its time, so that the scale can give such an instant some room.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from transis.audit.guarantees.property import Violation
from transis.sim.faults import HARMLESS, Crash, Fault, Pause, Restart, Resume, names_in, parse
from transis.trace.events import Conf, Delivery, End, Event, History, NodeTrace, Refuse, Sent
from transis.types.ids import NodeId, ProcessId, Service, ViewId
from transis.types.views import View

EXPLANATION_MAX: Final = 600
"""Characters of a violation that the diagram repeats; the command prints all of it."""


class Step(IntEnum):
    """BEFORE an instant's change of configuration, IN the transitional one that begins and ends there, or AFTER."""

    BEFORE = 0
    IN = 1
    AFTER = 2


class Moment(NamedTuple):
    time_us: int
    step: Step = Step.BEFORE


class LifeLine(NamedTuple):
    """`how` it ended; empty if it lives to the end of the picture."""

    lane: int
    node: NodeId
    start_us: int
    end_us: int
    how: str


class Band(NamedTuple):
    """A node's time in one configuration."""

    lane: int
    node: NodeId
    view: View
    start: Moment
    end: Moment


class Sending(NamedTuple):
    lane: int
    process: ProcessId
    first: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    service: Service
    conf: ViewId
    moment: Moment


class Arrival(NamedTuple):
    lane: int
    node: NodeId
    process: ProcessId
    first: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    conf: ViewId
    moment: Moment


class Strike(NamedTuple):
    """A fault in the harness's words; `lanes` are those it speaks of, none for the whole network."""

    time_us: int
    text: str
    kind: str
    lanes: tuple[int, ...]


class Rest(NamedTuple):
    """A node was paused."""

    lane: int
    start_us: int
    end_us: int


class Proof(NamedTuple):
    """An event that takes part in a violation."""

    lane: int
    moment: Moment
    text: str


class Picture(NamedTuple):
    title: str
    facts: tuple[str, ...]
    lanes: tuple[str, ...]
    lives: tuple[LifeLine, ...]
    bands: tuple[Band, ...]
    sendings: tuple[Sending, ...]
    arrivals: tuple[Arrival, ...]
    refusals: tuple[tuple[int, int, str], ...]
    """(lane, time, why) of messages that were not sent."""
    strikes: tuple[Strike, ...]
    rests: tuple[Rest, ...]
    proofs: tuple[Proof, ...]
    end_us: int


Log = Sequence[tuple[int, str]]
"""What the harness did, and when."""


def picture_of(
    history: History, log: Log = (), title: str = "", facts: Iterable[str] = (), violations: Sequence[Violation] = ()
) -> Picture:
    """Everything to be drawn of one run."""
    end_us = max([time_us for time_us, _ in log] + [event.time_us for trace in history.nodes for event in trace.events] + [1])
    traces = sorted(
        (trace for trace in history.nodes if trace.events), key=lambda trace: (trace.node.name, _start(trace), trace.node)
    )
    lanes, lane_of = _lanes(traces, end_us)
    readings = [_Reading(trace, lane_of[trace.node], end_us) for trace in traces]
    strikes, rests = _strikes(log, lanes, end_us)
    return Picture(
        title=title,
        facts=tuple(facts),
        lanes=tuple(lanes),
        lives=tuple(reading.life for reading in readings),
        bands=tuple(band for reading in readings for band in reading.bands),
        sendings=tuple(sending for reading in readings for sending in reading.sendings),
        arrivals=tuple(arrival for reading in readings for arrival in reading.arrivals),
        refusals=tuple(refusal for reading in readings for refusal in reading.refusals),
        strikes=strikes,
        rests=rests,
        proofs=_proofs(readings, violations),
        end_us=end_us,
    )


class _Reading:
    """One life's events, sorted into what is drawn of them."""

    def __init__(self, trace: NodeTrace, lane: int, end_us: int) -> None:
        self.node = trace.node
        self.lane = lane
        self.bands: list[Band] = []
        self.sendings: list[Sending] = []
        self.arrivals: list[Arrival] = []
        self.refusals: list[tuple[int, int, str]] = []
        self.moments: dict[int, Moment] = {}
        self._now = Moment(_start(trace))
        self._view: View | None = None
        self._since = self._now
        for event in trace.events:
            self._read(event)
        last = trace.events[-1]
        how = last.how if isinstance(last, End) else ""
        ended_us = last.time_us if isinstance(last, End) else end_us
        self.life = LifeLine(lane, trace.node, _start(trace), ended_us, how)
        self._close(Moment(ended_us, self._now.step if ended_us == self._now.time_us else Step.BEFORE))

    def _read(self, event: Event) -> None:
        if event.time_us != self._now.time_us:
            self._now = Moment(event.time_us)
        if isinstance(event, Conf):
            self._configure(event.view)
        self.moments[event.lseq] = self._now
        if isinstance(event, Sent):
            process = ProcessId(self.node, event.process)
            sending = Sending(self.lane, process, event.first, event.count, event.service, event.conf, self._now)
            self.sendings.append(sending)
        elif isinstance(event, Delivery):
            what = (event.process, event.first, event.count, event.conf)
            self.arrivals.append(Arrival(self.lane, self.node, *what, self._now))
        elif isinstance(event, Refuse):
            self.refusals.append((self.lane, event.time_us, event.why))

    def _configure(self, view: View) -> None:
        """A regular view at the instant of the transitional one before it comes AFTER it."""
        began_now = self._view is not None and self._since.time_us == self._now.time_us
        if began_now and view.id.is_regular:
            self._now = Moment(self._now.time_us, Step.AFTER)
        self._close(self._now)
        self._view = view
        self._since = self._now
        if not view.id.is_regular and self._now.step is Step.BEFORE:
            self._now = Moment(self._now.time_us, Step.IN)

    def _close(self, end: Moment) -> None:
        if self._view is not None:
            self.bands.append(Band(self.lane, self.node, self._view, self._since, end))


def _start(trace: NodeTrace) -> int:
    return trace.events[0].time_us


def _lanes(traces: Sequence[NodeTrace], end_us: int) -> tuple[list[str], dict[NodeId, int]]:
    """Each life goes to the first lane of its name that is free by then."""
    lanes: list[str] = []
    free_from: list[int] = []
    lane_of: dict[NodeId, int] = {}
    for trace in traces:
        name, last = trace.node.name, trace.events[-1]
        ended = last.time_us if isinstance(last, End) else end_us + 1
        free = [lane for lane, owner in enumerate(lanes) if owner == name and free_from[lane] <= _start(trace)]
        if not free:
            free = [len(lanes)]
            lanes.append(name)
            free_from.append(0)
        free_from[free[0]] = ended
        lane_of[trace.node] = free[0]
    return lanes, lane_of


def _strikes(log: Log, lanes: Sequence[str], end_us: int) -> tuple[tuple[Strike, ...], tuple[Rest, ...]]:
    """The log as marks. Left out are ambushes, which stand in the log again when they strike, and sends, which are drawn."""
    strikes, rests = [], []
    resting: dict[str, int] = {}
    for time_us, words in log:
        fault = _parsed(words)
        if isinstance(fault, HARMLESS):
            continue
        if isinstance(fault, Pause):
            resting.setdefault(fault.node, time_us)
        if isinstance(fault, Resume | Crash | Restart) and fault.node in resting:
            rests += _rests(lanes, fault.node, resting.pop(fault.node), time_us)
        named = names_in(fault) if fault is not None else frozenset(words.split(" ", 1)[0:1])
        kind = fault.kind if fault is not None else "said"
        strikes.append(Strike(time_us, words, kind, tuple(lane for lane, name in enumerate(lanes) if name in named)))
    for name, since in resting.items():
        rests += _rests(lanes, name, since, end_us)
    return tuple(strikes), tuple(rests)


def _rests(lanes: Sequence[str], name: str, start_us: int, end_us: int) -> list[Rest]:
    return [Rest(lane, start_us, end_us) for lane, owner in enumerate(lanes) if owner == name]


def _parsed(words: str) -> Fault | None:
    """The fault that a line of the log tells of; other lines are what a node said."""
    try:
        return parse(words)
    except ValueError:
        return None


def _proofs(readings: Sequence[_Reading], violations: Sequence[Violation]) -> tuple[Proof, ...]:
    """The events of the first violation of each property: more rings would hide what they point at."""
    by_node = {reading.node: reading for reading in readings}
    first = {violation.property: violation for violation in reversed(violations)}
    proofs = []
    for violation in first.values():
        words = f"{violation.property}: {violation.explanation[:EXPLANATION_MAX]}"
        for node, lseq in violation.witness:
            reading = by_node.get(node)
            if reading is not None and lseq in reading.moments:
                proofs.append(Proof(reading.lane, reading.moments[lseq], words))
    return tuple(proofs)
