"""An office: a member of the group that sells what is free in the history it has seen.

All offices of one side see the same requests in the same order, so each of them knows who has a seat without asking the others.
An office that is cut off does the same with its own history, and may sell what others sell, too. That is the choice of this
airline: it would rather rebook a passenger now and then than close its counters.

When sides meet, each reports what it sold, and requests wait until all sides have reported. From then on all offices know the
same again, and decide alike. An office that opens later would need the list of sold seats (docs/client.md, state transfer).
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any, Final

from examples.airline.script import FLIGHTS, Request
from transis import Batch, ProcessId, Service, View
from transis.client import Session
from transis.client.group import Group

GROUP: Final = "seats"
STAFF: Final = "offices"
"""The group of the offices alone: the other one also has archivers, which neither sell nor report."""
SEATS: Final = {one.flight: one.seats for one in FLIGHTS}


async def open_office(name: str, session: Session[bytes], news: Callable[[], None] = lambda: None) -> Office:
    """Join both groups as one stream in one order; messages go to both."""
    return Office(name, session, await session.join(GROUP, STAFF).open(), news)


class Office:
    """`sold` maps requests with a seat to their flights, as far as this office knows; `heard` holds all decided requests."""

    def __init__(self, name: str, session: Session[bytes], group: Group[bytes], news: Callable[[], None]) -> None:
        self.name = name
        self.sold: dict[str, str] = {}
        self.heard: set[str] = set()
        self.company: tuple[str, ...] = ()
        self.members = 0
        self._asked: deque[dict[str, str]] = deque()
        self._silent: list[set[ProcessId]] = []
        """Sides of the last merge that have not reported yet what they sold."""
        self._merge = ""
        self._numbers = count(1)
        self._session, self._group, self._news = session, group, news
        self._task = asyncio.create_task(self._listen())

    async def ask(self, request: Request) -> str:
        """Send a request; returns its id. Every office decides on it when it arrives in the order."""
        number = f"{self.name}-{next(self._numbers)}"
        words = {"request": number, "flight": request.flight, "passenger": request.passenger, "fare": request.fare}
        await self._send({**words, "office": self.name})
        return number

    async def _send(self, words: dict[str, Any]) -> None:
        await self._group.send(json.dumps(words).encode(), Service.SAFE)

    async def _listen(self) -> None:
        async for event in self._group.batches():
            if isinstance(event, Batch):
                for message in event:
                    self._hear(message.sender, json.loads(message.data))
            elif isinstance(event, View) and event.id.configuration.is_regular:
                await self._look(event)
            self._news()

    def _hear(self, sender: ProcessId, words: dict[str, Any]) -> None:
        if "request" in words:
            self._asked.append(words)
        elif words["merge"] == self._merge:
            self.sold |= words["sold"]
            self._silent = [side for side in self._silent if sender not in side]
        self._decide()

    async def _look(self, view: View) -> None:
        """Note who is there, and start a merge if offices come from several sides."""
        if view.name == GROUP:
            self.company = tuple(sorted({member.node.name for member in view.members}))
            self.members = len(view.members)
        elif len(view.merged_from) > 1:
            await self._meet(view)
        else:
            self._silent = [left for side in self._silent if (left := side.intersection(view.members))]
            self._decide()

    async def _meet(self, view: View) -> None:
        """All members of one side know the same, so the first report of each side is enough."""
        self._silent = []
        self._decide()  # Decide what still waits for an earlier merge with what this side knows.
        self._silent = [set(origin.members) for origin in view.merged_from]
        self._merge = str(view.id)
        await self._send({"merge": self._merge, "sold": self.sold, "office": self.name})

    def _decide(self) -> None:
        while self._asked and not self._silent:
            self._sell(self._asked.popleft())

    def _sell(self, request: dict[str, str]) -> None:
        number, flight = request["request"], request["flight"]
        if list(self.sold.values()).count(flight) < SEATS[flight]:
            self.sold[number] = flight
        self.heard.add(number)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._session.close()
