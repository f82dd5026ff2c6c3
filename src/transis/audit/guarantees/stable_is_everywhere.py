"""Stable: what a replica calls stable is on the disk of every member."""

from __future__ import annotations

from typing import Final

from transis.audit.guarantees.property import Findings, Property, Reads, breaks, kept, left_open
from transis.audit.guarantees.replication import SHARED, ReplicaHistory


def check(history: ReplicaHistory, findings: Findings) -> None:
    held = _held(history)
    for told in history.of("stable"):
        findings.checked += 1
        group, place = told.step.group, told.step.place
        for member in told.step.members:
            if (group, member) not in held:
                findings.pending += 1
            elif held[group, member] < place:
                words = {"place": place, "group": group, "member": member, "held": held[group, member]}
                findings.violation("nowhere", (told.witness,), node=told.node, **words)


def _held(history: ReplicaHistory) -> dict[tuple[str, int], int]:
    """How much of the order the directory of each replica ever had."""
    of_directory: dict[tuple[str, bytes], int] = {}
    number_of: dict[tuple[str, bytes], int] = {}
    for told in history.steps:
        key = (told.step.group, told.step.directory)
        if told.step.what in ("opened", "synced"):
            of_directory[key] = max(told.step.place, of_directory.get(key, 0))
        if told.step.what == "synced" and told.step.number:
            number_of[key] = told.step.number
    return {(group, number): of_directory[group, directory] for (group, directory), number in number_of.items()}


STABLE_IS_EVERYWHERE: Final = Property(
    name="stable_is_everywhere",
    meaning="what is called stable is on the disk of every member",
    predicate="If a replica says that the order is stable up to a place, every replica that was a member there has synced the "
    "order, or found it on its disk, up to that place. When it did is not compared.",
    broken={
        "nowhere": "{node} called {group} stable up to place {place}, of which replica {member} never had more than {held}",
    },
    reads=Reads.REPLICAS,
    check=check,
    sql="""
        with held as (
            select run, name, directory, max(if(what = 'synced', number, 0)) as member, max(place) as held
            from {told_steps} where what in ('opened', 'synced')
            group by all
        ), said as (
            select *, explode(replicas) as member from {told_steps} where what = 'stable'
        )
        select s.run, s.name as group, s.node_name as node, s.place, s.member, h.held, array(s.node) as nodes,
               array(array(s.node, s.lseq)) as witness, s.place as position, h.held is null as is_pending
        from said s left join (select * from held where member > 0) h
             on s.run = h.run and s.name = h.name and s.member = h.member
        where h.held is null or h.held < s.place
    """,
    counts="select run, 1 as checked from {told_steps} where what = 'stable'",
    shared=SHARED,
    examples=(
        kept("a: .s3#1 .t2{1,2} / b: .s1#2 x / b2: .o2"),
        breaks("a: .s3#1 .t2{1,2} / b: .s1#2", "a/1 called g stable up to place 2, of which replica 2 never had more than 1"),
        left_open("a: .s3#1 .t2{1,2}"),
    ),
)
