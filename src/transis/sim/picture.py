"""The picture of a whole run, read from its recorded history and the harness's log.

1. A lane is a row of the diagram: the lives of one name, one after the other. Two lives of one name that overlap (a
   copied state directory) get a lane each.
2. A transitional view nearly always begins and ends at one instant: the step of a `Moment` tells what came before it, in it and
   after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from transis.audit.draw.layout import (
    Band,
    DrawnDelivery,
    DrawnLink,
    DrawnSending,
    EventMark,
    LifeLine,
    Moment,
    PausedSpan,
    Picture,
    Step,
    Strike,
    WitnessMark,
)
from transis.audit.draw.svg import clock
from transis.audit.guarantees.property import Violation
from transis.cli.options import LAYERS
from transis.sim.cluster import show_node, show_view, show_view_id
from transis.sim.faults import HARMLESS, CrashNode, InjectedFault, PauseNode, RestartNode, ResumeNode, names_in, parse
from transis.sim.network import SentBurst, WireLog
from transis.trace.events import Conf, Delivery, End, Event, History, NodeTrace, Refuse, Sent
from transis.types.ids import NodeId, ProcessId, Service
from transis.types.views import View

EXPLANATION_MAX: Final = 600
"""Characters of a violation that the diagram repeats; the command prints all of it."""
DEATHS: Final = {"failed": "crashed", "stopped": "stopped by itself", "unknown": "trace ends"}
KINDS: Final = {Service.BASIC: "basic", Service.CAUSAL: "causal", Service.SAFE: "safe"}
"""Of lines; the other services are ordered. Causal messages are a kind apart: on Lansis they have no place in the order."""


TOKEN_LAYER, DAG_LAYER = LAYERS
Log = Sequence[tuple[int, str]]
"""What the harness did, and when."""


class Drawing(NamedTuple):
    """Where a run is to be drawn, and with which layers shown from the start."""

    file: Path | None
    layers: tuple[str, ...]


def picture_of(
    history: History,
    log: Log = (),
    title: str = "",
    facts: Iterable[str] = (),
    violations: Sequence[Violation] = (),
    wire: WireLog | None = None,
    layers: Sequence[str] = (),
) -> Picture:
    """Everything to be drawn of one run; with what went over the network, if it was watched, in layers of its own."""
    end_us = max([time_us for time_us, _ in log] + [event.time_us for trace in history.nodes for event in trace.events] + [1])
    traces = sorted(
        (trace for trace in history.nodes if trace.events), key=lambda trace: (trace.node.name, _start(trace), trace.node)
    )
    lanes, lane_of = _lanes(traces, end_us)
    readings = [_LifeReading(trace, lane_of[trace.node], end_us) for trace in traces]
    strikes, pauses = _strikes(log, lanes, end_us)
    return Picture(
        title=title,
        facts=tuple(facts),
        lanes=tuple(lanes),
        lives=tuple(reading.life for reading in readings),
        bands=tuple(band for reading in readings for band in reading.bands),
        sendings=tuple(sending for reading in readings for sending in reading.sendings),
        arrivals=tuple(arrival for reading in readings for arrival in reading.arrivals),
        marks=tuple(mark for reading in readings for mark in reading.marks),
        strikes=strikes,
        pauses=pauses,
        witnesses=_witnesses(readings, violations),
        links=tuple(_links(wire, lanes, end_us)) if wire is not None else (),
        layers=tuple(layers),
        end_us=end_us,
    )


class _LifeReading:
    """One life's events, sorted into what is drawn of them."""

    def __init__(self, trace: NodeTrace, lane: int, end_us: int) -> None:
        self.node = trace.node
        self.lane = lane
        self.bands: list[Band] = []
        self.sendings: list[DrawnSending] = []
        self.arrivals: list[DrawnDelivery] = []
        self.marks: list[EventMark] = []
        self.moments: dict[int, Moment] = {}
        self._now = Moment(_start(trace))
        self._view: View | None = None
        self._since = self._now
        for event in trace.events:
            self._read(event)
        last = trace.events[-1]
        how = last.how if isinstance(last, End) else ""
        ended_us = last.time_us if isinstance(last, End) else end_us
        self.life = _life_line(lane, trace.node, _start(trace), ended_us, how)
        self._close(Moment(ended_us, self._now.step if ended_us == self._now.time_us else Step.BEFORE))

    def _read(self, event: Event) -> None:
        if event.time_us != self._now.time_us:
            self._now = Moment(event.time_us)
        if isinstance(event, Conf):
            self._configure(event.view)
        self.moments[event.lseq] = self._now
        if isinstance(event, Sent):
            self.sendings.append(self._sending(event))
        elif isinstance(event, Delivery):
            messages = (str(event.process), event.first, event.count)
            self.arrivals.append(DrawnDelivery(self.lane, show_node(self.node), *messages, str(event.conf), self._now))
        elif isinstance(event, Refuse):
            self.marks.append(EventMark(self.lane, self._now, "refused", f"refused at {clock(event.time_us)}: {event.why}"))

    def _sending(self, event: Sent) -> DrawnSending:
        messages = (str(ProcessId(self.node, event.process)), event.first, event.count, KINDS.get(event.service, "ordered"))
        return DrawnSending(self.lane, show_node(self.node), *messages, str(event.conf), self._now)

    def _configure(self, view: View) -> None:
        """A regular view installed at the same instant as the transitional one before it is drawn AFTER it."""
        began_now = self._view is not None and self._since.time_us == self._now.time_us
        if began_now and view.id.is_regular:
            self._now = Moment(self._now.time_us, Step.AFTER)
        self._close(self._now)
        self._view = view
        self._since = self._now
        if not view.id.is_regular and self._now.step == Step.BEFORE:
            self._now = Moment(self._now.time_us, Step.IN)

    def _close(self, end: Moment) -> None:
        if self._view is not None:
            self.bands.append(_band(self.lane, self.node, self._view, self._since, end))


def _life_line(lane: int, node: NodeId, start_us: int, end_us: int, how: str) -> LifeLine:
    return LifeLine(
        lane=lane,
        start_us=start_us,
        end_us=end_us,
        birth=f"{node} starts at {clock(start_us)}",
        death=f"{node} {DEATHS.get(how, how)} at {clock(end_us)}" if how else "",
        crashed=how == "failed",
        label=f"life {node.incarnation}" if node.incarnation > 1 else "",
    )


def _band(lane: int, node: NodeId, view: View, start: Moment, end: Moment) -> Band:
    name, is_regular = show_view_id(view.id), view.id.is_regular
    tip = [
        f"{show_node(node)}: {'regular' if is_regular else f'transitional after {view.regular}'} view {view.id}",
        f"members {', '.join(map(str, view.nodes))}",
        f"cause: {view.cause}",
        f"from {clock(start.time_us)} to {clock(end.time_us)}",
    ]
    tip += [f"{member.node} comes from {member.previous or 'nowhere'}" for member in view.members if is_regular]
    return Band(
        lane=lane,
        view=str(view.id),
        regular=str(view.regular),
        start=start,
        end=end,
        names=(show_view(view), f"{name} {len(view.members)} nodes", name),
        details=(view.cause.in_words(show_node), view.cause.what) if is_regular else (),
        tip="\n".join(tip),
    )


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


def _links(wire: WireLog, lanes: Sequence[str], end_us: int) -> Iterator[DrawnLink]:
    lane = {name: number for number, name in reversed(list(enumerate(lanes)))}
    for hop in wire.hops:
        if hop.arrived_us <= end_us and {hop.source, hop.target} <= lane.keys():
            ends = (lane[hop.source], Moment(hop.left_us), lane[hop.target], Moment(hop.arrived_us))
            yield DrawnLink(TOKEN_LAYER, *ends, f"{hop.words}\n{hop.source} at {clock(hop.left_us)} to {hop.target}")
    for edge in wire.edges():
        burst, follows = edge.burst, edge.follows
        if {burst.source, follows.source} <= lane.keys() and burst.source != follows.source:
            ends = (lane[burst.source], Moment(burst.sent_us), lane[follows.source], Moment(follows.sent_us))
            yield DrawnLink(DAG_LAYER, *ends, f"{_burst_words(burst)} acknowledges {_burst_words(follows)}")


def _burst_words(burst: SentBurst) -> str:
    numbers = str(burst.first) if burst.first == burst.last else f"{burst.first} to {burst.last}"
    return f"{burst.source}'s {numbers}"


def _strikes(log: Log, lanes: Sequence[str], end_us: int) -> tuple[tuple[Strike, ...], tuple[PausedSpan, ...]]:
    """The log as marks. Left out are ambushes, which stand in the log again when they strike, and sends, which are drawn."""
    strikes, pauses = [], []
    paused: dict[str, int] = {}
    for time_us, words in log:
        fault = _parsed(words)
        if isinstance(fault, HARMLESS):
            continue
        if isinstance(fault, PauseNode):
            paused.setdefault(fault.node, time_us)
        if isinstance(fault, ResumeNode | CrashNode | RestartNode) and fault.node in paused:
            pauses += _pauses(lanes, fault.node, paused.pop(fault.node), time_us)
        named = names_in(fault) if fault is not None else frozenset(words.split(" ", 1)[0:1])
        kind = fault.kind if fault is not None else "said"
        strikes.append(Strike(time_us, words, kind, tuple(lane for lane, name in enumerate(lanes) if name in named)))
    for name, since in paused.items():
        pauses += _pauses(lanes, name, since, end_us)
    return tuple(strikes), tuple(pauses)


def _pauses(lanes: Sequence[str], name: str, start_us: int, end_us: int) -> list[PausedSpan]:
    return [PausedSpan(lane, start_us, end_us) for lane, owner in enumerate(lanes) if owner == name]


def _parsed(words: str) -> InjectedFault | None:
    """The fault of a line of the log; None of a line that a node wrote."""
    try:
        return parse(words)
    except ValueError:
        return None


def _witnesses(readings: Sequence[_LifeReading], violations: Sequence[Violation]) -> tuple[WitnessMark, ...]:
    """The events of the first violation of each property: more rings would hide what they point at."""
    by_node = {reading.node: reading for reading in readings}
    first = {violation.property: violation for violation in reversed(violations)}
    marks = []
    for violation in first.values():
        words = f"{violation.property}: {violation.explanation[:EXPLANATION_MAX]}"
        for node, lseq in violation.witness:
            reading = by_node.get(node)
            if reading is not None and lseq in reading.moments:
                marks.append(WitnessMark(reading.lane, reading.moments[lseq], words))
    return tuple(marks)
