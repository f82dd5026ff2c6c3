"""The token: it comes back as it was, it fits the smallest datagram, and nothing out of range gets in."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.samples import TOKEN, mutated, tokens
from transis.totem.packets import NOBODY, TOKEN_SIZE_MAX, Token, decode_token, encode_token
from transis.types.errors import Rejection
from transis.types.limits import DATAGRAM_MIN, MEMBERS_MAX, RTR_RANGES_MAX
from transis.wire.envelope import ENVELOPE_SIZE, SEAL_SIZE

COUNT_OFFSET = len(encode_token(replace(TOKEN, rtr=[]))) - 1


def field(body: bytes) -> str:
    outcome = decode_token(body)
    assert isinstance(outcome, Rejection)
    return outcome.field


@given(tokens())
def test_tokens_come_back(token: Token) -> None:
    assert decode_token(encode_token(token)) == token


@given(st.binary(max_size=200) | mutated(tokens().map(encode_token)))
def test_any_bytes_are_a_token_or_rejected(body: bytes) -> None:
    token = decode_token(body)
    if isinstance(token, Token):
        assert encode_token(token) == body


def test_a_full_token_fits_the_smallest_datagram() -> None:
    ranges = [(4 * number + 1, 4 * number + 3) for number in range(RTR_RANGES_MAX)]
    token = replace(TOKEN, seq=1_000_000, rtr=ranges)
    assert len(encode_token(token)) == TOKEN_SIZE_MAX
    assert ENVELOPE_SIZE + TOKEN_SIZE_MAX + SEAL_SIZE <= DATAGRAM_MIN
    assert decode_token(encode_token(token)) == token


@pytest.mark.parametrize(
    ("token", "name"),
    [
        (replace(TOKEN, sender=MEMBERS_MAX), "rank"),
        (replace(TOKEN, target=NOBODY), "rank"),
        (replace(TOKEN, aru_id=MEMBERS_MAX), "rank"),
        (replace(TOKEN, token_seq=(1 << 62) + 1), "counter"),
        (replace(TOKEN, backlog=1 << 63), "counter"),
        (replace(TOKEN, timestamp=1 << 63), "counter"),
        (replace(TOKEN, fcc=1 << 31), "counter"),
    ],
)
def test_values_out_of_range_are_rejected(token: Token, name: str) -> None:
    assert field(encode_token(token)) == name


def test_aru_beyond_seq_is_rejected() -> None:
    body = bytearray(encode_token(replace(TOKEN, seq=300, aru=300, rtr=[])))
    struct.pack_into(">Q", body, 34, 299)
    assert field(bytes(body)) == "aru"


@pytest.mark.parametrize(
    "ranges",
    [
        pytest.param("000031000000 000031000000", id="twice the same"),
        pytest.param("000001000027 000031000000", id="not in order"),
        pytest.param("000028000002 000001000028", id="overlapping"),
        pytest.param("00000000012c", id="from zero"),
        pytest.param("ffffff000000", id="before the beginning"),
        pytest.param("0000310000", id="cut off"),
    ],
)
def test_bad_ranges_are_rejected(ranges: str) -> None:
    tail = bytes.fromhex(ranges)
    head = encode_token(replace(TOKEN, rtr=[]))[:COUNT_OFFSET]
    assert field(head + bytes((-(-len(tail) // 6),)) + tail) == "ranges"


def test_a_claimed_number_of_ranges_is_compared_with_the_bytes() -> None:
    head = encode_token(replace(TOKEN, rtr=[]))[:COUNT_OFFSET]
    assert field(head + b"\xff") == "ranges"
    assert field(head + b"\x00" + bytes(6)) == "ranges"
    assert field(head + b"\x41" + bytes(6 * 65)) == "ranges"
