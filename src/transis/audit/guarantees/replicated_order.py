"""One order for all time: an action has one place and one offset, at all replicas and in all their lives."""

from __future__ import annotations

from typing import Final

from transis.audit.guarantees.property import Findings, Property, Reads, breaks, kept
from transis.audit.guarantees.replication import SHARED, ActionName, LifeStep, ReplicaHistory


def check(history: ReplicaHistory, findings: Findings) -> None:
    firsts: dict[tuple[str, int], LifeStep] = {}
    places: dict[tuple[str, ActionName], LifeStep] = {}
    broken: set[object] = set()
    for told in history.ordered():
        findings.checked += 1
        group, place = told.step.group, told.step.place
        first = firsts.setdefault((group, place), told)
        kind = _difference(first, told)
        if kind and (group, place) not in broken:
            broken.add((group, place))
            _violation(findings, kind, first, told, {"place": first.action, "offset": first.step.offset}.get(kind))
        first = places.setdefault((group, told.action), told)
        if first.step.place != place and (group, told.action) not in broken:
            broken.add((group, told.action))
            _violation(findings, "twice", first, told, first.step.place)


def _difference(first: LifeStep, told: LifeStep) -> str:
    one, other = first.step, told.step
    if first.action != told.action:
        return "place"
    if one.offset != other.offset:
        return "offset"
    return "state" if one.state != other.state and one.state and other.state else ""


def _violation(findings: Findings, kind: str, first: LifeStep, told: LifeStep, other: object) -> None:
    step = told.step
    words = {"place": step.place, "at": step.offset, "group": step.group, "action": told.action, "other": other}
    findings.violation(kind, (first.witness, told.witness), node=told.node, first=first.node, **words)


REPLICATED_ORDER: Final = Property(
    name="replicated_order",
    meaning="an action has one place and offset at all replicas, for all time",
    predicate="What replicas of a group are handed at a place is the same action with the same offset everywhere, also before "
    "and after crashes, and leaves the same state behind it where applications tell it. An action has one place.",
    broken={
        "place": "{node} was handed {action} at place {place} of {group}, where {first} was handed {other}",
        "offset": "{node} was handed {action} of {group} at offset {at}, {first} at {other}",
        "state": "{node} is in another state than {first} behind place {place} of {group}",
        "twice": "{node} was handed {action} of {group} at place {place}, {first} at {other}",
    },
    reads=Reads.REPLICAS,
    check=check,
    sql="""
        with compared as (
            select *, first(struct(node, node_name, lseq, action, offset, state)) over same as one,
                   row_number() over same as nth
            from {told_steps} where what = 'ordered' window same as (partition by run, name, place order by life, lseq)
        ), different as (
            select *, case when action <> one.action then 'place' when offset <> one.offset then 'offset'
                           when state <> one.state and least(length(state), length(one.state)) > 0 then 'state' end as kind
            from compared
        ), earliest as (
            select *, row_number() over (partition by run, name, place order by nth) as rank from different where kind is not null
        )
        select run, kind, node_name as node, one.node_name as first, action, place, offset as at, name as group,
               if(kind = 'place', one.action, string(one.offset)) as other, array(one.node, node) as nodes,
               array(array(one.node, one.lseq), array(node, lseq)) as witness, place as position
        from earliest where rank = 1
        ;
        with compared as (
            select *, first(struct(node, node_name, lseq, place)) over same as one, row_number() over same as nth
            from {told_steps} where what = 'ordered'
            window same as (partition by run, name, creator, lane, number order by life, lseq)
        ), earliest as (
            select *, row_number() over (partition by run, name, creator, lane, number order by nth) as rank
            from compared where place <> one.place
        )
        select run, 'twice' as kind, node_name as node, one.node_name as first, action, place, name as group,
               string(one.place) as other, array(one.node, node) as nodes,
               array(array(one.node, one.lseq), array(node, lseq)) as witness, place as position
        from earliest where rank = 1
    """,
    counts="select run, 1 as checked from {told_steps} where what = 'ordered'",
    shared=SHARED,
    examples=(
        kept("a: .o0 .d1:1=0 .d2:1=1 / b: .o0 .d1:1=0 .d2:1=1 x / b2: .o2 .d1:1=0 .d2:1=1"),
        breaks("a: .d1:1=0 / b: .d2:1=0", "b/1 was handed 2:1 at place 0 of g, where a/1 was handed 1:1"),
        breaks("a: .d1:1=0 x / a2: .d2:1=0 .d1:1=1", "a/2 was handed 1:1 of g at place 1, a/1 at 0"),
        breaks("a: .d1:1=3/3 / b: .d1:1=3/4", "b/1 was handed 1:1 of g at offset 4, a/1 at 3"),
        breaks("a: .d1:1=0!x / b: .d1:1=0!y", "b/1 is in another state than a/1 behind place 0 of g"),
    ),
)
