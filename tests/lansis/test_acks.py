"""ACKS: they come back as they were, golden bytes, and nothing out of range gets in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.samples import mutated
from transis.lansis.packets import NACK_COUNT_MAX, NACK_RANGES_MAX, Acks, Nack, decode_acks, encode_acks
from transis.types.errors import Rejection
from transis.types.limits import MEMBERS_MAX
from transis.wire.burst import COUNTER_MAX
from transis.wire.items import ACK_SIZE, ACKS_HEAD_SIZE, NACK_SIZE, AcksAt, Incomplete, read_item

ACKS = Acks(0x0102030405, ((0, 7), (2, 300)), (Nack(1, 5, 9),))
GOLDEN = "04 0000000102030405 02 01  00 0000000000000007  02 000000000000012c  01 0000000000000005 0005"

ranks = st.integers(0, MEMBERS_MAX - 1)
counters = st.integers(1, COUNTER_MAX)
nacks = st.builds(
    lambda rank, first, count: Nack(rank, first, first + count - 1), ranks, counters, st.integers(1, NACK_COUNT_MAX)
)
acks = st.builds(
    Acks,
    st.integers(0, (1 << 64) - 1),
    st.dictionaries(ranks, counters, max_size=MEMBERS_MAX - 1).map(lambda found: tuple(sorted(found.items()))),
    st.lists(nacks, max_size=NACK_RANGES_MAX).map(tuple),
)


def field(body: bytes) -> str:
    outcome = decode_acks(body)
    assert isinstance(outcome, Rejection)
    return outcome.field


def test_golden_bytes() -> None:
    assert encode_acks(*ACKS) == bytes.fromhex(GOLDEN)
    assert decode_acks(bytes.fromhex(GOLDEN)) == ACKS


@given(acks, st.binary(max_size=9))
def test_acks_come_back_whatever_follows_them(found: Acks, rest: bytes) -> None:
    assert decode_acks(encode_acks(*found) + rest) == found


@given(acks)
def test_the_stream_passes_over_as_many_bytes_as_there_are(found: Acks) -> None:
    encoded = encode_acks(*found)
    assert read_item(encoded + b"\x01", 0) == AcksAt(len(encoded))
    assert len(encoded) == ACKS_HEAD_SIZE + ACK_SIZE * len(found.acks) + NACK_SIZE * len(found.nacks)


@given(acks, st.data())
def test_the_beginning_of_acks_is_incomplete(found: Acks, data: st.DataObject) -> None:
    encoded = encode_acks(*found)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    assert isinstance(decode_acks(encoded[:cut]), Incomplete)


@given(st.binary(max_size=200) | mutated(acks.map(lambda found: encode_acks(*found))))
def test_any_bytes_are_acks_or_incomplete_or_rejected(body: bytes) -> None:
    outcome = decode_acks(body)
    assert decode_acks(memoryview(body)) == outcome
    if isinstance(outcome, Acks):
        encoded = encode_acks(*outcome)
        assert body[: len(encoded)] == encoded


@pytest.mark.parametrize(
    ("body", "name"),
    [
        pytest.param("01", "acks", id="another item"),
        pytest.param("04 0000000000000000 80 00", "acks", id="as many acks as members"),
        pytest.param("04 0000000000000000 00 21", "acks", id="too many nacks"),
        pytest.param("04 0000000000000000 01 00 80 0000000000000001", "acks", id="rank"),
        pytest.param("04 0000000000000000 01 00 00 0000000000000000", "acks", id="counter zero"),
        pytest.param("04 0000000000000000 01 00 00 4000000000000001", "acks", id="counter beyond all"),
        pytest.param("04 0000000000000000 02 00 01 0000000000000001 01 0000000000000002", "acks", id="a rank twice"),
        pytest.param("04 0000000000000000 02 00 01 0000000000000001 00 0000000000000002", "acks", id="not sorted"),
        pytest.param("04 0000000000000000 00 01 80 0000000000000001 0001", "nacks", id="rank of a nack"),
        pytest.param("04 0000000000000000 00 01 00 0000000000000001 0000", "nacks", id="nothing asked for"),
        pytest.param("04 0000000000000000 00 01 00 0000000000000000 0001", "nacks", id="from zero"),
        pytest.param("04 0000000000000000 00 01 00 4000000000000001 0001", "nacks", id="from beyond all"),
    ],
)
def test_values_out_of_range_are_rejected(body: str, name: str) -> None:
    assert field(bytes.fromhex(body)) == name
