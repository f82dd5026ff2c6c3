"""What waits for the clients: answers that leave at once, streams that wait for credit, and whose patience has an end.

1. A parcel that waits in several queues is counted once in `bytes`, as it is there once. Answers are counted too.
2. A stream is stalled from the moment something waits in it. The clock starts anew with every credit of its client, and stops
   when everything has left. Entries are made in the order of time, so the first one is the oldest.
"""

from __future__ import annotations

from transis.sessions.frames import NodeFrame
from transis.stack.session import Parcel, Session
from transis.stack.sessionpolicy import SessionPolicy
from transis.types.outputs import NEVER


class Outbound:
    """The queues of all sessions. `bytes` is what waits in them together."""

    def __init__(self, policy: SessionPolicy) -> None:
        self.bytes = 0
        self._policy = policy
        self._ready: dict[int, None] = {}
        self._stalled: dict[int, int] = {}

    def answer(self, session: Session, frame: NodeFrame) -> None:
        self.bytes += session.answer(frame)
        self._ready[session.number] = None

    def done(self, session: Session, first: int, count: int) -> None:
        self.bytes += session.done(first, count)
        self._ready[session.number] = None

    def push(self, now: int, session: Session, parcel: Parcel) -> bool:
        """Put a frame into the stream of a session. False if too much waited there already."""
        if session.stream_bytes > self._policy.queue_max:
            return False
        if not session.stream:
            self._stalled.setdefault(session.number, now)
        session.stream.append(parcel)
        session.stream_bytes += parcel.cost
        if not parcel.holders:
            self.bytes += parcel.cost
        parcel.holders += 1
        if session.credit > 0:
            self._ready[session.number] = None
        return True

    def add_credit(self, now: int, session: Session, amount: int) -> None:
        session.add_credit(amount)
        if session.stream:
            self._stalled.pop(session.number, None)
            self._stalled[session.number] = now
            if session.credit > 0:
                self._ready[session.number] = None

    def take_stream(self, session: Session, most: int) -> list[Parcel]:
        parcels = session.take_stream(most)
        for parcel in parcels:
            self._let_go(parcel)
        if not session.stream:
            self._stalled.pop(session.number, None)
        return parcels

    def take_answers(self, session: Session) -> list[Parcel]:
        self.bytes -= session.answer_bytes
        if not session.may_stream():
            self._ready.pop(session.number, None)
        return session.take_answers()

    def drop(self, session: Session) -> None:
        """Nothing of its stream will leave any more."""
        for parcel in session.stream:
            self._let_go(parcel)
        session.stream.clear()
        session.stream_bytes = 0
        self._stalled.pop(session.number, None)

    def _let_go(self, parcel: Parcel) -> None:
        parcel.holders -= 1
        if not parcel.holders:
            self.bytes -= parcel.cost

    # --- whose turn it is -------------------------------------------------------------------------------------------

    def mark_ready(self, session: Session) -> None:
        self._ready[session.number] = None

    def forget(self, session: Session) -> None:
        """Nothing at all will leave any more."""
        self.drop(session)
        self.take_answers(session)

    def ready(self) -> list[int]:
        return list(self._ready)

    def waited(self, now: int, session: Session) -> int:
        """For how long there was something to take and no credit came."""
        return now - self._stalled.get(session.number, now)

    def deadline(self) -> int:
        return next(iter(self._stalled.values())) + self._policy.patience_us if self._stalled else NEVER

    def longest_stalled(self) -> int:
        return next(iter(self._stalled))
