"""Addresses and control messages: what is written reads back, and any bytes at all are a message or a rejection."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transis.groups.messages import (
    PARTS_MAX,
    AnnouncedGroup,
    Announcement,
    Control,
    DisconnectRequest,
    JoinRequest,
    LeaveRequest,
    decode_control,
    encode_control,
)
from transis.types.errors import Rejection, UsageError
from transis.types.ids import NodeId
from transis.types.limits import ADDRESS_MAX
from transis.types.views import (
    ADDRESSED_GROUPS_MAX,
    ADDRESSED_PROCESSES_MAX,
    GROUP_NAME_MAX,
    PROCESSES_MAX,
    Address,
    GroupId,
    PrivateName,
    group_id,
)
from transis.wire.items import decode_address, encode_address

REP = NodeId("a", 1, (1 << 64) - 1)
group_ids = st.integers(0, (1 << 64) - 1).map(GroupId)
names = st.builds(PrivateName, st.integers(0, (1 << 64) - 1), st.integers(0, PROCESSES_MAX - 1))


@given(st.lists(group_ids, max_size=20), st.lists(names, max_size=20))
def test_an_address_reads_back_sorted_and_without_doubles(groups: list[GroupId], processes: list[PrivateName]) -> None:
    if groups or processes:
        address = encode_address(Address(tuple(groups), tuple(processes)))
        assert decode_address(address) == Address(tuple(sorted(set(groups))), tuple(sorted(set(processes))))


def test_the_largest_address_fits_a_run() -> None:
    groups = tuple(GroupId(number) for number in range(ADDRESSED_GROUPS_MAX))
    processes = tuple(PrivateName(number, 1) for number in range(ADDRESSED_PROCESSES_MAX))
    assert len(encode_address(Address(groups, processes))) <= ADDRESS_MAX
    with pytest.raises(UsageError, match="65 groups"):
        encode_address(Address((*groups, GroupId(1 << 40))))


def test_a_message_for_nobody_is_refused() -> None:
    with pytest.raises(UsageError, match="nobody"):
        encode_address(Address())


@given(st.binary(max_size=60) | st.binary(max_size=60).map(lambda rest: b"\x01\x01\x01" + rest))
def test_any_bytes_are_an_address_or_a_rejection(data: bytes) -> None:
    decoded = decode_address(data)
    if isinstance(decoded, Address) and data:
        assert encode_address(decoded) == data or decoded == Address()


@given(st.binary(max_size=200))
def test_any_bytes_are_a_control_message_or_a_rejection(data: bytes) -> None:
    assert isinstance(decode_control(data), Control | Rejection)


def entry(name: str = "red", view: int = 0, stayed: tuple[int, ...] = (1,), came: tuple[int, ...] = (2,)) -> AnnouncedGroup:
    return AnnouncedGroup(name, view, 7, 3, 5, stayed, came)


def announcement(*groups: AnnouncedGroup, part: int = 0, parts: int = 1) -> Announcement:
    return Announcement(8, REP, part, parts, ((False, 4, REP),), groups)


@pytest.mark.parametrize(
    "message", [JoinRequest(1, "red"), LeaveRequest(1, "red"), DisconnectRequest(PROCESSES_MAX - 1), announcement(entry())]
)
def test_control_messages_read_back(message: Control) -> None:
    assert decode_control(encode_control(message)) == message


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (JoinRequest(1, ""), "name"),
        (JoinRequest(1, "x" * (GROUP_NAME_MAX + 1)), "name"),
        (LeaveRequest(1, "a\nb"), "name"),
        (DisconnectRequest(PROCESSES_MAX), "layout"),
        (announcement(part=1), "part"),
        (announcement(parts=PARTS_MAX + 1), "layout"),
        (announcement(entry(view=1)), "group"),
        (announcement(entry(view=-1)), "group"),
        (announcement(entry(stayed=(1,), came=(1,))), "group"),
        (announcement(entry(name="\0")), "group"),
        (Announcement(8, NodeId("", 1, 1), 0, 1, (), ()), "node"),
    ],
)
def test_what_makes_no_sense_is_rejected_by_name(message: Control, field: str) -> None:
    decoded = decode_control(encode_control(message))
    assert isinstance(decoded, Rejection)
    assert decoded.field == field


def test_text_that_is_not_utf8_and_deep_nesting_are_rejected() -> None:
    joined = encode_control(JoinRequest(1, "red"))
    assert isinstance(decode_control(joined.replace(b"red", b"\xff\xfe\xfd")), Rejection)
    assert isinstance(decode_control(b"\x91" * 100_000), Rejection)
    assert isinstance(decode_control(msgspec.msgpack.encode([9, 1])), Rejection)


def test_bytes_of_control_messages_never_change() -> None:
    """Golden bytes: two versions of this program must read each other."""
    assert encode_control(JoinRequest(1, "red")).hex() == "930101a3726564"
    assert encode_control(LeaveRequest(1, "red")).hex() == "930201a3726564"
    assert encode_control(DisconnectRequest(1)).hex() == "920301"
    assert encode_address(Address((GroupId(5),), (PrivateName(6, 7),))).hex() == "0101010000000000000005000000000000000600000007"
    assert group_id("orders") == 15396940609477705549
