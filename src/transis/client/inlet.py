"""The frames of one stream on their way from the session to whoever iterates.

1. What is taken or discarded gives its credit back; a frame that went to several streams when the last of them let go of it.
2. Waiting takes nothing: whoever is cancelled while it waits loses nothing, and the next one to ask goes on where it was.
3. A stream that is *held* (a state transfer is under way) puts what is more than `memory_max` into a spool and gives the credit
   back, so that the node does not take a client for a slow one that only is not allowed to look. Order: `_front`, then the spool,
   then `_back`, which is used only behind a spool.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from transis.client.spool import Spool
from transis.sessions.frames import StreamFrame
from transis.types.errors import TransisError, UsageError

Gate = Callable[[StreamFrame], StreamFrame | None]
"""Looks at what arrives and says what of it is to be kept for the iteration: all, the rest behind a point, or nothing."""

SPOOL_MAX: Final = 16 << 30
"""Bytes that a spool may take on disk. Beyond it frames stay unread, and the node's own limits for slow clients apply."""


class Parcel:
    """A frame's claim on the credit of the session, until all the streams that have it let go."""

    __slots__ = ("_cost", "_give_back", "holders")

    def __init__(self, cost: int, give_back: Callable[[int], None]) -> None:
        self._cost = cost
        self._give_back = give_back
        self.holders = 0

    def let_go(self) -> None:
        assert self.holders > 0
        self.holders -= 1
        if not self.holders:
            self._give_back(self._cost)

    @property
    def cost(self) -> int:
        return self._cost


class Entry(NamedTuple):
    """A frame and the joined groups of this stream through which it came."""

    frame: StreamFrame
    names: tuple[str, ...]
    parcel: Parcel | None


class Inlet:
    """`put_count` and `taken_count` number the entries, so that a place between two of them can be named."""

    def __init__(self, gate: Gate | None = None, memory_max: int = 1 << 20, spool: Spool | None = None) -> None:
        self.gate = gate
        self.put_count = self.taken_count = 0
        self.bytes = 0
        self._held = False
        self._memory_max = memory_max
        self._spool = spool
        self._spooled_names: deque[tuple[str, ...]] = deque()
        self._front: deque[Entry] = deque()
        self._back: deque[Entry] = deque()
        self._discarding = False
        self._ended = False
        self._failure: Callable[[], TransisError] | None = None
        self._waiting: asyncio.Future[None] | None = None

    # --- the session's side -----------------------------------------------------------------------------------------

    def put(self, frame: StreamFrame, names: tuple[str, ...], parcel: Parcel | None = None) -> None:
        """The frame arrived. The parcel was counted for this stream already, if there is one."""
        kept = frame if self.gate is None else self.gate(frame)
        if kept is None or self._discarding or self._ended:
            if parcel is not None:
                parcel.let_go()
            return
        self.add(Entry(kept, names, parcel))

    def add(self, entry: Entry) -> None:
        """Behind everything that is there, past the gate."""
        self.put_count += 1
        (self._back if self._spool else self._front).append(entry)
        self.bytes += _cost(entry)
        if self._held:
            self._spill()
        self.wake()

    @property
    def held(self) -> bool:
        return self._held

    @held.setter
    def held(self, held: bool) -> None:
        """What the application left lying must not use the window up while it may not look: other frames come through it."""
        self._held = held
        if held:
            self._spill()

    def _spill(self) -> None:
        """Move what is behind the first `memory_max` bytes to the spool, if there is room; its credit goes back."""
        spool = self._spool
        if spool is None or spool.size >= SPOOL_MAX:
            return
        excess = self._take_back() if spool else self._take_excess()
        try:
            while excess:
                spool.append(excess[0].frame)
                self._spooled_names.append(excess[0].names)
                self._let_go(excess.popleft())
        finally:
            (self._back if spool else self._front).extend(excess)  # Those that the disk did not take.

    def _take_back(self) -> deque[Entry]:
        back, self._back = self._back, deque()
        return back

    def _take_excess(self) -> deque[Entry]:
        excess: deque[Entry] = deque()
        remaining = self.bytes
        while self._front and remaining > self._memory_max:
            excess.appendleft(self._front.pop())
            remaining -= _cost(excess[0])
        return excess

    def end(self, failure: Callable[[], TransisError] | None = None) -> None:
        """Nothing comes any more. What is there can still be taken; then the iteration ends, or raises the failure."""
        if not self._ended:
            self._ended, self._failure = True, failure
            self.wake()

    def discard(self, for_good: bool = False) -> None:
        """Let go of everything that is there; of what comes, too, if for good."""
        self._discarding = self._discarding or for_good
        self.drop_before(self.put_count)

    # --- the application's side -------------------------------------------------------------------------------------

    def take(self) -> Entry | None:
        """The next entry, or None if there is none now."""
        if self._front:
            entry = self._let_go(self._front.popleft())
        elif self._spool:
            entry = Entry(self._spool.popleft(), self._spooled_names.popleft(), None)
            if not self._spool:
                self._front, self._back = self._back, self._front
        else:
            return None
        self.taken_count += 1
        return entry

    def _let_go(self, entry: Entry) -> Entry:
        if entry.parcel is None:
            return entry
        self.bytes -= _cost(entry)
        entry.parcel.let_go()
        return entry._replace(parcel=None)

    def peek(self) -> Entry | None:
        """The next entry, if it is in memory."""
        return self._front[0] if self._front else None

    def ahead(self) -> Iterator[Entry]:
        """The next entries, as far as they are in memory. Whoever takes one meanwhile ends it."""
        return iter(self._front)

    def drop_before(self, count: int) -> None:
        """Let go of the entries that were put as the first so many."""
        while self.taken_count < count:
            entry = self.take()
            assert entry is not None

    def put_first(self, frame: StreamFrame, names: tuple[str, ...]) -> None:
        """In front of everything that is there."""
        self._front.appendleft(Entry(frame, names, None))
        self.taken_count -= 1
        self.wake()

    async def wait(self) -> None:
        """Until something changed: an entry came, the stream ended, or somebody called `wake`."""
        if self._waiting is not None:
            raise UsageError("somebody else iterates over this stream at this moment: one stream has one reader")
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            await self._waiting
        finally:
            self._waiting = None

    def wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    @property
    def ended(self) -> bool:
        """Nothing is left and nothing will come."""
        return self._ended and not self._front and not self._spool

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure()


def _cost(entry: Entry) -> int:
    return 0 if entry.parcel is None else entry.parcel.cost
