"""Joins and leaves of sessions on their way into the node, and their answers.

1. Per session and name one request at a time (memberships.py says why).
2. A node that has too many requests takes none; they are made again, in order, when it has room.
3. A view for a process that was not in the group is the answer to its join. Joined leaves at once, so that who is behind with its
   stream learns of it; the view itself is in the stream.
"""

from __future__ import annotations

from transis.sessions.frames import Joined, NotJoined
from transis.stack.grouped import GroupedNode
from transis.stack.memberships import REQUESTS_MAX, Request
from transis.stack.outbound import Outbound
from transis.stack.session import Session
from transis.types.errors import UsageError
from transis.types.views import require_group_name


class Requests:
    """`_put_off` are the requests that the node had no room for, in order."""

    def __init__(self, node: GroupedNode, outbound: Outbound) -> None:
        self._node = node
        self._outbound = outbound
        self._put_off: dict[tuple[int, str], Session] = {}

    def join(self, now: int, session: Session, name: str) -> str:
        """Ask to join; why the session must end, if it must."""
        try:
            require_group_name(name)
        except UsageError as error:
            self._outbound.answer(session, NotJoined(name, str(error)))
            return ""
        if session.memberships.will_be_in(name):
            self._outbound.answer(session, NotJoined(name, f"this session joined {name!r} already"))
            return ""
        return self._ask(now, session, name, Request.JOIN)

    def leave(self, now: int, session: Session, name: str) -> str:
        """Ask to leave; why the session must end, if it must."""
        return self._ask(now, session, name, Request.LEAVE) if session.memberships.will_be_in(name) else ""

    def _ask(self, now: int, session: Session, name: str, request: Request) -> str:
        if session.memberships.count >= REQUESTS_MAX:
            return f"{REQUESTS_MAX} of its joins and leaves have no answer yet, and no more are allowed: wait for answers"
        if session.memberships.ask(name, request):
            self._make(now, session, name, request)
        return ""

    def _make(self, now: int, session: Session, name: str, request: Request) -> None:
        try:
            if request is Request.JOIN:
                taken = self._node.join_group(now, session.number, name)
            else:
                taken = self._node.leave_group(now, session.number, name)
        except UsageError as error:
            self._refused_by_node(now, session, name, request, str(error))
            return
        if not taken:
            self._put_off[session.number, name] = session

    def _refused_by_node(self, now: int, session: Session, name: str, request: Request, why: str) -> None:
        """A leave is refused when the process was put out just now, and then its last word is on its way."""
        if request is Request.JOIN:
            self._outbound.answer(session, NotJoined(name, why))
        self._settle(now, session, name, request)

    def go_on(self, now: int) -> None:
        """The node may have room for requests."""
        put_off, self._put_off = self._put_off, {}
        for (_, name), session in put_off.items():
            request = session.memberships.first(name)
            if request is not None and not session.is_over:
                self._make(now, session, name, request)

    # --- answers ----------------------------------------------------------------------------------------------------

    def entered(self, now: int, session: Session, name: str) -> None:
        """A view has this process in it."""
        if name not in session.memberships.names:
            session.memberships.names.add(name)
            self._outbound.answer(session, Joined(name))
            self._settle(now, session, name, Request.JOIN)

    def left(self, now: int, session: Session, name: str) -> None:
        session.memberships.names.discard(name)
        if not session.is_over:
            self._settle(now, session, name, Request.LEAVE)

    def refused(self, now: int, session: Session, name: str, why: str) -> None:
        self._outbound.answer(session, NotJoined(name, why))
        self._settle(now, session, name, Request.JOIN)

    def _settle(self, now: int, session: Session, name: str, request: Request) -> None:
        """The request was answered; the next one about the name, if there is one, is made."""
        if not session.memberships.answered(name, request):
            return
        self._put_off.pop((session.number, name), None)
        following = session.memberships.first(name)
        if following is not None:
            self._make(now, session, name, following)
