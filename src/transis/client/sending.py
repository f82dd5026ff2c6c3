"""Sending: flow control, packing messages into frames, and one receipt per call.

1. A message is *accepted* when it has its counter and lies in the buffer. A caller that is cancelled before that has not sent it;
   after that it is sent, unless the session is lost.
2. Messages are accepted while credit is above zero and may overdraw it once (sessions/frames.py, rule 2). What was accepted
   together is never split between frames, because the second frame would start without credit.
3. Callers that have to wait are served in the order in which they asked. Nothing else ever waits here, so a sender cannot wait
   for itself.
4. Counters are dense and grow with every accepted message. A receipt is therefore a range of them, and the open receipts are
   sorted by range: finding one is a binary search, settling the oldest a single step.
5. While the node waits for a quorum nothing is accepted: callers wait in line, or get NoQuorum if the node's settings say so.
   What was accepted before waits at the node, and is sent first when there is a quorum. Where only a group asks for a quorum,
   callers wait before they get in line, as those that send to other groups go on; the node refuses what was accepted too late.
6. The node reports each message exactly once, as delivered or as refused. Anything else is a protocol error, and the caller ends
   the session.
7. A receipt that nobody awaits costs nothing and warns about nothing.
8. A receipt knows in which configurations its messages were delivered: one, unless the view changed between them.
9. What leaves in one frame has one time: that of its first message, in whole milliseconds. Frames of one millisecond can then
   share a header behind the node, so that many small ones cost little.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, Literal, NamedTuple

from transis.process.fork import is_inherited, stays_here
from transis.sessions.frames import BATCH_BYTES, MESSAGE_COST, ClientFrame, Send, SendToPrimary
from transis.types.errors import InDoubt, MessageTooLarge, NoQuorum, SendRefused, TransisError, UsageError
from transis.types.ids import MessageId, PhaseName, ProcessId, Service, ViewId
from transis.types.limits import MESSAGE_MAX, RUN_MESSAGES_MAX

# --- sending ----------------------------------------------------------------------------------------------------------


class Sender:
    """Sends for one process and keeps its receipts."""

    def __init__(self, out: SendBuffer, process: ProcessId) -> None:
        self.process = process
        self._out = out
        self._receipts = Receipts()
        stays_here(self)

    @property
    def unconfirmed(self) -> int:
        """How many receipts are still open."""
        return len(self._receipts)

    async def send(self, address: bytes, payload: bytes, service: Service, for_primary: bool = False) -> Receipt:
        require_size(len(payload))
        if self._out.may_accept():
            receipt = Receipt(self, self._out.accept(address, service, [payload], for_primary), 1)
            self._receipts.add(receipt)
            return receipt
        return await self._send_in_turn(address, service, [[payload]], for_primary)

    async def send_many(self, address: bytes, payloads: Sequence[bytes], service: Service, for_primary: bool = False) -> Receipt:
        if not payloads:
            raise UsageError("no messages to send")
        require_size(max(map(len, payloads)))
        return await self._send_in_turn(address, service, divide(payloads), for_primary)

    async def _send_in_turn(self, address: bytes, service: Service, portions: list[list[bytes]], for_primary: bool) -> Receipt:
        receipt: Receipt | None = None
        accepted, total = 0, sum(map(len, portions))

        def accept(number: int) -> None:
            nonlocal receipt, accepted
            first = self._out.accept(address, service, portions[number], for_primary)
            if receipt is None:
                receipt = Receipt(self, first, total)
                self._receipts.add(receipt)
            accepted += len(portions[number])

        try:
            await self._out.accept_in_turn(accept, len(portions))
        except BaseException:
            if receipt is not None and receipt.outcome == "pending":
                self._receipts.cut_short(receipt, accepted)
            raise
        assert receipt is not None
        return receipt

    def require_home(self) -> None:
        """In a child that was forked this raises, like all that is asked of a sender there."""

    def loop(self) -> asyncio.AbstractEventLoop:
        """The only loop in which anybody may wait; raises in another."""
        return require_loop(self._out.home)

    def delivered(self, first: int, messages: int, view: ViewId) -> bool:
        """The node delivered these messages in this configuration; False if they were not open."""
        return self._receipts.settle(first, messages, (view,))

    def refused(self, first: int, messages: int, why: str) -> bool:
        """The node will not send these messages; False if they were not open."""
        return self._receipts.settle(first, messages, (), why)

    def lose(self, doubt: str) -> None:
        self._receipts.lose(doubt)


# --- receipts ---------------------------------------------------------------------------------------------------------

Outcome = Literal["pending", "delivered", "refused", "in doubt"]

COMPACT_AT: Final = 1024
"""So many settled receipts at the head of the list are removed together, so that each entry is moved only a few times."""


class Confirmation(NamedTuple):
    """Where the messages of a receipt were delivered.

    For safe messages `phase` says who has them. `regular`: every member of `view`. `transitional`: only the members that went on
    together into `view` are known to; of the others of the view before nobody can say.
    """

    views: tuple[ViewId, ...]
    """The configurations in which they were delivered, in order: one, unless the view changed between the messages."""

    @property
    def view(self) -> ViewId:
        """The configuration in which they were delivered. If there are several, the first transitional one: it promises least."""
        return next((view for view in self.views if not view.is_regular), self.views[-1])

    @property
    def phase(self) -> PhaseName:
        """`regular` if all of them were delivered in regular configurations, else `transitional`."""
        return self.view.phase

    def __str__(self) -> str:
        return f"delivered in {' '.join(map(str, self.views))} ({self.phase})"


class Receipt:
    """The receipt of one `send` or `send_many`: of `count` messages, whose counters begin at `first`.

    `await receipt` returns a Confirmation when all its messages have been delivered at this node, with the guarantees of their
    service. It raises SendRefused if one of them was not sent, and InDoubt if the session was lost before the outcome was known.
    """

    __slots__ = ("_open", "_outcome", "_refused", "_sender", "_views", "_waiting", "_why", "count", "first")

    def __init__(self, sender: Sender, first: int, count: int) -> None:
        self.first: int = first
        self.count: int = count
        self._sender = sender
        self._open = count
        self._refused = 0
        self._outcome: Outcome = "pending"
        self._why = ""
        self._views: tuple[ViewId, ...] = ()
        self._waiting: list[asyncio.Future[None]] | None = None

    @property
    def id(self) -> MessageId:
        """The id of the first message; the others have the counters that follow."""
        return MessageId(self._sender.process, self.first)

    @property
    def outcome(self) -> Outcome:
        """What is known now: `pending`, `delivered`, `refused` or `in doubt`."""
        self._sender.require_home()
        return self._outcome

    def __await__(self) -> Generator[Any, None, Confirmation]:
        self._sender.require_home()
        if self._outcome == "pending":
            yield from self._wait().__await__()
        return self.confirmation()

    def confirmation(self) -> Confirmation:
        """What `await receipt` gives or raises, for a receipt that is no longer pending."""
        if self._outcome == "pending":
            raise UsageError(f"{self._open} of the messages have no outcome yet: write `await receipt`")
        if self._outcome == "refused":
            raise SendRefused(f"{self._refused} of {self.count} messages, starting at {self.id}, were not sent: {self._why}")
        if self._outcome == "in doubt":
            raise InDoubt(f"{self.count} messages, starting at {self.id}, may or may not have been sent: {self._why}")
        return Confirmation(self._views)

    async def _wait(self) -> None:
        """Each waiter has its own future, so cancelling one does not disturb the others."""
        future = self._sender.loop().create_future()
        if self._waiting is None:
            self._waiting = []
        self._waiting.append(future)
        try:
            await future
        finally:
            if self._waiting is not None:
                self._waiting.remove(future)

    def __repr__(self) -> str:
        if is_inherited(self._sender):
            return "<Receipt of another process>"
        last = f"..{self.first + self.count - 1}" if self.count > 1 else ""
        return f"<Receipt {self.id}{last}: {self._outcome}>"

    # --- for the session --------------------------------------------------------------------------------------------

    def _settle(self, messages: int, views: tuple[ViewId, ...], why: str) -> None:
        """`views` is the configuration in which they were delivered, or nothing if they were refused."""
        assert 0 < messages <= self._open
        self._open -= messages
        if not views:
            self._refused += messages
            self._why = self._why or why
        elif not self._views:
            self._views = views
        elif self._views[-1] != views[0]:
            self._views += views
        if not self._open:
            self._end("refused" if self._refused else "delivered")

    def _lose(self, why: str) -> None:
        """Refused messages are settled; the fate of the rest is unknown."""
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
        """The caller gave up after this many of its messages had been accepted."""
        assert receipt is self._receipts[-1], "only the newest can still grow"
        settled = receipt.count - receipt._open
        assert settled <= count
        receipt.count, receipt._open = count, count - settled
        if not receipt._open:
            receipt._end("refused" if receipt._refused else "delivered")
            self._trim()

    def settle(self, first: int, count: int, views: tuple[ViewId, ...], why: str = "") -> bool:
        """Settle a range of messages as delivered in a view, or as refused for a reason; False if the range is not open."""
        end = first + count
        at = bisect_right(self._firsts, first, self._head) - 1
        while first < end:
            if not self._head <= at < len(self._receipts):
                return False
            receipt = self._receipts[at]
            here = min(end, receipt.first + receipt.count) - first
            if not 0 < here <= receipt._open:
                return False
            receipt._settle(here, views, why)
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


# --- outgoing ---------------------------------------------------------------------------------------------------------

Transmit = Callable[[Sequence[ClientFrame]], None]

GRAIN_US: Final = 1_000
"""What times of sending are cut to."""


def require_service(service: object) -> None:
    if isinstance(service, Service):
        return
    name = service.upper() if isinstance(service, str) else ""
    known = f"write transis.Service.{name}" if name in Service.__members__ else f"write one of {', '.join(map(repr, Service))}"
    raise UsageError(
        f"service = {service!r}: {known}. To name a group with the data, send by the session: session.send(to, data)"
    )


def require_loop(home: asyncio.AbstractEventLoop | None) -> asyncio.AbstractEventLoop:
    """The running loop, which must be `home` if that is given: futures of one loop never come to pass in another."""
    try:
        running: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    if running is None or running is not (home or running):
        raise UsageError(
            "this session lives in another event loop, and perhaps in another thread: use it in the loop in which it was opened "
            "(from a thread by asyncio.run_coroutine_threadsafe), or take transis.blocking, whose sessions any thread may use"
        )
    return running


def require_size(size: int) -> None:
    if size > MESSAGE_MAX:
        raise MessageTooLarge(f"the message has {size} bytes: at most {MESSAGE_MAX} are allowed; send it in parts")


def divide(payloads: Sequence[bytes]) -> list[list[bytes]]:
    """Portions that fit one frame each: at most RUN_MESSAGES_MAX messages and BATCH_BYTES, or a single larger message."""
    if len(payloads) <= RUN_MESSAGES_MAX and sum(map(len, payloads)) <= BATCH_BYTES:
        return [list(payloads)]
    portions: list[list[bytes]] = []
    size = BATCH_BYTES + 1
    for payload in payloads:
        size += len(payload)
        if size > BATCH_BYTES or len(portions[-1]) == RUN_MESSAGES_MAX:
            portions.append([])
            size = len(payload)
        portions[-1].append(payload)
    return portions


class SendBuffer:
    """What waits for the next flush.

    `credit` is what the node still lets us send, `accepted` the counter of the last message, `lacks` what is missing for a
    quorum, and `held` the same if nothing is sent until then.
    """

    def __init__(self, transmit: Transmit, wall_us: Callable[[], int], home: asyncio.AbstractEventLoop | None = None) -> None:
        self.credit: int = 0
        self.accepted: int = 0
        self.home = home
        """The only loop in which anything is sent."""
        self.lacks: str = ""
        self.held: str = ""
        self._raises = False
        self._has_quorum = asyncio.Event()
        self._has_quorum.set()
        self._may_go_on = asyncio.Event()
        self._may_go_on.set()
        self._transmit = transmit
        self._wall_us = wall_us
        self._failure: Callable[[], TransisError] | None = None
        self._frames: list[ClientFrame] = []
        self._run: list[bytes] = []
        self._run_key: tuple[bytes, Service, bool] | None = None
        self._run_bytes = 0
        self._run_us = 0
        self._flush_planned = False
        self._turn = asyncio.Lock()
        self._queued = 0
        self._arrival: asyncio.Future[None] | None = None

    # --- credit -----------------------------------------------------------------------------------------------------

    def may_accept(self) -> bool:
        """Whether a message would be accepted at once: there is credit, nobody asked earlier, and a quorum is not missing."""
        return self.credit > 0 and not self._queued and not self.held and self._failure is None

    async def accept_in_turn(self, accept: Callable[[int], None], portions: int) -> None:
        """Wait in line, then call `accept(n)` for each portion as credit allows; other senders wait until the last one."""
        self._require_quorum()
        self._queued += 1
        try:
            async with self._turn:
                for number in range(portions):
                    while (self.credit <= 0 or self.held) and self._failure is None:
                        self._require_quorum()
                        await self._wait_for_credit()
                    if self._failure is not None:
                        raise self._failure()
                    accept(number)
        finally:
            self._queued -= 1

    def _require_quorum(self) -> None:
        if self.held and self._raises and self._failure is None:
            raise NoQuorum(self.held)

    def quorum(self, missing: str, *, held: bool, raises: bool) -> None:
        """What is missing for a quorum from here on, if anything; whether all senders wait for it, or raise NoQuorum."""
        self.lacks, self.held, self._raises = missing, missing if held else "", raises
        for event, is_set in ((self._has_quorum, not self.lacks), (self._may_go_on, not self.held)):
            if is_set:
                event.set()
            else:
                event.clear()
        self._wake()

    async def require_quorum(self, *, raises: bool) -> None:
        """Wait until nothing is missing for a quorum, or raise NoQuorum: for senders whose node goes on without one."""
        while self.lacks and self._failure is None:
            if raises:
                raise NoQuorum(self.lacks)
            await self._has_quorum.wait()

    async def until_quorum(self) -> None:
        """Wait until nothing is missing for a quorum, or the session is over."""
        await self._may_go_on.wait()

    async def _wait_for_credit(self) -> None:
        assert self._arrival is None, "only the sender at the head of the line waits for credit or a quorum"
        self._arrival = asyncio.get_running_loop().create_future()
        try:
            await self._arrival
        finally:
            self._arrival = None

    def grant(self, amount: int) -> None:
        self.credit += amount
        if self.credit > 0:
            self._wake()

    def fail(self, failure: Callable[[], TransisError]) -> None:
        """All waiting and future senders raise this. What is still in the buffer is not sent."""
        self._failure = failure
        self._frames.clear()
        self._run, self._run_key = [], None
        self._may_go_on.set()
        self._has_quorum.set()
        self._wake()

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    # --- the buffer -------------------------------------------------------------------------------------------------

    def accept(self, address: bytes, service: Service, payloads: list[bytes], for_primary: bool = False) -> int:
        """Accept messages that fit one frame; returns the counter of the first. Nothing is accepted from another event loop."""
        assert self.credit > 0
        assert self._failure is None
        self._plan_flush()
        size = sum(map(len, payloads))
        key = (address, service, for_primary)
        if key != self._run_key or not self._fits(size, len(payloads)):
            require_service(service)
            self._close_run()
            self._run_key = key
            now_us = self._wall_us()
            self._run_us = now_us - now_us % GRAIN_US
        self._run += payloads
        self._run_bytes += size
        self.credit -= size + MESSAGE_COST * len(payloads)
        first = self.accepted + 1
        self.accepted += len(payloads)
        return first

    def _fits(self, size: int, count: int) -> bool:
        return self._run_bytes + size <= BATCH_BYTES and len(self._run) + count <= RUN_MESSAGES_MAX

    def _close_run(self) -> None:
        if self._run_key is not None:
            address, service, for_primary = self._run_key
            kind = SendToPrimary if for_primary else Send
            self._frames.append(kind(address, service, self._run, self._run_us))
            self._run, self._run_key, self._run_bytes = [], None, 0

    def post(self, frame: ClientFrame) -> None:
        """Queue a frame that needs no credit, behind what was accepted before it."""
        if self._failure is None:
            self._close_run()
            self._plan_flush()
            self._frames.append(frame)

    def post_anywhere(self, frame: ClientFrame) -> None:
        """Queue a frame that needs no credit and no place in the order: it does not end the run that is being filled."""
        if self._failure is None:
            self._plan_flush()
            self._frames.append(frame)

    def _plan_flush(self) -> None:
        if not self._flush_planned:
            loop = require_loop(self.home)
            self._flush_planned = True
            loop.call_soon(self.flush)

    def flush(self) -> None:
        self._flush_planned = False
        self._close_run()
        frames, self._frames = self._frames, []
        if frames and self._failure is None:
            self._transmit(frames)
