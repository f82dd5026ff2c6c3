"""The bank's class: its actions run at every branch in one order, so every branch has the same accounts."""

from __future__ import annotations

from transis import replicated


class NotEnough(Exception):
    """The account holds less than that."""


@replicated
class Accounts:
    def __init__(self) -> None:
        self.balance: dict[str, int] = {}

    @replicated.action
    def open(self, account: str, amount: int) -> None:
        self.balance[account] = amount

    @replicated.action
    def move(self, source: str, target: str, amount: int) -> int:
        if self.balance.get(source, 0) < amount:
            raise NotEnough(source)
        self.balance[source] -= amount
        self.balance[target] = self.balance.get(target, 0) + amount
        return self.balance[source]

    @replicated.query
    def of(self, account: str) -> int:
        return self.balance.get(account, 0)

    @replicated.query
    def total(self) -> int:
        return sum(self.balance.values())
