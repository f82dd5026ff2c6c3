"""A running node with everything around it: the window that fits the buffers, one life, and nothing open behind a failure."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transis.client.connection import WINDOW, Connection
from transis.client.events import Raw
from transis.client.link import link_to_unix
from transis.net.evidence import FlightPlan, TracePlan
from transis.net.host import NodeHost, Opening, fitted, window_for
from transis.net.interfaces import choose_interface
from transis.net.sockets import datagrams_that_fit, open_unicast, size_buffers
from transis.net.state import StateDirectory
from transis.net.transport import Group, Transport
from transis.settings.schema import REAL_WINDOW
from transis.trace.events import End
from transis.trace.reader import read_history, read_segment
from transis.trace.segment import DIGESTS
from transis.types.config import LOCAL, Config, Window
from transis.types.errors import ConfigError, IdentityError
from transis.types.limits import BURST_DATAGRAMS_MAX, MEMBERS_MAX
from transis.types.views import View


def own_group() -> Group:
    return Group(f"239.194.{os.getpid() >> 8 & 255}.{os.getpid() & 255}", 5460, 5461)


def opening(state: Path, **more: object) -> Opening:
    config = Config(name="ann", timing=LOCAL, window=REAL_WINDOW, plaintext=True)
    return Opening(config, choose_interface("127.0.0.1"), state, **{"group": own_group(), **more})  # type: ignore[arg-type]


# --- what fits ------------------------------------------------------------------------------------------------------


@given(
    st.integers(1, 3000),
    st.integers(1, 1000),
    st.integers(0, 1000),
    st.integers(0, 10_000),
)
def test_a_fitted_window_is_valid_and_fits(window: int, visit_max: int, accelerated: int, room: int) -> None:
    visit_max = min(window, visit_max)
    given_window = Window(window, visit_max, gap_max=4000 + MEMBERS_MAX, accelerated=min(accelerated, visit_max))
    used = fitted(given_window, room)
    Config(name="ann", window=used).validated()
    assert used.window <= max(1, room)
    assert used.window <= given_window.window
    if given_window.window <= room * 3 // 4:
        assert used == given_window


def test_a_small_receive_buffer_holds_few_datagrams_and_a_large_one_the_usual_window() -> None:
    with open_unicast(choose_interface("127.0.0.1"), 0) as small, open_unicast(choose_interface("127.0.0.1"), 0) as large:
        size_buffers(small, 64 * 1024, "small")
        warning = size_buffers(large, 4 << 20, "large")
        assert 10 <= datagrams_that_fit(small, 1400) <= 128
        assert datagrams_that_fit(small, 9000) < datagrams_that_fit(small, 1400)
        if not warning:
            assert fitted(REAL_WINDOW, datagrams_that_fit(large, 1400)) == REAL_WINDOW


def test_a_burst_of_lansis_has_a_limit_of_its_own() -> None:
    wide = replace(REAL_WINDOW, visit_max=500, accelerated=400)
    ring = Config("ann", window=wide)
    lansis = replace(ring, engine="lansis")
    assert window_for(ring, 10_000) == wide
    assert window_for(lansis, 10_000) == replace(wide, visit_max=BURST_DATAGRAMS_MAX, accelerated=BURST_DATAGRAMS_MAX)
    assert window_for(replace(lansis, window=REAL_WINDOW), 10_000) == REAL_WINDOW
    assert window_for(lansis, 40) == window_for(ring, 40)
    for room in (1, 100, 10_000):
        replace(lansis, window=window_for(lansis, room)).validated()


# --- failures -------------------------------------------------------------------------------------------------------


def broken(opening: Opening) -> Transport:
    raise ZeroDivisionError


def test_what_cannot_be_opened_leaves_nothing_open(tmp_path: Path) -> None:
    async def story() -> None:
        with pytest.raises(ConfigError, match="multicast"):
            NodeHost(opening(tmp_path, group=Group("192.0.2.1")))
        with pytest.raises(ConfigError, match="seeds"):
            NodeHost(opening(tmp_path, seeds=("192.0.2.1:5405",)))
        with pytest.raises(ZeroDivisionError):
            NodeHost(opening(tmp_path), transport_for=broken)

    asyncio.run(story())
    StateDirectory(tmp_path, "ann").close()


def test_a_state_directory_in_use_is_refused_and_stays_with_its_owner(tmp_path: Path) -> None:
    async def story() -> None:
        host = NodeHost(opening(tmp_path))
        with pytest.raises(IdentityError, match="another process uses"):
            NodeHost(opening(tmp_path))
        await host.close("tested")
        await NodeHost(opening(tmp_path)).close("tested")

    asyncio.run(story())


# --- a life -----------------------------------------------------------------------------------------------------------


def test_a_host_comes_up_takes_clients_and_leaves_with_its_evidence(tmp_path: Path) -> None:
    async def story() -> None:
        views: list[View] = []
        evidence = {"trace": TracePlan(tmp_path / "traces"), "flight": FlightPlan(tmp_path / "flight")}
        wanted = opening(tmp_path / "state", clients=tmp_path / "s", **evidence)
        host = NodeHost(wanted, on_view=views.append)
        await host.listen()
        host.start()
        await host.first_view()
        assert views[0].nodes == (host.id,)
        assert host.statistics().keys() >= {"state", "transport", "flight"}
        async with Connection(partial(link_to_unix, str(tmp_path / "s")), "a client", WINDOW, Raw()) as session:
            assert session.process.node == host.id
            assert host.leave() is host.leave()
            assert await host.leave()
        assert await host.ended() == "left"
        await host.close("tested")
        assert not (tmp_path / "s").exists()

    asyncio.run(story())
    (digests,) = (tmp_path / "flight").glob(f"*{DIGESTS.suffix}")
    for events in (read_history(tmp_path / "traces").nodes[0].events, read_segment(digests).events):
        assert isinstance(events[-1], End)


def test_a_host_that_ends_before_its_first_view_says_why(tmp_path: Path) -> None:
    async def story() -> None:
        host = NodeHost(opening(tmp_path))
        host.start()
        host.driver.close("pulled the plug")
        with pytest.raises(IdentityError, match="'ann' did not come up: pulled the plug"):
            await host.first_view()
        await host.close("tested")

    asyncio.run(story())
