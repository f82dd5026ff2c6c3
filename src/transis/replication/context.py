"""`transis.context`: what an action may know beside the state and its arguments, agreed with the order. And `transis.within`.

The clock and lots differ from replica to replica; inside an action `context.time` and `context.random` are the same everywhere,
and the same again when the log is replayed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from random import Random
from time import monotonic
from typing import Final

from transis.replication.entries import time_of
from transis.types.errors import UsageError


class Moment:
    """Where an action runs."""

    __slots__ = ("_random", "creator", "offset", "seed", "time_us")

    def __init__(self, time_us: int, offset: int, creator: str, seed: str) -> None:
        self.time_us, self.offset, self.creator, self.seed = time_us, offset, creator, seed
        self._random: Random | None = None

    def random(self) -> Random:
        if self._random is None:
            self._random = Random(f"{self.seed} {self.offset}")  # Agreed, so it cannot be secret.
        return self._random


class Context:
    """What `context` is: inside an action, the moment at which it runs."""

    @property
    def time(self) -> datetime:
        """When the action was posted, by its creator's clock, and never before an earlier action. In UTC."""
        return time_of(self._here().time_us)

    @property
    def random(self) -> Random:
        """Lots that are drawn alike everywhere. Who knows the log knows them, so they are no secret."""
        return self._here().random()

    @property
    def offset(self) -> int:
        """The place of the action among all messages of the group."""
        return self._here().offset

    @property
    def creator(self) -> str:
        """The replica at which the action was called, by name."""
        return self._here().creator

    def _here(self) -> Moment:
        moment = _moment.get()
        if moment is None:
            raise UsageError("transis.context is there inside an action of a replicated class only")
        return moment


context: Final = Context()

_moment: ContextVar[Moment | None] = ContextVar("transis moment", default=None)
_deadline: ContextVar[float | None] = ContextVar("transis deadline", default=None)


@contextmanager
def at_moment(moment: Moment) -> Iterator[None]:
    token = _moment.set(moment)
    try:
        yield
    finally:
        _moment.reset(token)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Calls and queries inside wait for so many `seconds`, then raise NoPrimary or NotYet. What was posted stays posted."""
    if not seconds > 0:
        raise UsageError(f"within({seconds}): give a number of seconds above 0")
    mine = monotonic() + seconds
    outer = _deadline.get()
    token = _deadline.set(mine if outer is None else min(mine, outer))
    try:
        yield
    finally:
        _deadline.reset(token)


class Once:
    """The client key of the calls inside `once`: each next one has another."""

    __slots__ = ("at", "calls", "key")

    def __init__(self, key: str, at: int | None) -> None:
        self.key, self.at, self.calls = key, at, 0

    def next_key(self) -> str:
        self.calls += 1
        return f"{self.key} {self.calls}"


_once: ContextVar[Once | None] = ContextVar("transis once", default=None)


@contextmanager
def once(key: str, *, at: int | None = None) -> Iterator[None]:
    """Calls inside have a client `key`: repeated after a crash, from any replica, they do not run again and return what they
    returned. `at` is an offset that was delivered when the key was first used, the same in every repetition."""
    with carrying(Once(key, at)):
        yield


@contextmanager
def carrying(key: Once) -> Iterator[None]:
    token = _once.set(key)
    try:
        yield
    finally:
        _once.reset(token)


def current_once() -> Once | None:
    return _once.get()


def remaining() -> float | None:
    """Seconds that `within` leaves, None if it says nothing."""
    deadline = _deadline.get()
    return None if deadline is None else max(0.0, deadline - monotonic())
