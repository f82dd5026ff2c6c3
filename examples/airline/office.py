"""An office: a member of the group that sells what is free in the history that it has seen.

All offices of one side see the same requests in the same order, so each of them knows who has a seat, without asking anybody. An
office that is cut off does the same with its own history, and sells what others sell, too. That is the choice of this airline:
it had rather rebook a passenger now and then than close its counters.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Final

from examples.airline.script import FLIGHTS, Request
from transis import Batch, Service, View
from transis.client import Session
from transis.client.group import Group

GROUP: Final = "seats"
SEATS: Final = {one.flight: one.seats for one in FLIGHTS}


class Office:
    """`sold` has the requests that got a seat here, in order; `heard` all of them."""

    def __init__(self, name: str, session: Session[bytes], group: Group[bytes], news: Callable[[], None]) -> None:
        self.name = name
        self.sold: list[str] = []
        self.heard: set[str] = set()
        self.company: tuple[str, ...] = ()
        self.members = 0
        self._taken: Counter[str] = Counter()
        self._numbers = count(1)
        self._session, self._group, self._news = session, group, news
        self._task = asyncio.create_task(self._listen())

    async def ask(self, request: Request) -> str:
        """Put a request into the order; its id. Whether there is a seat, everybody sees when it comes."""
        number = f"{self.name}-{next(self._numbers)}"
        words = {"request": number, "flight": request.flight, "passenger": request.passenger, "fare": request.fare}
        await self._group.send(json.dumps({**words, "office": self.name}).encode(), Service.SAFE)
        return number

    async def _listen(self) -> None:
        async for event in self._group.batches():
            if isinstance(event, Batch):
                for message in event:
                    self._sell(json.loads(message.data))
            elif isinstance(event, View):
                self._look(event)
            self._news()

    def _sell(self, request: dict[str, str]) -> None:
        flight = request["flight"]
        if self._taken[flight] < SEATS[flight]:
            self._taken[flight] += 1
            self.sold.append(request["request"])
        self.heard.add(request["request"])

    def _look(self, view: View) -> None:
        """Who else is there, once a view is regular."""
        if view.id.configuration.is_regular:
            self.company = tuple(sorted({member.node.name for member in view.members}))
            self.members = len(view.members)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._session.close()
