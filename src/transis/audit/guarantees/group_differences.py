"""A group view reports changes truly: `joined`, `left` and `merged_from` against the views that were in force."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from transis.audit.guarantees.clients import Change, ClientHistory, ClientStream
from transis.audit.guarantees.property import Findings, Property, Reads, breaks, kept, left_open
from transis.trace.events import ClientLeft, Gap, GroupConf
from transis.types.ids import ProcessId
from transis.types.views import GroupId, GroupView, GroupViewId, Origin


def check_group_differences(history: ClientHistory, findings: Findings) -> None:
    for change in history.changes:
        findings.checked += 1
        for kind, words in _wrong(change):
            findings.violation(kind, (change.witness,), **change.words, **words)
    for client in history.clients:
        _come_from_what_they_had(client, findings)


def _come_from_what_they_had(client: ClientStream, findings: Findings) -> None:
    in_force: dict[GroupId, GroupViewId] = {}
    for step in client.steps:
        match step:
            case GroupConf(view=view):
                findings.checked += 1
                _origin_is_true(client.id, step, in_force.get(view.group), findings)
                in_force[view.group] = view.id
            case ClientLeft(group=group, refused=False):
                in_force.pop(group, None)
            case Gap():
                findings.pending += 1
                return
            case _:
                pass


Wrong = Iterator[tuple[str, dict[str, Any]]]
"""What is wrong with a view, each with the words of its sentence."""


def _wrong(change: Change) -> Wrong:
    view = change.view
    yield from _unlike_itself(view)
    if change.before is None:
        if not view.id.configuration.is_regular and not change.blind:
            yield "before any", {}
    elif view.id.configuration.is_regular:
        yield from _wrong_regular(view, change.before, change.regular)
    else:
        yield from _wrong_transitional(change, change.before)


def _unlike_itself(view: GroupView) -> Wrong:
    from_views = [origin.view for origin in view.merged_from]
    origins = [member for origin in view.merged_from for member in origin.members]
    lists: list[list[Any]] = [list(view.members), list(view.joined), list(view.left), from_views]
    if any(found != sorted(set(found)) for found in lists):
        yield "disorder", {}
    if not set(view.joined) <= set(view.members):
        yield "no member", {"strangers": [member for member in view.joined if member not in view.members]}
    if len(set(origins)) < len(origins) or not set(origins) <= set(view.members):
        yield "two origins", {}


def _origins(view: GroupView) -> dict[ProcessId, GroupViewId]:
    return {member: origin.view for origin in view.merged_from for member in origin.members}


def _wrong_regular(view: GroupView, before: GroupView, regular: GroupView | None) -> Wrong:
    origins = _origins(view)
    newcomers = [member for member in view.members if origins.get(member) != before.id]
    if list(view.joined) != newcomers:
        yield "joined", {"joined": list(view.joined), "newcomers": newcomers, "before": before.id}
    if regular is None:
        return
    leavers = [member for member in regular.members if origins.get(member) != before.id]
    if list(view.left) != leavers:
        yield "left", {"left": list(view.left), "leavers": leavers, "regular": regular.id, "before": before.id}


def _wrong_transitional(change: Change, before: GroupView) -> Wrong:
    view = change.view
    if change.own is None:
        return
    nodes = frozenset(change.own.nodes)
    stay = tuple(member for member in before.members if member.node in nodes)
    if view.members != stay:
        yield "others stay", {"members": list(view.members), "stay": list(stay), "before": before.id}
    if view.joined or set(view.left) != set(before.members) - set(view.members):
        yield "others left", {}
    if view.merged_from != (Origin(before.id, view.members),):
        yield "from elsewhere", {"before": before.id}


def _origin_is_true(process: ProcessId, event: GroupConf, in_force: GroupViewId | None, findings: Findings) -> None:
    view = event.view
    origin = _origins(view).get(process)
    came_back = process in view.joined and process in view.left
    if origin == in_force or (origin is None and came_back):
        return
    said = {"had": in_force or "no view", "view": view.id, "group": view.name, "origin": origin or "none"}
    findings.violation("false origin", ((process.node, event.lseq),), process=process, **said)


WRONG_DIFFERENCES: Final = """
    with compared as (
        select *, flatten(transform(filter(origins, one -> one.view = before.group_view), one -> one.members)) as come_along,
               flatten(transform(origins, one -> one.members)) as coming,
               filter(before.members, (one, at) -> array_contains(own.members, get(before.member_nodes, at))) as stay,
               is_regular and before is not null as follows, not is_regular and before is not null and own is not null as stays
        from {changes}
    ), expected as (
        select *, array_except(joined, members) as strangers, array_except(members, come_along) as newcomers,
               array_except(regular.members, come_along) as leavers, array_except(before.members, members) as missing
        from compared
    ), judged as (
        select *, explode(array_compact(array(
            if(not is_sorted, 'disorder', null),
            if(size(strangers) > 0, 'no member', null),
            if(size(array_distinct(coming)) < size(coming) or size(array_except(coming, members)) > 0, 'two origins', null),
            if(before is null and not blind and not is_regular, 'before any', null),
            if(follows and joined <> newcomers, 'joined', null),
            if(follows and regular is not null and left <> leavers, 'left', null),
            if(stays and members <> stay, 'others stay', null),
            if(stays and (size(joined) > 0 or array_sort(array_distinct(left)) <> array_sort(missing)), 'others left', null),
            if(stays and not coalesce(origins = array(named_struct('view', before.group_view, 'members', members)), false),
               'from elsewhere', null)
        ))) as kind
        from expected
    )
    select judged.run, kind, node_name as node, label as view, name as group, before.label as before,
           regular.label as regular, transform(strangers, one -> try_element_at(process_names, one)) as strangers,
           transform(joined, one -> try_element_at(process_names, one)) as joined,
           transform(newcomers, one -> try_element_at(process_names, one)) as newcomers,
           transform(left, one -> try_element_at(process_names, one)) as left,
           transform(leavers, one -> try_element_at(process_names, one)) as leavers,
           transform(members, one -> try_element_at(process_names, one)) as members,
           transform(stay, one -> try_element_at(process_names, one)) as stay,
           array(judged.node) as nodes, array(view) as views, array(array(judged.node, lseq)) as witness, lseq as position
    from judged left join {process_maps} using (run)
"""
"""What a view says, held against the views before it; null where there is nothing to compare with."""

FALSE_ORIGINS: Final = """
    with shown as (
        select *, lag(struct(group_view, label, left_lseq)) over (partition by process, group order by lseq) as last from {seats}
    ), seen as (
        select shown.*, if(last.left_lseq < lseq, null, last) as had
        from shown join (select node, gap_lseq as first_gap from {client_lives}) using (node)
        where first_gap is null or lseq < first_gap
    ), entries as (
        select node, lseq, explode(origins) as one from {changes}
    ), came as (
        select node, lseq, one.view as origin, explode(one.members) as process from entries
    ), untrue as (
        select seen.*, origin from seen left join came using (node, lseq, process)
        where not origin <=> had.group_view
    )
    select untrue.run, 'false origin' as kind, process_name as process, coalesce(had.label, 'no view') as had,
           untrue.label as view, untrue.name as group,
           coalesce(concat(view_name, '+', g.place_seq, '.', g.cause_index), 'none') as origin,
           array(untrue.node) as nodes, array(untrue.view) as views, array(array(untrue.node, untrue.lseq)) as witness,
           untrue.lseq as position
    from untrue
    join {changes} c on c.node = untrue.node and c.lseq = untrue.lseq
    join {people} p on p.process = untrue.process
    left join {group_view_names} g on g.group_view = untrue.origin
    left join {view_names} v on v.view = g.view
    where origin is not null or not (array_contains(joined, untrue.process) and array_contains(left, untrue.process))
"""
"""Processes that, according to a view, come from another view than they had; behind a gap nobody knows what they had. A process
that went away and came back may come from nowhere."""

GROUP_DIFFERENCES: Final = Property(
    name="group_differences",
    meaning="a view says truly who joined, who left and who came from which view",
    predicate="A transitional view is the view in force without the members whose node is lost, and nobody joins in it. In a "
    "regular view, members that do not come from the view in force here have joined; members of the last regular view that do "
    "not come from the view in force have left, so that a process that went away and came back is in both lists. Every process "
    "comes from the view that it has in force, a newcomer from none.",
    broken={
        "disorder": "{node}: {view} of {group}: members, joined, left or merged_from is not sorted, or names somebody twice",
        "no member": "{node}: {view} of {group}: it lists {strangers} under joined, but not under members",
        "two origins": "{node}: {view} of {group}: a member comes from two views, or a process that is not a member "
        "comes from one",
        "before any": "{node}: {view} of {group}: it is transitional, and no view came before it",
        "joined": "{node}: {view} of {group}: it lists {joined} under joined, but those that do not come from "
        "{before} are {newcomers}",
        "left": "{node}: {view} of {group}: it lists {left} under left, but those of {regular} that do not come "
        "from {before} are {leavers}",
        "others stay": "{node}: {view} of {group}: its members are {members}, but the members of {before} that remain are {stay}",
        "others left": "{node}: {view} of {group}: somebody joins in it, or those who left are not those who are missing",
        "from elsewhere": "{node}: {view} of {group}: its members do not all come from {before}",
        "false origin": "{process} was in {had} of {group}, but {view} says that it came from {origin}",
    },
    reads=Reads.GROUPS,
    check=check_group_differences,
    sql=f"{WRONG_DIFFERENCES};{FALSE_ORIGINS}",
    counts="""
        with cuts as (select node, gap_lseq as first_gap from {client_lives})
        select run, 1 as checked, 0 as pending from {changes}
        union all select run, 1, 0 from {seats} join cuts using (node) where first_gap is null or lseq < first_gap
        union all select run, 0, int(gapped) from {client_lives}
    """,
    examples=(
        kept("a: R4{a,b} c1 Vg1{a#1} Vg2{a#1,b#1} T6{a} Vg0{a#1} R8{a} / b: R4{a,b} c1 Vg2{a#1,b#1} x"),
        kept("a: R4{a} c1 Vg1{a#1} T6{a} R8{a,b} Vg0{a#1,b#1} / b: R2{b} c1 Vg1{b#1} T5{b} R8@a{a,b} Vg0{a#1,b#1}"),
        kept("a: R4{a} c1 Vg1{a#1} c2 Vg2{a#1,a#2} lg2 Vg3{a#1}"),
        breaks(
            "a: R4{a} c1 c2 Vg1{a#2,a#1}+a#1,a#2<",
            "a/1: R4@a/1+1.0 of g: members, joined, left or merged_from is not sorted, or names somebody twice",
        ),
        breaks("a: R4{a} c1 Vg1{a#1}+a#1,a#2", "a/1: R4@a/1+1.0 of g: it lists a/1#2 under joined, but not under members"),
        breaks(
            "a: R4{a} c1 Vg1{a#1} c2 lg1 Vg2{a#2}<1:a#1",
            "a/1: R4@a/1+2.0 of g: a member comes from two views, or a process that is not a member comes from one",
        ),
        breaks("a: R4{a} c1 T6{a} Vg0{a#1} R8{a}", "a/1: T6@a/1+0.0 of g: it is transitional, and no view came before it"),
        breaks(
            "a: R4{a} c1 Vg1{a#1} c2 Vg2{a#1,a#2}+a#1,a#2",
            "a/1: R4@a/1+2.0 of g: it lists a/1#1, a/1#2 under joined, but those that do not come from R4@a/1+1.0 are a/1#2",
        ),
        breaks(
            "a: R4{a} c1 c2 Vg1{a#1,a#2} lg2 Vg2{a#1}-",
            "a/1: R4@a/1+2.0 of g: it lists nothing under left, but those of R4@a/1+1.0 that do not come "
            "from R4@a/1+1.0 are a/1#2",
        ),
        breaks(
            "a: R4{a,b} c1 Vg1{a#1} Vg2{a#1,b#1} T6{a} Vg0{a#1,b#1} R8{a} / b: R4{a,b} c1 Vg2{a#1,b#1} x",
            "a/1: T6@a/1+0.0 of g: its members are a/1#1, b/1#1, but the members of R4@a/1+2.0 that remain are a/1#1",
        ),
        breaks(
            "a: R4{a,b} c1 Vg1{a#1} Vg2{a#1,b#1} T6{a} Vg0{a#1}- R8{a} / b: R4{a,b} c1 Vg2{a#1,b#1} x",
            "a/1: T6@a/1+0.0 of g: somebody joins in it, or those who left are not those who are missing",
        ),
        breaks(
            "a: R4{a,b} c1 Vg1{a#1} Vg2{a#1,b#1} T6{a} Vg0{a#1}< R8{a} / b: R4{a,b} c1 Vg2{a#1,b#1} x",
            "a/1: T6@a/1+0.0 of g: its members do not all come from R4@a/1+2.0",
        ),
        breaks(
            "a: R4{a} c1 Vg1{a#1} lg1 Vg2{a#1}<1",
            "a/1#1 was in no view of g, but R4@a/1+2.0 says that it came from R4@a/1+1.0",
        ),
        left_open("a: R4{a} c1 Vg1{a#1} g T6{a} R8{a}"),
    ),
)
