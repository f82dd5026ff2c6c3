"""Client keys: a retry counts once."""

from __future__ import annotations

from typing import Final

from transis.audit.guarantees.property import Findings, Property, Reads, breaks, kept
from transis.audit.guarantees.replication import SHARED, LifeStep, ReplicaHistory


def check(history: ReplicaHistory, findings: Findings) -> None:
    firsts: dict[tuple[str, bytes], LifeStep] = {}
    broken: set[tuple[str, bytes]] = set()
    for told in history.ordered():
        key = (told.step.group, told.step.key)
        if told.step.effect != "run" or not told.step.key:
            continue
        findings.checked += 1
        first = firsts.setdefault(key, told)
        if first.step.place != told.step.place and key not in broken:
            broken.add(key)
            words = {"key": told.step.key.hex(), "group": told.step.group, "place": told.step.place, "first": first.node}
            findings.violation("again", (first.witness, told.witness), node=told.node, other=first.step.place, **words)


EXACTLY_ONCE_KEYS: Final = Property(
    name="exactly_once_keys",
    meaning="an action with a client key runs at most once",
    predicate="Of the actions of a group that carry one client key, one runs, at one place.",
    broken={"again": "key {key} of {group} ran at place {place} of {node}, and at {other} of {first}"},
    reads=Reads.REPLICAS,
    check=check,
    sql="""
        with compared as (
            select *, first(struct(node, node_name, lseq, place)) over same as one, row_number() over same as nth
            from {told_steps} where what = 'ordered' and effect = 'run' and client_key is not null
            window same as (partition by run, name, client_key order by life, lseq)
        ), earliest as (
            select *, row_number() over (partition by run, name, client_key order by nth) as rank
            from compared where place <> one.place
        )
        select run, name as group, client_key as key, place, node_name as node, one.place as other, one.node_name as first,
               array(one.node, node) as nodes, array(array(one.node, one.lseq), array(node, lseq)) as witness, place as position
        from earliest where rank = 1
    """,
    counts="select run, 1 as checked from {told_steps} where what = 'ordered' and effect = 'run' and client_key is not null",
    shared=SHARED,
    examples=(
        kept("a: .d1:1=0*k .d2:1=1*k~again / b: .d1:1=0*k .d2:1=1*k~again"),
        breaks("a: .d1:1=0*k .d2:1=1*k", "key 6b of g ran at place 1 of a/1, and at 0 of a/1"),
    ),
)
