"""What leaves a session: messages within the credit that the node gave, packed, and flushed once per turn of the event loop.

1. A message is *accepted* when it gets its counter and lies in the buffer; until then cancelling whoever waits means that it was
   not sent, from then on it is sent unless the session is lost.
2. Messages are accepted while credit is above zero and may overdraw it once (sessions/frames.py, rule 2). What was accepted together
   is never divided between frames: the second frame would begin without credit.
3. Who has to wait, waits in the order of asking. Nothing else is ever waited for here, so a sender cannot wait for itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from transis.sessions.frames import BATCH_BYTES, MESSAGE_COST, ClientFrame, Send
from transis.types.errors import MessageTooLarge, TransisError
from transis.types.ids import Service
from transis.types.limits import MESSAGE_MAX, RUN_MESSAGES_MAX

Transmit = Callable[[Sequence[ClientFrame]], None]


def require_size(size: int) -> None:
    if size > MESSAGE_MAX:
        raise MessageTooLarge(f"a message of {size} bytes: at most {MESSAGE_MAX} are allowed; send it in parts")


def divide(payloads: Sequence[bytes]) -> list[list[bytes]]:
    """Portions that fit one frame each: RUN_MESSAGES_MAX messages and BATCH_BYTES at most, or one larger message alone."""
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


class Outgoing:
    """`credit` is what the node still lets us send, `accepted` the counter of the last message."""

    def __init__(self, transmit: Transmit) -> None:
        self.credit = 0
        self.accepted = 0
        self._transmit = transmit
        self._failure: Callable[[], TransisError] | None = None
        self._frames: list[ClientFrame] = []
        self._run: list[bytes] = []
        self._run_key: tuple[bytes, Service] | None = None
        self._run_bytes = 0
        self._flush_planned = False
        self._turn = asyncio.Lock()
        self._queued = 0
        self._arrival: asyncio.Future[None] | None = None

    # --- who may send -----------------------------------------------------------------------------------------------

    def may_accept(self) -> bool:
        """Whether a message would be accepted at once: credit, and nobody who asked earlier."""
        return self.credit > 0 and not self._queued and self._failure is None

    async def accept_in_turn(self, accept: Callable[[int], None], portions: int) -> None:
        """Wait for the turn, then call `accept(n)` for each portion as credit allows; other senders wait until the last."""
        self._queued += 1
        try:
            async with self._turn:
                for number in range(portions):
                    while self.credit <= 0 and self._failure is None:
                        await self._wait_for_credit()
                    if self._failure is not None:
                        raise self._failure()
                    accept(number)
        finally:
            self._queued -= 1

    async def _wait_for_credit(self) -> None:
        assert self._arrival is None, "only whose turn it is waits for credit"
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
        """Whoever waits, and whoever comes, raises this. What lies in the buffer is not sent any more."""
        self._failure = failure
        self._frames.clear()
        self._run, self._run_key = [], None
        self._wake()

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    # --- the buffer -------------------------------------------------------------------------------------------------

    def accept(self, address: bytes, service: Service, payloads: list[bytes]) -> int:
        """Take messages that fit one frame; the counter of the first."""
        assert self.credit > 0
        assert self._failure is None
        size = sum(map(len, payloads))
        key = (address, service)
        if key != self._run_key or not self._fits(size, len(payloads)):
            self._close_run()
            self._run_key = key
        self._run += payloads
        self._run_bytes += size
        self.credit -= size + MESSAGE_COST * len(payloads)
        first = self.accepted + 1
        self.accepted += len(payloads)
        self._plan_flush()
        return first

    def _fits(self, size: int, count: int) -> bool:
        return self._run_bytes + size <= BATCH_BYTES and len(self._run) + count <= RUN_MESSAGES_MAX

    def _close_run(self) -> None:
        if self._run_key is not None:
            address, service = self._run_key
            self._frames.append(Send(address, service, self._run))
            self._run, self._run_key, self._run_bytes = [], None, 0

    def post(self, frame: ClientFrame) -> None:
        """A frame that needs no credit, behind what was accepted before it."""
        if self._failure is None:
            self._close_run()
            self._frames.append(frame)
            self._plan_flush()

    def post_anywhere(self, frame: ClientFrame) -> None:
        """A frame that needs no credit and says nothing about order: it does not end the run that is being filled."""
        if self._failure is None:
            self._frames.append(frame)
            self._plan_flush()

    def _plan_flush(self) -> None:
        if not self._flush_planned:
            self._flush_planned = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        self._flush_planned = False
        self._close_run()
        frames, self._frames = self._frames, []
        if frames and self._failure is None:
            self._transmit(frames)
