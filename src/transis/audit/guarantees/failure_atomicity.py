"""EVS 4: failure atomicity, which others call virtual synchrony."""

from __future__ import annotations

from typing import Final

from transis.audit.guarantees.history import LaidHistory, Ring, Stay
from transis.audit.guarantees.property import Findings, Property, Reads, breaks, kept, left_open
from transis.types.ids import NodeId, ViewId

Step = tuple[ViewId, ViewId]
"""From one configuration directly to another."""


def check_failure_atomicity(history: LaidHistory, findings: Findings) -> None:
    for ring in history.rings.values():
        for step, stays in _steps(ring).items():
            first = stays[0]
            for stay in stays[1:]:
                if stay.whole and first.whole:
                    findings.checked += 1
                    _compare(history, step, first, stay, findings)
                else:
                    findings.pending += 1


def _steps(ring: Ring) -> dict[Step, list[Stay]]:
    """Who went where: regular to transitional, and from there (or at once) to the next regular one."""
    steps: dict[Step, list[Stay]] = {}
    for stay in ring.stays:
        here = ring.id
        if stay.trans is not None:
            steps.setdefault((here, stay.trans.view.id), []).append(stay)
            here = stay.trans.view.id
        if stay.following is not None:
            steps.setdefault((here, stay.following.ring), []).append(stay)
    return steps


def _compare(history: LaidHistory, step: Step, left: Stay, right: Stay, findings: Findings) -> None:
    here, there = step
    if here.is_regular:
        mine, other = left.all.regular_codes, right.all.regular_codes
    else:
        mine, other = left.all.transitional_codes, right.all.transitional_codes
    if mine == other:
        return
    for stay, extra, lacking in ((left, set(mine) - set(other), right), (right, set(other) - set(mine), left)):
        if extra:
            position = stay.all.position
            first_first = sorted(extra, key=position.__getitem__)
            messages = history.messages(first_first)
            findings.violation(
                "one only",
                (stay.all.event_at(position[first_first[0]]), _departure(lacking, here)),
                messages,
                one=right.node,
                other=left.node,
                here=here,
                there=there,
                has=stay.node,
                lacks=lacking.node,
                message=list(messages),
            )


def _departure(stay: Stay, here: ViewId) -> tuple[NodeId, int]:
    if here.is_regular and stay.trans is not None:
        return (stay.node, stay.trans.lseq)
    assert stay.following is not None
    return (stay.node, stay.following.conf.lseq)


STEPS: Final = """
    with step as (
        select run, ring, node, node_name, stay_no, stay_rank, whole, 0 as phase, ring as here, ring_name as here_name,
               trans as there, trans_name as there_name, trans_lseq as departure
        from {stays} where trans is not null
        union all
        select run, ring, node, node_name, stay_no, stay_rank, whole, int(trans is not null), coalesce(trans, ring),
               coalesce(trans_name, ring_name), following, following_name, following_lseq
        from {stays} where following is not null
    ), pair as (
        select *, first(struct(node, node_name, stay_no, whole, departure)) over same as one, row_number() over same as nth
        from step window same as (partition by ring, here, there order by stay_rank)
    )
    select * from pair where nth > 1
"""
"""Everybody who took a step, beside the first who did; what both delivered below the tail is equal."""

SQL: Final = """
    with side as (
        select *, one.node as has, one.node_name as has_name, one.stay_no as has_stay_no,
               node as lacks, node_name as lacks_name, stay_no as lacks_stay_no, departure as left_by
        from {steps} where whole and one.whole
        union all
        select *, node, node_name, stay_no, one.node, one.node_name, one.stay_no, one.departure
        from {steps} where whole and one.whole
    )
    select /*+ broadcast(s) */ s.run, s.ring, s.node_name as one, s.one.node_name as other, s.here_name as here,
           s.there_name as there, s.has_name as has, s.lacks_name as lacks, m.message,
           array(s.has, s.lacks) as nodes, array(s.here, s.there) as views, array(array(m.process, m.counter)) as messages,
           array(array(s.has, m.lseq), array(s.lacks, s.left_by)) as witness, m.tpos as position
    from {everything} m
    join side s on m.node = s.has and m.stay_no = s.has_stay_no and m.phase = s.phase
    left anti join {everything} o on o.node = s.lacks and o.stay_no = s.lacks_stay_no and o.phase = s.phase
                                  and o.process = m.process and o.counter = m.counter
"""

FAILURE_ATOMICITY: Final = Property(
    name="failure_atomicity_4",
    meaning="nodes that move on together have delivered the same",
    paper="EVS94, Specification 4",
    predicate="Nodes that go together from one configuration directly to the next have delivered the same set of messages in "
    "it. A regular configuration and the transitional one after it are two configurations here.",
    broken={
        "one only": "{one} and {other} went together from {here} to {there}, but in {here} only {has} delivered {message}, "
        "{lacks} did not",
    },
    reads=Reads.ORDER,
    check=check_failure_atomicity,
    sql=SQL,
    counts="select run, ring, int(whole and one.whole) as checked, int(not (whole and one.whole)) as pending from {steps}",
    shared={"steps": STEPS},
    examples=(
        kept("a: R4{a,b} s1 d1 T6{a,b} R8{a,b} / b: R4{a,b} d1 T6{a,b} R8{a,b}"),
        kept("a: R4{a,b,c} s1 d1 T6{a} R8{a} / b: R4{a,b,c} T6{b,c} R8{b,c} / c: R4{a,b,c} T6{b,c} R8{b,c}"),
        breaks(
            "a: R4{a,b} s1 d1 T6{a,b} R8{a,b} / b: R4{a,b} T6{a,b} R8{a,b}",
            "b/1 and a/1 went together from R4@a/1 to T6@a/1, but in R4@a/1 only a/1 delivered a/1#0:1, b/1 did not",
        ),
        breaks(
            "a: R4{a,b,c} s1 T6{a,b} d1 R8{a,b} / b: R4{a,b,c} T6{a,b} R8{a,b} / c: R4{a,b,c} x",
            "b/1 and a/1 went together from T6@a/1 to R8@a/1, but in T6@a/1 only a/1 delivered a/1#0:1, b/1 did not",
        ),
        left_open("a: R4{a,b} s1 d1 T6{a,b} R8{a,b} / b: R4{a,b} g T6{a,b} R8{a,b}"),
    ),
)
