"""FIFO and no duplicates.

FIFO: every node delivers the messages of a process in the order of their counters, over its whole life. Basic ones apart.

EVS 1.4, second half: a node delivers a message at most once in its whole life. Basic messages: see `basic.py`.
"""

from __future__ import annotations

from transis.audit.guarantees.history import Deliveries, LaidHistory, Life
from transis.audit.guarantees.property import Findings, Witness
from transis.trace.events import Delivery
from transis.types.ids import MessageId

# --- fifo -------------------------------------------------------------------------------------------------------------


def check_fifo(history: LaidHistory, findings: Findings) -> None:
    for life in history.lives:
        latest: dict[int, Delivery] = {}
        for delivered in (stay.all for stay in life.stays):
            findings.checked += len(delivered.codes)
            for start, run in zip(delivered.starts, delivered.runs, strict=True):
                process = delivered.codes[start] % history.stride
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


def check_no_duplicates(history: LaidHistory, findings: Findings) -> None:
    for life in history.lives:
        total = sum(len(stay.all.codes) for stay in life.stays)
        findings.checked += total
        seen: set[int] = set()
        seen.update(*(stay.all.codes for stay in life.stays))
        if len(seen) < total:
            _name_them(history, life, findings)


def _name_them(history: LaidHistory, life: Life, findings: Findings) -> None:
    first: dict[int, tuple[Deliveries, int]] = {}
    for delivered in (stay.all for stay in life.stays):
        for position, code in enumerate(delivered.codes):
            if code not in first:
                first[code] = (delivered, position)
                continue
            earlier, before = first[code]
            message = history.message(code)
            witness: Witness = (earlier.event_at(before), delivered.event_at(position))
            where = f"{earlier.conf_at(before).view.id} and {delivered.conf_at(position).view.id}"
            findings.broken(f"{life.node} delivered {message} twice, in {where}", witness, (message,))
