"""One primary at a time: a number of a primary belongs to one view."""

from __future__ import annotations

from typing import Final

from transis.audit.guarantees.property import Findings, Property, Reads, breaks, kept
from transis.audit.guarantees.replication import SHARED, LifeStep, ReplicaHistory


def check(history: ReplicaHistory, findings: Findings) -> None:
    firsts: dict[tuple[str, int], LifeStep] = {}
    broken: set[tuple[str, int]] = set()
    for told in history.of("primary"):
        findings.checked += 1
        key = (told.step.group, told.step.number)
        first = firsts.setdefault(key, told)
        if first.step.tag != told.step.tag and key not in broken:
            broken.add(key)
            words = {"number": told.step.number, "group": told.step.group, "first": first.node}
            findings.violation("two", (first.witness, told.witness), node=told.node, **words)


ONE_PRIMARY: Final = Property(
    name="one_primary",
    meaning="no two primaries have one number",
    predicate="Replicas of a group that are in primaries of one number are in the same view.",
    broken={"two": "{node} was in primary {number} of {group} in another view than {first}"},
    reads=Reads.REPLICAS,
    check=check,
    sql="""
        with compared as (
            select *, first(struct(node, node_name, lseq, tag)) over same as one, row_number() over same as nth
            from {told_steps} where what = 'primary' window same as (partition by run, name, number order by life, lseq)
        ), earliest as (
            select *, row_number() over (partition by run, name, number order by nth) as rank from compared where tag <> one.tag
        )
        select run, name as group, node_name as node, number, one.node_name as first, array(one.node, node) as nodes,
               array(array(one.node, one.lseq), array(node, lseq)) as witness, number as position
        from earliest where rank = 1
    """,
    counts="select run, 1 as checked from {told_steps} where what = 'primary'",
    shared=SHARED,
    examples=(
        kept("a: .P1@5 .P2@7 / b: .P1@5 .P3@8"),
        breaks("a: .P1@5 / b: .P1@6", "b/1 was in primary 1 of g in another view than a/1"),
    ),
)
