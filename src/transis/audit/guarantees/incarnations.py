"""Incarnations of one name never overlap: a restart is a new identity, and the old one is gone."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from transis.audit.guarantees.history import LaidHistory, Life
from transis.audit.guarantees.property import Findings, Property, Reads, breaks, kept, left_open
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
            _overlap(earlier, later, history.closed, findings)


def _namesakes(life: Life, conf: Conf, findings: Findings) -> None:
    nodes = conf.view.nodes
    if len({node.name for node in nodes}) < len(nodes):
        twice = sorted({a for a in nodes for b in nodes if a.name == b.name and a != b})
        if twice:
            witness = ((life.node, conf.lseq),)
            findings.violation("together", witness, node=life.node, view=conf.view.id, twice=" and ".join(map(str, twice)))


def _overlap(earlier: Life, later: Life, closed: bool, findings: Findings) -> None:
    """A life that did not say how it ended may have been killed: that is seen only in what it still did, or when all is over."""
    start, last = later.confs[0], earlier.events[-1]
    words = {"node": later.node, "view": start.view.id, "time": start.time_us, "earlier": earlier.node}
    here = (later.node, start.lseq)
    if earlier.end is None:
        if closed or last.time_us > start.time_us:
            findings.violation("alive", ((earlier.node, last.lseq), here), **words)
        else:
            findings.pending += 1
    elif earlier.end.time_us > start.time_us:
        findings.violation("ended later", ((earlier.node, earlier.end.lseq), here), **words, ended=earlier.end.time_us)


SUCCESSORS: Final = """
    with life as (
        select l.*, c.view, c.view_name, c.lseq, c.time_us
        from {lives} l join {confs} c on l.node = c.node
        left anti join (select node from {faults} where what like 'copied%' or what like 'lost%') i on l.node = i.node
        where c.conf_rank = 1
    ), successor as (
        select *, lag(struct(node, node_name, end_lseq, end_us)) over same_name as earlier
        from life window same_name as (partition by run, name order by time_us, incarnation, boot)
    )
    select * from successor where earlier is not null
"""
"""Lives of one name in order of their first configurations, each with the one before it."""

SQL: Final = """
    with member as (
        select distinct c.view, c.digest, n.name, n.incarnation, n.boot, n.node_name
        from (select view, digest, explode(members) as node from {confs}) c join {node_names} n on c.node = n.node
    ), namesake as (
        select *, count(*) over (partition by view, digest, name) as lives from member
    ), twice as (
        select view, digest, array_sort(collect_list(struct(name, incarnation, boot, node_name))).node_name as twice
        from namesake where lives > 1 group by view, digest
    )
    select 'together' as kind, c.run, c.node_name as node, c.view_name as view, array_join(t.twice, ' and ') as twice,
           array(c.node) as nodes, array(c.view) as views, array(array(c.node, c.lseq)) as witness
    from {confs} c join twice t on c.view = t.view and c.digest = t.digest
    ;
    select if(s.earlier.end_us is null, 'alive', 'ended later') as kind, s.run, s.node_name as node, s.view_name as view,
           s.time_us as time, s.earlier.node_name as earlier, s.earlier.end_us as ended,
           array(s.earlier.node, s.node) as nodes, array(s.view) as views,
           array(array(s.earlier.node, coalesce(s.earlier.end_lseq, l.last_event)), array(s.node, s.lseq)) as witness,
           s.earlier.end_us is null and not r.closed and l.last_us <= s.time_us as is_pending
    from {successors} s join {runs} r on s.run = r.run
    join (select node, max(last_lseq) as last_event, max(last_us) as last_us from {segments} group by node) l
    on s.earlier.node = l.node
    where s.earlier.end_us is null or s.earlier.end_us > s.time_us
"""

INCARNATIONS: Final = Property(
    name="incarnations_never_overlap",
    meaning="no name has two lives at a time",
    predicate="No configuration has two members of one name, and two lives of one name never take part at the same time: a "
    "life takes part from its first configuration to its end, by the clock of its machine. One without a recorded end may have "
    "been killed: while the run goes on and nothing later of it is known, this is pending. Lives that were started from a copied "
    "or lost state directory are exempt: while a partition keeps them from their twin, nobody can tell them apart.",
    broken={
        "together": "{node} installed {view} with {twice} in it, lives of one name",
        "alive": "{node} installed {view} at {time} us, while {earlier} has not ended",
        "ended later": "{node} installed {view} at {time} us, while {earlier} ended only at {ended} us",
    },
    reads=Reads.VIEWS,
    check=check_incarnations,
    sql=SQL,
    counts="select run, 1 as checked from {confs} union all select run, 1 from {successors}",
    shared={"successors": SUCCESSORS},
    examples=(
        kept("a: R4{a} x / a2: +100 R5{a2}"),
        kept("a: R4{a} +900 x / a2: +100 f(copied state directory) R5{a2}"),
        kept("a: R4{a} +900 x / a2: +100 f(lost its state) R5{a2}"),
        breaks("a: R4{a} x / a2: +900 R5@a2{a,a2} x", "a/2 installed R5@a/2 with a/1 and a/2 in it, lives of one name"),
        breaks("a: R4{a} / a2: +100 R5{a2}", "a/2 installed R5@a/2 at 120 us, while a/1 has not ended"),
        breaks("a: R4{a} +200 s1 / a2: +100 R5{a2}", "a/2 installed R5@a/2 at 120 us, while a/1 has not ended", closed=False),
        breaks("a: R4{a} +900 x / a2: +100 R5{a2}", "a/2 installed R5@a/2 at 120 us, while a/1 ended only at 930 us"),
        left_open("a: R4{a} s1 / a2: +100 R5{a2}"),
    ),
)
