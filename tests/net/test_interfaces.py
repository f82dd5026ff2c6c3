"""Addresses from strangers never raise; interfaces from operators are found, or the error lists what there is."""

from __future__ import annotations

import sys
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.net.party import loopback
from transis.net.interfaces import (
    Endpoint,
    Interface,
    choose_interface,
    configured_endpoint,
    list_interfaces,
    read_endpoint,
    read_if_inet6,
)
from transis.net.sockets import open_group, open_unicast, size_buffers
from transis.types.errors import ConfigError

MACHINE = [
    Interface("lo", 1, IPv4Address("127.0.0.1")),
    Interface("lan0", 2, IPv4Address("192.0.2.7")),
    Interface("lan0", 2, IPv6Address("fe80::7")),
    Interface("lan0", 2, IPv6Address("2001:db8::7")),
    Interface("lan1", 3, IPv4Address("198.51.100.7")),
]


@given(st.one_of(st.ip_addresses(), st.just(IPv6Address("::1"))), st.integers(1, 65_535))
def test_endpoints_are_read_as_they_are_written(host: IPv4Address | IPv6Address, port: int) -> None:
    endpoint = Endpoint(host, port)
    assert read_endpoint(str(endpoint)) == endpoint


@given(st.one_of(st.text(), st.from_regex(r"\[?[0-9a-f:.%]{0,20}\]?:?[0-9٣]{0,7}")))
def test_reading_an_address_never_raises(text: str) -> None:
    endpoint = read_endpoint(text)
    assert endpoint is None or 1 <= endpoint.port <= 65_535


@pytest.mark.parametrize(
    "text", ["", "host:1", "192.0.2.1", "192.0.2.1:0", "192.0.2.1:65536", "::1:5405", "[192.0.2.1]:1", "[::1]"]
)
def test_what_is_no_address_is_none_for_peers_and_an_error_for_operators(text: str) -> None:
    assert read_endpoint(text) is None
    with pytest.raises(ConfigError, match=r"seeds = .*192\.0\.2\.1:5405"):
        configured_endpoint("seeds", text)


def test_a_scope_is_for_sending_only() -> None:
    link_local = Endpoint(IPv6Address("fe80::7%lan0"), 5405)
    assert str(link_local) == "[fe80::7]:5405"
    assert link_local.for_socket(2) == ("fe80::7", 5405, 0, 2)
    assert Endpoint(IPv6Address("2001:db8::7"), 5405).for_socket(2) == ("2001:db8::7", 5405, 0, 0)


@pytest.mark.parametrize(
    ("which", "version", "address"),
    [
        ("lan0", 0, "192.0.2.7"),
        ("lan0", 6, "2001:db8::7"),
        ("198.51.100.7", 0, "198.51.100.7"),
        ("198.51.100.0/24", 0, "198.51.100.7"),
        ("198.51.100.99/24", 0, "198.51.100.7"),
        ("2001:db8::/32", 0, "2001:db8::7"),
        ("fe80::7", 0, "fe80::7"),
    ],
)
def test_an_interface_is_chosen_by_name_address_or_network(which: str, version: int, address: str) -> None:
    assert choose_interface(which, MACHINE, version=version).address == ip_address(address)


@pytest.mark.parametrize("which", ["lan9", "192.0.2.8", "203.0.113.0/24", "not/a/network", ""])
def test_what_does_not_exist_or_is_unclear_lists_what_there_is(which: str) -> None:
    with pytest.raises(ConfigError, match=r"interface = .*lan0 192\.0\.2\.7, lan1 198\.51\.100\.7, lan0 2001:db8::7"):
        choose_interface(which, MACHINE)


def test_without_a_word_the_only_interface_is_meant_or_loopback() -> None:
    assert choose_interface("", MACHINE[:4]).address == IPv4Address("192.0.2.7")
    assert choose_interface("", MACHINE[:1]).address == IPv4Address("127.0.0.1")
    assert choose_interface("192.0.2.9", []).address == IPv4Address("192.0.2.9")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux lists its interfaces to us")
def test_this_machine_has_loopback() -> None:
    assert any(one.address == IPv4Address("127.0.0.1") and one.index for one in list_interfaces())


def test_unusable_ipv6_addresses_are_left_out() -> None:
    text = (
        "20010db8000000000000000000000007 02 40 00 80     lan0\n"
        "20010db8000000000000000000000008 02 40 00 c0     lan0\n"
        "20010db8000000000000000000000009 02 40 00 88     lan0\n"
        "nonsense\n"
    )
    assert read_if_inet6(text) == [("lan0", 2, IPv6Address("2001:db8::7"))]


def test_a_small_buffer_is_warned_of_with_the_setting_to_change() -> None:
    with open_unicast(loopback(), 0) as opened:
        assert size_buffers(opened, 100_000, "data") == ""
        warning = size_buffers(opened, (1 << 30) + 1, "data")
    assert "the data socket got a receive buffer of" in warning
    assert "sysctl -w" in warning


def test_a_port_in_use_and_a_group_that_is_none_are_named() -> None:
    with open_unicast(loopback(), 0) as opened, pytest.raises(ConfigError, match=r"port = .*choose another"):
        open_unicast(loopback(), opened.getsockname()[1])
    with pytest.raises(ConfigError, match=r"group = '192\.0\.2\.1': must be a multicast address of IPv4"):
        open_group(loopback(), IPv4Address("192.0.2.1"), 5410)
