"""Client processes laid out for checking: the stream of each, and every group view with what stood before it.

1. A stream has, in order, the group views, messages and last words that one process got. Messages are runs of the node's own
   deliveries; only basic ones that waited are known by their ids alone.
2. All processes of a node that are in a group have the same view of it in force, for they get it together: a *change* is a
   group view at a node, with the view and the regular view that were in force there, if one of its processes goes on from it.
3. After a Gap nothing is known of views in force: the streams are cut there, and what would span the cut is left out. A stream
   that starts behind a Gap starts with it, for what its process had before may be what is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from transis.audit.guarantees.history import LaidHistory, Life
from transis.trace.events import ClientDelivery, ClientLeft, ClientLife, Conf, Delivery, End, Event, Gap, GroupConf, OfClients
from transis.types.ids import NodeId, ProcessId, Service
from transis.types.views import GroupId, GroupView, View


class Got(NamedTuple):
    """A run as a process got it, through which groups, and the event that says so. `run` is None if it had waited.

    `is_ordered` says that it is in the total order, in which group views stand too. A causal message that is not comes between
    the same two views of a group at all who go from one to the other, among the others as it may.
    """

    codes: range
    run: Delivery | None
    groups: tuple[GroupId, ...]
    lseq: int
    is_ordered: bool

    @property
    def is_basic(self) -> bool:
        return self.run is None or self.run.service is Service.BASIC


Step = GroupConf | Got | ClientLeft | Gap


class ClientStream:
    """One process and its stream."""

    def __init__(self, process: ProcessId) -> None:
        self.id = process
        self.steps: list[Step] = []

    @property
    def node(self) -> NodeId:
        return self.id.node


class Change(NamedTuple):
    """A group view at a node, and what its processes in the group had before; None for those that were in none."""

    life: Life
    event: GroupConf
    before: GroupView | None
    regular: GroupView | None
    configuration: View | None
    """The one in force at the node, regular or transitional."""
    base: View | None
    """The last regular one."""
    blind: bool
    """A Gap since the group's last view may hide what stood before."""
    adrift: bool
    """A Gap since the last configuration may hide the one in force."""

    @property
    def view(self) -> GroupView:
        return self.event.view

    @property
    def own(self) -> View | None:
        """The configuration that the view stands in, if it is one of those in force at the node."""
        return next((view for view in (self.configuration, self.base) if view and view.id == self.view.id.configuration), None)

    @property
    def witness(self) -> tuple[NodeId, int]:
        return (self.life.node, self.event.lseq)

    @property
    def words(self) -> dict[str, object]:
        """The words for sentences about it."""
        return {"node": self.life.node, "view": self.view.id, "group": self.view.name}


def tells_who_is_there(life: Life) -> bool:
    """Does the trace say who connects and who is gone? If not, silence may mean either."""
    return any(isinstance(event, ClientLife) for event in life.events)


class ClientHistory:
    """The clients of a history."""

    def __init__(self, history: LaidHistory) -> None:
        self.laid = history
        self.closed = history.closed
        self.lives = [life for life in history.lives if any(isinstance(event, OfClients) for event in life.events)]
        found: dict[ProcessId, ClientStream] = {}
        for life in self.lives:
            found.update(_Streams(history, life).read())
        self.clients = [client for _, client in sorted(found.items())]
        self.changes = [change for life in self.lives for change in _changes(life)]


class _Streams:
    """One pass over a life's events."""

    def __init__(self, history: LaidHistory, life: Life) -> None:
        self._history = history
        self._life = life
        self._runs: dict[int, Delivery] = {}
        self._clients: dict[int, ClientStream] = {}
        self._gap: Gap | None = None

    def read(self) -> dict[ProcessId, ClientStream]:
        for event in _until_end(self._life):
            match event:
                case Delivery():
                    self._runs[event.lseq] = event
                case ClientDelivery():
                    self._handed(event)
                case GroupConf():
                    for process in event.processes:
                        self._client(process).steps.append(event)
                case ClientLeft():
                    self._client(event.process).steps.append(event)
                case ClientLife():
                    self._client(event.process)
                case Gap():
                    self._gap = event
                    for client in self._clients.values():
                        client.steps.append(event)
                case _:
                    pass
        return {client.id: client for client in self._clients.values()}

    def _client(self, process: int) -> ClientStream:
        known = self._clients.get(process)
        if known is None:
            known = self._clients[process] = ClientStream(ProcessId(self._life.node, process))
            known.steps += [] if self._gap is None else [self._gap]
        return known

    def _handed(self, event: ClientDelivery) -> None:
        """Each process got its runs in the order of the node's deliveries; what had waited promises no order."""
        found: dict[int, list[tuple[int, tuple[GroupId, ...]]]] = {}
        for groups, processes, runs in event.handed:
            for process in processes:
                found.setdefault(process, []).extend((lseq, groups) for lseq in runs)
        for process, handed in found.items():
            steps = self._client(process).steps
            for lseq, groups in sorted(handed):
                run = self._runs.get(lseq)
                if run is not None:  # Runs that are not there are reported by `group_members_only`.
                    codes = self._history.codes(run.process, run.first, run.count)
                    steps.append(Got(codes, run, groups, event.lseq, run.service in self._history.ordered))
        for waited in event.waited:
            codes = self._history.codes(waited.sender, waited.first, waited.count)
            for process in waited.processes:
                self._client(process).steps.append(Got(codes, None, waited.groups, event.lseq, is_ordered=False))


def _changes(life: Life) -> Iterator[Change]:
    """Every group view of a node. A group is followed as long as a process of the node is in it."""
    inside: dict[GroupId, set[int]] = {}
    in_force: dict[GroupId, GroupView] = {}
    regular: dict[GroupId, GroupView] = {}
    configuration: View | None = None
    base: View | None = None
    adrift = False
    gaps = 0
    gaps_before: dict[GroupId, int] = {}
    for event in _until_end(life):
        match event:
            case Conf(view=view):
                configuration, adrift = view, False
                base = view if view.id.is_regular else base
            case GroupConf(view=view, processes=processes):
                group = view.group
                before = in_force.get(group) if not inside.get(group, set()).isdisjoint(processes) else None
                last_regular = regular.get(group) if before is not None else None
                blind = gaps_before.get(group, 0) < gaps
                yield Change(life, event, before, last_regular, configuration, base, blind, adrift)
                gaps_before[group] = gaps
                inside[group] = set(processes)
                in_force[group] = view
                if view.id.configuration.is_regular:
                    regular[group] = view
            case ClientLeft(process=process, group=group, refused=False):
                inside.get(group, set()).discard(process)
            case ClientLife(process=process):
                for processes_inside in inside.values():
                    processes_inside.discard(process)
            case Gap():
                inside.clear()
                gaps, adrift = gaps + 1, True
            case _:
                pass


def _until_end(life: Life) -> Iterator[Event]:
    for event in life.events:
        if isinstance(event, End):
            return
        yield event
