"""EVS 2.1: nodes of a configuration end in it together."""

from __future__ import annotations

from typing import Final

from transis.audit.guarantees.history import LaidHistory, Life
from transis.audit.guarantees.property import Findings, Property, Reads, Witness, breaks, kept, left_open
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
    words = {"node": life.node, "view": conf.view.id, "member": node}
    place = "no configuration" if last is None else last.view.id
    if other is None:
        findings.violation("no trace", witness, **words)
    elif other.end is not None:
        findings.violation("ended", (*witness, (node, other.end.lseq)), **words, ended=ended, place=place)
    else:
        findings.violation("elsewhere", witness, **words, place=place)


STAYED: Final = """
    with stayed as (
        select c.run, c.node, c.node_name, c.lseq, c.view, c.view_name, c.members, l.gapped
        from {confs} c join {lives} l on c.node = l.node and c.lseq = l.last_lseq
        where l.ended not in ('failed', 'stopped')
    )
"""
"""The last configurations of lives that stayed in them, as far as is known."""

SQL: Final = (
    STAYED
    + """
    select case when o.node is null then 'no trace' when o.end_lseq is null then 'elsewhere' else 'ended' end as kind,
           s.run, s.node_name as node, s.view_name as view, n.node_name as member, o.ended,
           coalesce(v.view_name, 'no configuration') as place, array(s.node, s.member) as nodes, array(s.view) as views,
           array(array(s.node, s.lseq), array(s.member, o.end_lseq)) as witness,
           not r.closed or s.gapped or coalesce(o.gapped, false) as is_pending
    from (select *, explode(members) as member from stayed) s
    join {runs} r on s.run = r.run join {node_names} n on s.member = n.node
    left join {lives} o on s.member = o.node left join {view_names} v on o.last_view = v.view
    where s.member <> s.node and not coalesce(o.last_view = s.view and o.ended = '', false)
"""
)

END_TOGETHER: Final = Property(
    name="end_together_2_1",
    meaning="whoever installs a view goes on from it, or fails",
    paper="EVS94, Specification 2.1",
    predicate="If a node stays in its last configuration, all members of that configuration stay in it, too. This is judged only "
    "when the run has come to rest: before that, a change may be on its way.",
    broken={
        "no trace": "{node} stayed in {view} to the end, but its member {member} has left no trace",
        "ended": "{node} stayed in {view} to the end, but its member {member} {ended} in {place}",
        "elsewhere": "{node} stayed in {view} to the end, but its member {member} stayed in {place}",
    },
    reads=Reads.VIEWS,
    check=check_end_together,
    sql=SQL,
    counts=STAYED + "select run, size(members) as checked from stayed",
    examples=(
        kept("a: R4{a,b} / b: R4{a,b}"),
        kept("a: R4{a,b} x / b: R4{a,b} T6{b} R8{b}"),
        breaks("a: R4{a,b}", "a/1 stayed in R4@a/1 to the end, but its member b/1 has left no trace"),
        breaks("a: R4{a,b} / b: R4{a,b} x", "a/1 stayed in R4@a/1 to the end, but its member b/1 failed in R4@a/1"),
        breaks(
            "a: R4{a,b} T6{a,b} R8{a,b} / b: R4{a,b}",
            "a/1 stayed in R8@a/1 to the end, but its member b/1 stayed in R4@a/1",
        ),
        breaks("a: R4{a,b} / b:", "a/1 stayed in R4@a/1 to the end, but its member b/1 stayed in no configuration"),
        left_open("a: R4{a,b} T6{a,b} R8{a,b} / b: R4{a,b}"),
        left_open("a: R4{a,b} / b: R4{a,b} g x", closed=True),
    ),
)
