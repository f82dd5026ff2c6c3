"""ALIVE: it comes back as it was, golden bytes, 128 members, and nothing out of range gets in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lansis.test_acks import nacks
from tests.wire.samples import boots, counters, mutated
from transis.lansis.packets import NACK_RANGES_MAX, Alive, Nack, decode_alive, encode_alive
from transis.types.errors import Rejection
from transis.types.ids import RingTag
from transis.types.limits import DATAGRAM_MIN, MEMBERS_MAX
from transis.wire.burst import COUNTER_MAX
from transis.wire.envelope import ENVELOPE_SIZE, SEAL_SIZE

ALIVE = Alive(RingTag(8, 0x0A0A), 1, True, 300, 77, (5, 300, 0), (Nack(2, 1, 4),))
GOLDEN = (
    "0a 0000000000000008 0000000000000a0a 0001 01 000000000000012c 000000000000004d 03"
    "0000000000000005 000000000000012c 0000000000000000 01 02 0000000000000001 0004"
)


@st.composite
def alives(draw: st.DrawFn) -> Alive:
    recv = tuple(draw(st.lists(counters, min_size=1, max_size=MEMBERS_MAX)))
    return Alive(
        RingTag(draw(counters), draw(boots)),
        draw(st.integers(0, len(recv) - 1)),
        draw(st.booleans()),
        draw(counters),
        draw(counters),
        recv,
        tuple(draw(st.lists(nacks, max_size=NACK_RANGES_MAX))),
    )


def field(body: bytes) -> str:
    outcome = decode_alive(body)
    assert isinstance(outcome, Rejection)
    return outcome.field


def test_golden_bytes() -> None:
    assert encode_alive(ALIVE) == bytes.fromhex(GOLDEN)
    assert decode_alive(bytes.fromhex(GOLDEN)) == ALIVE


@given(alives())
def test_alives_come_back(alive: Alive) -> None:
    assert decode_alive(encode_alive(alive)) == alive


@given(st.binary(max_size=200) | mutated(alives().map(encode_alive)))
def test_any_bytes_are_an_alive_or_rejected(body: bytes) -> None:
    alive = decode_alive(body)
    if isinstance(alive, Alive):
        assert encode_alive(alive) == body


def test_an_alive_of_forty_members_that_asks_for_a_few_things_fits_the_smallest_datagram() -> None:
    alive = ALIVE._replace(recv=(COUNTER_MAX,) * 40, nacks=())
    assert ENVELOPE_SIZE + len(encode_alive(alive)) + SEAL_SIZE <= DATAGRAM_MIN


@pytest.mark.parametrize(
    ("alive", "name"),
    [
        (ALIVE._replace(tag=RingTag(COUNTER_MAX + 1, 0)), "counter"),
        (ALIVE._replace(sent=COUNTER_MAX + 1), "counter"),
        (ALIVE._replace(clock=COUNTER_MAX + 1), "counter"),
        (ALIVE._replace(recv=(0, 0, COUNTER_MAX + 1)), "counter"),
        (ALIVE._replace(nacks=(Nack(MEMBERS_MAX, 1, 1),)), "nacks"),
    ],
)
def test_values_out_of_range_are_rejected(alive: Alive, name: str) -> None:
    assert field(encode_alive(alive)) == name


@pytest.mark.parametrize(
    ("at", "value", "name"),
    [
        pytest.param(0, 11, "kind", id="another kind"),
        pytest.param(19, 2, "kind", id="unknown flag"),
        pytest.param(18, 3, "rank", id="a sender that is no member"),
        pytest.param(36, 129, "rank", id="too many members"),
        pytest.param(36, 1, "rank", id="fewer members than the sender's rank"),
        pytest.param(36, 2, "nacks", id="fewer members than bytes"),
        pytest.param(36, 5, "length", id="more members than bytes"),
        pytest.param(61, 2, "nacks", id="more nacks than bytes"),
        pytest.param(61, 33, "nacks", id="too many nacks"),
    ],
)
def test_a_wrong_byte_is_found(at: int, value: int, name: str) -> None:
    body = bytearray(encode_alive(ALIVE))
    body[at] = value
    assert field(bytes(body)) == name


def test_short_bytes_are_rejected() -> None:
    assert field(b"") == "length"
    assert field(encode_alive(ALIVE)[:37]) == "length"
