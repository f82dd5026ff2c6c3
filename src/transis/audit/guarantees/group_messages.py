"""Members only: the stream of a client is that of its node, filtered by address and by the group views in force.

1. A run is handed over right behind its delivery: no view, leave, connection, disconnection or configuration, and no later run
   handed over, may stand between. What is not handed over by then went to nobody, which is right for runs that were for nobody
   here, and for the last runs of a node that died.
2. A basic run may wait instead, until the views of its configuration stand, or be lost.
3. If a trace does not say who connects and who goes, a process is there from the first thing that it gets. Silence then means
   that it is gone, and anything that it gets after the silence means that it missed something.
4. After a gap nobody knows who is in a group: what comes behind it is pending.
"""

from __future__ import annotations

from typing import Any, Final

from transis.audit.guarantees.clients import ClientHistory, tells_who_is_there
from transis.audit.guarantees.history import Life
from transis.audit.guarantees.property import Findings, Property, Reads, breaks, kept, left_open
from transis.trace.events import ClientDelivery, ClientLeft, ClientLife, Conf, Delivery, End, Event, Gap, GroupConf, LateRuns
from transis.trace.reader import read_address
from transis.types.ids import ProcessId, Service
from transis.types.views import GroupId

END_OF_TIME: Final = 1 << 62

Recipients = dict[int, tuple[GroupId, ...]]
"""Processes of a node, each with the groups through which it gets a run."""

Missed = tuple[str, int, dict[str, Any]]
"""What a process did not get that was for it: as a kind of violation, with the event and the words of the sentence."""


def check_group_members(history: ClientHistory, findings: Findings) -> None:
    for life in history.lives:
        _Filter(life, findings, history.closed).read()


class _Filter:
    """`_inside` has the groups of each connected process; `_fresh` the addressed runs since the last event about clients;
    `_waiting` basic runs of this configuration that nobody got yet; `_silent` what processes missed that may be gone."""

    def __init__(self, life: Life, findings: Findings, closed: bool) -> None:
        self._life = life
        self._findings = findings
        self._closed = closed
        self._says_who_connects = tells_who_is_there(life)
        self._inside: dict[int, set[GroupId]] = {}
        self._gone: set[int] = set()
        self._silent: dict[int, Missed] = {}
        self._fresh: dict[int, Delivery] = {}
        self._waiting: dict[tuple[ProcessId, int], Delivery] = {}

    def read(self) -> None:
        for event in self._life.events:
            match event:
                case Delivery():
                    if event.address:
                        self._fresh[event.lseq] = event
                        if event.service is Service.BASIC:
                            self._waiting[event.process, event.first] = event
                case End():
                    return  # It died, or stopped, before it could hand over the last ones.
                case Gap():
                    self._findings.pending += 1
                    return
                case ClientDelivery():
                    self._delivered(event)
                case GroupConf() | ClientLeft() | ClientLife() | Conf():
                    self._judge_missed()
                    self._other(event)
                case _:
                    pass
        if self._closed:
            self._judge_missed()
        elif self._fresh:
            self._findings.pending += 1

    # -- messages ------------------------------------------------------------------------------------------------

    def _delivered(self, event: ClientDelivery) -> None:
        claims: dict[int, Recipients] = {}
        for groups, processes, runs in event.handed:
            for lseq in runs:
                claims.setdefault(lseq, {}).update(dict.fromkeys(processes, groups))
        for lseq, claim in sorted(claims.items()):
            run = self._fresh.pop(lseq, None)
            if run is None:
                self._violation("late", event.lseq, node=self._life.node)
            else:
                self._compare(run, claim, event.lseq)
        for waited in event.waited:
            self._waited(waited, event.lseq)
        self._judge_missed(max(claims, default=0))

    def _waited(self, waited: LateRuns, lseq: int) -> None:
        run = self._waiting.get((waited.sender, waited.first))
        if run is None or run.count != waited.count:
            self._violation("not waiting", lseq, node=self._life.node, message=f"{waited.sender}:{waited.first}")
            return
        self._meet(waited.processes)
        self._unexpected(run, dict.fromkeys(waited.processes, waited.groups), self._expected(run), lseq)

    def _compare(self, run: Delivery, claim: Recipients, lseq: int) -> None:
        self._findings.checked += run.count * len(claim)
        self._waiting.pop((run.process, run.first), None)
        self._meet(claim)
        expected = self._expected(run)
        if claim != expected:
            self._unexpected(run, claim, expected, lseq)
            for process in sorted(expected.keys() - claim.keys()):
                self._missed(process, run)
        self._heard(claim, lseq)

    def _unexpected(self, run: Delivery, claim: Recipients, expected: Recipients, lseq: int) -> None:
        for process, groups in sorted(claim.items()):
            if expected.get(process) != groups:
                instead = "not addressed" if process not in expected else f"in {len(expected[process])} of its groups"
                said = {"process": self._name(process), "message": _words(run), "through": len(groups), "instead": instead}
                self._violation("unexpected", run.lseq, lseq, **said)

    def _expected(self, run: Delivery) -> Recipients:
        address = read_address(run.address)
        found: dict[int, list[GroupId]] = {
            number: [] for boot, number in address.processes if boot == self._life.node.boot and number in self._inside
        }
        for group in address.groups:
            for process, groups in self._inside.items():
                if group in groups:
                    found.setdefault(process, []).append(group)
        return {process: tuple(groups) for process, groups in found.items()}

    def _judge_missed(self, before_lseq: int = END_OF_TIME) -> None:
        due = [run for lseq, run in self._fresh.items() if lseq < before_lseq]
        self._fresh = {lseq: run for lseq, run in self._fresh.items() if lseq >= before_lseq}
        for run in due:
            for process in sorted(self._expected(run)):
                self._missed(process, run)

    def _missed(self, process: int, run: Delivery) -> None:
        if run.service is not Service.BASIC:
            self._did_not_get(process, ("missed", run.lseq, {"message": _words(run)}))

    def _did_not_get(self, process: int, missed: Missed) -> None:
        """Broken at once if the trace says that the process is there, else when the process gets something again."""
        if self._says_who_connects:
            self._say_missed(process, missed)
        else:
            self._silent.setdefault(process, missed)
            self._inside.pop(process, None)

    def _say_missed(self, process: int, missed: Missed) -> None:
        kind, lseq, words = missed
        self._violation(kind, lseq, process=self._name(process), **words)

    def _meet(self, processes: Recipients | tuple[int, ...]) -> None:
        """If nobody says who connects, a process is there from the first thing that it gets."""
        for process in () if self._says_who_connects else processes:
            self._inside.setdefault(process, set())

    def _heard(self, processes: Recipients | tuple[int, ...], lseq: int) -> None:
        for process in processes:
            if process in self._silent:
                self._say_missed(process, self._silent.pop(process))
            if process in self._gone:
                self._violation("gone", lseq, process=self._name(process))

    # -- views ---------------------------------------------------------------------------------------------------

    def _other(self, event: Event) -> None:
        match event:
            case GroupConf():
                self._group_conf(event)
            case ClientLeft(process=process, group=group, refused=refused):
                self._heard((process,), event.lseq)
                if not refused:
                    self._leave(process, group, event)
            case ClientLife(process=process, connected=True):
                self._inside[process] = set()
            case ClientLife(process=process):
                self._inside.pop(process, None)
                self._gone.add(process)
            case Conf(view=view) if view.id.is_regular:
                self._waiting = {}
            case _:
                pass

    def _leave(self, process: int, group: GroupId, event: ClientLeft) -> None:
        if group not in self._inside.get(process, set()):
            self._violation("outside", event.lseq, process=self._name(process), group=event.name)
        self._inside.get(process, set()).discard(group)

    def _group_conf(self, event: GroupConf) -> None:
        view, shown = event.view, event.processes
        self._findings.checked += len(shown)
        self._heard(shown, event.lseq)
        local = [number for node, number in view.members if node == self._life.node]
        expected = (
            [number for number in local if number in self._inside]
            if self._says_who_connects
            else [n for n in local if n in shown]
        )
        said = {"view": view.id, "group": view.name}
        if list(shown) != expected:
            names = {"shown": list(map(self._name, shown)), "expected": list(map(self._name, expected))}
            self._violation("shown", event.lseq, node=self._life.node, **names, **said)
        for process, groups in sorted(self._inside.items()):
            if view.group in groups and process not in shown:
                groups.discard(view.group)
                self._did_not_get(process, ("dropped", event.lseq, said))
        for process in shown:
            self._inside.setdefault(process, set()).add(view.group)

    # -- words ---------------------------------------------------------------------------------------------------

    def _violation(self, kind: str, *events: int, **words: Any) -> None:
        self._findings.violation(kind, tuple((self._life.node, lseq) for lseq in events), **words)

    def _name(self, process: int) -> ProcessId:
        return ProcessId(self._life.node, process)


def _words(run: Delivery) -> str:
    return f"{run.process}:{run.first}" + (f" to {run.first + run.count - 1}" if run.count > 1 else "")


MESSAGES: Final = """
    with claimed as (
        select run, node, sender, first, count, run_lseq, event, expected, explode(claim) as got
        from {doubtful_runs}
        where is_fresh
        union all
        select run, node, sender, first, count, run_lseq, lseq, expected, struct(process, groups)
        from (select *, explode(processes) as process from {waited_runs} where address is not null)
    ), owed as (
        select *, explode(array_except(expected.process, coalesce(claim.process, array()))) as process
        from {doubtful_runs}
        where not is_basic and expected is not null and (is_fresh or event is null and fate = 'missed')
    ), wrong as (
        select 'unexpected' as kind, run, node, sender, first, count, got.process as process, size(got.groups) as through,
               size(get(filter(expected, one -> one.process = got.process), 0).groups) as rightly,
               run_lseq, event, event as position
        from claimed
        where not coalesce(array_contains(expected, got), false)
        union all
        select 'missed', run, node, sender, first, count, process, null, null, run_lseq, null, run_lseq
        from owed join {heard} using (process)
        where met <= run_lseq and run_lseq < heard
    )
    select wrong.run, wrong.kind as kind, own.process_name as process, through,
           concat(s.process_name, ':', first, if(count > 1, concat(' to ', first + count - 1), '')) as message,
           coalesce(concat('in ', rightly, ' of its groups'), 'not addressed') as instead, array(wrong.node) as nodes,
           array(array(wrong.node, run_lseq), array(wrong.node, event)) as witness, position
    from wrong join {people} own using (process) left join {people} s on s.process = wrong.sender
"""
"""Runs that did not go to exactly those who must get them. Basic ones may get lost on the way to a process; others may not, if it
is there or gets something again."""

MISTIMED: Final = """
    with wrong as (
        select 'late' as kind, run, node, event as lseq, null as sender, null as first
        from {doubtful_runs}
        where event is not null and not is_fresh
        union all
        select 'not waiting', run, node, lseq, sender, first from {waited_runs} where address is null
    )
    select wrong.run, wrong.kind as kind, node_name as node, concat(process_name, ':', first) as message,
           array(wrong.node) as nodes, array(array(wrong.node, lseq)) as witness, lseq as position
    from wrong join {client_lives} using (node) left join {people} on process = sender
"""

SHOWN: Final = """
    with views as (
        select c.run, node, c.node_name, group, lseq, label, name, processes, told,
               filter(members, (one, at) -> get(member_nodes, at) = node) as members_here
        from {changes} c join {client_lives} using (node)
        where gap_lseq is null or lseq < gap_lseq
    ), members as (
        select node, lseq, posexplode(members_here) as (at, process) from views
    ), marked as (
        select process, lseq, connected, null as node, null as at from {clients}
        union all
        select process, lseq, null, node, at from members
    ), placed as (
        select *, last_value(connected) ignore nulls over (partition by process order by lseq) as is_there from marked
    ), connected as (
        select node, lseq, sort_array(collect_list(struct(at, process))).process as connected
        from placed
        where at is not null and is_there
        group by node, lseq
    ), compared as (
        select views.*, if(told, coalesce(connected, array()), array_intersect(members_here, processes)) as expected
        from views left join connected using (node, lseq)
    )
    select compared.run, 'shown' as kind, node_name as node, label as view, name as group,
           transform(processes, one -> try_element_at(process_names, one)) as shown,
           transform(expected, one -> try_element_at(process_names, one)) as expected,
           array(compared.node) as nodes, array(array(compared.node, lseq)) as witness, lseq as position
    from compared left join {process_maps} using (run)
    where processes <> expected
"""
"""A view goes to its members here that are connected."""

DROPPED: Final = """
    with seated as (
        select s.*, lead(lseq) over (partition by process, group order by lseq) as next_shown
        from {seats} s join (select node, gap_lseq as cut from {client_lives}) using (node)
        where cut is null or lseq < cut
    )
    select seated.run, 'dropped' as kind, process_name as process, c.label as view, c.name as group,
           array(seated.node) as nodes, array(array(seated.node, seated.next_lseq)) as witness, seated.next_lseq as position
    from seated join {heard} using (process) join {people} using (process)
         join {changes} c on c.node = seated.node and c.lseq = seated.next_lseq
    where (until is null or until > seated.next_lseq) and (gap_lseq is null or seated.next_lseq < gap_lseq)
          and not next_shown <=> seated.next_lseq and seated.next_lseq < heard
"""
"""Members of a group up to its next view that are not shown that view, and that are still there or appear later."""

LAST_WORDS: Final = """
    with cuts as (
        select node, gap_lseq as cut from {client_lives}
    ), leaves as (
        select run, node, process, group, name, lseq, refused from {client_leaves} join cuts using (node)
        where cut is null or lseq < cut
    ), told as (
        select run, node, process, lseq from {seats} join cuts using (node) where cut is null or lseq < cut
        union all
        select run, node, process, lseq from leaves
    ), gone as (
        select process, min(lseq) as gone_lseq from {clients} where not connected group by process
    ), wrong as (
        select 'gone' as kind, run, node, process, lseq, null as group from told join gone using (process) where lseq > gone_lseq
        union all
        select 'outside', run, node, process, lseq, name
        from leaves left anti join {seats} s
             on s.process = leaves.process and s.group = leaves.group and s.until = leaves.lseq
                and (s.next_lseq is null or s.next_lseq > leaves.lseq)
        where not refused
    )
    select wrong.run, wrong.kind as kind, process_name as process, group,
           array(wrong.node) as nodes, array(array(wrong.node, lseq)) as witness, lseq as position
    from wrong join {people} using (process)
"""
"""Views and leaves that came to a process that was gone, and leaves that end no membership."""

GROUP_MEMBERS_ONLY: Final = Property(
    name="group_members_only",
    meaning="a process gets what is for it while it is a member, and nothing else",
    predicate="An ordered run goes, right behind its delivery, to the connected processes that are in the view in force of one "
    "of its groups or that it names, through exactly those of its groups that they are in; and to nobody else. A "
    "basic run does the same, or waits until the views of its configuration stand, or is lost. A view goes to its "
    "members that are connected here, and nobody stops being one without being told.",
    broken={
        "unexpected": "{process} got {message} through {through} groups, but is {instead}",
        "missed": "{process} did not get {message}, which was for it",
        "late": "{node} handed a run over that it had not just delivered",
        "not waiting": "{node} handed over {message}, which was not waiting",
        "shown": "{node} showed {view} of {group} to {shown} instead of {expected}",
        "dropped": "{process} is not in {view} of {group} and was not told that it left",
        "gone": "{process} was told something after it had gone",
        "outside": "{process} was told that it left {group}, in which it was not",
    },
    reads=Reads.GROUPS,
    check=check_group_members,
    sql=";".join((MESSAGES, MISTIMED, SHOWN, DROPPED, LAST_WORDS)),
    counts="""
        with cuts as (select node, gap_lseq as cut from {client_lives})
        select run, count as checked, 0 as pending from {got} join cuts using (node)
        where run_lseq is not null and (cut is null or lseq < cut)
        union all select run, 1, 0 from {seats} join cuts using (node) where cut is null or lseq < cut
        union all select run, 0, int(gapped) from {client_lives}
        union all select run, 0, count from {doubtful_runs} where event is null and fate = 'open'
    """,
    examples=(
        kept("a: R4{a} c1 Vg1{a#1} c2 Vg2{a#1,a#2} s3@g d3 h3>1,2 lg2 Vg4{a#1} s5@g d5 h5>1 s6@a#2 d6 h6>2"),
        kept("a: R4{a} c1 c2 Vg1{a#1} Vh2{a#1,a#2} s3@gh d3 h3>1:gh;2:h s4@g d4 h4>1 x"),
        kept("a: R4{a} c1 s2?@g d2 Vg3{a#1} w2>1 s4?@g d4 s5@g d5 h5>1"),
        kept("a: R4{a} c1 Vg1{a#1} s2@g d2 x"),
        kept("a: R4{a} Vg1{a#1} s2@g d2"),
        breaks("a: R4{a} c1 Vg1{a#1} c2 s3@g d3 h3>1,2", "a/1#2 got a/1#0:1 through 1 groups, but is not addressed"),
        breaks("a: R4{a} c1 s2?@g d2 Vg3{a#1} c2 w2>1,2", "a/1#2 got a/1#0:1 through 1 groups, but is not addressed"),
        breaks(
            "a: R4{a} c1 Vg1{a#1} Vh2{a#1} s3@gh d3 h3>1:g",
            "a/1#1 got a/1#0:1 through 1 groups, but is in 2 of its groups",
        ),
        breaks("a: R4{a} c1 c2 Vg1{a#1,a#2} s3@g d3 h3>1", "a/1#2 did not get a/1#0:1, which was for it"),
        breaks("a: R4{a} c1 s2@a#1 d2", "a/1#1 did not get a/1#0:1, which was for it"),
        breaks("a: R4{a} Vg1{a#1} s2@g d2 Vh3{a#1}", "a/1#1 did not get a/1#0:1, which was for it"),
        breaks("a: R4{a} c1 s2@g d2 Vg3{a#1} h2>1", "a/1 handed a run over that it had not just delivered"),
        breaks("a: R4{a} c1 Vg1{a#1} s2?@g d2 h2>1 w2>1", "a/1 handed over a/1#0:1, which was not waiting"),
        breaks("a: R4{a} c1 c2 Vg1{a#1,a#2}>1", "a/1 showed R4@a/1+1.0 of g to a/1#1 instead of a/1#1, a/1#2"),
        breaks("a: R4{a} Vg1{a#1}>2", "a/1 showed R4@a/1+1.0 of g to a/1#2 instead of nothing"),
        breaks(
            "a: R4{a} c1 c2 Vg1{a#1,a#2} Vg2{a#1}",
            "a/1#2 is not in R4@a/1+2.0 of g and was not told that it left",
        ),
        breaks("a: R4{a} c1 Vg1{a#1} q1 lg1", "a/1#1 was told something after it had gone"),
        breaks("a: R4{a} c1 lg1", "a/1#1 was told that it left g, in which it was not"),
        left_open("a: R4{a} c1 Vg1{a#1} s2@g d2"),
        left_open("a: R4{a} c1 Vg1{a#1} g s2@g d2"),
    ),
)
