"""Messages of a run where they came: cut out of the stream of their visit when somebody looks at them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import overload

from transis.wire.items import Run


class Payloads(Sequence[memoryview]):
    """Messages first..end-1 of a run, cut out of the stream when they are looked at."""

    __slots__ = ("_end", "_first", "_position", "_run", "_stream")

    def __init__(self, stream: memoryview, position: int, run: Run, first: int, end: int) -> None:
        self._stream = stream
        self._position = position
        self._run = run
        self._first = first
        self._end = end

    def __len__(self) -> int:
        return self._end - self._first

    @overload
    def __getitem__(self, index: int) -> memoryview: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[memoryview]: ...
    def __getitem__(self, index: int | slice) -> memoryview | Sequence[memoryview]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            assert step == 1, "messages are cut out in their order"
            return Payloads(self._stream, self._position, self._run, self._first + start, self._first + max(start, stop))
        message = self._first + range(len(self))[index]
        return self._stream[self._position + self._start_of(message) : self._position + self._run.end_of(message)]

    def __iter__(self) -> Iterator[memoryview]:
        stream = self._stream
        return iter([stream[start:end] for start, end in pairwise(self._borders())])

    @property
    def size(self) -> int:
        """Bytes of all of them, without cutting out one."""
        return self._start_of(self._end) - self._start_of(self._first)

    def copies(self) -> list[bytes]:
        """Each in memory of its own: for who keeps them longer than the burst they came in."""
        whole = self._stream.obj
        assert isinstance(whole, bytes), "streams are put together from bodies"
        return [whole[start:end] for start, end in pairwise(self._borders())]

    def _borders(self) -> Iterable[int]:
        """Where each of them begins, and behind the last where that one ends."""
        position, first, length = self._position, self._first, self._run.length
        if length:
            return range(position + first * length, position + self._end * length + 1, length)
        return [position + self._start_of(first), *(position + self._run.end_of(one) for one in range(first, self._end))]

    def _start_of(self, message: int) -> int:
        return self._run.end_of(message - 1) if message else 0


def payload_size(payloads: Sequence[bytes | memoryview]) -> int:
    """Bytes of all of them; those that were cut out of a burst know it without being looked at."""
    return payloads.size if isinstance(payloads, Payloads) else sum(map(len, payloads))
