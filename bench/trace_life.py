"""One life of one node as it is recorded: what happens to it becomes events, and these go into its segment files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final

from bench.trace_groups import CLIENTS
from bench.trace_plan import Clock
from bench.trace_traffic import Datagram
from transis.trace.events import (
    CheckpointEvent,
    ClientDelivery,
    ClientLeft,
    ClientLife,
    Conf,
    Delivery,
    End,
    Event,
    GroupConf,
    HandedRuns,
    Refuse,
    Sent,
    Submit,
)
from transis.trace.reader import read_address
from transis.trace.segment import Header, SegmentWriter
from transis.types.ids import NodeId, Place, ProcessId, Service, ViewId
from transis.types.views import GroupId, GroupView, View

FLUSH_EVENTS: Final = 8192
"""Events of one write: few enough to hold for every node, many enough to be one frame."""

LATENCY_US: Final = (60, 380)

BASIC: Final = Service.BASIC

DIGEST_BYTES: Final = 64
"""Of what a process says of its state, at most."""


class Life:
    """Times that it is given are true; those that it records are of its own clock."""

    def __init__(self, directory: Path, header: Header, clock: Clock) -> None:
        self.node: Final[NodeId] = header.node
        self.deliveries = 0
        self._clock = clock
        self._draw = Random(f"{header.run}:{header.node}:latency")
        self._writer = SegmentWriter(directory, header)
        self._events: list[Event] = []
        self._lseq = 0
        self._tpos = 0
        self._regular: ViewId
        self._conf: ViewId
        self._inside: dict[GroupId, tuple[int, ...]] = {}
        self._routes: dict[bytes, list[tuple[tuple[GroupId, ...], tuple[int, ...]]]] = {}

    @property
    def events(self) -> int:
        return self._lseq

    def latency_us(self) -> int:
        """From a datagram's origin to its delivery here, before the next visit."""
        return self._draw.randint(*LATENCY_US)

    # -- configurations and groups -----------------------------------------------------------------------------------

    def configure(self, now_us: int, view: View, groups: Sequence[GroupView]) -> None:
        """Install a configuration, and the group views that it gives to the clients here."""
        local_us = self._clock.local(now_us)
        self._events.append(Conf(self._next(), local_us, view))
        if self._lseq == 1:
            self._events += [ClientLife(self._next(), local_us, number, True) for number in CLIENTS]
        self._conf = view.id
        if view.id.is_regular:
            self._regular = view.id
            self._tpos = 0
        for group in groups:
            self.show(now_us, group)

    def show(self, now_us: int, view: GroupView) -> None:
        """A group view, to those of its members that are here; a process that asked to leave is told that it did."""
        local_us = self._clock.local(now_us)
        if view.cause.what == "leave":
            for number in self._here(view.left):
                self._events.append(ClientLeft(self._next(), local_us, number, view.group, view.name, "left", False))
        self._inside[view.group] = self._here(view.members)
        self._routes = {}
        if self._inside[view.group]:
            self._events.append(GroupConf(self._next(), local_us, view, self._inside[view.group]))
            self._agree(local_us, view)

    def _agree(self, local_us: int, view: GroupView) -> None:
        """The clients here say in which state they are when a view begins: all that have it in the same one."""
        digest = str(view.id).encode()[:DIGEST_BYTES]
        for number in self._inside[view.group]:
            nothing_yet = (0, None, 0, Place(0, 0))
            self._events.append(
                CheckpointEvent(self._next(), local_us, number, view.group, view.name, view.id, *nothing_yet, digest)
            )

    def end(self, now_us: int) -> None:
        self._events.append(End(self._next(), self._clock.local(now_us), "failed"))

    def close(self) -> None:
        self._write()
        self._writer.close(closed=True)

    # -- messages ----------------------------------------------------------------------------------------------------

    def refuse(self, now_us: int, counter: int) -> None:
        """A message is accepted, then refused."""
        local_us = self._clock.local(now_us)
        self._events.append(Submit(self._next(), local_us, 0, counter, 1, Service.AGREED, b""))
        self._events.append(Refuse(self._next(), local_us, 0, counter, 1, "the node is leaving its configuration"))

    def send(self, now_us: int, visit: Sequence[Datagram]) -> None:
        """Messages are accepted, and leave when the token comes."""
        local_us = self._clock.local(now_us)
        for one in visit:
            ids = (one.process.number, one.first, one.count, one.service, one.address)
            self._events.append(Submit(self._next(), local_us, *ids))
            self._events.append(Sent(self._next(), local_us, self._regular, *ids, one.place, one.timestamp))

    def deliver(self, now_us: int, datagrams: Sequence[Datagram]) -> None:
        """One turn: everything is delivered, then handed to the clients that it is for."""
        local_us, conf, regular, append = self._clock.local(now_us), self._conf, self._regular, self._events.append
        lseq, tpos = self._lseq, self._tpos
        handed: dict[bytes, list[int]] = {}
        for one in datagrams:
            process, first, count, service, address, place, origin_us, timestamp, size = one
            lseq += 1
            position = -1 if service is BASIC else tpos
            ids = (process, first, count, service, address, place)
            append(Delivery(lseq, local_us, conf, regular, *ids, position, origin_us, timestamp, size))
            if position >= 0:
                tpos += count
            if address:
                handed.setdefault(address, []).append(lseq)
            self.deliveries += count
        self._lseq, self._tpos = lseq, tpos
        self._hand_over(local_us, handed)
        if len(self._events) >= FLUSH_EVENTS:
            self._write()

    def _hand_over(self, local_us: int, handed: dict[bytes, list[int]]) -> None:
        entries = [
            HandedRuns(groups, processes, tuple(runs))
            for address, runs in handed.items()
            for groups, processes in self._recipients(address)
        ]
        if entries:
            self._events.append(ClientDelivery(self._next(), local_us, tuple(entries)))

    def _recipients(self, address: bytes) -> list[tuple[tuple[GroupId, ...], tuple[int, ...]]]:
        """Processes here that get something through the same groups, together."""
        known = self._routes.get(address)
        if known is None:
            to: dict[tuple[GroupId, ...], list[int]] = {}
            for number in CLIENTS:
                through = tuple(group for group in read_address(address).groups if number in self._inside.get(group, ()))
                if through:
                    to.setdefault(through, []).append(number)
            known = self._routes[address] = [(groups, tuple(numbers)) for groups, numbers in to.items()]
        return known

    # -- the file ----------------------------------------------------------------------------------------------------

    def _here(self, processes: Sequence[ProcessId]) -> tuple[int, ...]:
        return tuple(process.number for process in processes if process.node == self.node)

    def _next(self) -> int:
        self._lseq += 1
        return self._lseq

    def _write(self) -> None:
        """The writer of a node drops what a disk does not take; a trace that must be whole ends here."""
        if not self._writer.write(self._events):
            raise SystemExit(f"the trace of {self.node} cannot be written: the disk is full, or the file is there already")
        self._events = []
