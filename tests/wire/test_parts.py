"""Control packets in parts: any order, losses filled by repetition, newer over older, bounded memory."""

from __future__ import annotations

import struct
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tests.wire.samples import mutated
from transis.types.errors import Rejection
from transis.wire.control import CONTROL_MAX, KIND_PART, REASSEMBLIES_MAX, PartAssembler, split

PAYLOAD = b"\x03" + bytes(range(200))
LIMIT = 50


def part(kind: int, packet_id: int, number: int, count: int, share: bytes = b"x") -> bytes:
    return struct.pack(">BBQHH", KIND_PART, kind, packet_id, number, count) + share


@given(st.binary(min_size=1, max_size=500), st.integers(16, 100), st.randoms(use_true_random=False))
def test_parts_make_the_whole_in_any_order(rest: bytes, limit: int, shuffler: Random) -> None:
    payload = b"\x03" + rest
    parts = split(7, payload, limit)
    assert all(len(one) <= limit for one in parts)
    shuffler.shuffle(parts)
    assembler = PartAssembler()
    outcomes = [assembler.feed(b"ann", one) for one in parts]
    assert outcomes == [None] * (len(parts) - 1) + [payload]


def test_a_repetition_fills_what_was_lost() -> None:
    parts = split(7, PAYLOAD, LIMIT)
    assembler = PartAssembler()
    assert [assembler.feed(b"ann", one) for one in parts[1:]] == [None] * (len(parts) - 1)
    assert assembler.feed(b"ann", parts[0]) == PAYLOAD


def test_a_whole_repetition_is_the_packet_again() -> None:
    parts = split(7, PAYLOAD, LIMIT)
    assembler = PartAssembler()
    wholes = [assembler.feed(b"ann", one) for one in parts + parts]
    assert wholes.count(PAYLOAD) == 2


def test_a_duplicate_part_changes_nothing() -> None:
    parts = split(7, PAYLOAD, LIMIT)
    assembler = PartAssembler()
    outcomes = [assembler.feed(b"ann", one) for one in [parts[0], *parts]]
    assert outcomes == [None] * len(parts) + [PAYLOAD]


def test_duplicates_do_not_count_towards_the_size_of_the_packet() -> None:
    share = b"\x03" + bytes(CONTROL_MAX // 3)
    assembler = PartAssembler()
    assert [assembler.feed(b"ann", part(3, 1, 0, 2, share)) for _ in range(5)] == [None] * 5
    assert assembler.feed(b"ann", part(3, 1, 1, 2)) == share + b"x"


def test_a_newer_packet_evicts_and_an_older_is_ignored() -> None:
    older, newer = split(7, PAYLOAD, LIMIT), split(8, PAYLOAD + b"newer", LIMIT)
    assembler = PartAssembler()
    assert [assembler.feed(b"ann", one) for one in older[:-1]] == [None] * (len(older) - 1)
    assert assembler.feed(b"ann", newer[0]) is None
    assert [assembler.feed(b"ann", one) for one in older] == [None] * len(older)
    assert [assembler.feed(b"ann", one) for one in newer[1:]][-1] == PAYLOAD + b"newer"


def test_transmitters_and_kinds_do_not_mix() -> None:
    join, commit = split(7, PAYLOAD, LIMIT), split(3, b"\x04" + PAYLOAD, LIMIT)
    assembler = PartAssembler()
    feeds = [(b"ann", one) for one in join[:-1]] + [(b"bob", one) for one in join[1:]] + [(b"ann", one) for one in commit]
    outcomes = [assembler.feed(*feed) for feed in feeds]
    assert [outcome for outcome in outcomes if outcome is not None] == [b"\x04" + PAYLOAD]
    assert assembler.feed(b"ann", join[-1]) == PAYLOAD
    assert assembler.feed(b"bob", join[0]) == PAYLOAD


def test_what_is_no_part_is_whole() -> None:
    assert PartAssembler().feed(b"ann", b"\x03abc") == b"\x03abc"


@given(st.binary(max_size=60) | mutated(st.sampled_from(split(7, PAYLOAD, LIMIT))))
def test_any_bytes_are_taken_or_rejected(body: bytes) -> None:
    outcome = PartAssembler().feed(b"ann", body)
    if isinstance(outcome, bytes):
        assert outcome == body


def test_bad_parts_are_named() -> None:
    assembler = PartAssembler()
    bad = {
        "length": [b"", part(3, 1, 0, 2, b"")],
        "kind": [part(KIND_PART, 1, 0, 2)],
        "parts": [part(3, 1, 2, 2), part(3, 1, 0, 0), part(3, 1, 0, 1), part(3, 1, 0, 257)],
        "packet id": [part(3, 1 << 63, 0, 2)],
    }
    for name, bodies in bad.items():
        for body in bodies:
            outcome = assembler.feed(b"ann", body)
            assert isinstance(outcome, Rejection)
            assert outcome.field == name


def test_the_number_of_parts_may_not_change() -> None:
    assembler = PartAssembler()
    assert assembler.feed(b"ann", part(3, 1, 0, 3)) is None
    assert isinstance(assembler.feed(b"ann", part(3, 1, 1, 2)), Rejection)


def test_the_whole_must_be_of_the_kind_that_its_parts_claim() -> None:
    assembler = PartAssembler()
    assert assembler.feed(b"ann", part(3, 1, 0, 2, b"\x04")) is None
    assert isinstance(assembler.feed(b"ann", part(3, 1, 1, 2)), Rejection)


def test_reassemblies_and_their_bytes_are_bounded() -> None:
    assembler = PartAssembler()
    for number in range(REASSEMBLIES_MAX + 10):
        assert assembler.feed(b"%d" % number, part(3, 1, 0, 2)) is None
    assert len(assembler) == REASSEMBLIES_MAX
    outcomes = [assembler.feed(b"ann", part(3, 1, number, 256, bytes(CONTROL_MAX // 4))) for number in range(5)]
    assert outcomes[:4] == [None] * 4
    assert isinstance(outcomes[4], Rejection)
