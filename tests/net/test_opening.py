"""Opening a node: the rule about keys, the window that fits the buffers, and that nothing stays open behind a failure."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transis.net.host import REAL_WINDOW, Opening, fitted, group_for, open_node, pulse_for, require_key, timing_for, window_for
from transis.net.interfaces import Interface, choose_interface
from transis.net.sockets import datagrams_that_fit, open_unicast, size_buffers
from transis.net.state import StateDirectory
from transis.net.transport import GROUP, GROUP_IPV6, Group, Transport
from transis.types.config import LAN, LOCAL, PULSES, Config, Window
from transis.types.errors import ConfigError, IdentityError
from transis.types.limits import BURST_DATAGRAMS_MAX, MEMBERS_MAX

LOOPBACK = Interface("lo", 1, ip_address("127.0.0.1"))
LAN_CARD = Interface("eth0", 2, ip_address("192.0.2.7"))
IPV6_CARD = Interface("eth0", 2, ip_address("2001:db8::7"))
KEY = bytes(32)


def own_group() -> Group:
    return Group(f"239.194.{os.getpid() >> 8 & 255}.{os.getpid() & 255}", 5460, 5461)


def opening(state: Path, **more: object) -> Opening:
    config = Config(name="ann", timing=LOCAL, window=REAL_WINDOW, plaintext=True)
    return Opening(config, choose_interface("127.0.0.1"), state, **{"group": own_group(), **more})  # type: ignore[arg-type]


# --- keys -----------------------------------------------------------------------------------------------------------


def test_loopback_needs_no_key() -> None:
    require_key("key", LOOPBACK, None, plaintext=False, otherwise="plaintext=True")


@pytest.mark.parametrize("interface", [LAN_CARD, IPV6_CARD])
def test_anything_else_needs_a_key_or_an_explicit_word(interface: Interface) -> None:
    require_key("key", interface, KEY, plaintext=False, otherwise="plaintext=True")
    require_key("key", interface, None, plaintext=True, otherwise="plaintext=True")
    with pytest.raises(ConfigError, match=r"transis keygen.*plaintext=True") as refused:
        require_key("key", interface, None, plaintext=False, otherwise="plaintext=True")
    assert refused.value.field == "key"


def test_a_key_and_plaintext_contradict_each_other() -> None:
    with pytest.raises(ConfigError, match="take one of them out"):
        require_key("key", LAN_CARD, KEY, plaintext=True, otherwise="plaintext=True")


def test_a_key_of_another_size_is_none_and_is_not_repeated() -> None:
    with pytest.raises(ConfigError, match="32 bytes") as refused:
        require_key("key", LAN_CARD, b"secret", plaintext=False, otherwise="plaintext=True")
    assert "secret" not in str(refused.value)


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


def test_defaults_fit_the_interface() -> None:
    assert group_for(LAN_CARD) == GROUP
    assert group_for(IPV6_CARD).address == GROUP_IPV6.address
    assert group_for(IPV6_CARD, Group("ff12::1")).address == "ff12::1"
    assert timing_for("auto", LOOPBACK) == timing_for("local", LAN_CARD) == LOCAL
    assert timing_for("auto", LAN_CARD) == LAN
    assert pulse_for("auto", LOOPBACK) == pulse_for("local", LAN_CARD) == PULSES["local"]
    assert pulse_for("auto", LAN_CARD) == PULSES["lan"]


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
    with pytest.raises(ConfigError, match="multicast"):
        open_node(opening(tmp_path, group=Group("192.0.2.1")), lambda events: None)
    with pytest.raises(ConfigError, match="seeds"):
        open_node(opening(tmp_path, seeds=("192.0.2.1:5405",)), lambda events: None)
    with pytest.raises(ZeroDivisionError):
        open_node(opening(tmp_path), lambda events: None, transport_for=broken)
    StateDirectory(tmp_path, "ann").close()


def test_a_state_directory_in_use_is_refused_and_stays_with_its_owner(tmp_path: Path) -> None:
    async def story() -> None:
        driver = open_node(opening(tmp_path), lambda events: None)
        with pytest.raises(IdentityError, match="another process uses"):
            open_node(opening(tmp_path), lambda events: None)
        driver.close()
        open_node(opening(tmp_path), lambda events: None).close()

    asyncio.run(story())
