"""A replicated class for the tests of this room."""

from __future__ import annotations

from datetime import datetime

from transis import context, replicated


class NotEnough(Exception):
    pass


@replicated
class Accounts:
    def __init__(self) -> None:
        self.balance: dict[str, int] = {}
        self.last: datetime | None = None
        self.lots: list[float] = []

    @replicated.action
    def open(self, a: str, amount: int = 0) -> None:
        self.balance[a] = amount
        self.last = context.time

    @replicated.action
    def move(self, a: str, b: str, amount: int) -> int:
        if self.balance.get(a, 0) < amount:
            raise NotEnough(a)
        self.balance[a] -= amount
        self.balance[b] = self.balance.get(b, 0) + amount
        return self.balance[a]

    @replicated.action
    def draw(self) -> float:
        self.lots.append(context.random.random())
        return self.lots[-1]

    @replicated.action
    def everything(self) -> dict[str, int]:
        return self.balance

    @replicated.query
    def of(self, a: str) -> int:
        return self.balance.get(a, 0)

    @replicated.query
    def all(self) -> dict[str, int]:
        return self.balance
