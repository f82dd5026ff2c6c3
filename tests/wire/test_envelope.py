"""The envelope: who is let in, who is not, and that no nonce is ever used twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.samples import ANN, BOB, KEY, mutated, nodes
from transis.types.errors import ConfigError, InternalError, Rejection
from transis.types.ids import NodeId
from transis.wire.envelope import ENVELOPE_SIZE, KEYS_MAX, SEAL_SIZE, Opener, Sealer, Segments, transmitter_tag

OTHER_KEY = bytes(32)
keys = st.sampled_from((None, KEY))


def field(outcome: tuple[bytes, bytes] | Rejection) -> str:
    assert isinstance(outcome, Rejection)
    return outcome.field


@given(keys, st.binary(max_size=200), nodes)
def test_what_is_sealed_opens(key: bytes | None, body: bytes, node: NodeId) -> None:
    datagram = Sealer("transis", node, key).seal(body)
    assert len(datagram) == ENVELOPE_SIZE + len(body) + (0 if key is None else SEAL_SIZE)
    assert Opener("transis", key).open(datagram) == (transmitter_tag(node), body)


@given(keys, st.lists(st.binary(max_size=40), max_size=5))
def test_a_burst_is_sealed_as_its_datagrams_are_alone(key: bytes | None, bodies: list[bytes]) -> None:
    together, alone = Sealer("transis", ANN, key, sent=7), Sealer("transis", ANN, key, sent=7)
    assert together.seal_all(bodies) == [alone.seal(body) for body in bodies]
    assert together.sent == alone.sent == 7 + len(bodies)


@given(st.integers(2, 5), st.integers(1, 40), st.integers(0, 39), keys, st.data())
def test_what_came_in_one_piece_opens_unless_one_of_it_needs_a_look(
    count: int, size: int, shorter: int, key: bytes | None, data: st.DataObject
) -> None:
    bodies = [bytes(size)] * (count - 1) + [bytes(max(1, size - shorter))]
    sealed = Sealer("transis", ANN, key).seal_all(bodies)
    opener = Opener("transis", key)
    assert opener.opens(Segments(b"".join(sealed), len(sealed[0]))) == (key is None)
    place = data.draw(st.integers(0, count - 1))
    sealed[place] = data.draw(st.sampled_from([bytes(len(sealed[place])), Sealer("other", ANN, key).seal(bodies[place])]))
    assert not opener.opens(Segments(b"".join(sealed), len(sealed[0])))


@given(st.integers(1, ENVELOPE_SIZE))
def test_a_piece_whose_last_datagram_is_no_more_than_an_envelope_needs_a_look(size: int) -> None:
    first, second = Sealer("transis", ANN, None).seal_all([b"x" * 60] * 2)
    assert not Opener("transis", None).opens(Segments(first + second[:size], len(first)))


@given(keys, mutated(st.binary(min_size=30, max_size=90)))
def test_any_bytes_open_or_are_rejected(key: bytes | None, datagram: bytes) -> None:
    outcome = Opener("transis", key).open(datagram)
    assert isinstance(outcome, Rejection)


@given(st.integers(0, ENVELOPE_SIZE + 4 + SEAL_SIZE - 1), st.integers(1, 255))
def test_every_changed_byte_of_a_sealed_datagram_is_noticed(position: int, change: int) -> None:
    datagram = bytearray(Sealer("transis", ANN, KEY).seal(b"body"))
    datagram[position] ^= change
    assert isinstance(Opener("transis", KEY).open(bytes(datagram)), Rejection)


@given(st.integers(0, ENVELOPE_SIZE + 4 + SEAL_SIZE - 1))
def test_every_truncated_sealed_datagram_is_noticed(size: int) -> None:
    datagram = Sealer("transis", ANN, KEY).seal(b"body")
    assert isinstance(Opener("transis", KEY).open(datagram[:size]), Rejection)


def test_each_mistake_has_its_own_name() -> None:
    plain = Sealer("transis", ANN, None).seal(b"body")
    sealed = Sealer("transis", ANN, KEY).seal(b"body")
    open_plain, open_sealed = Opener("transis", None), Opener("transis", KEY)
    assert field(open_plain.open(plain[:20])) == "length"
    assert field(open_plain.open(b"xx" + plain[2:])) == "magic"
    assert field(open_plain.open(plain[:2] + b"\x02" + plain[3:])) == "version"
    assert field(open_plain.open(plain[:3] + b"\x04" + plain[4:])) == "flags"
    assert field(Opener("elsewhere", None).open(plain)) == "cluster"
    assert field(open_plain.open(sealed)) == "sealed"
    assert field(open_sealed.open(plain)) == "plaintext"
    assert field(Opener("transis", OTHER_KEY).open(sealed)) == "seal"


def test_a_body_cannot_be_moved_to_another_transmitter() -> None:
    ours = Sealer("transis", ANN, KEY).seal(b"body")
    theirs = Sealer("transis", BOB, KEY).seal(b"body")
    assert field(Opener("transis", KEY).open(theirs[:ENVELOPE_SIZE] + ours[ENVELOPE_SIZE:])) == "seal"


def test_the_same_body_never_looks_the_same_twice() -> None:
    sealer = Sealer("transis", ANN, KEY)
    first, second = sealer.seal(b"body"), sealer.seal(b"body")
    other_life = Sealer("transis", ANN._replace(boot=1), KEY).seal(b"body")
    ciphertexts = {datagram[ENVELOPE_SIZE:] for datagram in (first, second, other_life)}
    assert len(ciphertexts) == 3
    assert sealer.sent == 2


def test_a_burst_beyond_the_last_counter_is_refused() -> None:
    with pytest.raises(InternalError, match="used up"):
        Sealer("transis", ANN, None, sent=(1 << 64) - 3).seal_all([b"x"] * 4)


def test_the_counter_refuses_to_wrap() -> None:
    sealer = Sealer("transis", ANN, KEY, sent=(1 << 64) - 2)
    assert Opener("transis", KEY).open(sealer.seal(b"last")) == (transmitter_tag(ANN), b"last")
    with pytest.raises(InternalError):
        sealer.seal(b"one too many")


@pytest.mark.parametrize("size", [0, 16, 31, 33])
def test_a_key_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(ConfigError, match="key"):
        Opener("transis", bytes(size))
    with pytest.raises(ConfigError, match="key"):
        Sealer("transis", ANN, bytes(size))


def test_names_and_numbers_of_nodes_cannot_be_confused() -> None:
    nodes_alike = [NodeId("a", 1, 2), NodeId("a", 2, 1), NodeId("a1", 1, 2), NodeId("", 1, 2), NodeId("a", 12, 2)]
    assert len({transmitter_tag(node) for node in nodes_alike}) == len(nodes_alike)


def test_more_transmitters_than_are_remembered_all_open() -> None:
    opener = Opener("transis", KEY)
    sealers = [Sealer("transis", NodeId(f"n{number}", 1, number), KEY) for number in range(KEYS_MAX + 8)]
    for sealer in [*sealers, sealers[0], sealers[-1]]:
        assert not isinstance(opener.open(sealer.seal(b"body")), Rejection)
