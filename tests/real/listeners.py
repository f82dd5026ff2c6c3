"""Clients of a site: each has a session with a daemon and a stream that it writes down, message by message and view by view.

Payloads of 16 bytes and more begin with the digest of the rest, so that whoever gets one can tell whether it is whole.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from itertools import cycle

from tests.real.notes import Heard, Notes
from tests.real.waiting import Changes
from transis.client import Group, Message, Receipt, Session, View
from transis.trace.events import is_ordered
from transis.types.errors import InDoubt, SendRefused, SessionLost, TransisError
from transis.types.ids import MessageId, ProcessId, Service

DIGEST = 16
MARK = b"mark "
SERVICES = tuple(Service)
SIZES = (0, 1, 15, 16, 100, 1300, 1400, 5000)
"""Of ordinary traffic: nothing, less than a digest, one datagram, several."""


def ordered(engine: str) -> tuple[Service, ...]:
    """Services whose messages all have one order with each other and with views of groups."""
    return tuple(service for service in SERVICES if is_ordered(service, engine))


def payload(seed: int, size: int) -> bytes:
    if size < DIGEST:
        return bytes([seed & 255]) * size
    body = (seed.to_bytes(8) * (size // 8 + 1))[: size - DIGEST]
    return blake2b(body, digest_size=DIGEST).digest() + body


def is_whole(data: bytes) -> bool:
    if len(data) < DIGEST:
        return len(set(data)) <= 1
    return blake2b(data[DIGEST:], digest_size=DIGEST).digest() == data[:DIGEST]


class Listener:
    """`heard` is its whole stream. `failure` is what ended it, if that was not its own wish."""

    def __init__(self, label: str, session: Session[bytes], group: Group[bytes], changes: Changes) -> None:
        self.label = label
        self.session = session
        self.group = group
        self.heard: list[Heard | View] = []
        self.marks: set[bytes] = set()
        self.spoilt: list[MessageId] = []
        self.messages = 0
        self.bytes = 0
        self.failure: TransisError | None = None
        self.outcomes: Counter[str] = Counter()
        self.receipts: list[Receipt] = []
        self.view: View | None = None
        self.views: dict[str, View] = {}
        """Of each of its groups, the view in force."""
        self._changes = changes
        self._listening = asyncio.create_task(self._listen())

    @property
    def process(self) -> ProcessId:
        return self.session.process

    @property
    def members(self) -> tuple[ProcessId, ...]:
        return self.view.members if self.view is not None else ()

    @property
    def has_ended(self) -> bool:
        return self._listening.done()

    @property
    def notes(self) -> Notes:
        told = [receipt for receipt in self.receipts if receipt.outcome == "delivered"]
        promised = {MessageId(self.process, one.first + step) for one in told for step in range(one.count)}
        return Notes(self.label, self.group.names, self.heard, self.spoilt, promised if self.failure is None else set())

    # --- hearing ----------------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        try:
            async for event in self.group:
                self._note(event)
                self._changes.tell()
        except TransisError as failure:
            self.failure = failure
        self._changes.tell()

    def _note(self, event: Message[bytes] | View) -> None:
        if not isinstance(event, Message):
            self.heard.append(event)
            self.view = self.views[event.name] = event
            return
        data = event.data
        self.messages += 1
        self.bytes += len(data)
        self.heard.append(Heard(event.id, event.service, event.groups, event.view, event.place, len(data)))
        if data.startswith(MARK):
            self.marks.add(data)
        elif not is_whole(data):
            self.spoilt.append(event.id)

    # --- sending ----------------------------------------------------------------------------------------------------

    async def say(self, data: bytes, service: Service = Service.AGREED) -> Receipt:
        receipt = await self.group.send(data, service)
        self.receipts.append(receipt)
        return receipt

    async def chat(self, rounds: int, sizes: Sequence[int] = SIZES, services: Sequence[Service] = SERVICES) -> None:
        """So many messages of each size and service; returns when all of them were delivered here."""
        receipts = [
            await self.say(payload(number * 100 + size, size), service)
            for number in range(rounds)
            for size in sizes
            for service in services
        ]
        for receipt in receipts:
            await receipt

    async def talk(self, sizes: Sequence[int] = SIZES, services: Sequence[Service] = SERVICES) -> None:
        """One message after the other, each when the one before has its receipt, until cancelled or the session is lost."""
        for number, (service, size) in enumerate(zip(cycle(services), cycle((*sizes, 50)))):
            try:
                receipt = await self.say(payload(number, size), service)
                await receipt
            except SendRefused:
                self.outcomes["refused"] += 1
            except InDoubt:
                self.outcomes["in doubt"] += 1
            except SessionLost:
                return
            else:
                self.outcomes["delivered"] += 1

    async def close(self) -> None:
        await self.session.close()
        await self._listening

    async def clean_up(self) -> None:
        self._listening.cancel()
        with suppress(asyncio.CancelledError, TransisError):
            await self._listening
        await self.session.close()


class Traffic:
    """`async with Traffic(listeners)`: all of them talk meanwhile, and stop with their last receipts settled."""

    def __init__(
        self, listeners: Sequence[Listener], sizes: Sequence[int] = SIZES, services: Sequence[Service] = SERVICES
    ) -> None:
        self._listeners = listeners
        self._sizes = sizes
        self._services = services
        self._talking: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Traffic:
        self._talking = [asyncio.create_task(one.talk(self._sizes, self._services)) for one in self._listeners]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._talking:
            task.cancel()
        for result in await asyncio.gather(*self._talking, return_exceptions=True):
            if isinstance(result, Exception):
                raise result
