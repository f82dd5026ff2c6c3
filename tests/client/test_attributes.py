"""Keys, headers and times of messages: what is given comes back, what cannot be carried is named, what a peer made up is data."""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transis.client.attributes import (
    PLAIN,
    Attributes,
    all_with_attributes,
    event_us_of,
    split_payload,
    time_at,
    with_attributes,
)
from transis.client.events import Batch, Json, Raw
from transis.sessions.frames import Stream, payload_cost
from transis.types.errors import CodecError, UsageError
from transis.types.ids import NodeId, ProcessId, Service, ViewId, ViewKind
from transis.types.limits import HEADERS_BYTES_MAX, HEADERS_MAX, KEY_MAX
from transis.types.views import Address, group_id
from transis.wire.items import attributed_address, decode_address, encode_address

ANN = NodeId("ann", 1, 7)
ADDRESS = encode_address(Address((group_id("x"),)))
SENT_US = 1_600_000_000_000_000

keys = st.none() | st.binary(max_size=40)
headers = st.none() | st.dictionaries(
    st.text(min_size=1, max_size=8).filter(lambda name: name.isprintable()), st.binary(max_size=9)
)
times = st.none() | st.datetimes(datetime(1970, 1, 1), timezones=st.just(UTC))


def frame(address: bytes, payloads: list[bytes], times: list[tuple[int, int]], first: int = 4) -> Stream:
    view = ViewId(ViewKind.REGULAR, 8, ANN)
    places = [(9, 0, len(payloads))]
    return Stream(ProcessId(ANN, 1), address, Service.AGREED, view, 5, first, places, payloads, times, payload_cost(payloads))


@given(st.binary(max_size=20), keys, headers, times)
def test_what_is_attached_comes_back(
    data: bytes, key: bytes | None, named: dict[str, bytes] | None, time: datetime | None
) -> None:
    attributes, rest = split_payload(with_attributes(data, key, named, time))
    assert (rest, attributes.key, attributes.headers) == (data, key, named or {})
    assert (None if attributes.event_us is None else time_at(attributes.event_us)) == time


@given(st.lists(st.tuples(keys, headers, times, st.binary(max_size=5)), min_size=1, max_size=6), st.integers(0, 5))
def test_a_batch_shows_its_messages_one_by_one_and_as_columns(rows: list[Any], skip: int) -> None:
    payloads = all_with_attributes(
        [row[3] for row in rows], [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]
    )
    sent = [(SENT_US, 1), (SENT_US + 1000, len(rows) - 1)]
    batch = Batch(frame(attributed_address(ADDRESS), payloads, sent), ("x",), Raw())
    expected = [
        (key, named or {}, time or time_at(SENT_US + 1000 * (number > 0)), data)
        for number, (key, named, time, data) in enumerate(rows)
    ]
    assert [(one.key, one.headers, one.time, one.data) for one in batch] == expected
    rest = batch.after(min(skip, len(rows)))
    assert [*zip(rest.keys, rest.headers, rest.times, rest.payloads, strict=True)] == expected[skip:]
    assert [one.counter for one in rest] == list(range(4 + skip, 4 + len(rows)))
    assert sum(count for _, count in rest.event_us) == len(rest)


def test_plain_messages_share_their_times_and_have_neither_key_nor_headers() -> None:
    batch = Batch(frame(ADDRESS, [b"1", b"2", b"3"], [(SENT_US, 2), (SENT_US + 7000, 1)]), ("x",), Raw())
    assert [message.time for message in batch] == [time_at(SENT_US)] * 2 + [time_at(SENT_US + 7000)]
    assert batch.times == [message.time for message in batch]
    assert (batch.keys, [dict(one) for one in batch.headers]) == ([None] * 3, [{}] * 3)
    assert batch.after(1).event_us == [(SENT_US, 1), (SENT_US + 7000, 1)]
    assert batch.after(2).event_us == [(SENT_US + 7000, 1)]
    assert (batch[0].key, dict(batch[0].headers)) == (None, {})


def test_messages_that_differ_in_key_or_time_are_not_equal() -> None:
    def message(key: bytes, sent_us: int) -> object:
        payloads = [with_attributes(b"x", key, None, None)]
        return Batch(frame(attributed_address(ADDRESS), payloads, [(sent_us, 1)]), ("x",), Raw())[0]

    assert message(b"a", 1) == message(b"a", 1)
    assert message(b"a", 1) != message(b"b", 1)
    assert message(b"a", 1) != message(b"a", 2)


def test_the_address_names_the_same_groups_with_attributes() -> None:
    assert decode_address(attributed_address(ADDRESS)) == decode_address(ADDRESS)
    assert attributed_address(ADDRESS) != ADDRESS


# --- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_to", "said"),
    [
        ({"key": "text"}, "key = 'text': must be bytes"),
        ({"key": bytes(KEY_MAX + 1)}, f"key has {KEY_MAX + 1} bytes: at most {KEY_MAX} are allowed"),
        ({"headers": [("a", b"b")]}, "headers = .*: must be a mapping of names to bytes"),
        ({"headers": {"a": "b"}}, r"headers\['a'\] = 'b': must be bytes"),
        ({"headers": {b"a": b"b"}}, "headers has the name b'a': must be text"),
        ({"headers": {"": b"b"}}, "headers has the name '': must be text, and not empty"),
        ({"headers": {"\ud800": b""}}, "must be text that UTF-8 can encode"),
        ({"headers": {str(number): b"" for number in range(HEADERS_MAX + 1)}}, f"headers has {HEADERS_MAX + 1} entries"),
        ({"headers": {"a": bytes(HEADERS_BYTES_MAX)}}, f"headers have {HEADERS_BYTES_MAX + 1} bytes together"),
        ({"time": 5}, "time = 5: must be a datetime with a time zone"),
        ({"time": datetime(2026, 1, 1)}, "must be a datetime with a time zone"),
        ({"time": datetime(1969, 12, 31, tzinfo=UTC)}, "must be 1970 or later"),
    ],
)
def test_what_cannot_be_carried_is_named(given_to: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        with_attributes(b"", **{"key": None, "headers": None, "time": None} | given_to)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (([b"k"], None, None), "keys has 1 entries for 2 messages"),
        ((b"ab", None, None), "keys = b'ab': give a list with one for each of the 2 messages"),
        ((None, [{}] * 3, None), "headers has 3 entries for 2 messages"),
        ((None, None, [datetime.now(UTC)]), "times has 1 entries for 2 messages"),
        ((None, None, datetime.now(UTC)), "times = .*: give a list"),
    ],
)
def test_columns_have_one_for_each_message(arguments: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        all_with_attributes([b"1", b"2"], *arguments)


def test_limits_are_what_may_be_sent() -> None:
    most = {str(number): b"" for number in range(HEADERS_MAX)}
    size = sum(map(len, most))
    most["0"] = bytes(HEADERS_BYTES_MAX - size)
    attributes, data = split_payload(with_attributes(b"data", bytes(KEY_MAX), most, time_at(1)))
    assert (attributes, data) == (Attributes(bytes(KEY_MAX), most, 1), b"data")


def test_another_time_zone_is_the_same_moment() -> None:
    east = datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    assert time_at(event_us_of(east)) == east
    assert time_at(event_us_of(east)).utcoffset() == timedelta(0)
    assert event_us_of(datetime.max.replace(tzinfo=UTC)) == event_us_of(time_at(1 << 70))


# --- hostile bytes ----------------------------------------------------------------------------------------------------


def framed(body: bytes, data: bytes = b"rest") -> bytes:
    return struct.pack(">H", len(body)) + body + data


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\0",
        b"\xff\xff",
        framed(b""),
        framed(b"\x93" * 2000),
        framed(msgspec.msgpack.encode([None, {}])),
        framed(msgspec.msgpack.encode([None, {}, None, 1])),
        framed(msgspec.msgpack.encode([None, {}, -1])),
        framed(msgspec.msgpack.encode([None, {}, 1 << 63])),
        framed(msgspec.msgpack.encode([bytes(KEY_MAX + 1), {}, None])),
        framed(msgspec.msgpack.encode([None, {str(number): b"" for number in range(HEADERS_MAX + 1)}, None])),
        framed(msgspec.msgpack.encode([None, {"a": "text"}, None])),
        framed(b"\x93\xc0\x81\xa2\xff\xff\xc4\x00\xc0"),
    ],
)
def test_what_are_no_attributes_is_data(payload: bytes) -> None:
    """A peer that speaks the session protocol itself may send anything to an address that announces attributes."""
    assert split_payload(payload) == (PLAIN, payload)
    batch = Batch(frame(attributed_address(ADDRESS), [payload], [(SENT_US, 1)]), ("x",), Raw())
    (message,) = batch
    assert (message.key, dict(message.headers), message.data, message.time) == (None, {}, payload, time_at(SENT_US))
    assert (batch.keys, batch.payloads, batch.times) == ([None], [payload], [time_at(SENT_US)])


@given(st.binary(max_size=60))
def test_no_bytes_raise(payload: bytes) -> None:
    attributes, data = split_payload(payload)
    assert payload.endswith(data)
    assert attributes is not PLAIN or data == payload


def test_a_codec_sees_only_the_data() -> None:
    good = with_attributes(b'{"a":1}', b"key", None, None)
    batch = Batch(frame(attributed_address(ADDRESS), [good, b"\0\0{"], [(SENT_US, 2)]), ("x",), Json())
    assert (batch[0].data, batch[0].key) == ({"a": 1}, b"key")
    with pytest.raises(CodecError, match="message ann/1#1:5 cannot be decoded"):
        batch[1]


def test_a_frame_without_times_is_of_1970() -> None:
    batch = Batch(frame(ADDRESS, [b"1"], []), ("x",), Raw())
    assert batch[0].time == time_at(0)
