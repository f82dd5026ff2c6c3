"""The directory of a simulated replica: a journal that only grows, files of snapshots, and what a power cut leaves of them.

1. A transaction is one record of the journal: its length, a checksum, its content. It counts if it is whole.
2. Of what was written and not synced a crash keeps any beginning, byte by byte, so the last record may be torn. Whoever opens the
   directory next cuts that off, and reads all the rest again.
3. Each opening is a new life. A snapshot is a file of its own, which is whole or not there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple, get_args
from zlib import crc32

import msgspec

from transis.prsl.core import Config
from transis.prsl.log import Stored, StoreRecord
from transis.prsl.machine import first_base
from transis.sim.replicas.ledger import STATE_SIZE

HEAD: Final = Struct(">II")
"""Length and checksum of a record."""

_KINDS: Final[tuple[type[StoreRecord], ...]] = get_args(StoreRecord)
_DECODERS: Final = tuple(msgspec.msgpack.Decoder(kind) for kind in _KINDS)
_TRANSACTION: Final = msgspec.msgpack.Decoder(list[tuple[int, msgspec.Raw]])


def encode_transaction(records: Sequence[StoreRecord]) -> bytes:
    body = msgspec.msgpack.encode([(_KINDS.index(type(record)), record) for record in records])
    return HEAD.pack(len(body), crc32(body)) + body


def decode_journal(journal: bytes | bytearray) -> tuple[list[StoreRecord], int]:
    """The records of all whole transactions, and where they end."""
    records: list[StoreRecord] = []
    at = 0
    while len(journal) - at >= HEAD.size:
        length, checksum = HEAD.unpack_from(journal, at)
        body = journal[at + HEAD.size : at + HEAD.size + length]
        if len(body) < length or crc32(body) != checksum:
            break
        records += [_DECODERS[kind].decode(raw) for kind, raw in _TRANSACTION.decode(body)]
        at += HEAD.size + length
    return records, at


class Write(NamedTuple):
    """A transaction that was handed to the disk and is not synced."""

    ticket: int
    records: tuple[StoreRecord, ...]
    content: bytes


class Directory:
    """1. `stored` is what the synced part of the journal says.
    2. `unsynced` is synced in order, and never in part unless there is a crash.
    """

    def __init__(self, home: str, config: Config) -> None:
        self.home = home
        self.config = config
        self.life = 0
        self.torn = 0
        """How often the journal ended within a record when it was opened."""
        self.stored = Stored(first_base(config))
        self.snapshots: dict[int, bytes] = {0: bytes(STATE_SIZE)}
        """The application's state by place."""
        self.unsynced: deque[Write] = deque()
        self._journal = bytearray()

    @property
    def name(self) -> str:
        return self.config.name

    def open(self) -> Stored:
        records, end = decode_journal(self._journal)
        self.torn += end < len(self._journal)
        del self._journal[end:]
        self.stored = Stored(first_base(self.config))
        for record in records:
            self.stored.apply(record)
        self.life += 1
        return self.stored

    def write(self, ticket: int, records: tuple[StoreRecord, ...]) -> None:
        self.unsynced.append(Write(ticket, records, encode_transaction(records)))

    def sync(self, count: int) -> list[int]:
        """The oldest writes are durable; returns their tickets."""
        done = [self.unsynced.popleft() for _ in range(count)]
        for write in done:
            self._journal += write.content
            for record in write.records:
                self.stored.apply(record)
        return [write.ticket for write in done]

    @property
    def unsynced_bytes(self) -> int:
        return sum(len(write.content) for write in self.unsynced)

    def crash(self, kept: int) -> None:
        """Of the writes that were not synced, the first `kept` bytes are on the disk all the same."""
        self._journal += b"".join(write.content for write in self.unsynced)[:kept]
        self.unsynced.clear()
