"""One view per change: groups that something happened to are told once, the others see nothing.

1. A configuration that loses daemons gives a transitional view to each group that lost members here, at once, and to no other.
2. A join, leave or disconnection gives one regular view, which tells of that process and nobody else. Several that came in one
   datagram give one view together.
3. A regular configuration gives at most one regular view to a group, and none if nothing changed for it.
"""

from __future__ import annotations

from transis.sim.checkers.clients import Change, Crowd, tells_who_is_there
from transis.sim.checkers.index import Life
from transis.sim.checkers.verdict import Findings
from transis.sim.checkers.words import several
from transis.trace.events import ClientDelivery, ClientLeft, ClientLife, Conf, Delivery, End, Event, Gap, GroupConf
from transis.types.ids import ViewId
from transis.types.views import GroupId, GroupView, View


def check_group_changes(crowd: Crowd, findings: Findings) -> None:
    told: dict[tuple[Life, GroupId, ViewId], Change] = {}
    for change in crowd.changes:
        findings.checked += 1
        if change.view.id.configuration.is_regular:
            _regular(change, told, findings)
        else:
            _transitional(change, findings)
    for life in crowd.lives:
        if tells_who_is_there(life):
            _Losses(life, findings, crowd.closed).read()


def _regular(change: Change, told: dict[tuple[Life, GroupId, ViewId], Change], findings: Findings) -> None:
    view, before = change.view, change.before
    if view.cause.process is not None:
        _one_process(change, findings)
        return
    if view.cause.configuration is None:
        _several_processes(change, findings)
        return
    if change.own is not None and view.cause.configuration != change.own.cause:
        _tell(change, f"its cause is {view.cause}, but that of its configuration is {change.own.cause}", findings)
    if before is not None and before.id.configuration.is_regular and not view.joined and not view.left:
        _tell(change, f"nothing changed since {before.id}", findings)
    known = told.setdefault((change.life, view.group, view.id.configuration), change)
    if known is not change:
        _tell(change, f"its configuration had given {known.view.id} already", findings)


def _one_process(change: Change, findings: Findings) -> None:
    """Told at its place of a settled regular configuration, so that no other change can wait to be told."""
    view = change.view
    process = (view.cause.process,)
    expected = (process, ()) if view.cause.what == "join" else ((), process)
    if (view.joined, view.left) != expected:
        _tell(change, f"for the {view.cause} it tells that {several(view.joined)} joined and {several(view.left)} left", findings)
    _after_a_regular(change, findings)


def _several_processes(change: Change, findings: Findings) -> None:
    if not change.view.joined and not change.view.left:
        _tell(change, "it tells of nobody", findings)
    _after_a_regular(change, findings)


def _after_a_regular(change: Change, findings: Findings) -> None:
    if change.before is not None and not change.before.id.configuration.is_regular:
        _tell(change, f"it follows the transitional {change.before.id}, which only a configuration ends", findings)


def _transitional(change: Change, findings: Findings) -> None:
    if change.own is None or change.before is None:
        return
    if change.view.cause.configuration != change.own.cause:
        _tell(change, f"its cause is {change.view.cause}, but that of its configuration is {change.own.cause}", findings)
    if not _lost(change.before, change.own):
        _tell(change, f"nobody of {change.before.id} was lost", findings)


def _tell(change: Change, wrong: str, findings: Findings) -> None:
    findings.broken(f"{change.life.node}: {change.view.id} of {change.view.name}: {wrong}", (change.witness,))


def _lost(view: GroupView, configuration: View) -> bool:
    nodes = frozenset(configuration.nodes)
    return any(member.node not in nodes for member in view.members)


class _Losses:
    """Transitional configurations of one life, and the groups that must hear of each before the order goes on there. Meanwhile
    processes may go, and applications submit: a node with many groups tells them in slices."""

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
                    return  # It died, or stopped, before it could tell.
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
            self._findings.broken(
                f"{self._life.node}: {self._configuration.view.id} lost members of {view.id} of {view.name}, "
                "but gave the group no transitional view",
                ((self._life.node, self._configuration.lseq),),
            )
        self._due = {}
