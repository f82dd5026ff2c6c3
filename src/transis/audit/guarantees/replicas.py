"""Replicas agree: processes of a group that report their state behind the same messages of a view report the same.

A digest is the application's own statement (`group.checkpoint`). Digests of one group, one view and one count of ordered messages
since that view are compared. If a process reports several behind one count, the last counts: it may report before and after it
receives its state.
"""

from __future__ import annotations

from typing import Final

from transis.audit.guarantees.clients import ClientHistory
from transis.audit.guarantees.property import Findings, Property, Reads, breaks, kept, several
from transis.trace.events import CheckpointEvent
from transis.types.ids import MessageId, NodeId, ProcessId
from transis.types.views import GroupId, GroupViewId

Word = tuple[NodeId, CheckpointEvent]


def check_replicas(history: ClientHistory, findings: Findings) -> None:
    views: dict[tuple[GroupId, GroupViewId], dict[int, dict[ProcessId, Word]]] = {}
    for life in history.lives:
        for event in life.events:
            if isinstance(event, CheckpointEvent):
                findings.checked += 1
                there = views.setdefault((event.group, event.view), {}).setdefault(event.count, {})
                there[ProcessId(life.node, event.process)] = life.node, event
    for counts in views.values():
        _compare({count: list(there.values()) for count, there in counts.items()}, findings)


def _compare(counts: dict[int, list[Word]], findings: Findings) -> None:
    ordered = [said for _, said in sorted(counts.items())]
    for number, said in enumerate(ordered):
        if len({event.digest for _, event in said}) > 1:
            _violation(_last_equal(ordered[:number], said), said, findings)
            return


def _last_equal(before: list[list[Word]], said: list[Word]) -> CheckpointEvent | None:
    """Where processes that differ now were last seen equal; what others of one side said among themselves proves nothing."""
    side_of = {(node, event.process): event.digest for node, event in said}
    for there in reversed(before):
        if len({side_of[who] for node, event in there if (who := (node, event.process)) in side_of}) > 1:
            return there[0][1]
    return None


def _violation(equal: CheckpointEvent | None, said: list[Word], findings: Findings) -> None:
    sides: dict[bytes, list[ProcessId]] = {}
    for node, event in said:
        sides.setdefault(event.digest, []).append(ProcessId(node, event.process))
    ordered = sorted((sorted(set(processes)) for processes in sides.values()), key=lambda side: (-len(side), side))
    differs = said[0][1]
    findings.violation(
        "different",
        tuple((node, event.lseq) for node, event in said),
        tuple(MessageId(event.sender, event.counter) for event in (equal, differs) if event is not None and event.sender),
        group=differs.name,
        view=differs.view,
        beginning="never compared before" if equal is None else f"equal {_behind(equal)}",
        behind=_behind(differs),
        sides=" against ".join(several(side) for side in ordered),
        between=_between(equal, differs),
    )


def _behind(event: CheckpointEvent) -> str:
    return "at the view itself" if event.sender is None else f"behind {MessageId(event.sender, event.counter)}"


def _between(equal: CheckpointEvent | None, differs: CheckpointEvent) -> str:
    """Which messages to look at; the archive of the group has them."""
    count = differs.count - (0 if equal is None else equal.count)
    start = "the view" if equal is None or equal.sender is None else f"place {equal.place.seq}.{equal.place.index}"
    end = f"place {differs.place.seq}.{differs.place.index}"
    return f"it is one of {count} messages after {start}, up to {end}" if count else "before any message"


SQL: Final = """
    with said as (
        select run, group, group_view, name, position, process,
               max_by(struct(node, lseq, state, last_process, last_counter, place_seq, place_index), lseq) as last
        from {checkpoints}
        group by all
    ), positions as (
        select run, group, group_view, name, position, min(last.state) <> max(last.state) as differ,
               first(struct(position, last.last_process, last.last_counter, last.place_seq, last.place_index)) as stand
        from said
        group by all
    ), parted as (
        select run, group, group_view, name, min(position) as at from positions where differ group by all
    ), sides as (
        select group_view, name, process, last.state as side
        from said join parted using (run, group, group_view, name)
        where position = at
    ), compared as (
        select group_view, name, position, min(side) <> max(side) as both_spoke
        from said join parted using (run, group, group_view, name) join sides using (group_view, name, process)
        where position < at
        group by all
    ), violations as (
        select run, group_view, name, max_by(stand, position) as differs, max(if(both_spoke, stand, null)) as equal
        from positions join parted using (run, group, group_view, name)
             left join compared using (group_view, name, position)
        where position <= at
        group by all
    ), speakers as (
        select group_view, name, last.state as state, sort_array(collect_list(process_order)) as order,
               sort_array(collect_list(struct(process_order, process_name))).process_name as names,
               collect_list(struct(process_order.name, process_order.incarnation, process_order.boot, last.lseq, last.node))
                   as events
        from said join parted using (run, group, group_view, name)
             join (select process, process_name, process_order from {people}) using (process)
        where position = at
        group by all
    ), against as (
        select group_view, name, sort_array(flatten(collect_list(events))) as events,
               array_sort(collect_list(struct(-size(names) as fewer, order, concat(array_join(slice(names, 1, 5), ', '),
                   if(size(names) > 5, concat(' and ', size(names) - 5, ' more'), '')) as text))).text as sides
        from speakers
        group by all
    )
    select a.run, a.name as group, concat(view_name, '+', g.place_seq, '.', g.cause_index) as view,
           if(equal is null, 'never compared before', concat(
               'equal ', coalesce(concat('behind ', e.process_name, ':', equal.last_counter), 'at the view itself')
           )) as beginning,
           coalesce(concat('behind ', d.process_name, ':', differs.last_counter), 'at the view itself') as behind,
           array_join(sides, ' against ') as sides,
           if(differs.position = coalesce(equal.position, 0), 'before any message', concat(
               'it is one of ', differs.position - coalesce(equal.position, 0), ' messages after ',
               if(equal.last_process is null, 'the view', concat('place ', equal.place_seq, '.', equal.place_index)),
               ', up to place ', differs.place_seq, '.', differs.place_index)) as between,
           array_distinct(events.node) as nodes, transform(events, one -> array(one.node, one.lseq)) as witness,
           array(array(equal.last_process, equal.last_counter), array(differs.last_process, differs.last_counter)) as messages,
           differs.position as position
    from violations a join against using (group_view, name)
         join {group_view_names} g on g.group_view = a.group_view join {view_names} v on v.view = g.view
         left join {people} e on e.process = equal.last_process
         left join {people} d on d.process = differs.last_process
"""

REPLICAS_AGREE: Final = Property(
    name="replicas_agree",
    meaning="processes that got the same messages are in the same state, where applications report it",
    predicate="Processes of a group that report their state behind the same number of ordered messages since the same"
    " view report the same. A violation names where two first differ, and the last position before it at which processes of both "
    "sides reported the same.",
    broken={"different": "{group} in {view}: {beginning}, different {behind}: {sides}; {between}"},
    reads=Reads.GROUPS,
    check=check_replicas,
    sql=SQL,
    counts="select run, 1 as checked from {checkpoints}",
    examples=(
        kept("a: R4{a} c1 c2 Vg1{a#1,a#2} kg1=x kg2=y kg2=x s3@g d3 h3>1,2 kg1=z/3 kg2=z/3"),
        kept("a: R4{a} c1 Vg1{a#1} kg1=x c2 Vg2{a#1,a#2} kg1=y kg2=y"),
        breaks(
            "a: R4{a} c1 c2 Vg1{a#1,a#2} kg1=x kg2=y",
            "g in R4@a/1+1.0: never compared before, different at the view itself: a/1#1 against a/1#2; before any message",
        ),
        breaks(
            "a: R4{a} c1 c2 c3 Vg1{a#1,a#2,a#3} kg1=x kg2=x kg3=x s3@g d3 h3>1,2,3 kg1=y/3 kg2=z/3 kg3=y/3",
            "g in R4@a/1+1.0: equal at the view itself, different behind a/1#0:1: a/1#1, a/1#3 against a/1#2; "
            "it is one of 3 messages after the view, up to place 3.0",
        ),
        breaks(
            "a: R4{a} c1 c2 Vg1{a#1,a#2} s3@g s4@g d3 d4 h3>1,2 h4>1,2 kg1=x/3 kg2=x/3 kg1=y/4 kg2=z/4",
            "g in R4@a/1+1.0: equal behind a/1#0:1, different behind a/1#0:2: a/1#1 against a/1#2; "
            "it is one of 1 messages after place 3.0, up to place 4.0",
        ),
    ),
)
