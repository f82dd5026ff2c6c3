"""One view per change: groups to which something happened see one view, the others see nothing."""

from __future__ import annotations

from typing import Final

from transis.audit.guarantees.clients import Change, ClientHistory, tells_who_is_there
from transis.audit.guarantees.history import Life
from transis.audit.guarantees.property import Findings, Property, Reads, breaks, kept
from transis.trace.events import ClientDelivery, ClientLeft, ClientLife, Conf, Delivery, End, Event, Gap, GroupConf
from transis.types.ids import ProcessId, ViewId
from transis.types.views import GroupId, GroupView, View


def check_group_changes(history: ClientHistory, findings: Findings) -> None:
    shown: dict[tuple[Life, GroupId, ViewId], Change] = {}
    for change in history.changes:
        findings.checked += 1
        if change.view.id.configuration.is_regular:
            _regular(change, shown, findings)
        else:
            _transitional(change, findings)
    for life in history.lives:
        if tells_who_is_there(life):
            _Losses(life, findings, history.closed).read()


def _regular(change: Change, shown: dict[tuple[Life, GroupId, ViewId], Change], findings: Findings) -> None:
    view, before = change.view, change.before
    if view.cause.process is not None:
        _one_process(change, view.cause.process, findings)
        return
    if view.cause.configuration is None:
        _several_processes(change, findings)
        return
    if change.own is not None and view.cause.configuration != change.own.cause:
        findings.violation("cause", (change.witness,), **change.words, cause=view.cause, configuration_cause=change.own.cause)
    if before is not None and before.id.configuration.is_regular and not view.joined and not view.left:
        findings.violation("nothing", (change.witness,), **change.words, before=before.id)
    known = shown.setdefault((change.life, view.group, view.id.configuration), change)
    if known is not change:
        findings.violation("again", (change.witness,), **change.words, earlier=known.view.id)


def _one_process(change: Change, process: ProcessId, findings: Findings) -> None:
    """Shown at its place of a settled regular configuration, so that no other change can be waiting."""
    view = change.view
    expected = ((process,), ()) if view.cause.what == "join" else ((), (process,))
    if (view.joined, view.left) != expected:
        findings.violation(
            "others", (change.witness,), **change.words, cause=view.cause, joined=list(view.joined), left=list(view.left)
        )
    _after_a_regular(change, findings)


def _several_processes(change: Change, findings: Findings) -> None:
    if not change.view.joined and not change.view.left:
        findings.violation("nobody", (change.witness,), **change.words)
    _after_a_regular(change, findings)


def _after_a_regular(change: Change, findings: Findings) -> None:
    if change.before is not None and not change.before.id.configuration.is_regular:
        findings.violation("behind a transitional", (change.witness,), **change.words, before=change.before.id)


def _transitional(change: Change, findings: Findings) -> None:
    if change.own is None or change.before is None:
        return
    if change.view.cause.configuration != change.own.cause:
        findings.violation(
            "cause", (change.witness,), **change.words, cause=change.view.cause, configuration_cause=change.own.cause
        )
    if not _lost(change.before, change.own):
        findings.violation("nobody lost", (change.witness,), **change.words, before=change.before.id)


def _lost(view: GroupView, configuration: View) -> bool:
    nodes = frozenset(configuration.nodes)
    return any(member.node not in nodes for member in view.members)


class _Losses:
    """Transitional configurations of one life, and the groups that must be shown each loss before the order goes on there.
    Meanwhile processes may go, and applications submit, because a node with many groups informs them in slices."""

    def __init__(self, life: Life, findings: Findings, closed: bool) -> None:
        self._life = life
        self._findings = findings
        self._closed = closed
        self._in_force: dict[GroupId, GroupView] = {}
        self._inside: dict[GroupId, set[int]] = {}
        self._due: dict[GroupId, GroupView] = {}
        self._configuration: Conf | None = None

    def read(self) -> None:
        for event in self._life.events:
            match event:
                case End():
                    return  # It died, or stopped, before it could show it.
                case GroupConf():
                    self._group_conf(event)
                case Conf():
                    self._judge()
                    self._conf(event)
                case Delivery() | ClientDelivery():
                    self._judge()
                case _:
                    self._other(event)
        if self._closed:
            self._judge()

    def _group_conf(self, event: GroupConf) -> None:
        group = event.view.group
        self._due.pop(group, None)
        self._in_force[group] = event.view
        self._inside[group] = set(event.processes)

    def _conf(self, event: Conf) -> None:
        view = event.view
        if not view.id.is_regular:
            self._configuration = event
            lost = {group: known for group, known in self._in_force.items() if _lost(known, view)}
            self._due = {group: known for group, known in lost.items() if self._inside.get(group)}
            self._findings.checked += len(self._due)

    def _other(self, event: Event) -> None:
        match event:
            case ClientLeft(process=process, group=group, refused=False):
                self._inside.get(group, set()).discard(process)
            case ClientLife(process=process):
                for processes in self._inside.values():
                    processes.discard(process)
            case Gap():
                self._inside.clear()
                self._due.clear()
            case _:
                pass

    def _judge(self) -> None:
        due = [view for group, view in self._due.items() if self._inside.get(group)]
        for view in due:
            assert self._configuration is not None
            said = {"node": self._life.node, "configuration": self._configuration.view.id, "view": view.id, "group": view.name}
            self._findings.violation("untold", ((self._life.node, self._configuration.lseq),), **said)
        self._due = {}


WRONG_VIEWS: Final = """
    with told as (
        select *, cause_conf <=> own.cause as same_cause, size(joined) = 0 and size(left) = 0 as silent,
               case when not is_regular then 'loss' when cause_process is not null then 'process'
                    when cause_conf is null then 'processes' else 'configuration' end as of
        from {changes}
    ), given as (
        select *, first(label) over same as earlier, row_number() over same as nth,
               if(cause_what = 'join', joined, left) <> array(cause_process)
               or size(if(cause_what = 'join', left, joined)) > 0 as of_others
        from told
        window same as (partition by node, group, view, of order by lseq)
    ), judged as (
        select *, explode(array_compact(array(
            case when of = 'process' and of_others then 'others'
                 when of = 'processes' and silent then 'nobody' end,
            case when of in ('process', 'processes') and not before.is_regular then 'behind a transitional' end,
            case when of in ('configuration', 'loss') and own is not null and not same_cause
                      and (is_regular or before is not null) then 'cause' end,
            case when of = 'configuration' and before.is_regular and silent then 'nothing' end,
            case when of = 'configuration' and nth > 1 then 'again' end,
            case when of = 'loss' and own is not null and before is not null
                      and size(array_except(before.member_nodes, own.members)) = 0 then 'nobody lost' end
        ))) as kind
        from given
    )
    select judged.run, kind, node_name as node, label as view, name as group, cause, own.cause as configuration_cause,
           before.label as before, earlier, transform(joined, one -> try_element_at(process_names, one)) as joined,
           transform(left, one -> try_element_at(process_names, one)) as left,
           array(judged.node) as nodes, array(view) as views, array(array(judged.node, lseq)) as witness, lseq as position
    from judged left join {process_maps} using (run)
"""
"""`of` is what a view reports; `earlier` is the first view of the kind that the same configuration gave the group here."""

LOSSES: Final = """
    with moments as (
        select node, lseq, view, view_name, members, view_kind = 1 as is_loss from {confs}
        union all
        select node, min(lseq), null, null, null, false from {deliveries} group by node, segment, conf_no
        union all
        select node, min(lseq), null, null, null, false from {client_deliveries} group by node, segment, conf_no
    ), followed as (
        select *, lead(lseq) over (partition by node order by lseq) as next_moment from moments
    ), losses as (
        select node, lseq as loss_lseq, view as loss, view_name as loss_name, members as loss_members,
               coalesce(next_moment, if(closed and ended = '', 4611686018427387904, null)) as due_lseq,
               row_number() over (partition by node order by lseq) as loss_no
        from followed join {client_lives} using (node)
        where is_loss and told
    ), counted as (
        select *, coalesce(max(loss_no) over (partition by node order by lseq), 0) as losses_before
        from (
            select run, node, node_name, group, lseq, next_lseq, label, name, member_nodes, last_until, null as loss_no
            from {changes}
            union all
            select null, node, null, null, loss_lseq, null, null, null, null, null, loss_no from losses
        )
    ), placed as (
        select counted.*, coalesce(lead(losses_before) over (partition by node, group order by lseq), losses) as losses_until
        from counted join (select node, max(loss_no) as losses from losses group by node) using (node)
        where run is not null
    ), numbered as (
        select * except (loss_no), explode(sequence(losses_before + 1, losses_until)) as loss_no
        from placed
        where losses_until > losses_before
    )
    select * from numbered join losses using (node, loss_no)
    where last_until > loss_lseq and size(array_except(member_nodes, loss_members)) > 0
"""
"""Views of groups, once for each transitional configuration that lost members of them while they were in force and somebody here
was in them. `due_lseq` is the event by which the group must have been shown the loss, because the order goes on there; at the end
of a trace this is due only if the run came to rest."""

UNTOLD: Final = """
    select run, 'untold' as kind, node_name as node, loss_name as configuration, label as view, name as group,
           array(node) as nodes, array(loss) as views, array(array(node, loss_lseq)) as witness, loss_lseq as position
    from {losses}
    where last_until >= due_lseq and (next_lseq is null or next_lseq >= due_lseq)
"""

GROUP_CHANGES: Final = Property(
    name="group_one_view_per_change",
    meaning="a change is shown once, and only to the groups that it concerns",
    predicate="A configuration that loses nodes gives a transitional view to each group that lost members here, at once, and to"
    " no other. A join, leave or disconnection gives one regular view, which reports that process and nobody else; "
    "several that came in one datagram give one view together. A regular configuration gives at most one regular view"
    " to a group, and none if nothing changed for it. A view that a configuration gives has the cause of that "
    "configuration.",
    broken={
        "others": "{node}: {view} of {group}: its cause is that {cause}, but it says that {joined} joined and {left} left",
        "nobody": "{node}: {view} of {group}: it says that nobody joined or left",
        "behind a transitional": "{node}: {view} of {group}: it follows the transitional {before}, "
        "which only a configuration ends",
        "cause": "{node}: {view} of {group}: its cause is {cause}, but that of its configuration is {configuration_cause}",
        "nothing": "{node}: {view} of {group}: nothing changed since {before}",
        "again": "{node}: {view} of {group}: its configuration had given {earlier} already",
        "nobody lost": "{node}: {view} of {group}: nobody of {before} was lost",
        "untold": "{node}: {configuration} lost members of {view} of {group}, but gave the group no transitional view",
    },
    reads=Reads.GROUPS,
    check=check_group_changes,
    sql=f"{WRONG_VIEWS};{UNTOLD}",
    counts="select run, 1 as checked from {changes} union all select run, 1 from {losses}",
    shared={"losses": LOSSES},
    examples=(
        kept("a: R4{a,b} c1 Vg1{a#1} Vg2{a#1,b#1} T6{a} Vg0{a#1} R8{a} / b: R4{a,b} c1 Vg2{a#1,b#1} x"),
        kept("a: R4{a,b} c1 Vg1{a#1} T6{a} R8{a} / b: R4{a,b} x"),
        kept("a: R4{a} c1 c2 Vg1{a#1,a#2} c3 Vg2{a#1,a#2,a#3} lg3 Vg3{a#1,a#2}"),
        kept("a: R4{a} c1 Vg1{a#1} T6{a} R8{a,b} Vg0{a#1,b#1} / b: R2{b} c1 Vg1{b#1} T5{b} R8@a{a,b} Vg0{a#1,b#1}"),
        breaks(
            "a: R4{a} c1 Vg1{a#1} c2 Vg2{a#1,a#2}-a#1",
            "a/1: R4@a/1+2.0 of g: its cause is that a/1#2 joined, but it says that a/1#2 joined and a/1#1 left",
        ),
        breaks("a: R4{a} c1 Vg1{a#1} Vg2{a#1}", "a/1: R4@a/1+2.0 of g: it says that nobody joined or left"),
        breaks(
            "a: R4{a,b} c1 Vg1{a#1} Vg2{a#1,b#1} T6{a} Vg0{a#1} R8{a} c2 Vg9{a#1,a#2}~join:a#2+a#2- / "
            "b: R4{a,b} c1 Vg2{a#1,b#1} x",
            "a/1: R8@a/1+9.0 of g: it follows the transitional T6@a/1+0.0, which only a configuration ends",
        ),
        breaks(
            "a: R4{a} c1 Vg1{a#1} T6{a} R8{a,b} Vg0{a#1,b#1}%mutant / b: R2{b} T5{b} R8@a{a,b} c1 Vg0{a#1,b#1}",
            "a/1: R8@a/1+0.0 of g: its cause is mutant, but that of its configuration is toy",
        ),
        breaks("a: R4{a} c1 Vg1{a#1} T6{a} R8{a} Vg0{a#1}", "a/1: R8@a/1+0.0 of g: nothing changed since R4@a/1+1.0"),
        breaks(
            "a: R4{a} c1 Vg1{a#1} T6{a} R8{a} c2 Vg0{a#1,a#2} c3 Vg0{a#1,a#2,a#3}",
            "a/1: R8@a/1+0.0 of g: its configuration had given R8@a/1+0.0 already",
        ),
        breaks("a: R4{a} c1 Vg1{a#1} T6{a} Vg0{a#1} R8{a}", "a/1: T6@a/1+0.0 of g: nobody of R4@a/1+1.0 was lost"),
        breaks(
            "a: R4{a,b} c1 Vg1{a#1} Vg2{a#1,b#1} T6{a} R8{a} / b: R4{a,b} c1 Vg2{a#1,b#1} x",
            "a/1: T6@a/1 lost members of R4@a/1+2.0 of g, but gave the group no transitional view",
        ),
    ),
)
