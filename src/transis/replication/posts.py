"""What this replica posts, and what becomes of it: bundles, and a receipt for each call.

    posted → accepted (on this disk) → ordered (its place is final) → stable (on the disk of every replica)
                                     ↘ refused (it will never be ordered)

1. What is posted together becomes one action, as far as it fits: all that comes within a turn of the event loop, and all that
   comes while two earlier ones are being written. So many small posts cost one commit, and one post waits for nobody.
2. A client key belongs to one action, so what has one is bundled with nothing.
3. A receipt is open as long as its replica is, whatever becomes of sessions. What a crash leaves unanswered is on the disk.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple

from transis.prsl.actions import ActionId, Kind
from transis.prsl.outputs import Effect, Ordered
from transis.prsl.prefix import Base, Numbers
from transis.types.errors import NotYet, PostRefused, Rejection, TransisError
from transis.types.limits import ACTION_BYTES_MAX, ACTION_MESSAGES_MAX

IN_FLIGHT_MAX: Final = 2
"""Bundles that are being written while further posts gather."""


class Outcome(NamedTuple):
    """What became of a call: its result as it travels, or the error of its method."""

    value: bytes = b""
    error: Exception | None = None


Waiting = list["asyncio.Future[None]"]
PostOutcome = Literal["posted", "accepted", "ordered", "stable", "refused"]


class PostReceipt:
    """The receipt of one `post`, `post_many` or call: of `count` messages."""

    def __init__(self, posts: Posts, count: int) -> None:
        self.count: int = count
        self.actions: list[ActionId] = []
        """The actions that carry the messages; mostly one, and none before it was written."""
        self._posts = posts
        self._unaccepted = self._unordered = 0
        self._offset: int | None = None
        self._end = 0
        self._place = -1
        self._failure: Callable[[], TransisError] | None = None
        self._waiting: Waiting = []

    @property
    def outcome(self) -> PostOutcome:
        """What is known now: `posted`, `accepted`, `ordered`, `stable` or `refused`."""
        if self._failure is not None:
            return "refused"
        if self._unordered:
            return "posted" if self._unaccepted else "accepted"
        return "stable" if self._posts.is_stable(self._place, self._end) else "ordered"

    @property
    def offset(self) -> int | None:
        """The offset of its first message, None before it is ordered."""
        return None if self._unordered else self._offset

    async def accepted(self, timeout: float | None = None) -> None:
        """Wait until it is on this disk. NotYet after `timeout` seconds."""
        await self._until(lambda: not self._unaccepted, timeout, "on this disk", self._waiting)

    async def ordered(self, timeout: float | None = None) -> int:
        """Wait until it has its place for all time, and return its first offset. NotYet after `timeout` seconds."""
        await self._until(lambda: not self._unordered, timeout, "ordered", self._waiting)
        assert self._offset is not None, "what is ordered has an offset"
        return self._offset

    async def stable(self, timeout: float | None = None) -> None:
        """Wait until it is on the disk of every replica, or with explicit acknowledgement until every application acknowledged
        it. NotYet after `timeout` seconds."""
        await self.ordered(timeout)
        await self._until(lambda: self.outcome == "stable", timeout, "stable", self._posts.stable_waiting)

    async def _until(self, holds: Callable[[], bool], timeout: float | None, what: str, waiting: Waiting) -> None:
        try:
            if timeout is None:
                await self._changes(holds, waiting)
            else:
                async with asyncio.timeout(timeout):
                    await self._changes(holds, waiting)
        except TimeoutError:
            raise self._posts.not_yet(self, what) from None
        if self._failure is not None:
            raise self._failure()

    async def _changes(self, holds: Callable[[], bool], waiting: Waiting) -> None:
        while self._failure is None and not holds():
            await a_change(waiting)

    def __repr__(self) -> str:
        where = "" if self.offset is None else f" at {self.offset}"
        return f"<PostReceipt of {self.count}: {self.outcome}{where}>"

    # --- for the replica ----------------------------------------------------------------------------------------------

    def _ordered_at(self, place: int, offset: int, count: int) -> None:
        self._unordered -= 1
        self._offset = offset if self._offset is None else min(offset, self._offset)
        self._place, self._end = max(self._place, place), max(self._end, offset + count)
        self._wake()

    def _ran(self, results: Sequence[Outcome]) -> None:
        """What became of calls is for the receipt of a call."""

    def _refuse(self, failure: Callable[[], TransisError]) -> None:
        self._failure = failure
        self._wake()

    def _wake(self) -> None:
        wake(self._waiting)


async def a_change(waiting: Waiting) -> None:
    """Until somebody calls `wake` for these."""
    future = asyncio.get_running_loop().create_future()
    waiting.append(future)
    try:
        await future
    finally:
        waiting.remove(future)


def wake(waiting: Waiting) -> None:
    for future in waiting:
        if not future.done():
            future.set_result(None)


class Part(NamedTuple):
    """What one call adds to one action: where its messages begin there, and how many they are."""

    receipt: PostReceipt
    start: int
    messages: int


class Bundle:
    """An action in the making."""

    def __init__(self, kind: Kind, key: bytes = b"", at: int = 0) -> None:
        self.kind, self.key, self.at = kind, key, at
        self.messages: list[bytes] = []
        self.size = 0
        self.parts: list[Part] = []

    def has_room(self, size: int) -> bool:
        return not self.messages or (len(self.messages) < ACTION_MESSAGES_MAX and self.size + size <= ACTION_BYTES_MAX)

    def may_carry(self, kind: Kind, key: bytes) -> bool:
        return kind == self.kind and not key and not self.key


Post = Callable[[Bundle], "ActionId | Rejection"]
Excuse = Callable[[PostReceipt, str], NotYet]


class Posts:
    def __init__(self, post: Post, not_yet: Excuse) -> None:
        self.stable_place: int = 0
        self.acked: int = 0
        self.not_yet: Final = not_yet
        self.needs_acknowledgement = False
        """Whether stable means acknowledged by every application."""
        self._post = post
        self._gathering: deque[Bundle] = deque()
        self._unaccepted: dict[ActionId, Bundle] = {}
        self._unordered: dict[ActionId, Bundle] = {}
        self._is_planned = False
        self._failure: Callable[[], TransisError] | None = None
        self.stable_waiting: Waiting = []

    # --- posting --------------------------------------------------------------------------------------------------------

    def add(
        self,
        messages: Sequence[bytes],
        *,
        kind: Kind = Kind.DATA,
        key: bytes = b"",
        at: int = 0,
        receipt: PostReceipt | None = None,
    ) -> PostReceipt:
        """These messages are posted at the end of this turn of the loop, or when the disk has taken what is before them."""
        if self._failure is not None:
            raise self._failure()
        receipt = receipt or PostReceipt(self, len(messages))
        rest = deque(messages)
        while rest or not receipt._unordered:
            bundle = self._room_for(kind, key, at, len(rest[0]) if rest else 0)
            start = len(bundle.messages)
            while rest and bundle.has_room(len(rest[0])):
                bundle.size += len(rest[0])
                bundle.messages.append(rest.popleft())
            bundle.parts.append(Part(receipt, start, len(bundle.messages) - start))
            receipt._unaccepted += 1
            receipt._unordered += 1
        self._plan()
        return receipt

    def _room_for(self, kind: Kind, key: bytes, at: int, size: int) -> Bundle:
        last = self._gathering[-1] if self._gathering else None
        if last is None or not last.may_carry(kind, key) or not last.has_room(size):
            last = Bundle(kind, key, at)
            self._gathering.append(last)
        return last

    def _plan(self) -> None:
        if not self._is_planned:
            self._is_planned = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._is_planned = False
        while self._gathering and len(self._unaccepted) < IN_FLIGHT_MAX:
            bundle = self._gathering.popleft()
            answer = self._post(bundle)
            if isinstance(answer, Rejection):
                why = answer.why
                self._refuse(bundle, lambda why=why: PostRefused(why))  # type: ignore[misc]
                continue
            self._unaccepted[answer] = self._unordered[answer] = bundle
            for part in bundle.parts:
                part.receipt.actions.append(answer)

    def _refuse(self, bundle: Bundle, failure: Callable[[], TransisError]) -> None:
        for part in bundle.parts:
            part.receipt._refuse(failure)

    def follow(self, action: ActionId) -> PostReceipt:
        """The receipt of a change of membership, which was posted already."""
        receipt, bundle = PostReceipt(self, 0), Bundle(Kind.CHANGE)
        receipt.actions.append(action)
        receipt._unaccepted = receipt._unordered = 1
        bundle.parts.append(Part(receipt, 0, 0))
        self._unaccepted[action] = self._unordered[action] = bundle
        return receipt

    # --- what becomes of it ----------------------------------------------------------------------------------------------

    def accepted(self, ids: Sequence[ActionId]) -> None:
        for one in ids:
            bundle = self._unaccepted.pop(one, None)
            for part in bundle.parts if bundle is not None else ():
                part.receipt._unaccepted -= 1
                part.receipt._wake()
        self._flush()

    def ordered(self, news: Ordered, results: Sequence[Outcome] = ()) -> None:
        """With what became of each message, if they are calls."""
        bundle = self._unordered.pop(news.action.id, None)
        if bundle is None:
            return
        if news.effect == Effect.VOID:
            is_change = bundle.kind == Kind.CHANGE
            why = "another change of the replicas got its place first" if is_change else "this replica was not a member there"
            self._refuse(bundle, lambda: PostRefused(f"it has a place and no effect: {why}"))
        elif news.effect == Effect.TOO_LATE:
            forgotten = "its key is older than what is remembered, and it may have been ordered before: it is not counted again"
            self._refuse(bundle, lambda: PostRefused(forgotten))
        else:
            offset = news.first if news.effect == Effect.AGAIN else news.offset
            for part in bundle.parts:
                part.receipt._ran(results[part.start : part.start + part.messages])
                part.receipt._ordered_at(news.place, offset + part.start, part.messages)

    def loaded(self, base: Base) -> None:
        """A snapshot of another replica has some of them, at places that it does not tell."""
        numbers = Numbers(base.numbers)
        for one in [one for one in self._unordered if one in numbers]:
            for part in self._unordered.pop(one).parts:
                part.receipt._ordered_at(base.place - 1, base.offset - part.messages, part.messages)

    def refused(self, ids: Sequence[ActionId], why: str) -> None:
        for one in ids:
            self._unaccepted.pop(one, None)
            bundle = self._unordered.pop(one, None)
            if bundle is not None:
                self._refuse(bundle, lambda: PostRefused(why))

    def stable(self, place: int, acked: int) -> None:
        self.stable_place, self.acked = place, acked
        wake(self.stable_waiting)

    def is_stable(self, place: int, end: int) -> bool:
        return end <= self.acked if self.needs_acknowledgement else place < self.stable_place

    def end(self, failure: Callable[[], TransisError]) -> None:
        """The replica takes part no more. What is on the disk is there still."""
        self._failure = failure
        for bundle in [*self._gathering, *self._unordered.values()]:
            self._refuse(bundle, failure)
        self._gathering.clear()
        self._unaccepted.clear()
        self._unordered.clear()
        wake(self.stable_waiting)
