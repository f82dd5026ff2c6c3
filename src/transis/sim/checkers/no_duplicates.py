"""EVS 1.4, second half: a node delivers a message at most once in its whole life. Basic messages: see `basic.py`."""

from __future__ import annotations

from transis.sim.checkers.index import Index, Life, Line
from transis.sim.checkers.verdict import Findings, Witness


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
