"""What was accepted is ordered in the end."""

from __future__ import annotations

from typing import Final

from transis.audit.guarantees.property import Findings, Property, Reads, breaks, kept, left_open
from transis.audit.guarantees.replication import PLACES, ActionName, LifeStep, ReplicaHistory


def check(history: ReplicaHistory, findings: Findings) -> None:
    placed = history.places()
    gone = {(told.step.group, told.step.number) for what in ("lost", "left") for told in history.of(what)}
    settled = {(told.step.group, told.action) for told in history.of("refused")} | set(placed)
    accepted: dict[tuple[str, ActionName], LifeStep] = {}
    for told in history.of("accepted"):
        if not told.step.lane and (told.step.group, told.step.creator) not in gone:
            accepted.setdefault((told.step.group, told.action), told)
    for (group, action), told in accepted.items():
        findings.checked += 1
        if (group, action) not in settled and group in history.rested:
            findings.violation("lost", (told.witness,), node=told.node, action=action, group=group)
        elif (group, action) not in settled:
            findings.pending += 1


ACCEPTED_NEVER_LOST: Final = Property(
    name="accepted_never_lost",
    meaning="what was accepted is ordered in the end",
    predicate="When a group has come to rest with all its members, every message that a replica accepted has a place, or was "
    "refused. A replica whose directory is lost, or that was removed, promises nothing any more.",
    broken={"lost": "{node} accepted {action} of {group}, which was never ordered"},
    reads=Reads.REPLICAS,
    check=check,
    sql="""
        with promised as (
            select run, name, creator, lane, number, action, min_by(struct(node, node_name, lseq), struct(life, lseq)) as one
            from {told_steps} where what = 'accepted' and lane = 0
            group by all
        ), gone as (
            select distinct run, name, number as creator from {told_steps} where what in ('lost', 'left')
        ), settled as (
            select distinct run, name, creator, lane, number from {told_steps} where what in ('ordered', 'refused')
        ), rested as (
            select distinct run, name from {told_steps} where what = 'rest'
        )
        select p.run, p.name as group, p.action, p.one.node_name as node, array(p.one.node) as nodes,
               array(array(p.one.node, p.one.lseq)) as witness, r.name is null as is_pending
        from promised p left anti join gone g on p.run = g.run and p.name = g.name and p.creator = g.creator
             left anti join settled s
             on p.run = s.run and p.name = s.name and p.creator = s.creator and p.lane = s.lane and p.number = s.number
             left join rested r on p.run = r.run and p.name = r.name
    """,
    counts="""
        select p.run, 1 as checked
        from (select distinct run, name, creator, number from {told_steps} where what = 'accepted' and lane = 0) p
             left anti join (select run, name, number as creator from {told_steps} where what in ('lost', 'left')) g
             on p.run = g.run and p.name = g.name and p.creator = g.creator
    """,
    shared=PLACES,
    examples=(
        kept("a: .a1:1 .d1:1=0 .R1"),
        kept("a: .a1:1 .r1:1 / b: .a2:1 .L#2 x / c: .R0"),
        breaks("a: .a1:1 x / a2: .R0", "a/1 accepted 1:1 of g, which was never ordered"),
        left_open("a: .a1:1"),
    ),
)
