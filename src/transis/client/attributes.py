"""What a sender may attach to a message: a key, headers and a time of its own. Carried, not interpreted.

Attributes stand in front of the data, in the payload, so that only clients read them:

    size u16, big-endian | msgpack array: key or nil, {name: value}, event_us or nil | data

1. The address says that payloads begin with attributes (wire/items.py, `has_attributes`). A message without any costs nothing.
2. When a message was sent is told once for all that leave together (sessions/frames.py, Send); only a time that the application
   gives stands here.
3. A sender that gives too much is told which argument is wrong. Whatever a peer sends can be read: a payload that does not begin
   with attributes is data.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Annotated, Final, TypedDict, TypeVar

import msgspec

from transis.types.errors import UsageError
from transis.types.limits import EVENT_US_MAX, HEADERS_BYTES_MAX, HEADERS_MAX, KEY_MAX

Headers = Mapping[str, bytes]


class Attached(TypedDict, total=False):
    """What `send` attaches to a message."""

    key: bytes | None
    headers: Headers | None
    time: datetime | None


class AttachedToMany(TypedDict, total=False):
    """What `send_many` attaches: keys and times one for each message, headers too or the same for all."""

    keys: Sequence[bytes | None] | None
    headers: Headers | Sequence[Headers | None] | None
    times: Sequence[datetime | None] | None


NO_HEADERS: Final[Headers] = MappingProxyType({})

_SIZE: Final = struct.Struct(">H")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

_Headers = Annotated[dict[str, bytes], msgspec.Meta(max_length=HEADERS_MAX)]


class Attributes(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`event_us` is the time that the application gave, or None."""

    key: Annotated[bytes, msgspec.Meta(max_length=KEY_MAX)] | None
    headers: _Headers
    event_us: Annotated[int, msgspec.Meta(ge=0, le=EVENT_US_MAX)] | None


PLAIN: Final = Attributes(None, {}, None)
"""Those of a message that has none."""

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Attributes)


# --- sending ----------------------------------------------------------------------------------------------------------


def with_attributes(data: bytes, key: bytes | None, headers: Headers | None, time: datetime | None) -> bytes:
    """The payload of a message with these attributes. Raises UsageError about one that cannot be carried."""
    attributes = Attributes(_checked_key(key), _checked_headers(headers), None if time is None else event_us_of(time))
    encoded = _encoder.encode(attributes)
    return b"".join((_SIZE.pack(len(encoded)), encoded, data))


def all_with_attributes(
    datas: Sequence[bytes],
    keys: Sequence[bytes | None] | None,
    headers: Headers | Sequence[Headers | None] | None,
    times: Sequence[datetime | None] | None,
) -> list[bytes]:
    """The payloads of many messages. Headers may be the same for all; keys and times are one for each."""
    count = len(datas)
    of_each = (headers,) * count if isinstance(headers, Mapping) else _one_each("headers", headers, count)
    columns = (_one_each("keys", keys, count), of_each, _one_each("times", times, count))
    return list(map(with_attributes, datas, *columns))


T = TypeVar("T")


def _one_each(name: str, given: Sequence[T] | None, count: int) -> Sequence[T | None]:
    if given is None:
        return (None,) * count
    if isinstance(given, bytes | str | Mapping) or not isinstance(given, Sequence):
        raise UsageError(f"{name} = {given!r}: give a list with one for each of the {count} messages")
    if len(given) != count:
        raise UsageError(f"{name} has {len(given)} entries for {count} messages: give one for each, None where there is none")
    return given


def _checked_key(key: bytes | None) -> bytes | None:
    if key is None:
        return None
    if not isinstance(key, bytes | bytearray | memoryview):
        raise UsageError(f"key = {key!r}: must be bytes")
    if len(key) > KEY_MAX:
        raise UsageError(f"key has {len(key)} bytes: at most {KEY_MAX} are allowed; put what is longer into the data")
    return bytes(key)


def _checked_headers(headers: Headers | None) -> dict[str, bytes]:
    if headers is None:
        return {}
    if not isinstance(headers, Mapping):
        raise UsageError(f"headers = {headers!r}: must be a mapping of names to bytes")
    if len(headers) > HEADERS_MAX:
        raise UsageError(f"headers has {len(headers)} entries: at most {HEADERS_MAX} are allowed")
    size = sum(_header_size(name, value) for name, value in headers.items())
    if size > HEADERS_BYTES_MAX:
        raise UsageError(f"headers have {size} bytes together: at most {HEADERS_BYTES_MAX} are allowed; put more into the data")
    return {name: bytes(value) for name, value in headers.items()}


def _header_size(name: object, value: object) -> int:
    if not isinstance(name, str) or not name:
        raise UsageError(f"headers has the name {name!r}: must be text, and not empty")
    if not isinstance(value, bytes | bytearray | memoryview):
        raise UsageError(f"headers[{name!r}] = {value!r}: must be bytes")
    try:
        return len(name.encode()) + len(value)
    except UnicodeEncodeError:
        raise UsageError(f"headers has the name {name!r}: must be text that UTF-8 can encode") from None


# --- receiving --------------------------------------------------------------------------------------------------------


def split_payload(payload: bytes) -> tuple[Attributes, bytes]:
    """The attributes and the data of a payload that should begin with attributes; if it does not, all of it is data."""
    if len(payload) < _SIZE.size:
        return PLAIN, payload
    end = _SIZE.size + _SIZE.unpack_from(payload)[0]
    if end > len(payload):
        return PLAIN, payload
    try:
        attributes = _decoder.decode(memoryview(payload)[_SIZE.size : end])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return PLAIN, payload
    return attributes, payload[end:]


# --- times ------------------------------------------------------------------------------------------------------------


def event_us_of(time: object) -> int:
    """Microseconds since 1970."""
    if not isinstance(time, datetime) or time.utcoffset() is None:
        raise UsageError(f"time = {time!r}: must be a datetime with a time zone, as from datetime.now(UTC)")
    event_us = (time - _EPOCH) // _MICROSECOND
    if event_us < 0:
        raise UsageError(f"time = {time}: must be 1970 or later")
    return event_us


def time_at(event_us: int) -> datetime:
    """The time in UTC; 1970 for messages of which nobody said when they were sent."""
    return _EPOCH + timedelta(microseconds=min(event_us, EVENT_US_MAX))


def event_us_at(times: Sequence[tuple[int, int]], rank: int) -> int:
    """When the message with this rank in a frame was sent."""
    for event_us, count in times:
        if rank < count:
            return event_us
        rank -= count
    return 0
