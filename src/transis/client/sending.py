"""Messages of a session on their way: accepted within the node's credit (outgoing.py), each call with a receipt (receipts.py)."""

from __future__ import annotations

from collections.abc import Sequence

from transis.client.outgoing import Outgoing, divide, require_size
from transis.client.receipts import Receipt, Receipts
from transis.types.errors import UsageError
from transis.types.ids import ProcessId, Service


class Sending:
    """Of one process, from when it has its id."""

    def __init__(self, out: Outgoing, process: ProcessId) -> None:
        self._out = out
        self._process = process
        self._receipts = Receipts()

    @property
    def unconfirmed(self) -> int:
        """Receipts that are open."""
        return len(self._receipts)

    async def send(self, address: bytes, payload: bytes, service: Service) -> Receipt:
        require_size(len(payload))
        if self._out.may_accept():
            receipt = Receipt(self._process, self._out.accept(address, service, [payload]), 1)
            self._receipts.add(receipt)
            return receipt
        return await self._send_in_turn(address, service, [[payload]])

    async def send_many(self, address: bytes, payloads: Sequence[bytes], service: Service) -> Receipt:
        if not payloads:
            raise UsageError("no messages to send")
        require_size(max(map(len, payloads)))
        return await self._send_in_turn(address, service, divide(payloads))

    async def _send_in_turn(self, address: bytes, service: Service, portions: list[list[bytes]]) -> Receipt:
        receipt: Receipt | None = None
        accepted, total = 0, sum(map(len, portions))

        def accept(number: int) -> None:
            nonlocal receipt, accepted
            first = self._out.accept(address, service, portions[number])
            if receipt is None:
                receipt = Receipt(self._process, first, total)
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

    def settle(self, first: int, messages: int, why: str) -> bool:
        """The node delivered them, or refused them for a reason; False if it has no business to say that."""
        return self._receipts.settle(first, messages, why)

    def lose(self, doubt: str) -> None:
        self._receipts.lose(doubt)
