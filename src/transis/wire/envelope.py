"""The outer envelope of every datagram, and its seal.

Big-endian layout, 36 bytes: magic "Ts" | version u8 | flags u8 | cluster u64 | transmitter 16 bytes | counter u64.
Then the inner body, then a 16-byte AES-GCM tag if flag bit 0 says so.

1. The envelope belongs to the *transmitter*, which need not be the author of the body: a node that retransmits for another
   seals the datagram itself. The body inside is immutable.
2. A nonce is never reused: the key is derived for one (name, incarnation, boot) and the counter only grows.
3. A node with a key accepts no plaintext, and a node without one accepts nothing sealed: there is no downgrade.
4. The 36 bytes are authenticated with the body, so a sealed datagram cannot be moved to another cluster or sender.
5. Datagrams that the kernel handed over in one piece (UDP GRO) stay in one piece (`Segments`) until somebody needs them apart: a
   whole burst is checked and read without a copy. All have the same length but the last, which may be shorter.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from transis.types.errors import ConfigError, InternalError, Rejection
from transis.types.ids import NodeId
from transis.types.limits import MEMBERS_MAX

# --- segments ---------------------------------------------------------------------------------------------------------


class Segments:
    """Several datagrams in one piece, each of `size` bytes but the last, which may be shorter."""

    __slots__ = ("content", "size")

    def __init__(self, content: bytes, size: int) -> None:
        assert 0 < size < len(content), f"{len(content)} bytes are not several datagrams of {size}"
        self.content = content
        self.size = size

    def __len__(self) -> int:
        return (len(self.content) + self.size - 1) // self.size

    def __iter__(self) -> Iterator[bytes]:
        content, size = self.content, self.size
        return iter([content[start : start + size] for start in range(0, len(content), size)])


Arrival = bytes | Segments
"""What one read of a socket brings: a datagram, or several in one piece."""


def apart(arrivals: Iterable[Arrival]) -> list[bytes]:
    """All datagrams, one by one."""
    found: list[bytes] = []
    for arrival in arrivals:
        if isinstance(arrival, Segments):
            found += arrival
        else:
            found.append(arrival)
    return found


# --- envelope ---------------------------------------------------------------------------------------------------------

WIRE_VERSION: Final = 1
WIRE_VERSION_MIN: Final = 1
MAGIC: Final = b"Ts"
FLAG_SEALED: Final = 1
KEY_SIZE: Final = 32
SEAL_SIZE: Final = 16
COUNTER_END: Final = (1 << 64) - 1
KEYS_MAX: Final = 4 * MEMBERS_MAX
"""Derived keys an opener remembers: a full ring and its strangers, each through a few lives."""

_PREFIX: Final = struct.Struct(">2sBBQ")
_REST: Final = struct.Struct(">16sQ")
ENVELOPE_SIZE: Final = _PREFIX.size + _REST.size
_TAG_END: Final = _PREFIX.size + 16
_NONCE_HEAD: Final = bytes(4)


@lru_cache(maxsize=KEYS_MAX)
def transmitter_tag(node: NodeId) -> bytes:
    """16 bytes that stand for one life of one node. The name is length-prefixed, so no two nodes encode alike."""
    name = node.name.encode()
    return sha256(struct.pack(">H", len(name)) + name + struct.pack(">QQ", node.incarnation, node.boot)).digest()[:16]


def transmitter_of(datagram: bytes) -> bytes:
    return datagram[_PREFIX.size : _TAG_END]


def counter_of(datagram: bytes) -> int:
    """The transmitter's counter in a datagram that was opened."""
    return int.from_bytes(datagram[_TAG_END:ENVELOPE_SIZE])


def cluster_number(cluster: str) -> int:
    return int.from_bytes(sha256(cluster.encode()).digest()[:8])


def _prefix(cluster: str, key: bytes | None) -> bytes:
    flags = 0 if key is None else FLAG_SEALED
    return _PREFIX.pack(MAGIC, WIRE_VERSION, flags, cluster_number(cluster))


def _check_key(key: bytes | None) -> None:
    if key is not None and len(key) != KEY_SIZE:
        raise ConfigError("key", f"{len(key)} bytes", f"a cluster key has exactly {KEY_SIZE} bytes")


def _cipher(key: bytes, transmitter: bytes) -> AESGCM:
    derivation = HKDF(algorithm=SHA256(), length=KEY_SIZE, salt=None, info=b"transis seal" + transmitter)
    return AESGCM(derivation.derive(key))


class Sealer:
    """Puts every body a node sends into an envelope of its own, sealed when the cluster has a key."""

    __slots__ = ("_cipher", "_counter", "_prefix")

    def __init__(self, cluster: str, node: NodeId, key: bytes | None, *, sent: int = 0) -> None:
        _check_key(key)
        tag = transmitter_tag(node)
        self._prefix = _prefix(cluster, key) + tag
        self._cipher = None if key is None else _cipher(key, tag)
        self._counter = sent

    @property
    def sent(self) -> int:
        return self._counter

    def seal_all(self, bodies: Sequence[bytes | memoryview]) -> list[bytes]:
        """Seal a burst at a time."""
        if self._cipher is not None or self._counter + len(bodies) > COUNTER_END:
            return list(map(self.seal, bodies))
        prefix, first = self._prefix, self._counter + 1
        self._counter += len(bodies)
        return [prefix + counter.to_bytes(8) + body for counter, body in enumerate(bodies, first)]

    def seal(self, body: bytes | memoryview) -> bytes:
        if self._counter >= COUNTER_END:
            raise InternalError("the send counter is used up: a nonce would repeat; restart the node for a new boot id")
        self._counter += 1
        counter = self._counter.to_bytes(8)
        envelope = self._prefix + counter
        if self._cipher is None:
            return envelope + body
        return envelope + self._cipher.encrypt(_NONCE_HEAD + counter, body, envelope)


class Opener:
    """Takes envelopes off. A transmitter's key is remembered only after one of its datagrams could be opened.

    So a flood of forged transmitters costs time but never pushes a real member's key out.
    """

    __slots__ = ("_ciphers", "_key", "_prefix")

    def __init__(self, cluster: str, key: bytes | None) -> None:
        _check_key(key)
        self._prefix = _prefix(cluster, key)
        self._key = key
        self._ciphers: OrderedDict[bytes, AESGCM] = OrderedDict()

    def opens(self, segments: Segments) -> bool:
        """Are all of them plaintext of one transmitter of this cluster? Then each body begins after ENVELOPE_SIZE bytes."""
        content, size = segments.content, segments.size
        prefix = self._prefix + transmitter_of(content)
        return (
            self._key is None
            and (len(content) - 1) % size >= ENVELOPE_SIZE
            and False not in [content.startswith(prefix, start) for start in range(0, len(content), size)]
        )

    def open(self, datagram: bytes) -> tuple[bytes, bytes] | Rejection:
        """(transmitter, body), or why the datagram is rejected."""
        if len(datagram) < ENVELOPE_SIZE:
            return Rejection("length", f"{len(datagram)} bytes are shorter than an envelope")
        if datagram[: _PREFIX.size] != self._prefix:
            return self._explain(datagram)
        transmitter = transmitter_of(datagram)
        if self._key is None:
            return transmitter, datagram[ENVELOPE_SIZE:]
        return self._unseal(self._key, transmitter, datagram)

    def _unseal(self, key: bytes, transmitter: bytes, datagram: bytes) -> tuple[bytes, bytes] | Rejection:
        cipher = self._ciphers.get(transmitter)
        known = cipher is not None
        if cipher is None:
            cipher = _cipher(key, transmitter)
        nonce = _NONCE_HEAD + datagram[_TAG_END:ENVELOPE_SIZE]
        try:
            body = cipher.decrypt(nonce, datagram[ENVELOPE_SIZE:], datagram[:ENVELOPE_SIZE])
        except InvalidTag:
            return Rejection("seal", "the seal does not fit: another key, or the datagram was changed on its way")
        self._remember(transmitter, cipher, known)
        return transmitter, body

    def _remember(self, transmitter: bytes, cipher: AESGCM, known: bool) -> None:
        if known:
            self._ciphers.move_to_end(transmitter)
            return
        self._ciphers[transmitter] = cipher
        if len(self._ciphers) > KEYS_MAX:
            self._ciphers.popitem(last=False)

    def _explain(self, datagram: bytes) -> Rejection:
        """Why a prefix is not ours, from "not Transis at all" to "ours, but configured differently"."""
        magic, version, flags, cluster = _PREFIX.unpack_from(datagram)
        if magic != MAGIC:
            return Rejection("magic", "not a datagram of Transis")
        if not WIRE_VERSION_MIN <= version <= WIRE_VERSION:
            return Rejection("version", f"wire version {version}; this node speaks {WIRE_VERSION_MIN} to {WIRE_VERSION}")
        if datagram[4 : _PREFIX.size] != self._prefix[4:]:
            return Rejection("cluster", f"cluster id {cluster:016x} is not ours")
        if flags & ~FLAG_SEALED:
            return Rejection("flags", f"unknown flags {flags:#04x}")
        if self._key is None:
            return Rejection("sealed", "a sealed datagram, but this node has no key")
        return Rejection("plaintext", "a plaintext datagram, but this cluster is sealed")
