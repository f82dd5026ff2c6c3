"""Members only (traces plan G): a client's stream is its node's stream, filtered by address and by the group views in force.

1. An ordered run goes, right behind its delivery, to the connected processes that are in the view in force of one of its groups
   or that it names, through exactly those of its groups that they are in; and to nobody else.
2. A basic run does the same, or waits until the views of its configuration stand, or is lost.
3. A view goes to its members that are connected here, and nobody stops being one without a word.
4. Where a trace does not say who connects and who goes, a process is there from the first thing it gets; silence then means
   that it is gone, and a word after the silence that it missed something.
"""

from __future__ import annotations

from typing import Final

from transis.audit.guarantees.clients import ClientHistory, tells_who_is_there
from transis.audit.guarantees.history import Life
from transis.audit.guarantees.property import Findings, several
from transis.trace.events import ClientDelivery, ClientLeft, ClientLife, Conf, Delivery, End, Event, Gap, GroupConf, Waited
from transis.trace.reader import read_address
from transis.types.ids import NodeId, ProcessId, Service
from transis.types.views import GroupId

END_OF_TIME: Final = 1 << 62

Recipients = dict[int, tuple[GroupId, ...]]
"""Processes of a node, each with the groups through which it gets a run."""


def check_group_members(history: ClientHistory, findings: Findings) -> None:
    for life in history.lives:
        _Filter(life, findings, history.closed).read()


class _Filter:
    """`_inside` has the groups of each connected process; `_fresh` the addressed runs since the last event about clients;
    `_waiting` basic runs of this configuration that nobody got yet."""

    def __init__(self, life: Life, findings: Findings, closed: bool) -> None:
        self._life = life
        self._findings = findings
        self._closed = closed
        self._told = tells_who_is_there(life)
        self._inside: dict[int, set[GroupId]] = {}
        self._gone: set[int] = set()
        self._silent: dict[int, str] = {}
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
                self._broken(f"{self._life.node} handed a run over that it had not just delivered", event.lseq)
            else:
                self._compare(run, claim, event.lseq)
        for waited in event.waited:
            self._waited(waited, event.lseq)
        self._judge_missed(max(claims, default=0))

    def _waited(self, waited: Waited, lseq: int) -> None:
        run = self._waiting.get((waited.sender, waited.first))
        if run is None or run.count != waited.count:
            self._broken(f"{self._life.node} handed over {waited.sender}:{waited.first}, which was not waiting", lseq)
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
                right = "not addressed" if process not in expected else f"in {len(expected[process])} of its groups"
                self._broken(
                    f"{self._name(process)} got {self._words(run)} through {len(groups)} groups, but is {right}", lseq, run
                )

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
        """Runs that went to nobody: right for those that were for nobody here, and for the last ones of a node that died."""
        due = [run for lseq, run in self._fresh.items() if lseq < before_lseq]
        self._fresh = {lseq: run for lseq, run in self._fresh.items() if lseq >= before_lseq}
        for run in due:
            for process in sorted(self._expected(run)):
                self._missed(process, run)

    def _missed(self, process: int, run: Delivery) -> None:
        if run.service is Service.BASIC:
            return
        if self._told:
            self._broken(f"{self._name(process)} did not get {self._words(run)}, which was for it", run.lseq, run)
        else:
            self._falls_silent(process, self._words(run))

    def _meet(self, processes: Recipients | tuple[int, ...]) -> None:
        """Where nobody says who connects, a process is there from the first thing that it gets."""
        for process in () if self._told else processes:
            self._inside.setdefault(process, set())

    def _falls_silent(self, process: int, missed: str) -> None:
        self._silent.setdefault(process, missed)
        self._inside.pop(process, None)

    def _heard(self, processes: Recipients | tuple[int, ...], lseq: int) -> None:
        for process in processes:
            if process in self._silent:
                self._broken(f"{self._name(process)} is there, but did not get {self._silent.pop(process)}", lseq)
            if process in self._gone:
                self._broken(f"{self._name(process)} was told something after it had gone", lseq)

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
            self._broken(f"{self._name(process)} was told that it left {event.name}, in which it was not", event.lseq)
        self._inside.get(process, set()).discard(group)

    def _group_conf(self, event: GroupConf) -> None:
        view, shown = event.view, event.processes
        self._findings.checked += len(shown)
        self._heard(shown, event.lseq)
        local = [number for node, number in view.members if node == self._life.node]
        expected = [number for number in local if number in self._inside] if self._told else [n for n in local if n in shown]
        if list(shown) != expected:
            self._broken(
                f"{self._life.node} showed {view.id} of {view.name} to {several(shown)} instead of {several(expected)}",
                event.lseq,
            )
        for process, groups in sorted(self._inside.items()):
            if view.group in groups and process not in shown and not self._told:
                self._falls_silent(process, f"{view.id} of {view.name}")
            elif view.group in groups and process not in shown:
                self._broken(
                    f"{self._name(process)} is not in {view.id} of {view.name} and was not told that it left", event.lseq
                )
                groups.discard(view.group)
        for process in shown:
            self._inside.setdefault(process, set()).add(view.group)

    # -- words ---------------------------------------------------------------------------------------------------

    def _broken(self, explanation: str, lseq: int, run: Delivery | None = None) -> None:
        events: list[tuple[NodeId, int]] = [(self._life.node, lseq)]
        if run is not None and run.lseq != lseq:
            events.insert(0, (self._life.node, run.lseq))
        self._findings.broken(explanation, tuple(events))

    def _name(self, process: int) -> str:
        return str(ProcessId(self._life.node, process))

    def _words(self, run: Delivery) -> str:
        return f"{run.process}:{run.first}" + (f" to {run.first + run.count - 1}" if run.count > 1 else "")
