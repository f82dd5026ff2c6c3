"""The groups of one session: what it is in, and what it asked for that has no answer yet.

1. At most one request about a name is on its way through the order; later ones of the same session wait for its answer. Without
   this, a join and a leave that meet in a change of configuration would cancel each other out there, and be answered by nobody.
2. Requests about one name alternate: a join of what is joined, or will be, is refused; a leave of what is left, or will be, is
   nothing, because its last word was said or is on its way.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Final

REQUESTS_MAX: Final = 4096
"""Requests of one session that have no answer yet. A session that asks for more is ended."""


class Request(Enum):
    JOIN = "join"
    LEAVE = "leave"


class Memberships:
    """`names` is what the session is in, as its stream has it."""

    __slots__ = ("_asked", "count", "names")

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.count = 0
        self._asked: dict[str, deque[Request]] = {}

    def will_be_in(self, name: str) -> bool:
        """Whether the session is in the group once everything it asked for was answered."""
        asked = self._asked.get(name)
        return asked[-1] is Request.JOIN if asked else name in self.names

    def ask(self, name: str, request: Request) -> bool:
        """Whether this is the only request about the name, and so is to be made now."""
        assert self.will_be_in(name) is (request is Request.LEAVE), "requests about one name alternate"
        asked = self._asked.setdefault(name, deque())
        asked.append(request)
        self.count += 1
        return len(asked) == 1

    def first(self, name: str) -> Request | None:
        """The request about this name that is on its way, or is to be made."""
        asked = self._asked.get(name)
        return asked[0] if asked else None

    def answered(self, name: str, request: Request) -> bool:
        """The first request about this name is settled, if it was this one."""
        asked = self._asked.get(name)
        if not asked or asked[0] is not request:
            return False
        asked.popleft()
        self.count -= 1
        if not asked:
            del self._asked[name]
        return True
