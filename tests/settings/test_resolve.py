"""What settings mean on a machine: the rule about keys, and defaults that fit the interface."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from transis.net.interfaces import Interface
from transis.net.transport import GROUP, GROUP_IPV6, Group
from transis.settings.load import settings_of
from transis.settings.resolve import group_for, pulse_of, require_key, timing_of
from transis.types.config import LAN, LOCAL, PULSES
from transis.types.errors import ConfigError

LOOPBACK = Interface("lo", 1, ip_address("127.0.0.1"))
LAN_CARD = Interface("eth0", 2, ip_address("192.0.2.7"))
IPV6_CARD = Interface("eth0", 2, ip_address("2001:db8::7"))
KEY = bytes(32)


def refusal(interface: Interface, key: bytes | None, *, plaintext: bool = False) -> str:
    """Why such a node may not run; nothing if it may."""
    try:
        require_key("key", interface, key, plaintext=plaintext, otherwise="plaintext=True")
    except ConfigError as error:
        assert error.field == "key"
        return str(error)
    return ""


def test_loopback_needs_no_key_of_its_own() -> None:
    assert refusal(LOOPBACK, None) == ""


@pytest.mark.parametrize("interface", [LAN_CARD, IPV6_CARD])
def test_anything_else_needs_a_key_or_an_explicit_word(interface: Interface) -> None:
    assert refusal(interface, KEY) == ""
    assert refusal(interface, None, plaintext=True) == ""
    told = refusal(interface, None)
    assert "transis keygen" in told
    assert "plaintext=True" in told


def test_a_key_and_plaintext_contradict_each_other() -> None:
    assert "take one of them out" in refusal(LAN_CARD, KEY, plaintext=True)


def test_a_key_of_another_size_is_none_and_is_not_repeated() -> None:
    told = refusal(LAN_CARD, b"secret")
    assert "32 bytes" in told
    assert "secret" not in told


def test_defaults_fit_the_interface() -> None:
    assert group_for(LAN_CARD) == GROUP
    assert group_for(IPV6_CARD).address == GROUP_IPV6.address
    assert group_for(IPV6_CARD, Group("ff12::1")).address == "ff12::1"
    auto, local = settings_of("ann"), settings_of("ann", profile="local")
    assert timing_of(auto, LOOPBACK) == timing_of(local, LAN_CARD) == LOCAL
    assert timing_of(auto, LAN_CARD) == LAN
    assert pulse_of(auto, LOOPBACK) == pulse_of(local, LAN_CARD) == PULSES["local"]
    assert pulse_of(auto, LAN_CARD) == PULSES["lan"]
