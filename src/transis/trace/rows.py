"""Rows: events as bytes and back. A batch of rows is one msgpack array of (number of the kind, event).

Rules of this file:
1. The table of kinds is append-only: a number never changes its meaning. A field may be added at the end of an event.
2. Decoding checks every type; bytes that are no batch give a TraceError, never another exception.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from transis.trace.events import (
    CheckpointEvent,
    ClientDelivery,
    ClientLeft,
    ClientLife,
    Conf,
    Delivery,
    End,
    Event,
    Fault,
    Gap,
    GroupConf,
    NoteEvent,
    Prefix,
    Refuse,
    Sent,
    Submit,
)
from transis.types.errors import TraceError

KINDS: Final[tuple[type[Event], ...]] = (
    *(Submit, Refuse, Sent, Delivery, Conf, End, Fault, NoteEvent, Gap),
    *(GroupConf, ClientDelivery, ClientLeft, ClientLife),
    *(Prefix, CheckpointEvent),
)
"""A kind's number is its place here. The second row came with schema 2, the third with schema 3."""

NUMBERS: Final[dict[type[Any], int]] = {kind: number for number, kind in enumerate(KINDS)}

_ENCODER: Final = msgspec.msgpack.Encoder()
_BATCH: Final = msgspec.msgpack.Decoder(list[tuple[int, msgspec.Raw]])
_DECODERS: Final = tuple(msgspec.msgpack.Decoder(kind) for kind in KINDS)


def encode_rows(events: Sequence[Event]) -> bytes:
    return _ENCODER.encode([(NUMBERS[type(event)], event) for event in events])


def decode_rows(batch: bytes | memoryview) -> list[Event]:
    """The events of a batch."""
    return [decode_row(number, row) for number, row in split_rows(batch)]


def split_rows(batch: bytes | memoryview) -> list[tuple[int, msgspec.Raw]]:
    """The rows of a batch, each with the number of its kind, not decoded; kinds of a later version are left out, as a reader of
    the version before must."""
    try:
        return [row for row in _BATCH.decode(batch) if 0 <= row[0] < len(_DECODERS)]
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise TraceError(f"no batch of events: {error}") from error


def decode_row(number: int, row: msgspec.Raw) -> Event:
    try:
        return _DECODERS[number].decode(row)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise TraceError(f"no batch of events: {error}") from error
