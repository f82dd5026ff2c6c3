"""FIFO and no duplicates.

FIFO: every node delivers the messages of a process in the order of their counters, over its whole life. Basic ones apart.

EVS 1.4, second half: a node delivers a message at most once in its whole life. Basic messages: see `basic.py`.
"""

from __future__ import annotations

from transis.audit.guarantees.history import Index, Life, Line
from transis.audit.guarantees.property import Findings, Witness
from transis.trace.events import Delivery
from transis.types.ids import MessageId

# --- fifo -------------------------------------------------------------------------------------------------------------


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


# --- no duplicates ----------------------------------------------------------------------------------------------------


def check_no_duplicates(index: Index, findings: Findings) -> None:
    for life in index.lives:
        total = sum(len(stay.all.codes) for stay in life.stays)
        findings.checked += total
        seen: set[int] = set()
        seen.update(*(stay.all.codes for stay in life.stays))
        if len(seen) < total:
            _name_them(index, life, findings)


def _name_them(index: Index, life: Life, findings: Findings) -> None:
    first: dict[int, tuple[Line, int]] = {}
    for line in (stay.all for stay in life.stays):
        for position, code in enumerate(line.codes):
            if code not in first:
                first[code] = (line, position)
                continue
            earlier, before = first[code]
            message = index.message(code)
            witness: Witness = (earlier.event_at(before), line.event_at(position))
            where = f"{earlier.conf_at(before).view.id} and {line.conf_at(position).view.id}"
            findings.broken(f"{life.node} delivered {message} twice, in {where}", witness, (message,))
