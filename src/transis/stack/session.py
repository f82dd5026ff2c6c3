"""One session: what waits for its client, what waits from it, and the credit of both directions (sessions/frames.py, rule 2).

1. Answers leave at once. Stream frames leave in order, while the client's credit is above zero; one may overdraw it.
2. The client's messages: credit it has + credit owed to it + bytes that wait here = its window, always.
3. Receipts that go on from each other become one, however long they wait.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from transis.sessions.frames import MESSAGE_COST, Credit, Done, Goodbye, NodeFrame, Send, encode_frame, payload_cost
from transis.stack.memberships import Memberships

CREDIT_MAX: Final = 1 << 40
"""Credit is counted no further: a client's window protects the client, so it may make it as large as it likes."""

CHECKPOINTS_PER_S: Final = 1000
"""Checkpoints of one session that are recorded in a second: they cost the client no credit, and so need a bound of their own."""


class Parcel:
    """A frame on its way to one client or to many: made once, encoded once, and only if somebody wants its bytes.

    `holders` is how many queues it waits in, so that what they share is counted once.
    """

    __slots__ = ("_data", "cost", "frame", "holders")

    def __init__(self, frame: NodeFrame, cost: int = 0) -> None:
        self.frame = frame
        self.cost = cost
        self.holders = 0
        self._data = b""

    @property
    def data(self) -> bytes:
        if not self._data:
            self._data = encode_frame(self.frame)
        return self._data

    @property
    def is_last(self) -> bool:
        return isinstance(self.frame, Goodbye)


class Unsent:
    """A Send whose messages from `position` on the node has not taken yet; `cost` is what these count."""

    __slots__ = ("address", "cost", "payloads", "position", "service")

    def __init__(self, send: Send, cost: int) -> None:
        self.address = send.address
        self.service = send.service
        self.payloads: list[bytes] = send.payloads
        self.position = 0
        self.cost = cost

    def next_batch(self, budget: int) -> list[bytes]:
        """The next messages, about `budget` bytes of them and at least one."""
        payloads, end = self.payloads, self.position
        if self.cost <= budget:
            return payloads[end:] if end else payloads
        while end < len(payloads) and (budget > 0 or end == self.position):
            budget -= len(payloads[end]) + MESSAGE_COST
            end += 1
        return payloads[self.position : end]

    @property
    def remaining(self) -> int:
        return len(self.payloads) - self.position


class SessionStatus(NamedTuple):
    """A session as an operator sees it. Bytes are what credit counts."""

    process: int
    label: str
    groups: tuple[str, ...]
    queue_bytes: int
    """Of its stream, waiting for its credit or for its socket."""
    credit: int
    """Bytes of its stream that it would take now; below zero when one large message overdrew it."""
    unsent_bytes: int
    """Of its own messages, waiting for room in the node."""
    sent: int
    received: int
    connected_us: int
    checkpoints_dropped: int
    """Checkpoints that were not recorded: of a group it is not in, or more than CHECKPOINTS_PER_S."""


class Checkpoints:
    """How many checkpoints of a session were taken in the second that began at `_since`, and how many were dropped at all."""

    __slots__ = ("_since", "_taken", "dropped")

    def __init__(self) -> None:
        self.dropped = 0
        self._since = self._taken = 0

    def may_take(self, now: int) -> bool:
        if now - self._since >= 1_000_000:
            self._since, self._taken = now, 0
        self._taken += 1
        return self._taken <= CHECKPOINTS_PER_S


class Session:
    """The state of one session; who decides is the host."""

    __slots__ = (
        "_answers",
        "_done",
        "_returned",
        "answer_bytes",
        "checkpoints",
        "connected_us",
        "credit",
        "departing",
        "follows",
        "is_over",
        "label",
        "memberships",
        "number",
        "owed",
        "received",
        "send_credit",
        "sent",
        "stream",
        "stream_bytes",
        "unsent",
        "unsent_bytes",
    )

    def __init__(self, number: int, label: str, credit: int, send_window: int, now: int) -> None:
        self.number = number
        self.label = label
        self.connected_us = now
        self.memberships = Memberships()
        self.credit = credit
        self.stream: deque[Parcel] = deque()
        self.stream_bytes = 0
        self.send_credit = send_window
        self.owed = 0
        self.unsent: deque[Unsent] = deque()
        self.unsent_bytes = 0
        self.sent = self.received = 0
        self.follows = False
        self.checkpoints = Checkpoints()
        self.departing = False
        self.is_over = False
        self._answers: list[Parcel] = []
        self.answer_bytes = 0
        self._done: list[tuple[int, int]] = []
        self._returned = 0

    # --- to the client ----------------------------------------------------------------------------------------------

    def answer(self, frame: NodeFrame) -> int:
        """By how many bytes that is more. Encoded at once, because answers are rare and their bytes are what bounds them."""
        parcel = Parcel(frame)
        self._answers.append(parcel)
        self.answer_bytes += len(parcel.data)
        return len(parcel.data)

    def done(self, first: int, count: int) -> int:
        """A receipt; by how many bytes that is more."""
        done = self._done
        if done and done[-1][0] + done[-1][1] == first:
            done[-1] = (done[-1][0], done[-1][1] + count)
            return 0
        done.append((first, count))
        self.answer_bytes += MESSAGE_COST
        return MESSAGE_COST

    def may_stream(self) -> bool:
        return self.credit > 0 and bool(self.stream)

    def take_stream(self, most: int) -> list[Parcel]:
        """What the credit allows, in order, until it is `most` bytes or more."""
        taken: list[Parcel] = []
        while most > 0 and self.credit > 0 and self.stream:
            parcel = self.stream.popleft()
            self.credit -= parcel.cost
            self.stream_bytes -= parcel.cost
            most -= parcel.cost
            taken.append(parcel)
        return taken

    def take_answers(self) -> list[Parcel]:
        """Everything that never waits; Goodbye, if there is one, comes last by itself."""
        taken = [Parcel(Done(first, count)) for first, count in self._done]
        if self._returned:
            taken.append(Parcel(Credit(self._returned)))
        taken += self._answers
        self._answers, self._done, self._returned, self.answer_bytes = [], [], 0, 0
        return taken

    def add_credit(self, amount: int) -> None:
        self.credit = min(CREDIT_MAX, self.credit + amount)

    # --- from the client --------------------------------------------------------------------------------------------

    def spend(self, cost: int) -> None:
        assert self.send_credit > 0, "who has no credit is not let in"
        self.send_credit -= cost
        self.unsent_bytes += cost

    def took(self, count: int, cost: int) -> None:
        """The node took messages that were spent for: their credit is owed."""
        self.sent += count
        self.unsent_bytes -= cost
        self.owed += cost

    def give_back(self, amount: int) -> None:
        assert 0 < amount <= self.owed, "no credit is made up"
        self.owed -= amount
        self.send_credit += amount
        self._returned += amount

    # --- looking in -------------------------------------------------------------------------------------------------

    def status(self) -> SessionStatus:
        return SessionStatus(
            self.number,
            self.label,
            tuple(sorted(self.memberships.names)),
            self.stream_bytes,
            self.credit,
            self.unsent_bytes,
            self.sent,
            self.received,
            self.connected_us,
            self.checkpoints.dropped,
        )

    def check(self, send_window: int) -> None:
        assert self.send_credit + self.owed + self.unsent_bytes == send_window, "credit of Sends adds up"
        assert self.stream_bytes == sum(parcel.cost for parcel in self.stream), "the queue is counted exactly"
        for unsent in self.unsent:
            assert unsent.cost == payload_cost(unsent.payloads[unsent.position :]), "what waits to be sent is counted exactly"
        assert self.unsent_bytes == sum(unsent.cost for unsent in self.unsent), "and so is all of it"
