"""No answer before its question: an action is ordered behind all that its poster could have seen."""

from __future__ import annotations

from typing import Final

from transis.audit.guarantees.property import Findings, Property, Reads, breaks, kept, left_open
from transis.audit.guarantees.replication import PLACES, ActionName, LifeStep, ReplicaHistory


def check(history: ReplicaHistory, findings: Findings) -> None:
    placed = history.places()
    last = {(told.step.group, told.action): told for told in history.of("posted")}
    for (group, action), posted in last.items():
        there = placed.get((group, action))
        if there is None:
            continue
        findings.checked += 1
        for creator, number in posted.step.seen:
            seen = ActionName(creator, 0, number)
            found = placed.get((group, seen))
            if found is None and group not in history.rested:
                findings.pending += 1
            elif found is None:
                _violation(findings, "never", posted, there, seen, there)
            elif found.step.place >= there.step.place:
                _violation(findings, "behind", posted, there, seen, found)


def _violation(findings: Findings, kind: str, posted: LifeStep, there: LifeStep, seen: ActionName, found: LifeStep) -> None:
    words = {"action": posted.action, "group": posted.step.group, "place": there.step.place, "seen": seen}
    witness = (posted.witness, there.witness, found.witness) if kind == "behind" else (posted.witness, there.witness)
    findings.violation(kind, witness, node=posted.node, other=found.step.place, **words)


REPLICATED_CAUSAL: Final = Property(
    name="replicated_causal",
    meaning="an action is ordered behind all that its poster could have seen",
    predicate="If the application of a replica could have seen a message, ordered or not, when it posted an action, the action's "
    "place is behind that of the message. Of an action whose number was given again, as nothing of it was on the disk, the last "
    "post counts.",
    broken={
        "behind": "{action} of {group} has place {place}, and {seen}, which {node} could have seen when it posted that, {other}",
        "never": "{action} of {group} has place {place}, and {seen}, which {node} could have seen when it posted that, none",
    },
    reads=Reads.REPLICAS,
    check=check,
    sql="""
        with posts as (
            select run, name, creator, lane, number, action,
                   max_by(struct(node, node_name, lseq, seen), struct(life, lseq)) as post
            from {told_steps} where what = 'posted'
            group by all
        ), asked as (
            select p.run, p.name, p.action, p.post, d.at, explode(p.post.seen) as one
            from posts p join {placed_actions} d using (run, name, creator, lane, number)
        ), rested as (
            select distinct run, name from {told_steps} where what = 'rest'
        )
        select a.run, if(f.at is null, 'never', 'behind') as kind, a.name as group, a.action, a.post.node_name as node,
               a.at.place as place, concat(a.one.creator, ':', a.one.number) as seen, f.at.place as other,
               array(a.post.node, a.at.node) as nodes,
               array(array(a.post.node, a.post.lseq), array(a.at.node, a.at.lseq), array(f.at.node, f.at.lseq)) as witness,
               a.at.place as position, f.at is null and r.name is null as is_pending
        from asked a left join {placed_actions} f
             on f.run = a.run and f.name = a.name and f.creator = a.one.creator and f.lane = 0 and f.number = a.one.number
             left join rested r on r.run = a.run and r.name = a.name
        where f.at is null or f.at.place >= a.at.place
    """,
    counts="""
        select p.run, 1 as checked
        from (select distinct run, name, creator, lane, number from {told_steps} where what = 'posted') p
             left semi join {placed_actions} d
             on p.run = d.run and p.name = d.name and p.creator = d.creator and p.lane = d.lane and p.number = d.number
    """,
    shared=PLACES,
    examples=(
        kept("a: .p1:1 .d1:1=0 / b: .p2:1<1:1 .d1:1=0 .d2:1=1 .R2"),
        kept("a: .p1:1<2:1 x / a2: .p1:1 .d1:1=0 .d2:1=1"),
        breaks(
            "a: .p1:1 / b: .p2:1<1:1 .d2:1=0 .d1:1=1",
            "2:1 of g has place 0, and 1:1, which b/1 could have seen when it posted that, 1",
        ),
        breaks("b: .p2:1<1:1 .d2:1=0 .R1", "2:1 of g has place 0, and 1:1, which b/1 could have seen when it posted that, none"),
        left_open("b: .p2:1<1:1 .d2:1=0"),
    ),
)
