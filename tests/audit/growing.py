"""Runs that grow: their traces are written piece by piece, as live nodes do, and an audit looks in between."""

from __future__ import annotations

from pathlib import Path

from transis.trace.events import Conf, Delivery, Event, History, NodeTrace, Sent, Submit
from transis.trace.segment import Header, SegmentWriter
from transis.trace.tables import RunKeys
from transis.types.ids import NodeId, Place, ProcessId, Service, ViewId, ViewKind
from transis.types.views import Cause, Member, View

CLUSTER = "simulated"
"""Whose clocks nobody compares with true time."""

SEGMENT_BYTES = 4000
BATCH = 20


class Growing:
    """A history on its way into files, several segments a life."""

    def __init__(self, root: Path, run: str, history: History, absent: frozenset[str] = frozenset()) -> None:
        """The lives of `absent` names come only with the last step."""
        self.name = run
        self.directory = root / run.replace(" ", "-")
        self.history = history
        self.key = RunKeys(CLUSTER, run).run
        self._absent = absent
        self._last_us = max(event.time_us for trace in history.nodes for event in trace.events)
        headers = [Header(CLUSTER, run, trace.node, mode=history.promises) for trace in history.nodes]
        self._writers = [SegmentWriter(self.directory, header, SEGMENT_BYTES) for header in headers]
        self._done = [0] * len(headers)

    def grow(self, step: int, steps: int) -> None:
        """Everything up to a moment, sealed; with the last step the end of the run."""
        until_us = self._last_us * step // steps
        for place, (writer, trace) in enumerate(zip(self._writers, self.history.nodes, strict=True)):
            if step < steps and trace.node.name in self._absent:
                continue
            late = (number for number, event in enumerate(trace.events) if event.time_us > until_us)
            end = len(trace.events) if step == steps else max(self._done[place], next(late, len(trace.events)))
            for start in range(self._done[place], end, BATCH):
                assert writer.write(trace.events[start : min(end, start + BATCH)])
            self._done[place] = end
            if step == steps:
                writer.close(self.history.closed)
            else:
                writer.seal()


def one_long_view(turns: int, closed: bool = False) -> History:
    """Three nodes that send in turn, one message each, and a fourth that only listens: nothing else ever happens."""
    nodes = [NodeId(name, 1, number) for number, name in enumerate("abcd", 1)]
    ring = ViewId(ViewKind.REGULAR, 4, nodes[0])
    view = View(ring, ring, tuple(Member(node, "", None) for node in nodes), Cause("start"), 0)
    lives: dict[NodeId, list[Event]] = {node: [Conf(1, 0, view)] for node in nodes}
    for turn in range(turns):
        sender, counter, now_us = nodes[turn % 3], turn // 3 + 1, 10 * turn
        ids = (counter, 1, Service.AGREED, b"")
        own = lives[sender]
        own.append(Submit(len(own) + 1, now_us, 0, *ids))
        own.append(Sent(len(own) + 1, now_us, ring, 0, *ids, Place(turn + 1, 0), turn))
        for events in lives.values():
            claim = (ring, ring, ProcessId(sender, 0))
            events.append(Delivery(len(events) + 1, now_us + 1, *claim, *ids, Place(turn + 1, 0), turn, now_us, turn, 8))
    return History([NodeTrace(node, events) for node, events in lives.items()], closed)
