"""One visit stream: items are appended while there is room, then the stream is cut into datagrams.

The cut is blind, so all datagrams but the last are full, and the kernel can segment such a burst by itself (GSO).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from transis.types.ids import DatagramClass, Service
from transis.types.outputs import RunIds
from transis.wire.items import (
    FRAGMENT_HEAD_SIZE,
    Fragment,
    Run,
    RunAt,
    encode_fragment_head,
    encode_run_head,
    endings,
)


class FilledDatagram(NamedTuple):
    """A body to be stamped and sent. `ended` are the messages that end in it, in order, as receivers will see them."""

    klass: DatagramClass
    body: bytes
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody wants of a datagram
    last: bool
    ended: tuple[RunIds, ...]


class Filled(NamedTuple):
    """One burst to be stamped and sent: all its datagrams are of one class."""

    klass: DatagramClass
    datagrams: list[FilledDatagram]


class VisitWriter:
    """At most `capacity` bytes of items. What ends where is worked out once, when the stream is cut.

    `prefix` is what the engine puts before the items of a burst; it takes room, and no message ends in it.
    """

    __slots__ = ("_body_max", "_capacity", "_ending", "_parts", "size")

    def __init__(self, body_max: int, datagrams: int, prefix: bytes = b"") -> None:
        self._body_max = body_max
        self._capacity = body_max * datagrams
        self._parts: list[bytes] = [prefix]
        self._ending: list[RunAt] = []
        self.size = len(prefix)
        assert self.size <= self._capacity, f"a prefix of {self.size} bytes in a visit of {self._capacity}"

    @property
    def room(self) -> int:
        return self._capacity - self.size

    def add_run(self, run: Run, payloads: Sequence[bytes]) -> int:
        """How many bytes of the stream the run took."""
        head = encode_run_head(run, [len(payload) for payload in payloads] if run.length is None else ())
        self._ending.append(RunAt(run, self.size + len(head)))
        self._parts.append(head)
        self._parts.extend(payloads)
        return self._grow(len(head) + run.size)

    def add_fragment(self, fragment: Fragment, share: bytes, address: bytes) -> int:
        assert len(share) == fragment.length, f"a fragment of {fragment.length} bytes has {len(share)}"
        self._parts.append(encode_fragment_head(fragment))
        self._parts.append(share)
        taken = self._grow(FRAGMENT_HEAD_SIZE + len(share))
        if fragment.offset + fragment.length == fragment.total:
            whole = Run(fragment.process, fragment.service, address, fragment.counter, 1, 0)
            self._ending.append(RunAt(whole, self.size))
        return taken

    def _grow(self, taken: int) -> int:
        self.size += taken
        assert self.size <= self._capacity, f"{self.size} bytes in a visit of {self._capacity}"
        return taken

    @property
    def is_empty(self) -> bool:
        """Nothing was added to the prefix."""
        return len(self._parts) == 1

    def ordered(self) -> list[FilledDatagram]:
        """The stream as the datagrams of one visit."""
        bodies, ended = self._cut()
        final = len(bodies) - 1
        return [
            FilledDatagram(_class_of(ids), body, index, index == final, tuple(ids))
            for index, (body, ids) in enumerate(zip(bodies, ended, strict=True))
        ]

    def burst(self, kind: DatagramClass) -> Filled:
        """The stream as one burst: of its kind, or safe if anything safe ends in it."""
        klass = DatagramClass.SAFE if any(run.service is Service.SAFE for run, _ in self._ending) else kind
        bodies, ended = self._cut()
        final = len(bodies) - 1
        return Filled(
            klass,
            [
                FilledDatagram(klass, body, index, index == final, tuple(ids))
                for index, (body, ids) in enumerate(zip(bodies, ended, strict=True))
            ],
        )

    def basic(self) -> FilledDatagram:
        """The stream as one self-contained basic datagram."""
        (body,), (ids,) = self._cut()
        return FilledDatagram(DatagramClass.BASIC, body, 0, True, tuple(ids))

    def _cut(self) -> tuple[list[bytes], list[list[RunIds]]]:
        stream = b"".join(self._parts)
        assert len(stream) == self.size, f"{len(stream)} bytes where {self.size} were counted"
        starts = range(0, self.size, self._body_max)
        bounds = [start + self._body_max for start in starts]
        ended: list[list[RunIds]] = [[] for _ in starts]
        for run, position in self._ending:
            datagram, counts = endings(run, position, bounds)
            first = 0
            for ids, count in zip(ended[datagram:], counts, strict=False):
                if count:
                    ids.append(run.ids(first, first + count))
                    first += count
        return [stream[start : start + self._body_max] for start in starts], ended


def _class_of(ended: Sequence[RunIds]) -> DatagramClass:
    """A datagram counts as safe when a safe message ends in it: only then does anyone wait for it to be safe."""
    safe = any(ids.service is Service.SAFE for ids in ended)
    return DatagramClass.SAFE if safe else DatagramClass.ORDERED
