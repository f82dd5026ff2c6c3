"""EVS 2.2: an event belongs to the configuration in force; a node is a member of every configuration it installs.

What an event claims (`conf`, `regular`) is held against the last CONF before it, and nothing follows an END.
"""

from __future__ import annotations

from transis.sim.checkers.index import Index, Life, Stay
from transis.sim.checkers.verdict import Findings
from transis.trace.events import Conf, Delivery
from transis.types.ids import ViewId


def check_configuration(index: Index, findings: Findings) -> None:
    for life in index.lives:
        for conf in life.confs:
            _member(life, conf, findings)
        for stay in life.stays:
            _claims(stay, findings)
        for event in life.homeless:
            findings.broken(f"{life.node} delivered a message before it installed any configuration", ((life.node, event.lseq),))
        if life.afterwards and life.end is not None:
            findings.broken(
                f"{life.node} has {len(life.afterwards)} events after its end",
                ((life.node, life.end.lseq), (life.node, life.afterwards[0].lseq)),
            )


def _member(life: Life, conf: Conf, findings: Findings) -> None:
    findings.checked += 1
    if life.node not in conf.view.nodes:
        findings.broken(f"{life.node} installed {conf.view.id}, of which it is no member", ((life.node, conf.lseq),))


def _claims(stay: Stay, findings: Findings) -> None:
    line = stay.all
    findings.checked += sum(run.count for run in line.runs) + sum(origin.sent.count for origin in stay.origins)
    if not stay.whole:
        findings.pending += 1
        return
    regular = stay.ring
    transitional = regular if stay.trans is None else stay.trans.view.id
    wrong = [run for run in line.runs[: line.run_cut] if run.regular != regular or run.conf != regular]
    wrong += [run for run in line.runs[line.run_cut :] if run.regular != regular or run.conf != transitional]
    for run in wrong:
        _wrong_delivery(stay, run, findings)
    for origin in stay.origins:
        if origin.sent.conf != regular:
            findings.broken(
                f"{stay.node} claims to have sent in {origin.sent.conf} while {regular} was in force",
                ((stay.node, stay.conf.lseq), (stay.node, origin.sent.lseq)),
            )


def _wrong_delivery(stay: Stay, run: Delivery, findings: Findings) -> None:
    in_force: ViewId = stay.ring
    lseq = stay.conf.lseq
    if stay.trans is not None and stay.trans.lseq < run.lseq:
        in_force, lseq = stay.trans.view.id, stay.trans.lseq
    findings.broken(
        f"{stay.node} claims to have delivered {run.process}:{run.first} in {run.conf} of {run.regular} "
        f"while {in_force} was in force",
        ((stay.node, lseq), (stay.node, run.lseq)),
    )
