"""EVS 2.1: nodes of a configuration end in it together. If one stays in its last configuration, all members do.

Due only when the run reached quiescence; before, a change may be on its way.
"""

from __future__ import annotations

from transis.audit.guarantees.history import LaidHistory, Life
from transis.audit.guarantees.property import Findings, Witness
from transis.trace.events import Conf
from transis.types.ids import NodeId


def check_end_together(history: LaidHistory, findings: Findings) -> None:
    for life in history.lives:
        conf = life.last_conf
        if conf is None or life.ended in ("failed", "stopped"):
            continue
        findings.checked += len(conf.view.members)
        for node in conf.view.nodes:
            if node != life.node:
                _together(history, life, conf, node, findings)


def _together(history: LaidHistory, life: Life, conf: Conf, node: NodeId, findings: Findings) -> None:
    other = history.by_node.get(node)
    last = None if other is None else other.last_conf
    ended = "" if other is None else other.ended
    if last is not None and last.view.id == conf.view.id and not ended:
        return
    if not history.closed or life.gapped or (other is not None and other.gapped):
        findings.pending += 1
        return
    witness: Witness = ((life.node, conf.lseq),)
    if other is None:
        what = "has left no trace"
    elif other.end is not None:
        what = f"{ended} in {'no configuration' if last is None else last.view.id}"
        witness = (*witness, (node, other.end.lseq))
    else:
        what = f"stayed in {'no configuration' if last is None else last.view.id}"
    findings.broken(f"{life.node} stayed in {conf.view.id} to the end, but its member {node} {what}", witness)
