"""Incarnations of one name never overlap (C4): a restart is a new identity, and the old one is gone.

1. No configuration has two members of one name.
2. Two lives of one name never take part at the same time; a life takes part from its first configuration to its end.
   Times are those of one machine's clock. Lives that the harness started from a copied or lost state directory
   are exempt from this: while a partition keeps them from their twin, nobody can tell them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from transis.audit.guarantees.history import LaidHistory, Life
from transis.audit.guarantees.property import Findings
from transis.trace.events import Conf

IMPOSTORS: Final = ("copied", "lost")
"""First words of the Faults that start a life with somebody else's, or nobody's, memory."""


def check_incarnations(history: LaidHistory, findings: Findings) -> None:
    for life in history.lives:
        for conf in life.confs:
            findings.checked += 1
            _namesakes(life, conf, findings)
    names: dict[str, list[Life]] = {}
    for life in history.lives:
        if life.confs and not any(fault.what.startswith(IMPOSTORS) for fault in life.faults):
            names.setdefault(life.node.name, []).append(life)
    for lives in names.values():
        for earlier, later in pairwise(sorted(lives, key=lambda life: life.confs[0].time_us)):
            findings.checked += 1
            _overlap(earlier, later, findings)


def _namesakes(life: Life, conf: Conf, findings: Findings) -> None:
    nodes = conf.view.nodes
    if len({node.name for node in nodes}) < len(nodes):
        twice = sorted({a for a in nodes for b in nodes if a.name == b.name and a != b})
        if twice:
            findings.broken(
                f"{life.node} installed {conf.view.id} with {' and '.join(map(str, twice))} in it, lives of one name",
                ((life.node, conf.lseq),),
            )


def _overlap(earlier: Life, later: Life, findings: Findings) -> None:
    start = later.confs[0]
    if earlier.end is None:
        last = earlier.events[-1]
        what = "has not ended"
    else:
        last = earlier.end
        what = f"ended only at {last.time_us} us"
    if earlier.end is None or last.time_us > start.time_us:
        findings.broken(
            f"{later.node} installed {start.view.id} at {start.time_us} us, while {earlier.node} {what}",
            ((earlier.node, last.lseq), (later.node, start.lseq)),
        )
