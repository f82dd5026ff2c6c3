"""What comes out of streams: Message, Batch, View, Configuration, Position; and codecs for the data inside messages.

1. A Batch is one frame of the node. It creates no object per message until somebody iterates over it.
2. A Position says where an application stands in the stream of a group: the group view in force, and how many agreed and safe
   messages of the group came since. All members that installed that view and moved on together count the same messages, on either
   engine and however the frames are cut. Basic and causal messages are not counted, because members may have them at different
   places. Nothing is computed before somebody asks.
3. A codec is any object with `encode` and `decode`. Json and MsgPack check what they decode against a type, so that what arrives
   has the expected shape. Nothing here may ever run code that arrives in a message: no pickle.
4. `print` makes one line of everything here, in which long data are cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar, overload

import msgspec

from transis.client.attributes import NO_HEADERS, PLAIN, Attributes, Headers, event_us_at, split_payload, time_at
from transis.sessions.frames import Stream
from transis.types.errors import CodecError, UsageError
from transis.types.ids import MessageId, PhaseName, Place, ProcessId, Service, Stretch, ViewId
from transis.types.views import GroupView as View
from transis.types.views import GroupViewId
from transis.types.views import View as Configuration
from transis.wire.items import has_attributes

__all__ = ["Batch", "Codec", "Configuration", "Json", "Message", "MsgPack", "Passed", "Position", "Raw", "View", "beginning"]

T = TypeVar("T")


# --- events -----------------------------------------------------------------------------------------------------------


class RunHeader(NamedTuple):
    """What the messages of a frame share, without their data: keeping one message does not keep the others in memory."""

    sender: ProcessId
    service: Service
    groups: tuple[str, ...]
    view: ViewId
    first: int
    stretches: Sequence[Stretch]
    times: Sequence[tuple[int, int]]


def place_in(stretches: Iterable[Stretch], rank: int) -> Place:
    """The place of the message with this rank."""
    for seq, index, count in stretches:
        if rank < count:
            return Place(seq, index + rank)
        rank -= count
    raise AssertionError("every message of a frame has a place")


class Message(Generic[T]):
    """One message, as all its receivers see it."""

    __slots__ = ("_attributes", "_header", "counter", "data")
    __match_args__ = ("sender", "data", "service", "groups", "counter", "view", "place", "key", "headers", "time")

    def __init__(self, header: RunHeader, counter: int, data: T, attributes: Attributes = PLAIN) -> None:
        self._header = header
        self._attributes = attributes
        self.counter: int = counter
        self.data: T = data

    @property
    def sender(self) -> ProcessId:
        """The process that sent it."""
        return self._header.sender

    @property
    def service(self) -> Service:
        """The guarantee it was sent with."""
        return self._header.service

    @property
    def groups(self) -> tuple[str, ...]:
        """The names of this stream that it was sent to; none if it is private."""
        return self._header.groups

    @property
    def view(self) -> ViewId:
        """The configuration in force when it was delivered, regular or transitional."""
        return self._header.view

    @property
    def phase(self) -> PhaseName:
        """`regular` or `transitional`: the kind of that configuration. For a safe message, who is known to have it."""
        return self._header.view.phase

    @property
    def place(self) -> Place:
        """Where it stands in the total order of its ring."""
        return place_in(self._header.stretches, self.counter - self._header.first)

    @property
    def id(self) -> MessageId:
        """Its sender and its counter, which together no other message has."""
        return MessageId(self.sender, self.counter)

    @property
    def key(self) -> bytes | None:
        """The key that its sender gave it, if any."""
        return self._attributes.key

    @property
    def headers(self) -> Headers:
        """The headers that its sender gave it; empty if none."""
        return self._attributes.headers or NO_HEADERS

    @property
    def time(self) -> datetime:
        """When it was sent, in whole milliseconds of its sender's wall clock, or the time that its sender gave it. In UTC."""
        return time_at(_event_us(self._attributes, self._header.times, self.counter - self._header.first))

    def _compared(self) -> tuple[object, ...]:
        return self.counter, self.data, self.place, self.time, self._attributes, *self._header[:4]

    def __eq__(self, other: object) -> bool:
        return self._compared() == other._compared() if isinstance(other, Message) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)

    def __str__(self) -> str:
        return f"{self.id} {_addressed(self)}: {_in_one_line(self.data)}"

    def __repr__(self) -> str:
        return f"<Message {self}>"


DATA_SHOWN: Final = 60
"""Characters of a message's data in a line."""


def _in_one_line(data: object) -> str:
    """Its `repr`, cut; of bytes and text no more is looked at than is shown."""
    if isinstance(data, bytes | str):
        size = f" ({len(data):,} {'bytes' if isinstance(data, bytes) else 'characters'})"
        return _cut(repr(data[: DATA_SHOWN + 1]), size)
    return _cut(" ".join(repr(data).split()), "")


def _cut(words: str, size: str) -> str:
    return words if len(words) <= DATA_SHOWN else f"{words[:DATA_SHOWN]}...{size}"


def _addressed(what: Message[Any] | Batch[Any]) -> str:
    """`to orders (agreed)`, `private (safe)`."""
    to = f"to {' '.join(what.groups)}" if what.groups else "private"
    return f"{to} ({what.service.name.lower()})"


def _event_us(attributes: Attributes, times: Sequence[tuple[int, int]], rank: int) -> int:
    own = attributes.event_us
    return event_us_at(times, rank) if own is None else own


class Batch(Generic[T]):
    """Consecutive messages of one sender with one address and one service, as they arrived in one frame."""

    __slots__ = ("_codec", "_frame", "_header", "_skip", "_split", "groups", "has_attributes")

    def __init__(self, frame: Stream, groups: tuple[str, ...], codec: Codec[T], skip: int = 0) -> None:
        self.groups: tuple[str, ...] = groups
        self.has_attributes: bool = has_attributes(frame.address)
        """Whether any of them may have a key, headers or a time of its own."""
        self._frame = frame
        self._codec = codec
        self._skip = skip
        self._header: RunHeader | None = None
        self._split: list[tuple[Attributes, bytes]] | None = None

    @property
    def sender(self) -> ProcessId:
        """The process that sent them."""
        return self._frame.sender

    @property
    def service(self) -> Service:
        """The guarantee they were sent with."""
        return self._frame.service

    @property
    def view(self) -> ViewId:
        """The configuration in force when they were delivered, regular or transitional."""
        return self._frame.view

    @property
    def phase(self) -> PhaseName:
        """`regular` or `transitional`: the kind of that configuration. For safe messages, who is known to have them."""
        return self._frame.view.phase

    @property
    def first(self) -> int:
        """The counter of the first message; the others follow one by one."""
        return self._frame.first + self._skip

    @property
    def sent_us(self) -> int:
        """The sender's clock when the first message of the frame got its place in the order."""
        return self._frame.sent_us

    @property
    def payloads(self) -> list[bytes]:
        """The data of the messages, not decoded."""
        if self.has_attributes:
            return [data for _, data in self._parted()]
        return self._frame.payloads[self._skip :] if self._skip else self._frame.payloads

    @property
    def keys(self) -> list[bytes | None]:
        """The key of each message."""
        return [one.key for one, _ in self._parted()] if self.has_attributes else [None] * len(self)

    @property
    def headers(self) -> list[Headers]:
        """The headers of each message."""
        return [one.headers or NO_HEADERS for one, _ in self._parted()] if self.has_attributes else [NO_HEADERS] * len(self)

    @property
    def times(self) -> list[datetime]:
        """When each message was sent, or the time that its sender gave it, in UTC."""
        return [time for event_us, count in self.event_us for time in [time_at(event_us)] * count]

    @property
    def event_us(self) -> list[tuple[int, int]]:
        """The same in microseconds since 1970: (event_us, count) for `count` consecutive messages."""
        if self.has_attributes:
            times = self._frame.times
            return [(_event_us(one, times, rank), 1) for rank, (one, _) in enumerate(self._parted(), self._skip)]
        return _times_behind(self._skip, self._frame.times)

    def _parted(self) -> list[tuple[Attributes, bytes]]:
        """Attributes and data of the messages, which begin with attributes."""
        if self._split is None:
            self._split = list(map(split_payload, self._frame.payloads[self._skip :]))
        return self._split

    @property
    def stretches(self) -> list[Stretch]:
        """(seq, index, count): `count` consecutive messages have the places (seq, index), (seq, index + 1) and so on."""
        return _behind(self._skip, self._frame.stretches)

    def __len__(self) -> int:
        return len(self._frame.payloads) - self._skip

    def __getitem__(self, rank: int) -> Message[T]:
        frame, header = self._frame, self._header
        rank += self._skip
        if not self._skip <= rank < len(frame.payloads):
            raise IndexError(rank - self._skip)
        if header is None:
            shared = (frame.sender, frame.service, self.groups, frame.view, frame.first, frame.stretches, frame.times)
            header = self._header = RunHeader(*shared)
        counter = frame.first + rank
        if self.has_attributes:
            attributes, data = self._parted()[rank - self._skip]
            return Message(header, counter, self._decode(data, counter), attributes)
        return Message(header, counter, self._decode(frame.payloads[rank], counter))

    def __iter__(self) -> Iterator[Message[T]]:
        return map(self.__getitem__, range(len(self)))

    def after(self, count: int) -> Batch[T]:
        """The rest of the batch, without its first `count` messages."""
        return Batch(self._frame, self.groups, self._codec, self._skip + count)

    def _decode(self, payload: bytes, counter: int) -> T:
        try:
            return self._codec.decode(payload)
        except Exception as error:
            message = MessageId(self._frame.sender, counter)
            raise CodecError(f"message {message} cannot be decoded: {error}") from error

    def __str__(self) -> str:
        last = f"..{self.first + len(self) - 1}" if len(self) > 1 else ""
        return f"{MessageId(self.sender, self.first)}{last} {_addressed(self)}: {_messages(len(self))}"

    def __repr__(self) -> str:
        return f"<Batch of {len(self)} from {self.sender}:{self.first}>"


def _messages(count: int) -> str:
    return f"{count} message{'s' if count != 1 else ''}"


def _behind(skip: int, stretches: list[Stretch]) -> list[Stretch]:
    """The stretches without their first `skip` messages."""
    if not skip:
        return stretches
    rest: list[Stretch] = []
    for seq, index, count in stretches:
        gone = min(skip, count)
        skip -= gone
        if gone < count:
            rest.append((seq, index + gone, count - gone))
    return rest


def _times_behind(skip: int, times: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The times without those of the first `skip` messages."""
    if not skip:
        return times
    rest: list[tuple[int, int]] = []
    for event_us, count in times:
        gone = min(skip, count)
        skip -= gone
        if gone < count:
            rest.append((event_us, count - gone))
    return rest


# --- positions --------------------------------------------------------------------------------------------------------


class Position(NamedTuple):
    """Behind the `count`-th counted message since the view. The other fields name that message, or are None, 0 and (0, 0)."""

    view: GroupViewId
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody wants of a position
    sender: ProcessId | None = None
    counter: int = 0
    place: Place = Place(0, 0)

    def __str__(self) -> str:
        if self.sender is None:
            return f"the beginning of {self.view}"
        return f"{_messages(self.count)} into {self.view}, behind {MessageId(self.sender, self.counter)} at {self.place}"


class Passed(NamedTuple):
    """The position before a frame, and the frame, of which the application may have taken only a part."""

    before: Position
    frame: Stream | None = None

    def then(self, frame: Stream) -> Passed:
        """This frame follows everything that was passed."""
        return Passed(self.at(), frame)

    def at(self, rank: int | None = None) -> Position:
        """The position behind the first `rank` messages of the frame, or behind all of it."""
        frame = self.frame
        if frame is None or not _is_counted(frame):
            return self.before
        taken = len(frame.payloads) if rank is None else rank
        if not taken:
            return self.before
        counter = frame.first + taken - 1
        return Position(self.before.view, self.before.count + taken, frame.sender, counter, _place(frame, taken - 1))

    def is_due(self, every: int, rank: int | None = None) -> bool:
        """Whether every member that counts by `every` stops behind the last message taken."""
        if every < 1:
            raise UsageError(f"every = {every}: must be 1 or more")
        if self.frame is None or not _is_counted(self.frame):
            return False
        return self.at(rank).count % every == 0


def beginning(view: GroupViewId) -> Passed:
    return Passed(Position(view, 0))


def _is_counted(frame: Stream) -> bool:
    return frame.service >= Service.AGREED


def _place(frame: Stream, rank: int) -> Place:
    """The place of the message with this rank in the frame; asked for the last of them most of the time."""
    seq, index, count = frame.stretches[-1]
    rank_in_last = rank - (len(frame.payloads) - count)
    return Place(seq, index + rank_in_last) if rank_in_last >= 0 else place_in(frame.stretches, rank)


# --- codecs -----------------------------------------------------------------------------------------------------------


class Codec(Protocol[T]):
    """What turns an application's values into the bytes of messages and back: any object with these two methods."""

    def encode(self, value: T) -> bytes:
        """The bytes of a `value` that is sent; any exception goes to the caller of `send`."""
        ...

    def decode(self, data: bytes) -> T:
        """Raise any exception if the bytes cannot be decoded; the reader gets a CodecError that names the message."""
        ...


class Raw:
    """Bytes stay bytes: the codec of a session that was given no other."""

    def encode(self, value: bytes) -> bytes:
        """The `value` itself: bytes, or what has a buffer of bytes, such as a bytearray."""
        return value if type(value) is bytes else _buffered(value)

    def decode(self, data: bytes) -> bytes:
        """The `data` as they are."""
        return data

    def __repr__(self) -> str:
        return "Raw()"


def _buffered(value: object) -> bytes:
    try:
        return bytes(memoryview(value))  # type: ignore[arg-type]  # Anything may come; what is no buffer raises.
    except TypeError:
        kind = type(value).__name__
        way = "write text.encode()" if isinstance(value, str) else "encode it"
        raise UsageError(
            f"{_in_one_line(value)} is of type {kind}, and this session sends bytes: {way}, "
            "or give a codec where you connect: connect(codec=transis.Json())"
        ) from None


class Json(Generic[T]):
    """JSON of values of the type `kind`, such as a dataclass, a Struct, a union, a dict; without it, of any value."""

    @overload
    def __init__(self, kind: type[T]) -> None: ...
    @overload
    def __init__(self: Json[Any], kind: Any = Any) -> None: ...
    def __init__(self, kind: Any = Any) -> None:
        self._kind = kind
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)
        self._encoder = msgspec.json.Encoder()

    def encode(self, value: T) -> bytes:
        """The `value` in JSON."""
        return self._encoder.encode(value)

    def decode(self, data: bytes) -> T:
        """The value in `data`; raises if it is not of this codec's type."""
        return self._decoder.decode(data)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'' if self._kind is Any else getattr(self._kind, '__name__', self._kind)})"


class MsgPack(Generic[T]):
    """Like Json, in msgpack: smaller, faster, and values may contain bytes. `kind` is the type of the values."""

    @overload
    def __init__(self, kind: type[T]) -> None: ...
    @overload
    def __init__(self: MsgPack[Any], kind: Any = Any) -> None: ...
    def __init__(self, kind: Any = Any) -> None:
        self._kind = kind
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(kind)
        self._encoder = msgspec.msgpack.Encoder()

    def encode(self, value: T) -> bytes:
        """The `value` in msgpack."""
        return self._encoder.encode(value)

    def decode(self, data: bytes) -> T:
        """The value in `data`; raises if it is not of this codec's type."""
        return self._decoder.decode(data)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'' if self._kind is Any else getattr(self._kind, '__name__', self._kind)})"
