"""Objects <-> bytes: what a session does to the data of its messages, if anything.

A codec is any object with `encode` and `decode`. Raw is the default and does nothing. Json and MsgPack are checked against a type
when they decode, so that what arrives has the shape that was asked for. Nothing here may ever run code that arrives in a
message: no pickle.
"""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

import msgspec

T = TypeVar("T")


class Codec(Protocol[T]):
    def encode(self, value: T) -> bytes: ...

    def decode(self, data: bytes) -> T:
        """Any exception means that the bytes cannot be decoded; the reader gets a CodecError that names the message."""
        ...


class Raw:
    """Bytes stay bytes."""

    def encode(self, value: bytes) -> bytes:
        return value if type(value) is bytes else bytes(value)

    def decode(self, data: bytes) -> bytes:
        return data


class Json(Generic[T]):
    """JSON of values of one type (anything that msgspec knows: dataclasses, Structs, unions, dicts), Any without one."""

    def __init__(self, kind: type[T] | Any = Any) -> None:
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)
        self._encoder = msgspec.json.Encoder()

    def encode(self, value: T) -> bytes:
        return self._encoder.encode(value)

    def decode(self, data: bytes) -> T:
        return self._decoder.decode(data)


class MsgPack(Generic[T]):
    """The same in msgpack: smaller, faster, and bytes may be inside."""

    def __init__(self, kind: type[T] | Any = Any) -> None:
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(kind)
        self._encoder = msgspec.msgpack.Encoder()

    def encode(self, value: T) -> bytes:
        return self._encoder.encode(value)

    def decode(self, data: bytes) -> T:
        return self._decoder.decode(data)
