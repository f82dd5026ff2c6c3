"""Views of groups, each by itself: one view under one id, its members are there, and at most one component is primary.

1. Who joined and left is not part of what all must agree on: both depend on the view that a node had before.
2. A view stands in a configuration that is in force at the node, or in the regular one before it, because an exchange may end
   when somebody is already lost. Where a gap may hide the configuration, this is pending.
"""

from __future__ import annotations

from itertools import combinations
from typing import Final

from transis.audit.guarantees.clients import Change, ClientHistory, ClientStream, tells_who_is_there
from transis.audit.guarantees.history import Life
from transis.audit.guarantees.property import Findings, Property, Reads, breaks, kept, left_open
from transis.trace.events import ClientLeft, ClientLife, GroupConf
from transis.types.ids import NodeId, ProcessId, ViewId
from transis.types.views import GroupId, GroupView, GroupViewId

# --- agreement --------------------------------------------------------------------------------------------------------


def check_group_agreement(history: ClientHistory, findings: Findings) -> None:
    first: dict[tuple[GroupId, GroupViewId], Change] = {}
    for change in history.changes:
        findings.checked += 1
        view = change.view
        known = first.setdefault((view.group, view.id), change)
        kind = _difference(known.view, view)
        if kind:
            findings.violation(
                kind,
                (known.witness, change.witness),
                one=known.life.node,
                other=change.life.node,
                view=view.id,
                group=view.name,
                members=list(known.view.members),
                other_members=list(view.members),
                called=list(known.view.names),
                other_called=list(view.names),
                cause=known.view.cause,
                other_cause=view.cause,
                name=known.view.name,
                flag=known.view.primary,
                other_flag=view.primary,
            )


def _difference(left: GroupView, right: GroupView) -> str:
    if left is right:
        return ""
    if left.members != right.members:
        return "members"
    if left.names != right.names:
        return "called"
    if left.merged_from != right.merged_from:
        return "origins"
    if left.cause != right.cause:
        return "causes"
    if left.name != right.name:
        return "names"
    return "flags" if left.primary != right.primary else ""


AGREEMENT_SQL: Final = """
    with beside as (
        select *, first(struct(node, node_name, lseq, members, called, origins, cause, cause_what, cause_process, cause_conf,
                               name, primary)) over (partition by group_view order by node_order, lseq) as known
        from {changes}
    ), apart as (
        select *, case
            when not members <=> known.members then 'members'
            when coalesce(called, array()) <> coalesce(known.called, array()) then 'called'
            when not origins <=> known.origins then 'origins'
            when not (cause_what <=> known.cause_what and cause_process <=> known.cause_process
                      and cause_conf <=> known.cause_conf) then 'causes'
            when name <> known.name then 'names'
            when not primary <=> known.primary then 'flags' end as kind
        from beside
    )
    select apart.run, kind, known.node_name as one, node_name as other, label as view, apart.name as group,
           transform(known.members, one -> try_element_at(process_names, one)) as members,
           transform(members, one -> try_element_at(process_names, one)) as other_members,
           known.called as called, called as other_called, known.cause as cause, cause as other_cause, known.name as name,
           coalesce(initcap(string(known.primary)), 'None') as flag, coalesce(initcap(string(primary)), 'None') as other_flag,
           array(known.node, node) as nodes, array(view) as views,
           array(array(known.node, known.lseq), array(node, lseq)) as witness, lseq as position
    from apart left join {process_maps} using (run)
    where kind is not null
"""

GROUP_AGREEMENT: Final = Property(
    name="group_agreement_on_views",
    meaning="the same group view has the same members, with the same names, origins and cause for everybody",
    predicate="Wherever a group view is installed, its id stands for the same members, the same names of these, "
    "origins, cause, name and flag.",
    broken={
        "members": "{one} and {other} have {view} of {group} with different members: {members} against {other_members}",
        "called": "{one} and {other} have {view} of {group} with different names of members: {called} against {other_called}",
        "origins": "{one} and {other} have {view} of {group} with different origins of members",
        "causes": "{one} and {other} have {view} of {group} with different causes: {cause} against {other_cause}",
        "names": "{one} and {other} have {view} of {group} with different names: {name} against {group}",
        "flags": "{one} and {other} have {view} of {group} with different flags: primary {flag} against {other_flag}",
    },
    reads=Reads.GROUPS,
    check=check_group_agreement,
    sql=AGREEMENT_SQL,
    counts="select run, 1 as checked from {changes}",
    examples=(
        kept("a: R4{a,b} c1 Vg1{a#1} Vg2{a#1,b#1} / b: R4{a,b} c1 Vg2{a#1,b#1}"),
        breaks(
            "a: R4{a,b} c1 Vg1{a#1} Vg2{a#1,b#1} / b: R4{a,b} c1 Vg2{b#1}",
            "a/1 and b/1 have R4@a/1+2.0 of g with different members: a/1#1, b/1#1 against b/1#1",
        ),
        kept("a: R4{a,b} c1 Vg1{a#1}$x Vg2{a#1,b#1}$x,y / b: R4{a,b} c1 Vg2{a#1,b#1}$x,y"),
        breaks(
            "a: R4{a,b} c1 Vg1{a#1}$x Vg2{a#1,b#1}$x,y / b: R4{a,b} c1 Vg2{a#1,b#1}$x,z",
            "a/1 and b/1 have R4@a/1+2.0 of g with different names of members: x, y against x, z",
        ),
        breaks(
            "a: R4{a,b} c1 Vg1{a#1} Vg2{a#1,b#1} / b: R4{a,b} c1 Vg2{a#1,b#1}<",
            "a/1 and b/1 have R4@a/1+2.0 of g with different origins of members",
        ),
        breaks(
            "a: R4{a,b} c1 Vg1{a#1} Vg2{a#1,b#1} / b: R4{a,b} c1 Vg2{a#1,b#1}~leave:b#1",
            "a/1 and b/1 have R4@a/1+2.0 of g with different causes: b/1#1 joined against b/1#1 left",
        ),
        breaks(
            "a: R4{a,b} c1 Vg1{a#1} Vg2{a#1,b#1} / b: R4{a,b} c1 Vg2{a#1,b#1}=h",
            "a/1 and b/1 have R4@a/1+2.0 of h with different names: g against h",
        ),
        breaks(
            "a: R4{a,b} c1 Vg1{a#1} Vg2{a#1,b#1}!yes / b: R4{a,b} c1 Vg2{a#1,b#1}!no",
            "a/1 and b/1 have R4@a/1+2.0 of g with different flags: primary True against False",
        ),
    ),
)

# --- primary ----------------------------------------------------------------------------------------------------------


def check_group_primary(history: ClientHistory, findings: Findings) -> None:
    first: dict[ViewId, Change] = {}
    for change in history.changes:
        if change.view.primary is None or change.own is None:
            continue
        findings.checked += 1
        known = first.setdefault(change.view.id.configuration, change)
        if known.view.primary != change.view.primary:
            findings.violation(
                "in doubt",
                (known.witness, change.witness),
                known_view=known.view.id,
                known_group=known.view.name,
                known_flag=known.view.primary,
                view=change.view.id,
                group=change.view.name,
                flag=change.view.primary,
            )
    primaries = [change for _, change in sorted(first.items()) if change.view.primary]
    for left, right in combinations(primaries, 2):
        if _names(left).isdisjoint(_names(right)):
            one, other = left.view.id.configuration, right.view.id.configuration
            findings.violation("two", (left.witness, right.witness), one=one, other=other)


def _names(change: Change) -> frozenset[str]:
    assert change.own is not None
    return frozenset(node.name for node in change.own.nodes)


FLAGGED: Final = """
    select run, node, lseq, label, name, view, primary, own.members,
           first(struct(node, lseq, label, name, primary)) over of_configuration as known,
           row_number() over of_configuration as nth
    from {changes}
    where primary is not null and own is not null
    window of_configuration as (partition by view order by node_order, lseq)
"""
"""Each view that says whether it is primary, beside the first that stands in the same configuration."""

IN_DOUBT: Final = """
    select run, 'in doubt' as kind, known.label as known_view, known.name as known_group,
           initcap(string(known.primary)) as known_flag, label as view, name as group, initcap(string(primary)) as flag,
           array(known.node, node) as nodes, array(view) as views,
           array(array(known.node, known.lseq), array(node, lseq)) as witness, lseq as position
    from {flagged}
    where primary <> known.primary
"""

TWO_PRIMARIES: Final = """
    with members as (
        select run, node, lseq, view, explode(members) as member from {flagged} where nth = 1 and primary
    ), named as (
        select m.run, m.node, m.lseq, m.view, sort_array(collect_set(n.name)) as names
        from members m join {node_names} n on n.node = m.member
        group by all
    ), sets as (
        select named.run, names, min_by(struct(named.node, lseq, named.view, view_name), view_order) as first
        from named join {view_names} using (view)
        group by all
    )
    select l.run, 'two' as kind, l.first.view_name as one, r.first.view_name as other,
           array(l.first.node, r.first.node) as nodes, array(l.first.view, r.first.view) as views,
           array(array(l.first.node, l.first.lseq), array(r.first.node, r.first.lseq)) as witness
    from sets l join sets r on r.run = l.run and l.names < r.names and not arrays_overlap(l.names, r.names)
"""
"""Sets of names are few, however many configurations have them: they are compared, and the first of each is reported."""

GROUP_PRIMARY: Final = Property(
    name="group_primary",
    meaning="no two components call themselves primary at a time",
    predicate="All views of one configuration agree on whether it is primary, and two primary configurations share a name: a "
    "majority of the configured names cannot be in two places. Without a configured set no view says anything, and "
    "nothing is checked.",
    broken={
        "in doubt": "{known_view} of {known_group} says primary {known_flag}, and {view} of {group} says {flag}, "
        "in one configuration",
        "two": "{one} and {other} both call themselves primary and share no name",
    },
    reads=Reads.GROUPS,
    check=check_group_primary,
    sql=f"{IN_DOUBT};{TWO_PRIMARIES}",
    counts="select run, 1 as checked from {flagged}",
    shared={"flagged": FLAGGED},
    examples=(
        kept("a: R4{a,b} c1 Vg1{a#1}!yes T6{a} Vg0{a#1}!no R8{a} / b: R4{a,b} T6{b} R10{b} c1 Vg1{b#1}!no"),
        kept("a: R4{a,b} c1 Vg1{a#1}!yes T6{a} R8{a} / b: R4{a,b} T6{b} R10{b,c} c1 Vg1{b#1}!yes / c: R1{c} T7{c} R10@b{b,c}"),
        breaks(
            "a: R4{a} c1 Vg1{a#1}!yes Vh2{a#1}!no",
            "R4@a/1+1.0 of g says primary True, and R4@a/1+2.0 of h says False, in one configuration",
        ),
        breaks(
            "a: R4{a,b} T6{a} R8{a} c1 Vg1{a#1}!yes / b: R4{a,b} T6{b} R10{b} c1 Vg1{b#1}!yes",
            "R8@a/1 and R10@b/1 both call themselves primary and share no name",
        ),
    ),
)

# --- no ghosts --------------------------------------------------------------------------------------------------------


def check_group_ghosts(history: ClientHistory, findings: Findings) -> None:
    connected = {life.node: _ever_connected(life) for life in history.lives}
    for change in history.changes:
        if change.configuration is not None:
            findings.checked += len(change.view.members)
            _on_nodes_of_the_configuration(change, findings)
            _by_their_nodes_word(change, connected, findings)
    if history.closed:
        _at_rest(history, findings)


def _ever_connected(life: Life) -> frozenset[int] | None:
    """None if the trace does not say, or may have dropped it."""
    found = frozenset(event.process for event in life.events if isinstance(event, ClientLife) and event.connected)
    return None if life.gapped or not found else found


def _on_nodes_of_the_configuration(change: Change, findings: Findings) -> None:
    if change.own is None and change.adrift:
        findings.pending += 1
        return
    if change.own is None:
        findings.violation("another configuration", (change.witness,), **change.words)
        return
    nodes = frozenset(change.own.nodes)
    ghosts = [member for member in change.view.members if member.node not in nodes]
    if ghosts:
        findings.violation("elsewhere", (change.witness,), ghosts=ghosts, **change.words)


def _by_their_nodes_word(change: Change, connected: dict[NodeId, frozenset[int] | None], findings: Findings) -> None:
    view = change.view
    for process in view.members:
        known = connected.get(process.node)
        if known is not None and process.number not in known:
            said = {"view": view.id, "group": view.name, "process": process, "home": process.node}
            findings.violation("never there", (change.witness,), **said)


def _at_rest(history: ClientHistory, findings: Findings) -> None:
    living = [life for life in history.lives if not life.ended]
    if any(life.gapped for life in living):
        findings.pending += 1
        return
    if not all(map(tells_who_is_there, living)):
        return
    lives = {life.node: life for life in history.lives}
    last = {client.id: _last(client) for client in history.clients if _is_there(lives[client.node], client)}
    present: dict[GroupId, list[ProcessId]] = {}
    for process, views in last.items():
        for group in views:
            present.setdefault(group, []).append(process)
    for process, views in last.items():
        for group, event in views.items():
            findings.checked += 1
            view = event.view
            if list(view.members) != present[group]:
                said = {"process": process, "view": view.id, "group": view.name}
                witness = ((process.node, event.lseq),)
                findings.violation("at rest", witness, members=list(view.members), present=present[group], **said)


def _is_there(life: Life, client: ClientStream) -> bool:
    gone = any(isinstance(event, ClientLife) and event[2:] == (client.id.number, False) for event in life.events)
    return not gone and not life.ended


def _last(client: ClientStream) -> dict[GroupId, GroupConf]:
    """The view that the process has in force in each of its groups."""
    found: dict[GroupId, GroupConf] = {}
    for step in client.steps:
        if isinstance(step, GroupConf):
            found[step.view.group] = step
        elif isinstance(step, ClientLeft) and not step.refused:
            found.pop(step.group, None)
    return found


ELSEWHERE: Final = """
    with placed as (
        select *, filter(members, (one, at) -> not array_contains(own.members, get(member_nodes, at))) as ghosts
        from {changes}
        where conf_lseq is not null
    )
    select placed.run, if(own is null, 'another configuration', 'elsewhere') as kind, node_name as node, label as view,
           name as group, transform(ghosts, one -> try_element_at(process_names, one)) as ghosts,
           array(placed.node) as nodes, array(view) as views, array(array(placed.node, lseq)) as witness, lseq as position
    from placed left join {process_maps} using (run)
    where own is null and not adrift or size(ghosts) > 0
"""

NEVER_THERE: Final = """
    with recorded as (
        select distinct node from {clients} left semi join (select node from {client_lives} where not gapped) using (node)
        where connected
    ), strangers as (
        select process, process_name, n.node_name
        from {people} join recorded using (node) join {node_names} n using (node)
        left anti join (select process from {clients} where connected) using (process)
    ), members as (
        select *, explode(members) as process from {changes} where conf_lseq is not null
    )
    select run, 'never there' as kind, label as view, name as group, process_name as process, strangers.node_name as home,
           array(node) as nodes, array(view) as views, array(array(node, lseq)) as witness, lseq as position
    from members join strangers using (process)
"""
"""Members that never connected, by traces that say who did and dropped nothing."""

RESTING: Final = """
    with resting as (
        select run, max(gapped) as gapped, min(told) as told from {client_lives} where closed and ended = '' group by run
    ), last as (
        select *, lead(lseq) over (partition by process, group order by lseq) as later from {seats}
    ), there as (
        select last.run, node, group, lseq, process, process_name, process_order
        from last join resting using (run) join (select process, process_name, process_order from {people}) using (process)
        left semi join (select node from {client_lives} where ended = '') using (node)
        left anti join (select process from {clients} where not connected) using (process)
        where not gapped and told and later is null and left_lseq is null
    ), views as (
        select run, node, group, lseq, min_by(process_name, process_order) as process_name
        from there
        group by run, node, group, lseq
    )
"""
"""Runs that came to rest, and the last view there of each process that is not gone; one process stands for all of a node.
Nothing is known of a living node that dropped events, or that does not record who connects."""

AT_REST: Final = (
    RESTING
    + """
    , present as (
        select run, group, sort_array(collect_list(struct(process_order, process))).process as present
        from there
        group by run, group
    )
    select views.run, 'at rest' as kind, process_name as process, label as view, name as group,
           transform(members, one -> try_element_at(process_names, one)) as members,
           transform(present, one -> try_element_at(process_names, one)) as present,
           array(views.node) as nodes, array(view) as views, array(array(views.node, views.lseq)) as witness,
           views.lseq as position
    from views join present using (run, group) join {changes} c on c.node = views.node and c.lseq = views.lseq
         left join {process_maps} maps on maps.run = views.run
    where members <> present
"""
)

GROUP_NO_GHOSTS: Final = Property(
    name="group_no_ghosts",
    meaning="members are there as their own node records it, on nodes of the configuration",
    predicate="A view of a group stands in a configuration that is in force, its members live on nodes of that configuration, "
    "and each has connected to its node. At rest the members of a group are exactly the processes whose last view says so and "
    "that are not gone.",
    broken={
        "another configuration": "{node} installed {view} of {group} in another configuration",
        "elsewhere": "{node} installed {view} of {group} with {ghosts}, on no node of the configuration",
        "never there": "{view} of {group} has {process}, which never was a process of {home}",
        "at rest": "at rest {process} is in {view} of {group} with {members}, but those who are in the group are {present}",
    },
    reads=Reads.GROUPS,
    check=check_group_ghosts,
    sql=f"{ELSEWHERE};{NEVER_THERE};{AT_REST}",
    counts=RESTING
    + """
    select run, size(members) as checked, int(own is null and adrift) as pending from {changes} where conf_lseq is not null
    union all select run, 1, 0 from views
    union all select run, 0, int(gapped) from resting
    """,
    examples=(
        kept("a: R4{a,b} c1 Vg1{a#1} Vg2{a#1,b#1} / b: R4{a,b} c1 Vg2{a#1,b#1}"),
        kept("a: R4{a} c1 Vg1{a#1} c2 Vg2{a#1,a#2} q2 Vg3{a#1}"),
        kept("a: R4{a,b} c1 Vg1{a#1} Vg2{a#1,b#1} T6{a} Vg0{a#1} R8{a} / b: R4{a,b} c1 Vg2{a#1,b#1} x"),
        breaks("a: R4{a} c1 Vg1{a#1}^9", "a/1 installed R9@a/1+1.0 of g in another configuration"),
        breaks(
            "a: R4{a} c1 Vg1{a#1,b#1} / b: R5{b} c1",
            "a/1 installed R4@a/1+1.0 of g with b/1#1, on no node of the configuration",
        ),
        breaks(
            "a: R4{a} c1 Vg1{a#1,a#7}",
            "R4@a/1+1.0 of g has a/1#7, which never was a process of a/1",
        ),
        breaks(
            "a: R4{a,b} c1 Vg1{a#1} / b: R4{a,b} c1 Vg2{a#1,b#1}",
            "at rest a/1#1 is in R4@a/1+1.0 of g with a/1#1, but those who are in the group are a/1#1, b/1#1",
        ),
        left_open("a: R4{a} c1 g Vg1{a#1}^9"),
    ),
)
