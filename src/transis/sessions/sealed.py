"""A sealed stream of bytes between two sides that share the cluster's key: for sessions over TCP.

Each side first sends its greeting: "TsS" | version u8 | 32 random bytes. Each direction gets a key of its own, derived from both
randoms and the cluster's key (HKDF). Then come records: length u32 | AES-GCM of the bytes, with the number of the record as the
nonce and the length authenticated. Both sides send an empty record as soon as they can, so that a wrong key is noticed first of
all.

1. A nonce is never used twice: the keys are new for every connection, and the records are counted.
2. Records cannot be left out, repeated, reordered, taken from another connection or sent back to where they came from. The end
   of the stream is not sealed: the frames inside announce it (Bye, Goodbye).
3. Any bytes become plaintext or a rejection; after a rejection the stream is over.
4. There is no forward secrecy: anybody who learns the key can read what was recorded before.
"""

from __future__ import annotations

import struct
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from transis.types.errors import ConfigError, InternalError, Rejection, UsageError
from transis.wire.envelope import KEY_SIZE, SEAL_SIZE

STREAM_VERSION: Final = 1
RANDOM_SIZE: Final = 32
RECORD_MAX: Final = 256 * 1024
"""Plaintext of one record: all that a receiver must hold before it knows that the bytes are good."""
RECORDS_MAX: Final = 1 << 62

_HEAD: Final = b"TsS" + bytes([STREAM_VERSION])
GREETING_SIZE: Final = len(_HEAD) + RANDOM_SIZE
_LENGTH: Final = struct.Struct(">I")
_TO_NODE: Final = b"transis session to node"
_TO_CLIENT: Final = b"transis session to client"


class SealedStream:
    """One side of one connection. `random` are 32 bytes that nobody can guess, new for every connection.

    Send `greeting` first. When `feed` has made `is_open` true, send `seal(b"")`, and then everything else sealed.
    """

    def __init__(self, key: bytes, random: bytes, *, is_client: bool) -> None:
        if len(key) != KEY_SIZE:
            raise ConfigError("key", f"{len(key)} bytes", f"a cluster key has exactly {KEY_SIZE} bytes")
        assert len(random) == RANDOM_SIZE, f"{RANDOM_SIZE} random bytes, not {len(random)}"
        self.greeting = _HEAD + random
        self._key = key
        self._random = random
        self._is_client = is_client
        self._sealer: AESGCM | None = None
        self._opener: AESGCM | None = None
        self._sealed = self._opened = 0
        self._pending = bytearray()
        self._position = 0

    @property
    def is_open(self) -> bool:
        """Whether the other side's greeting was read."""
        return self._sealer is not None

    @property
    def is_confirmed(self) -> bool:
        """Whether the other side has shown that it has the key."""
        return self._opened > 0

    def seal(self, data: bytes | bytearray | memoryview) -> bytes:
        """The records that carry these bytes; one empty record if there are none."""
        if self._sealer is None:
            raise UsageError("nothing can be sealed before the other side's greeting was read")
        with memoryview(data) as whole:
            pieces = [whole[start : start + RECORD_MAX] for start in range(0, len(whole), RECORD_MAX)] or [whole]
            return b"".join(part for piece in pieces for part in self._record(self._sealer, piece))

    def _record(self, sealer: AESGCM, piece: memoryview) -> tuple[bytes, bytes]:
        if self._sealed >= RECORDS_MAX:
            raise InternalError("the records of a connection are used up: a nonce would repeat; connect again")
        length = _LENGTH.pack(len(piece) + SEAL_SIZE)
        sealed = sealer.encrypt(_nonce(self._sealed), piece, length)
        self._sealed += 1
        return length, sealed

    @property
    def waiting(self) -> int:
        """Bytes that were not opened yet."""
        return len(self._pending) - self._position

    def add(self, data: bytes | bytearray | memoryview) -> Rejection | None:
        """Bytes of the other side. Its greeting is read at once, records when `next` is called."""
        self._drop_read()
        self._pending += data
        return self._greet() if self._opener is None else None

    def next(self) -> bytes | Rejection | None:
        """What the next record says; None if it is not whole yet."""
        start, have = self._position + _LENGTH.size, len(self._pending)
        if self._opener is None or start > have:
            return None
        (length,) = _LENGTH.unpack_from(self._pending, self._position)
        if not SEAL_SIZE <= length <= RECORD_MAX + SEAL_SIZE:
            return Rejection("record", f"a record of {length} bytes; {SEAL_SIZE} to {RECORD_MAX + SEAL_SIZE} are allowed")
        if start + length > have:
            return None
        return self._open_record(self._opener, start, start + length)

    def feed(self, data: bytes | bytearray | memoryview) -> bytes | Rejection:
        """What the bytes say, as far as records are whole."""
        rejection = self.add(data)
        if rejection is not None:
            return rejection
        opened: list[bytes] = []
        while (record := self.next()) is not None:
            if isinstance(record, Rejection):
                return record
            opened.append(record)
        return b"".join(opened)

    def _greet(self) -> Rejection | None:
        head = self._pending[: len(_HEAD)]
        if not _HEAD.startswith(head):
            return Rejection("greeting", "not a sealed session of Transis, or of another version")
        if len(self._pending) >= GREETING_SIZE:
            theirs = bytes(self._pending[len(_HEAD) : GREETING_SIZE])
            del self._pending[:GREETING_SIZE]
            self._derive(theirs)
        return None

    def _derive(self, theirs: bytes) -> None:
        salt = self._random + theirs if self._is_client else theirs + self._random
        to_node, to_client = (
            AESGCM(HKDF(algorithm=SHA256(), length=KEY_SIZE, salt=salt, info=info).derive(self._key))
            for info in (_TO_NODE, _TO_CLIENT)
        )
        self._sealer, self._opener = (to_node, to_client) if self._is_client else (to_client, to_node)

    def _open_record(self, opener: AESGCM, start: int, end: int) -> bytes | Rejection:
        with memoryview(self._pending) as view:
            record, length = bytes(view[start:end]), bytes(view[self._position : start])
        try:
            opened = opener.decrypt(_nonce(self._opened), record, length)
        except InvalidTag:
            return Rejection("seal", "the seal does not fit: another key, or the bytes were changed on their way")
        self._opened += 1
        self._position = end
        return opened

    def _drop_read(self) -> None:
        if self._position:
            del self._pending[: self._position]
            self._position = 0


def _nonce(number: int) -> bytes:
    return number.to_bytes(12)
