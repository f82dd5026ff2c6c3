"""What was ordered once stays ordered: nobody comes to rest before its end."""

from __future__ import annotations

from typing import Final

from transis.audit.guarantees.property import Findings, Property, Reads, breaks, kept
from transis.audit.guarantees.replication import SHARED, LifeStep, ReplicaHistory


def check(history: ReplicaHistory, findings: Findings) -> None:
    ends: dict[str, LifeStep] = {}
    for told in history.ordered():
        if told.step.group not in ends or told.step.place > ends[told.step.group].step.place:
            ends[told.step.group] = told
    for told in history.of("rest"):
        findings.checked += 1
        last = ends.get(told.step.group)
        if last is not None and last.step.place >= told.step.place:
            words = {"place": told.step.place, "group": told.step.group, "first": last.node, "other": last.step.place}
            findings.violation("short", (last.witness, told.witness), node=told.node, **words)


ORDERED_NEVER_LOST: Final = Property(
    name="ordered_never_lost",
    meaning="what was ordered anywhere is ordered everywhere in the end",
    predicate="A replica that is at rest has been handed all that any replica of its group was ever handed.",
    broken={"short": "{node} is at rest at place {place} of {group}, and {first} was handed place {other}"},
    reads=Reads.REPLICAS,
    check=check,
    sql="""
        with ends as (
            select run, name, max(place) as place from {told_steps} where what = 'ordered' group by all
        ), lasts as (
            select run, name, place, min_by(struct(node, node_name, lseq), struct(life, lseq)) as one
            from {told_steps} left semi join ends using (run, name, place) where what = 'ordered'
            group by all
        )
        select s.run, s.name as group, s.node_name as node, s.place, l.one.node_name as first, l.place as other,
               array(l.one.node, s.node) as nodes, array(array(l.one.node, l.one.lseq), array(s.node, s.lseq)) as witness,
               l.place as position
        from {told_steps} s join lasts l on s.run = l.run and s.name = l.name
        where s.what = 'rest' and l.place >= s.place
    """,
    counts="select run, 1 as checked from {told_steps} where what = 'rest'",
    shared=SHARED,
    examples=(
        kept("a: .d1:1=0 .d1:2=1 .R2 / b: .d1:1=0 .d1:2=1 .R2"),
        breaks("a: .d1:1=0 .d1:2=1 x / b: .d1:1=0 .R1", "b/1 is at rest at place 1 of g, and a/1 was handed place 1"),
    ),
)
