"""Engines of the ring driven by hand (tests/engine/hand.py), with a disk that may be slow or never done."""

from __future__ import annotations

from collections.abc import Mapping

from tests.engine.hand import (
    HandTable,
    Journey,
    Seat,
    cut_off,
)
from transis.totem.engine import TotemEngine
from transis.totem.packets import Commit, Token, Wake
from transis.types.config import Config, Timing, Window
from transis.types.ids import NodeId, RingId
from transis.types.outputs import Output, Persist

TIMING = Timing()


def is_commit(journey: Journey) -> bool:
    return isinstance(journey.packet, Commit)


def is_token(journey: Journey) -> bool:
    return isinstance(journey.packet, Token)


def is_wake(journey: Journey) -> bool:
    return isinstance(journey.packet, Wake)


def config(name: str, *, timing: Timing = TIMING, window: Window | None = None) -> Config:
    return Config(name=name, address=f"{name}:1", timing=timing, window=window or Window()).validated()


class Table(HandTable[TotemEngine]):
    """`disk_us` None means that writes never complete unless a test says so."""

    def __init__(
        self, names: str, *, ring_seq: Mapping[str, int] | None = None, disk_us: int | None = 0, window: Window | None = None
    ) -> None:
        self.disk_us = disk_us
        self.unwritten: list[tuple[str, Persist]] = []
        self._window = window
        self._durable = dict(ring_seq or {})
        super().__init__(names)

    def engine(self, me: NodeId) -> TotemEngine:
        """A new life begins with the ring sequence that the old one had reserved on disk."""
        return TotemEngine(config(me.name, window=self._window), me, self._durable.get(me.name, 0))

    def persisted(self, name: str, ticket: int) -> None:
        self.seats[name].engine.persisted(self.now, ticket)
        self.carry(name)

    def _carry_one(self, seat: Seat[TotemEngine], output: Output) -> None:
        super()._carry_one(seat, output)
        if isinstance(output, Persist):
            self._write(seat, output)

    def _write(self, seat: Seat[TotemEngine], persist: Persist) -> None:
        self._durable[seat.name] = persist.value
        if self.disk_us is None:
            self.unwritten.append((seat.name, persist))
        else:
            self._later(self.disk_us, lambda: self.persisted(seat.name, persist.ticket))

    @property
    def is_still(self) -> bool:
        """Nothing is on its way: whoever has the token holds it."""
        return not self._queue

    def form(self, members: str) -> RingId:
        """Start everybody and wait for their common ring."""
        super().form(members)
        return self.seats[members[0]].engine.ring_id


def in_commit(members: str) -> tuple[Table, Commit]:
    """The first two of three members on their way to a ring of two: the second waits for the rotation that is returned."""
    table = Table(members)
    table.form(members)
    known = len(table.journeys)
    table.drops += [cut_off(members[2]), lambda journey: isinstance(journey.packet, Commit) and journey.packet.rotation == 2]
    second: list[Commit] = []
    while not second:
        table.step()
        packets = [journey.packet for journey in table.journeys[known:]]
        second = [packet for packet in packets if isinstance(packet, Commit) and packet.rotation == 2]
    table.drops.pop()
    return table, second[0]
