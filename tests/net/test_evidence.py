"""Who looks after a flight recorder: ring files around a change of the view are exported; it pauses where there is no room."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.embed.party import until
from transis.net.evidence import FlightKeeper, FlightPlan, open_flight
from transis.net.runtime import boottime_us
from transis.trace.events import Conf, End
from transis.trace.flight import KEPT, Flight, FlightLimits
from transis.trace.reader import read_history, read_segment
from transis.trace.segment import DIGESTS
from transis.types.config import Config
from transis.types.ids import NodeId, Place, ViewId, ViewKind
from transis.types.outputs import Checkpoint
from transis.types.views import Cause, GroupId, GroupViewId, Member, View

ANN = NodeId("ann", 1, 7)
CONFIG = Config(name="ann", plaintext=True)
REGULAR = ViewId(ViewKind.REGULAR, 12, ANN)
VIEW = View(REGULAR, REGULAR, (Member(ANN, "", None),), Cause("test"), 0)


async def kept(flight: Flight, condition: Callable[[], bool]) -> FlightKeeper:
    """Look after it until something is so."""
    keeper = FlightKeeper(flight)
    keeping = asyncio.create_task(keeper.run())
    try:
        await until(condition)
    finally:
        keeping.cancel()
        with suppress(asyncio.CancelledError):
            await keeping
        flight.close(boottime_us(), "stopped")
    return keeper


def test_ring_files_around_a_change_of_the_view_are_exported(tmp_path: Path) -> None:
    flight = open_flight(FlightPlan(tmp_path, FlightLimits(before_s=1, after_s=1)), CONFIG, ANN)
    flight.tape.configured(VIEW)
    asyncio.run(kept(flight, lambda: any((tmp_path / KEPT).glob("0*"))))
    (directory,) = (tmp_path / KEPT).iterdir()
    assert directory.name == "000001-R12-ann"
    (trace,) = read_history(directory).nodes
    assert [event.view for event in trace.events if isinstance(event, Conf)] == [VIEW]
    assert f"the view changed to {REGULAR}" in (directory / "why.json").read_text()


def test_digests_are_sealed_while_ring_files_wait_to_be_exported(tmp_path: Path) -> None:
    """An export is in no hurry, and takes minutes on a busy machine. Here it cannot end: nobody writes to its pipe."""
    os.mkfifo(tmp_path / "life-ann-1-0000000000000007-000000.film")
    flight = open_flight(FlightPlan(tmp_path, FlightLimits(seal_s=1, before_s=0, after_s=0)), CONFIG, ANN)
    flight.tape.configured(VIEW)
    place = Place(1, 0)
    told = Checkpoint(1, GroupId(1), "orders", GroupViewId(REGULAR, place), 0, None, 0, place, b"state")

    def is_sealed_again() -> bool:
        flight.observe(boottime_us(), [told])
        flight.flush()
        return len(list(tmp_path.glob(f"*{DIGESTS.suffix}"))) > 2

    asyncio.run(kept(flight, is_sealed_again))
    assert not list((tmp_path / KEPT).glob("0*"))


def test_it_pauses_without_room_and_says_so(tmp_path: Path) -> None:
    flight = open_flight(FlightPlan(tmp_path, FlightLimits(free_mb=1 << 30)), CONFIG, ANN)
    keeper = asyncio.run(kept(flight, lambda: bool(flight.paused)))
    assert "bytes are free" in str(keeper.statistics()["flight"])


def test_a_new_life_writes_the_end_of_the_one_before(tmp_path: Path) -> None:
    plan = FlightPlan(tmp_path)
    killed = open_flight(plan, CONFIG, ANN)
    killed.tape.configured(VIEW)
    killed.look(boottime_us())
    again = open_flight(plan, CONFIG, ANN._replace(incarnation=2, boot=8), previous=ANN)
    (first, second) = (read_segment(path) for path in sorted(tmp_path.glob(f"*{DIGESTS.suffix}")))
    assert (first.header.node, second.header.node) == (ANN, ANN)
    assert [type(event) for event in (*first.events, *second.events)] == [Conf, End]
    for flight in (killed, again):
        flight.close(boottime_us(), "failed")
