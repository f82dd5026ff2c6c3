"""The stream of a process in its groups: views and messages in one order, each once, and the same for all who go together.

1. Places are those of the node's deliveries, which `places` and `total_order_6_1` hold against each other; so it is enough that
   no stream ever goes backwards. A transitional view has no place of its own: it stands where its configuration does.
2. Causal messages that are not in the total order have a side of each view and no place: between two views the same ones come
   to all who go together, among the others as they may.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from transis.audit.guarantees.clients import ClientHistory, ClientStream, Got
from transis.audit.guarantees.history import LaidHistory
from transis.audit.guarantees.property import Findings, Property, Reads, breaks, kept
from transis.trace.events import ClientLeft, Gap, GroupConf
from transis.types.ids import NodeId
from transis.types.views import GroupId, GroupViewId

# --- one order --------------------------------------------------------------------------------------------------------

Key = tuple[int, NodeId, int, int]
"""A ring, and a place in it."""


def check_group_order(history: ClientHistory, findings: Findings) -> None:
    for client in history.clients:
        _forward(client, findings)


def _forward(client: ClientStream, findings: Findings) -> None:
    last: tuple[Key, int, bool] | None = None
    for step in client.steps:
        if isinstance(step, Got) and step.is_ordered:
            first, end, is_view = _key(step), _key(step, step.run.count - 1 if step.run is not None else 0), False
        elif isinstance(step, GroupConf) and step.view.id.configuration.is_regular:
            first = end = _view_key(step)
            is_view = True
        else:
            continue
        findings.checked += 1
        if last is not None and not (last[0] < first or (is_view and last[2] and last[0] == first)):
            _goes_back(client, step, first, ((client.node, last[1]), (client.node, step.lseq)), findings)
        last = (end, step.lseq, is_view)


def _goes_back(
    client: ClientStream, step: Got | GroupConf, first: Key, witness: tuple[tuple[NodeId, int], ...], findings: Findings
) -> None:
    if isinstance(step, GroupConf):
        findings.violation("view", witness, process=client.id, view=step.view.id, group=step.view.name)
    else:
        place = f"{first[2]}.{first[3]}"
        findings.violation("messages", witness, process=client.id, place=place, ring_number=first[0])


def _key(got: Got, offset: int = 0) -> Key:
    run = got.run
    assert run is not None
    return (run.regular.seq, run.regular.rep, run.place.seq, run.place.index + offset)


def _view_key(event: GroupConf) -> Key:
    configuration, place = event.view.id
    return (configuration.seq, configuration.rep, place.seq, place.index)


ORDER_SQL: Final = """
    with rings as (
        select view, view_seq as ring_number, dense_rank() over (partition by run order by view_order) as ring_rank
        from {view_names}
    ), stream as (
        select /*+ broadcast(rings) */ run, node, process, lseq, run_lseq, groups, ring_rank, ring_number, place_seq,
               place_index, count, null as label, null as name
        from {got} join rings on rings.view = regular
        where is_ordered
        union all
        select /*+ broadcast(rings) */ run, node, process, lseq, null, null, ring_rank, ring_number, place_seq,
               cause_index, 1, label, name
        from {seats} join rings using (view)
        where is_regular
    ), placed as (
        select *, label is not null as is_view, struct(ring_rank, place_seq, place_index) as start,
               struct(ring_rank, place_seq, place_index + count - 1 as place_index) as ending
        from stream
    ), beside as (
        select *, lag(ending) over of_process as before, lag(lseq) over of_process as lseq_before,
               lag(is_view) over of_process as view_before
        from placed
        window of_process as (partition by process order by lseq, run_lseq, groups)
    )
    select beside.run, if(is_view, 'view', 'messages') as kind, process_name as process, label as view, name as group,
           concat(place_seq, '.', place_index) as place, ring_number, array(beside.node) as nodes,
           array(array(beside.node, lseq_before), array(beside.node, lseq)) as witness, lseq as position
    from beside join {people} using (process)
    where before >= start and not (is_view and view_before and before = start)
"""
"""Places are compared as numbers, with the rank of their ring. A view may stand where the view before it does: several groups
change at one place."""

GROUP_ORDER: Final = Property(
    name="group_order",
    meaning="views and messages of all groups come in one order",
    predicate="What a process gets, views and messages of all its groups, follows the places of one total order.",
    broken={
        "messages": "{process} got messages of place {place} of ring {ring_number} behind something of a later place",
        "view": "{process} got {view} of {group} behind something of a later place",
    },
    promised_in=frozenset({"evs", "transis"}),
    reads=Reads.GROUPS,
    check=check_group_order,
    sql=ORDER_SQL,
    counts="""
        select run, count as checked from {got} where is_ordered union all select run, 1 from {seats} where is_regular
    """,
    examples=(
        kept("a: R4{a} c1 Vg1{a#1} s2@g d2 h2>1 c2 Vg3{a#1,a#2} s4@g d4 h4>1,2"),
        kept("a: R4{a} c1 Vg1{a#1} Vh1{a#1}"),
        breaks(
            "a: R4{a} c1 Vg1{a#1} s2@g s3@g d3 h3>1 d2 h2>1",
            "a/1#1 got messages of place 2.0 of ring 4 behind something of a later place",
        ),
        breaks(
            "a: R4{a} c1 Vg1{a#1} s4@g d4 h4>1 c2 Vg3{a#1,a#2}",
            "a/1#1 got R4@a/1+3.0 of g behind something of a later place",
        ),
    ),
)

# --- each once --------------------------------------------------------------------------------------------------------


def check_group_duplicates(history: ClientHistory, findings: Findings) -> None:
    for client in history.clients:
        codes: dict[int, int] = {}
        views: dict[tuple[GroupId, GroupViewId], int] = {}
        for step in client.steps:
            if isinstance(step, Got):
                findings.checked += len(step.codes)
                _messages(history.laid, client, step, codes, findings)
            elif isinstance(step, GroupConf):
                findings.checked += 1
                first = views.setdefault((step.view.group, step.view.id), step.lseq)
                if first != step.lseq:
                    witness = ((client.node, first), (client.node, step.lseq))
                    findings.violation("view", witness, process=client.id, view=step.view.id, group=step.view.name)


def _messages(history: LaidHistory, client: ClientStream, got: Got, codes: dict[int, int], findings: Findings) -> None:
    for code in got.codes:
        if code in codes:
            message = history.message(code)
            witness = ((client.node, codes[code]), (client.node, got.lseq))
            findings.violation("message", witness, (message,), process=client.id, message=message)
        codes[code] = got.lseq


MESSAGES_TWICE: Final = """
    with runs as (
        select *, first + count - 1 as last from {got}
    ), beside as (
        select *, max(last) over earlier as reached, max_by(lseq, last) over earlier as other_lseq
        from runs
        window earlier as (
            partition by process, sender order by first, lseq, run_lseq rows between unbounded preceding and 1 preceding
        )
    ), again as (
        select *, explode(sequence(first, least(last, reached))) as counter from beside where first <= reached
    )
    select again.run, 'message' as kind, p.process_name as process, concat(s.process_name, ':', counter) as message,
           array(again.node) as nodes, array(array(sender, counter)) as messages,
           array(array(again.node, least(other_lseq, lseq)), array(again.node, greatest(other_lseq, lseq))) as witness,
           lseq as position
    from again join {people} p using (process) left join {people} s on s.process = sender
"""
"""A run overlaps an earlier one, by first counter, if that one's end, the furthest so far, is not before its start; only of these
messages are looked at."""

VIEWS_TWICE: Final = """
    with shown as (
        select *, first(lseq) over (partition by process, group_view order by lseq) as first_lseq from {seats}
    )
    select shown.run, 'view' as kind, process_name as process, label as view, name as group, array(shown.node) as nodes,
           array(view) as views, array(array(shown.node, first_lseq), array(shown.node, lseq)) as witness, lseq as position
    from shown join {people} using (process)
    where lseq > first_lseq
"""

GROUP_NO_DUPLICATES: Final = Property(
    name="group_no_duplicates",
    meaning="nobody gets a message or a view twice",
    predicate="A process gets a message once, however many of its groups it is for, and a group view once.",
    broken={
        "message": "{process} got {message} twice",
        "view": "{process} was shown {view} of {group} twice",
    },
    reads=Reads.GROUPS,
    check=check_group_duplicates,
    sql=f"{MESSAGES_TWICE};{VIEWS_TWICE}",
    counts="select run, count as checked from {got} union all select run, 1 from {seats}",
    examples=(
        kept("a: R4{a} c1 Vg1{a#1} Vh2{a#1} s3@gh d3 h3>1 s4@g d4 h4>1"),
        breaks("a: R4{a} c1 Vg1{a#1} s3@g d3 h3>1 h3>1", "a/1#1 got a/1#0:1 twice"),
        breaks("a: R4{a} c1 Vg1{a#1} Vg1{a#1}", "a/1#1 was shown R4@a/1+1.0 of g twice"),
    ),
)

# --- virtual synchrony ------------------------------------------------------------------------------------------------


class Stretch(NamedTuple):
    """What a process got of a group between two of its views."""

    client: ClientStream
    group: GroupId
    start: GroupConf
    end: GroupConf
    codes: list[int]
    """Of the total order, in this order."""
    apart: set[int]
    """Causal ones that are in no total order."""

    @property
    def all(self) -> set[int]:
        return self.apart.union(self.codes)


def check_group_synchrony(history: ClientHistory, findings: Findings) -> None:
    first: dict[tuple[GroupId, GroupViewId, GroupViewId], Stretch] = {}
    for client in history.clients:
        for stretch in stretches(client):
            step = (stretch.group, stretch.start.view.id, stretch.end.view.id)
            known = first.setdefault(step, stretch)
            if known is not stretch:
                findings.checked += 1
                if (known.codes, known.apart) != (stretch.codes, stretch.apart):
                    _tell(history.laid, known, stretch, findings)


def stretches(client: ClientStream) -> Iterator[Stretch]:
    under_way: dict[GroupId, tuple[GroupConf, list[int], set[int]]] = {}
    for step in client.steps:
        match step:
            case GroupConf(view=view):
                if view.group in under_way:
                    start, codes, apart = under_way[view.group]
                    yield Stretch(client, view.group, start, step, codes, apart)
                under_way[view.group] = (step, [], set())
            case Got(is_basic=False):
                for group in step.groups:
                    if group in under_way:
                        _, codes, apart = under_way[group]
                        (codes.extend if step.is_ordered else apart.update)(step.codes)
            case ClientLeft(group=group, refused=False):
                under_way.pop(group, None)
            case Gap():
                under_way.clear()


def _tell(history: LaidHistory, left: Stretch, right: Stretch, findings: Findings) -> None:
    apart = sorted(left.all ^ right.all) or [code for code in left.codes if code in right.codes]
    messages = history.messages(apart)
    only = left if apart[0] in left.all else right
    other = right if only is left else left
    start, end = left.start.view, left.end.view
    findings.violation(
        "apart",
        ((left.client.node, left.end.lseq), (right.client.node, right.end.lseq)),
        messages,
        one=left.client.id,
        other=right.client.id,
        start=start.id,
        end=end.id,
        group=start.name,
        has=only.client.id,
        message=list(messages),
        lacks=other.client.id,
    )


WAYS: Final = """
    with stretches as (
        select *, lead(lseq) over to_next as end_lseq, lead(group_view) over to_next as end_view, lead(label) over to_next as end
        from {seats}
        window to_next as (partition by process, group order by lseq)
    ), numbered as (
        select stretches.*, process_name, count(*) over (partition by group_view, end_view) as company,
               row_number() over (partition by group_view, end_view order by process_order, lseq) as nth
        from stretches join (select process, process_name, process_order from {people}) using (process)
        where end_lseq < least(coalesce(left_lseq, end_lseq + 1), coalesce(gap_lseq, end_lseq + 1))
    )
    select * from numbered where company > 1
"""
"""Ways from one view of a group that a process was shown to its next, without a leave or a gap between; only ways that several
processes went, numbered in order of processes."""

SYNCHRONY_SQL: Final = """
    with marked as (
        select process, group, lseq, null as run_lseq, null as sender, null as first, null as count, null as is_ordered,
               struct(lseq, end_lseq) as stretch
        from {ways}
        union all
        select process, explode(groups) as group, lseq, run_lseq, sender, first, count, is_ordered, null
        from {got} where not is_basic
    ), placed as (
        select *, last_value(stretch) ignore nulls
                      over (partition by process, group order by lseq, run_lseq nulls first) as inside
        from marked
    ), messages as (
        select process, group, inside.lseq as start_lseq, sender, first, count, is_ordered,
               row_number() over (partition by process, group, inside.lseq, is_ordered order by lseq, run_lseq) as rank
        from placed
        where run_lseq is not null and lseq < inside.end_lseq
    ), digests as (
        select process, group, start_lseq as lseq,
               xxhash64(count(*), bit_xor(xxhash64(if(is_ordered, rank, 0), sender, first, count))) as digest
        from messages
        group by process, group, start_lseq
    ), beside as (
        select w.*, coalesce(digest, 0) as digest,
               first(struct(node, process, process_name, lseq, end_lseq, coalesce(digest, 0) as digest)) over way as known
        from {ways} w left join digests using (process, group, lseq)
        window way as (partition by group_view, end_view order by nth)
    ), sides as (
        select group_view, end_view, nth, group, struct(*) as pair,
               stack(2, true, known.process, known.lseq, false, process, lseq) as (is_known, process, start_lseq)
        from beside where digest <> known.digest
    ), runs as (
        select *, coalesce(sum(count) over (
            partition by group_view, end_view, nth, is_known, is_ordered order by rank
            rows between unbounded preceding and 1 preceding
        ), 0) as start
        from sides join messages using (process, group, start_lseq)
    ), single as (
        select *, if(is_ordered, start + i, -1) as at
        from (select *, explode(sequence(0, count - 1)) as i from runs)
    ), by_message as (
        select group_view, end_view, nth, any_value(pair) as pair, sender, first + i as counter,
               any_value(is_ordered) as is_ordered,
               array_distinct(sort_array(collect_list(if(is_known, at, null)))) as here,
               array_distinct(sort_array(collect_list(if(is_known, null, at)))) as there
        from single
        group by all
    ), judged as (
        select *, size(here) = 0 or size(there) = 0 as one_sided, max(here <> there) over way as unequal,
               max(size(here) = 0 or size(there) = 0) over way as any_one_sided
        from by_message
        window way as (partition by group_view, end_view, nth)
    ), told as (
        select any_value(pair) as pair, array_sort(collect_list(struct(
                   if(one_sided, counter, get(here, 0)) as at, process_order, sender, counter, size(here) > 0 as is_known,
                   concat(process_name, ':', counter) as message
               ))) as apart
        from judged left join (select process, process_name, process_order from {people}) on process = sender
        where unequal and one_sided = any_one_sided and (is_ordered or any_one_sided)
        group by group_view, end_view, nth
    )
    select run, known.process_name as one, process_name as other, label as start, end, name as group,
           if(get(apart, 0).is_known, known.process_name, process_name) as has,
           if(get(apart, 0).is_known, process_name, known.process_name) as lacks, apart.message as message,
           array(known.node, node) as nodes, array(view) as views,
           transform(apart, one -> array(one.sender, one.counter)) as messages,
           array(array(known.node, known.end_lseq), array(node, end_lseq)) as witness, end_lseq as position
    from (select pair.*, apart from told)
"""
"""One number stands for what a process got between two views: its runs, each hashed with its rank, which is 0 for all that are in
no total order. Messages are looked at only where the numbers of two processes differ: those that only one got or, if there are
none, those that they got in different orders."""

GROUP_VIRTUAL_SYNCHRONY: Final = Property(
    name="group_virtual_synchrony",
    meaning="processes that go together from one view of a group to the next got the same of it",
    predicate="Processes that go together from one view of a group to the next got the same causal, agreed and safe messages of "
    "it in between, so each of them stands on one side of a join or leave for all; and those of the total order in its order.",
    broken={
        "apart": "{one} and {other} went together from {start} to {end} of {group}, but in between {has} got {message} and "
        "{lacks} did not, or not in this order",
    },
    reads=Reads.GROUPS,
    check=check_group_synchrony,
    sql=SYNCHRONY_SQL,
    counts="select run, 1 as checked from {ways} where nth > 1",
    shared={"ways": WAYS},
    examples=(
        kept(
            "a: R4{a,b} c1 Vg1{a#1} Vg2{a#1,b#1} s3@g d3 h3>1 T6{a,b} Vg0{a#1,b#1} R8{a,b} / "
            "b: R4{a,b} c1 Vg2{a#1,b#1} d3 h3>1 T6{a,b} Vg0{a#1,b#1} R8{a,b}"
        ),
        breaks(
            "a: R4{a} c1 Vg1{a#1} c2 Vg2{a#1,a#2} s3@g d3 h3>1 c3 Vg4{a#1,a#2,a#3}",
            "a/1#1 and a/1#2 went together from R4@a/1+2.0 to R4@a/1+4.0 of g, but in between a/1#1 got a/1#0:1 and a/1#2 did "
            "not, or not in this order",
        ),
        breaks(
            "a: R4{a} c1 Vg1{a#1} c2 Vg2{a#1,a#2} s3@g s4@g d3 d4 h3>1,2 h4>1 c3 Vg5{a#1,a#2,a#3} h4>2",
            "a/1#1 and a/1#2 went together from R4@a/1+2.0 to R4@a/1+5.0 of g, but in between a/1#1 got a/1#0:2 and a/1#2 did "
            "not, or not in this order",
        ),
        breaks(
            "a: R4{a} c1 Vg1{a#1} c2 Vg2{a#1,a#2} s3@g s4@g d3 d4 h3>1 h4>1,2 h3>2 c3 Vg5{a#1,a#2,a#3}",
            "a/1#1 and a/1#2 went together from R4@a/1+2.0 to R4@a/1+5.0 of g, but in between a/1#1 got a/1#0:1, a/1#0:2 and "
            "a/1#2 did not, or not in this order",
        ),
        kept("a: R4{a} c1 c2 c3 Vg1{a#1,a#2,a#3} s3@g d3 h3>1,2 lg3 Vg4{a#1,a#2}"),
        kept(
            "a: R4{a,b} c1 Vg1{a#1} Vg2{a#1,b#1} s5~@g d5 h5>1 d3 h3>1 c2 Vg4{a#1,a#2,b#1} / "
            "b: R4{a,b} c1 Vg2{a#1,b#1} s3@g d3 h3>1 d5 h5>1 Vg4{a#1,a#2,b#1}",
            engine="lansis",
        ),
        kept(
            "a: R4{a,b} c1 Vg1{a#1} Vg2{a#1,b#1} s5?@g d5 h5>1 c2 Vg4{a#1,a#2,b#1} / "
            "b: R4{a,b} c1 Vg2{a#1,b#1} Vg4{a#1,a#2,b#1} d5 h5>1",
            engine="lansis",
        ),
        breaks(
            "a: R4{a,b} c1 Vg1{a#1} Vg2{a#1,b#1} s5~@g d5 h5>1 c2 Vg4{a#1,a#2,b#1} / "
            "b: R4{a,b} c1 Vg2{a#1,b#1} Vg4{a#1,a#2,b#1} d5 h5>1",
            "a/1#1 and b/1#1 went together from R4@a/1+2.0 to R4@a/1+4.0 of g, but in between a/1#1 got a/1#0:1 and b/1#1 did "
            "not, or not in this order",
            engine="lansis",
        ),
    ),
)
