"""Looking after a node's flight recorder (trace/flight.py) in its event loop: once a second the recorder is looked at, now and
then its directory is tidied in a thread, and films around a change of the view are developed by a process of low priority.

The node never waits for any of it, and nothing of it ends the node.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

import msgspec

from transis.net.apart import run_apart
from transis.net.clock import boottime_us
from transis.trace.develop import Wanted, forget_half_developed
from transis.trace.flight import Flight, Keep
from transis.trace.mending import mend
from transis.trace.segment import live_header
from transis.trace.tidying import KEPT, MB, FlightLimits, Tidied, Tidier
from transis.types.config import Config
from transis.types.ids import NodeId

FLIGHT: Final = "flight"
"""Where a flight recorder is in its node's state directory, unless told otherwise."""
FLIGHT_LOOK_S: Final = 1.0
TIDY_LOOKS: Final = 5
"""The directory is tidied at every so many looks."""
DEVELOPED_S: Final = 600.0
"""Longer than the films of some minutes take on a machine that has no time for them."""

log: Final = logging.getLogger("transis.flight")


class FlightPlan(NamedTuple):
    """Where a node's flight recorder is, and how much it keeps."""

    directory: Path
    limits: FlightLimits = FlightLimits()


def open_flight(plan: FlightPlan, config: Config, node: NodeId) -> Flight:
    """The flight recorder of a new life; what the life before it left open is sealed first, or thrown away."""
    mend(plan.directory, node.name)
    forget_half_developed(plan.directory)
    return Flight(plan.directory, live_header(config, node), plan.limits, boottime_us())


class FlightKeeper:
    """Until it is cancelled. Films are developed one after the other, and nothing else waits for that."""

    def __init__(self, flight: Flight) -> None:
        self._flight = flight
        self._tidier = Tidier(flight.directory, flight.node.name, flight.limits)
        self._tidied = Tidied(0, 0, 0)
        self._wanted: asyncio.Queue[Keep] = asyncio.Queue()

    async def run(self) -> None:
        developing = asyncio.create_task(self._develop_all(), name="developing films")
        try:
            await self._look_after()
        finally:
            developing.cancel()
            await asyncio.gather(developing, return_exceptions=True)

    async def _look_after(self) -> None:
        looks = 0
        while True:
            keep = self._flight.look(boottime_us())
            if keep is not None:
                self._wanted.put_nowait(keep)
            if looks % TIDY_LOOKS == 0:
                with self._told_of_disk():
                    await self._tidy()
            looks += 1
            await asyncio.sleep(FLIGHT_LOOK_S)

    async def _develop_all(self) -> None:
        while True:
            keep = await self._wanted.get()
            with self._told_of_disk():
                await self._develop(keep)

    @contextmanager
    def _told_of_disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            log.warning("the flight recorder's directory %s cannot be looked after: %s", self._flight.directory, error)

    async def _tidy(self) -> None:
        """What is found is told; with too little room on the disk recording pauses, and goes on when there is enough."""
        flight = self._flight
        if not flight.directory.is_dir():
            return
        self._tidied = await asyncio.to_thread(self._tidier.tidy, flight.current, time.time())
        free, wanted = self._tidied.free_bytes, flight.limits.free_mb * MB
        paused = f"only {free} bytes are free, {wanted} shall be" if free < wanted else ""
        if bool(paused) != bool(flight.paused):
            log.warning("the flight recorder %s", f"pauses: {paused}; the node goes on" if paused else "goes on")
        flight.paused = paused

    async def _develop(self, keep: Keep) -> None:
        directory = self._flight.directory
        numbers = [int(path.name[:6]) for path in (directory / KEPT).glob("[0-9]*") if path.name[:6].isdigit()]
        name = f"{max(numbers, default=0) + 1:06d}-R{keep.view.seq}-{quote(keep.view.rep.name, safe='')}"
        wanted = Wanted(keep.from_us, keep.to_us, why=f"the view changed to {keep.view}", around=str(keep.view))
        command = (str(directory), str(directory / KEPT / name), msgspec.json.encode(wanted).decode())
        try:
            async with asyncio.timeout(DEVELOPED_S):
                code, complaint = await run_apart("transis.trace.develop", *command)
        except TimeoutError:
            code, complaint = 1, f"it took longer than {DEVELOPED_S:g} s"
        if code:
            log.warning("films around %s were not developed: %s", keep.view, complaint)

    def statistics(self) -> dict[str, int | str]:
        figures: dict[str, int | str] = {"flight": self._flight.paused or "recording", "flight_bytes": self._tidied.bytes}
        return figures | {"flight_kept": self._tidied.kept, "flight_dropped": self._flight.dropped}
