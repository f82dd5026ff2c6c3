"""What an application takes out of its streams: messages one by one, or a frame of them as one batch.

A Batch makes no object per message unless somebody iterates over it; its payloads are there as they came.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

from transis.client.codecs import Codec
from transis.sessions.frames import Stream
from transis.types.errors import CodecError
from transis.types.ids import MessageId, Place, ProcessId, Service, Stretch, ViewId
from transis.types.views import GroupView
from transis.types.views import View as NodeView

T = TypeVar("T")

View = GroupView
"""A group view, regular or transitional, as the stream of its group has it."""

Configuration = NodeView
"""A configuration of the node, regular or transitional: which nodes are together. Only `everything()` has them."""


class Message(NamedTuple, Generic[T]):
    """`groups` are those of this stream through which it came, none if it is private; `view` is the configuration in force."""

    sender: ProcessId
    data: T
    service: Service
    groups: tuple[str, ...]
    counter: int
    view: ViewId
    place: Place

    @property
    def id(self) -> MessageId:
        return MessageId(self.sender, self.counter)


class Batch(Generic[T]):
    """Consecutive messages of one sender with one address and service, as one frame brought them."""

    __slots__ = ("_codec", "_frame", "_places", "_skip", "groups")

    def __init__(self, frame: Stream, groups: tuple[str, ...], codec: Codec[T], skip: int = 0) -> None:
        self.groups = groups
        self._frame = frame
        self._codec = codec
        self._skip = skip
        self._places: list[Place] | None = None

    @property
    def sender(self) -> ProcessId:
        return self._frame.sender

    @property
    def service(self) -> Service:
        return self._frame.service

    @property
    def view(self) -> ViewId:
        return self._frame.view

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
        """Not decoded."""
        return self._frame.payloads[self._skip :] if self._skip else self._frame.payloads

    @property
    def stretches(self) -> list[Stretch]:
        """(seq, index, count): so many consecutive messages have the places (seq, index), (seq, index + 1) and so on."""
        return _behind(self._skip, self._frame.stretches)

    def __len__(self) -> int:
        return len(self._frame.payloads) - self._skip

    def __getitem__(self, rank: int) -> Message[T]:
        if not 0 <= rank < len(self):
            raise IndexError(rank)
        rank += self._skip
        frame = self._frame
        if self._places is None:
            self._places = [Place(seq, index + step) for seq, index, count in frame.stretches for step in range(count)]
        counter = frame.first + rank
        data = self._decode(frame.payloads[rank], counter)
        return Message(frame.sender, data, frame.service, self.groups, counter, frame.view, self._places[rank])

    def __iter__(self) -> Iterator[Message[T]]:
        return map(self.__getitem__, range(len(self)))

    def after(self, count: int) -> Batch[T]:
        """The rest, without the first so many."""
        return Batch(self._frame, self.groups, self._codec, self._skip + count)

    def _decode(self, payload: bytes, counter: int) -> T:
        try:
            return self._codec.decode(payload)
        except Exception as error:
            message = MessageId(self._frame.sender, counter)
            raise CodecError(f"message {message} cannot be decoded: {error}") from error

    def __repr__(self) -> str:
        return f"<Batch of {len(self)} from {self.sender}:{self.first}>"


def _behind(skip: int, stretches: list[Stretch]) -> list[Stretch]:
    """Without the first so many messages."""
    if not skip:
        return stretches
    rest: list[Stretch] = []
    for seq, index, count in stretches:
        gone = min(skip, count)
        skip -= gone
        if gone < count:
            rest.append((seq, index + gone, count - gone))
    return rest
