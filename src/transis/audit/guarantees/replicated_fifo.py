"""Messages of a replica have their places in the order in which it posted them."""

from __future__ import annotations

from typing import Final

from transis.audit.guarantees.property import Findings, Property, Reads, breaks, kept
from transis.audit.guarantees.replication import PLACES, LifeStep, ReplicaHistory


def check(history: ReplicaHistory, findings: Findings) -> None:
    placed = sorted(history.places().items(), key=lambda entry: (entry[0][0], entry[1].step.place, entry[0][1]))
    latest: dict[tuple[str, int], LifeStep] = {}
    for (group, action), told in placed:
        if action.lane:
            continue
        findings.checked += 1
        before = latest.get((group, action.creator))
        if before is not None and before.action.number > action.number:
            words = {"group": group, "later": before.action, "place": told.step.place}
            findings.violation("overtaken", (before.witness, told.witness), earlier=action, **words)
        latest[group, action.creator] = told


REPLICATED_FIFO: Final = Property(
    name="replicated_fifo",
    meaning="actions of one replica are ordered as it posted them",
    predicate="Messages of one replica have places in the order of their numbers, over all lives of its directory.",
    broken={"overtaken": "{group} has {earlier} at place {place}, behind {later}, which the same replica posted later"},
    reads=Reads.REPLICAS,
    check=check,
    sql="""
        with followed as (
            select *, lag(struct(number, action, at)) over (
                partition by run, name, creator order by at.place, number) as before
            from {placed_actions} where lane = 0
        )
        select run, name as group, action as earlier, at.place as place, before.action as later,
               array(before.at.node, at.node) as nodes,
               array(array(before.at.node, before.at.lseq), array(at.node, at.lseq)) as witness, at.place as position
        from followed where before.number > number
    """,
    counts="select run, 1 as checked from {placed_actions} where lane = 0",
    shared=PLACES,
    examples=(
        kept("a: .d1:1=0 .d2:1=1 .d1:2=2"),
        breaks("a: .d1:2=0 .d1:1=1", "g has 1:1 at place 1, behind 1:2, which the same replica posted later"),
        breaks("a: .d1:2=0 / b: .d1:1=1", "g has 1:1 at place 1, behind 1:2, which the same replica posted later"),
    ),
)
