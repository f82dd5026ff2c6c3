"""Sealed streams: what goes in comes out, whatever the pieces; what was touched does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transis.sessions.sealed import GREETING_SIZE, RANDOM_SIZE, RECORD_MAX, SealedStream
from transis.types.errors import ConfigError, Rejection, UsageError

KEY = bytes(range(32))


def pair(client_key: bytes = KEY, node_key: bytes = KEY, number: int = 1) -> tuple[SealedStream, SealedStream]:
    """Both sides, greeted."""
    client = SealedStream(client_key, bytes([number]) * RANDOM_SIZE, is_client=True)
    node = SealedStream(node_key, bytes([number + 100]) * RANDOM_SIZE, is_client=False)
    assert node.feed(client.greeting) == b""
    assert client.feed(node.greeting) == b""
    return client, node


def test_golden_bytes() -> None:
    """A red test here means that two releases would not understand each other."""
    client, node = pair()
    assert client.greeting.hex() == "54735301" + "01" * 32
    assert client.seal(b"hello").hex() == GOLDEN_CLIENT
    assert node.seal(b"").hex() == GOLDEN_NODE


GOLDEN_CLIENT = "00000015f5b34dcde710c4439844cd34238744fdb5284407d3"
GOLDEN_NODE = "000000102874481274ad8fd6d245d8d6d8c02824"


@given(st.lists(st.binary(max_size=300), max_size=8), st.lists(st.integers(1, 200)))
def test_any_cut_gives_the_same_bytes(messages: list[bytes], cuts: list[int]) -> None:
    client = SealedStream(KEY, bytes(32), is_client=True)
    node = SealedStream(KEY, bytes([1]) * 32, is_client=False)
    client.feed(node.greeting)
    stream = client.greeting + client.seal(b"") + b"".join(map(client.seal, messages))
    opened, position = b"", 0
    for size in [*cuts, len(stream)]:
        got = node.feed(stream[position : position + size])
        assert not isinstance(got, Rejection)
        opened += got
        position += size
    assert opened == b"".join(messages)
    assert node.is_confirmed


@given(st.binary(min_size=1, max_size=400))
def test_any_bytes_are_plaintext_or_a_rejection(data: bytes) -> None:
    for stream in (SealedStream(KEY, bytes(32), is_client=False), pair()[1]):
        got = stream.feed(data)
        assert got == b"" or isinstance(got, Rejection)
        assert not stream.is_confirmed


def test_both_directions() -> None:
    client, node = pair()
    assert node.feed(client.seal(b"question")) == b"question"
    assert client.feed(node.seal(b"answer")) == b"answer"


def test_large_data_are_cut_into_records() -> None:
    client, node = pair()
    data = bytes(range(256)) * (RECORD_MAX // 100)
    sealed = client.seal(memoryview(data))
    assert len(sealed) == len(data) + 20 * -(-len(data) // RECORD_MAX)
    assert node.feed(sealed) == data


def test_nothing_is_sealed_before_the_greeting() -> None:
    client = SealedStream(KEY, bytes(32), is_client=True)
    assert not client.is_open
    with pytest.raises(UsageError, match="greeting"):
        client.seal(b"secret")
    client.feed(SealedStream(KEY, bytes(32), is_client=False).greeting[: GREETING_SIZE - 1])
    assert not client.is_open


def test_a_wrong_key_is_noticed_by_both_at_the_first_record() -> None:
    client, node = pair(client_key=bytes(32))
    for ours, theirs in ((client, node), (node, client)):
        got = ours.feed(theirs.seal(b""))
        assert isinstance(got, Rejection)
        assert got.field == "seal"
        assert not ours.is_confirmed


def test_a_key_has_its_length() -> None:
    with pytest.raises(ConfigError, match="exactly 32 bytes"):
        SealedStream(b"short", bytes(32), is_client=True)


@pytest.mark.parametrize("at", [0, 3, 4, 10, -1])
def test_a_changed_byte_is_noticed(at: int) -> None:
    client, node = pair()
    sealed = bytearray(client.seal(b"pay 100"))
    sealed[at] ^= 1
    got = node.feed(bytes(sealed) + client.seal(b"more"))
    assert isinstance(got, Rejection) or got == b""
    assert not node.is_confirmed


def test_records_are_not_repeated_reordered_left_out_or_reflected() -> None:
    for story in ("repeat", "reorder", "omit", "reflect", "replay"):
        client, node = pair()
        first, second = client.seal(b"1"), client.seal(b"2")
        if story == "repeat":
            assert node.feed(first) == b"1"
            got = node.feed(first)
        elif story in {"reorder", "omit"}:
            got = node.feed(second)
        elif story == "reflect":
            got = client.feed(first)
        else:
            got = pair(number=2)[1].feed(first)
        assert isinstance(got, Rejection), story


@pytest.mark.parametrize("length", [0, 15, RECORD_MAX + 17, 0xFFFFFFFF])
def test_a_record_of_impossible_length_is_refused_at_once(length: int) -> None:
    _, node = pair()
    got = node.feed(length.to_bytes(4))
    assert isinstance(got, Rejection)
    assert got.field == "record"


def test_another_protocol_is_refused_at_its_first_byte() -> None:
    got = SealedStream(KEY, bytes(32), is_client=False).feed(b"GET / HTTP/1.1\r\n")
    assert isinstance(got, Rejection)
    assert got.field == "greeting"
