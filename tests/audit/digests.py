"""What nodes would tell of a history: digests of every prefix, reckoned message by message from the recorded deliveries, or taken
from the tapes of a simulated run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.trace.taped import Taped
from transis.audit.follow.divergence import DigestFile
from transis.trace.events import Conf, Delivery, End, Event, History, NodeTrace, Prefix
from transis.trace.segment import DIGESTS, LIVE_RUN, Header, SegmentWriter
from transis.trace.tape import EMPTY, after, head_of
from transis.trace.tape import Digest as Sums
from transis.types.ids import NodeId
from transis.types.views import View

CLUSTER = "simulated"


def told_of(history: History) -> list[DigestFile]:
    return [DigestFile(CLUSTER, history.promises, trace.node, 0, list(digests_of(trace))) for trace in history.nodes]


def digests_of(trace: NodeTrace) -> Iterator[Event]:
    """Every position is told, and the last one of a configuration as such."""
    sums, view = EMPTY, None
    for event in trace.events:
        if isinstance(event, Conf):
            if view is not None:
                yield prefix(view, sums, True)
            sums, view = EMPTY, event.view
            yield event
        elif isinstance(event, End):
            yield event
        elif isinstance(event, Delivery) and event.tpos >= 0 and view is not None:
            head = head_of(event.process.node.boot, event.process.number, event.service)
            for i in range(event.count):
                sums = after(sums, head, event.first + i, 1)
                yield prefix(view, sums, False)


def prefix(view: View, sums: Sums, last: bool) -> Prefix:
    return Prefix(0, 0, view.id, view.regular, *sums, last)


def told_by(life: Taped) -> DigestFile:
    """As its tape tells it; a life that ended says so."""
    events: list[Event] = []
    for one in life.tape.take(0).digests:
        events.append(Conf(0, 0, one) if isinstance(one, View) else Prefix(0, 0, one.conf, one.regular, *one.sums, one.last))
    return told(life.node, [*events, *(event for event in life.events if isinstance(event, End))])


def told(node: NodeId, events: list[Event], modified_us: int = 0, mode: str = "evs") -> DigestFile:
    return DigestFile(CLUSTER, mode, node, modified_us, events)


def seal(directory: Path, *rows: DigestFile, number: int = 1) -> None:
    """Each as one sealed file, as a flight recorder leaves it."""
    for row in rows:
        writer = SegmentWriter(directory, Header(row.cluster, LIVE_RUN, row.node, mode=row.mode, number=number), naming=DIGESTS)
        assert writer.write([event._replace(lseq=lseq) for lseq, event in enumerate(row.events, start=1)])
        writer.seal()
