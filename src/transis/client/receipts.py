"""What became of what was sent: one receipt per call, whatever number of messages it was for.

1. Counters are dense and grow with every message that was accepted, so a receipt is a range of them, and all open receipts lie
   in the order of their ranges: finding one is a search, settling the oldest is a step.
2. A node says of every message exactly once that it was delivered or that it will not be sent. Anything else it says about
   them is nonsense, and the caller ends the session.
3. A receipt that nobody looks at costs nothing and warns about nothing: waiting futures get no exceptions, whoever waits raises.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Generator
from typing import Any, Final, Literal

from transis.types.errors import InDoubt, SendRefused
from transis.types.ids import MessageId, ProcessId

Outcome = Literal["pending", "delivered", "refused", "in doubt"]

COMPACT_AT: Final = 1024
"""Settled receipts at the head of the list are cut off when there are so many, so that each is moved only a few times."""


class Receipt:
    """Of one `send` or `send_many`. `await receipt` returns when all its messages were delivered at this node, with what their
    service promises; it raises SendRefused if one of them was not sent, InDoubt if the session was lost before that was known.
    """

    __slots__ = ("_open", "_outcome", "_process", "_refused", "_waiting", "_why", "count", "first")

    def __init__(self, process: ProcessId, first: int, count: int) -> None:
        self.first = first
        self.count = count
        self._process = process
        self._open = count
        self._refused = 0
        self._outcome: Outcome = "pending"
        self._why = ""
        self._waiting: list[asyncio.Future[None]] | None = None

    @property
    def id(self) -> MessageId:
        """Of the first message; the others have the counters that follow."""
        return MessageId(self._process, self.first)

    @property
    def outcome(self) -> Outcome:
        return self._outcome

    def __await__(self) -> Generator[Any, None, None]:
        if self._outcome == "pending":
            yield from self._wait().__await__()
        self.raise_unless_delivered()

    def raise_unless_delivered(self) -> None:
        if self._outcome == "refused":
            raise SendRefused(f"{self._refused} of {self.count} messages from {self.id} on were not sent: {self._why}")
        if self._outcome == "in doubt":
            raise InDoubt(f"whether {self.count} messages from {self.id} on were sent is not known: {self._why}")

    async def _wait(self) -> None:
        """Everybody who waits has a future of their own: cancelling one does not touch the others."""
        future = asyncio.get_running_loop().create_future()
        if self._waiting is None:
            self._waiting = []
        self._waiting.append(future)
        try:
            await future
        finally:
            if self._waiting is not None:
                self._waiting.remove(future)

    def __repr__(self) -> str:
        return f"<Receipt {self.id}+{self.count} {self._outcome}>"

    # --- for the session --------------------------------------------------------------------------------------------

    def _settle(self, messages: int, refused: bool, why: str) -> None:
        assert 0 < messages <= self._open
        self._open -= messages
        if refused:
            self._refused += messages
            self._why = self._why or why
        if not self._open:
            self._end("refused" if self._refused else "delivered")

    def _lose(self, why: str) -> None:
        """What was refused is no matter of doubt, but of the rest nobody knows."""
        self._why = why
        self._end("in doubt")

    def _end(self, outcome: Outcome) -> None:
        self._outcome = outcome
        waiting, self._waiting = self._waiting, None
        for future in waiting or ():
            if not future.done():
                future.set_result(None)


class Receipts:
    """The open receipts of a session, oldest first."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._receipts: list[Receipt] = []
        self._head = 0

    def __len__(self) -> int:
        return len(self._receipts) - self._head

    def add(self, receipt: Receipt) -> None:
        assert not self._receipts or receipt.first >= self._receipts[-1].first + self._receipts[-1].count
        self._firsts.append(receipt.first)
        self._receipts.append(receipt)

    def cut_short(self, receipt: Receipt, count: int) -> None:
        """Only so many of its messages were accepted before the caller gave up."""
        assert receipt is self._receipts[-1], "only the newest can still grow"
        settled = receipt.count - receipt._open
        assert settled <= count
        receipt.count, receipt._open = count, count - settled
        if not receipt._open:
            receipt._end("refused" if receipt._refused else "delivered")
            self._trim()

    def settle(self, first: int, count: int, why: str = "") -> bool:
        """So many messages are delivered, or refused for a reason; False if the node has no business to say that."""
        end = first + count
        at = bisect_right(self._firsts, first, self._head) - 1
        while first < end:
            if not self._head <= at < len(self._receipts):
                return False
            receipt = self._receipts[at]
            here = min(end, receipt.first + receipt.count) - first
            if not 0 < here <= receipt._open:
                return False
            receipt._settle(here, bool(why), why)
            first += here
            at += 1
        self._trim()
        return True

    def _trim(self) -> None:
        receipts, head = self._receipts, self._head
        while head < len(receipts) and receipts[head]._outcome != "pending":
            head += 1
        self._head = head
        if head >= COMPACT_AT and 2 * head >= len(receipts):
            del self._receipts[:head], self._firsts[:head]
            self._head = 0

    def lose(self, why: str) -> None:
        for receipt in self._receipts[self._head :]:
            if receipt._outcome == "pending":
                receipt._lose(why)
        self._firsts, self._receipts, self._head = [], [], 0
