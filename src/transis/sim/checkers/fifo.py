"""FIFO: every node delivers the messages of a process in the order of their counters, over its whole life. Basic ones apart."""

from __future__ import annotations

from transis.sim.checkers.index import Index, Life
from transis.sim.checkers.verdict import Findings
from transis.trace.events import Delivery
from transis.types.ids import MessageId


def check_fifo(index: Index, findings: Findings) -> None:
    for life in index.lives:
        latest: dict[int, Delivery] = {}
        for line in (stay.all for stay in life.stays):
            findings.checked += len(line.codes)
            for start, run in zip(line.starts, line.runs, strict=True):
                process = line.codes[start] % index.stride
                before = latest.get(process)
                if before is not None and before.first + before.count > run.first:
                    _overtaken(life, before, run, findings)
                latest[process] = run


def _overtaken(life: Life, before: Delivery, run: Delivery, findings: Findings) -> None:
    later = MessageId(before.process, before.first + before.count - 1)
    earlier = MessageId(run.process, run.first)
    if later == earlier:
        return  # The same message twice in a row is a duplicate, not a question of order.
    findings.broken(
        f"{life.node} delivered {later} before {earlier}, although the same process sent it later",
        ((life.node, before.lseq), (life.node, run.lseq)),
        (earlier, later),
    )
