"""One session: what waits for its client and from it, the credit of both directions, its limits, and the groups it is in.

1. Answers leave at once. Stream frames leave in order, while the client's credit is above zero; one may overdraw it.
2. For the client's messages: credit it has + credit owed to it + bytes that wait here = its window, always.
3. Consecutive receipts of one configuration become one, however long they wait.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from transis.sessions.frames import (
    MESSAGE_COST,
    Credit,
    Done,
    Goodbye,
    NodeFrame,
    NotSent,
    Send,
    SendToPrimary,
    Welcome,
    WithoutQuorum,
    encode_frame,
    payload_cost,
)
from transis.types.config import MS, SECOND
from transis.types.errors import ConfigError
from transis.types.ids import ViewId
from transis.types.limits import RUN_MESSAGES_MAX

# --- groups -----------------------------------------------------------------------------------------------------------

REQUESTS_MAX: Final = 4096
"""Requests of one session that may be without an answer. A session that asks for more is ended."""


class Request(Enum):
    JOIN = "join"
    LEAVE = "leave"


class PendingGroups:
    """The groups of one session: `names` it is in, as its stream has it, and requests that have no answer yet.

    1. At most one request about a name is on its way through the order; later ones of the same session wait for its answer.
       Without this, a join and a leave that meet in a change of configuration would cancel each other out, and neither would be
       answered.
    2. Requests about one name alternate: a join to a group that the session is in, or will be, is refused; a leave of one that it
       is not in, or will not be, does nothing, because Left was sent or is on its way.
    """

    __slots__ = ("_asked", "count", "names")

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.count = 0
        self._asked: dict[str, deque[Request]] = {}

    def will_be_in(self, name: str) -> bool:
        """Whether the session will be in the group once all its requests are answered."""
        asked = self._asked.get(name)
        return asked[-1] is Request.JOIN if asked else name in self.names

    def wanted(self) -> set[str]:
        return {name for name in {*self.names, *self._asked} if self.will_be_in(name)}

    def asked(self) -> list[str]:
        """Names about which it asked something that has no answer yet."""
        return list(self._asked)

    def ask(self, name: str, request: Request) -> bool:
        """Note a request; True if it is the only one about the name, and so is to be made now."""
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
        """A request was answered; True if it was the first one about this name, which is then settled."""
        asked = self._asked.get(name)
        if not asked or asked[0] is not request:
            return False
        asked.popleft()
        self.count -= 1
        if not asked:
            del self._asked[name]
        return True


# --- session ----------------------------------------------------------------------------------------------------------

CREDIT_MAX: Final = 1 << 40
"""Credit is not counted beyond this. The window protects the client, so it may be as large as the client likes."""

ANSWER_COST: Final = 256
"""Added to the bytes of each answer: what it takes as an object, so that many small ones are not free."""

CHECKPOINTS_PER_S: Final = 1000
"""Checkpoints of one session that are recorded in a second: they cost no credit, so they need a bound of their own."""


class OutFrame:
    """A frame on its way to one client or to many: made once, and encoded once, when its bytes are first needed.

    `holders` is the number of queues it waits in, so that a shared frame is counted once.
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
    """A Send of which the node has not taken the messages from `position` on; `cost` is theirs."""

    __slots__ = ("_is_own", "address", "cost", "event_us", "for_primary", "payloads", "position", "service")

    def __init__(self, send: Send, cost: int) -> None:
        self.address = send.address
        self.service = send.service
        self.event_us = send.event_us
        self.for_primary = isinstance(send, SendToPrimary)
        self.payloads: list[bytes] = send.payloads
        self.position = 0
        self.cost = cost
        self._is_own = False

    def add(self, send: Send, cost: int) -> bool:
        """Let a Send go on from this one; False if it does not. Apart, each of many small ones would cost many times its bytes.

        The list of the first Send is its sender's, and stays as it is.
        """
        if (
            send.service is not self.service
            or send.address != self.address
            or send.event_us != self.event_us
            or isinstance(send, SendToPrimary) is not self.for_primary
            or len(self.payloads) + len(send.payloads) > RUN_MESSAGES_MAX
        ):
            return False
        if not self._is_own:
            self._is_own, self.payloads = True, list(self.payloads)
        self.payloads += send.payloads
        self.cost += cost
        return True

    def next_batch(self, budget: int, most: int) -> list[bytes]:
        """The next messages: about `budget` bytes of them, at least one, and no more than `most`."""
        payloads, start = self.payloads, self.position
        if self.cost <= budget and self.remaining <= most:
            return payloads[start:] if start else payloads
        end, last = start, min(start + most, len(payloads))
        while end < last and (budget > 0 or end == start):
            budget -= len(payloads[end]) + MESSAGE_COST
            end += 1
        return payloads[start:end]

    @property
    def remaining(self) -> int:
        return len(self.payloads) - self.position


class SessionStatus(NamedTuple):
    """A session as an operator sees it. Bytes are what credit counts."""

    process: int
    name: str
    label: str
    groups: tuple[str, ...]
    queue_bytes: int
    """Bytes of its stream that wait for its credit or its socket."""
    answer_bytes: int
    """Bytes of answers and receipts that wait for its socket."""
    credit: int
    """Bytes of its stream that may still be sent to it; below zero after a large message overdrew its credit."""
    unsent_bytes: int
    """Bytes of its own messages that wait for room in the node."""
    sent: int
    received: int
    connected_us: int
    checkpoints_dropped: int
    """Checkpoints that were not recorded: about a group it is not in, or more than CHECKPOINTS_PER_S."""


class Checkpoints:
    """How many checkpoints of a session were taken in the second that began at `_since`, and how many were ever dropped."""

    __slots__ = ("_since", "_taken", "dropped")

    def __init__(self) -> None:
        self.dropped = 0
        self._since = self._taken = 0

    def may_take(self, now: int) -> bool:
        if now - self._since >= 1_000_000:
            self._since, self._taken = now, 0
        self._taken += 1
        return self._taken <= CHECKPOINTS_PER_S


class SessionState:
    """The state of one session. The host makes the decisions."""

    __slots__ = (
        "_answers",
        "_done",
        "_quorum",
        "_returned",
        "answer_bytes",
        "checkpoints",
        "connected_us",
        "credit",
        "departing",
        "follows",
        "groups",
        "is_over",
        "label",
        "name",
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

    def __init__(self, number: int, label: str, credit: int, send_window: int, now: int, name: str = "") -> None:
        self.number = number
        self.name = name
        self.label = label
        self.connected_us = now
        self.groups = PendingGroups()
        self.credit = credit
        self.stream: deque[OutFrame] = deque()
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
        self._answers: list[OutFrame] = []
        self.answer_bytes = 0
        self._done: list[tuple[int, int, ViewId]] = []
        self._returned = 0
        self._quorum: WithoutQuorum | None = None

    # --- to the client ----------------------------------------------------------------------------------------------

    @property
    def held_bytes(self) -> int:
        """Everything that waits for its client and from it."""
        return self.stream_bytes + self.answer_bytes + self.unsent_bytes

    def answer(self, frame: NodeFrame) -> int:
        """Queue an answer; return how many bytes it adds. It is encoded at once: answers are rare, and bounded by their bytes."""
        out = OutFrame(frame)
        more = len(out.data) + ANSWER_COST
        self._answers.append(out)
        self.answer_bytes += more
        return more

    def drop_answers(self, *, but_receipts: bool = False) -> int:
        """All but the Goodbye, if there is one, and perhaps what became of its messages; by how many bytes that is less."""
        before = self.answer_bytes
        kept = (Welcome, NotSent, Goodbye) if but_receipts else Goodbye
        self._answers = [out for out in self._answers if isinstance(out.frame, kept)]
        if not but_receipts:
            self._done = []
        self.answer_bytes = self._bytes_of_answers()
        return before - self.answer_bytes

    def _bytes_of_answers(self) -> int:
        return sum(len(out.data) + ANSWER_COST for out in self._answers) + MESSAGE_COST * len(self._done)

    def done(self, first: int, count: int, view: ViewId) -> int:
        """Queue a receipt; return how many bytes it adds."""
        done = self._done
        if done and done[-1][0] + done[-1][1] == first and done[-1][2] == view:
            done[-1] = (done[-1][0], done[-1][1] + count, view)
            return 0
        done.append((first, count, view))
        self.answer_bytes += MESSAGE_COST
        return MESSAGE_COST

    def stands(self, quorum: WithoutQuorum) -> None:
        """Only how things stand when it leaves is of interest."""
        self._quorum = quorum

    def may_stream(self) -> bool:
        return self.credit > 0 and bool(self.stream)

    def take_stream(self, most: int) -> list[OutFrame]:
        """The frames that credit allows, in order, until they have `most` bytes or more."""
        taken: list[OutFrame] = []
        while most > 0 and self.credit > 0 and self.stream:
            out = self.stream.popleft()
            self.credit -= out.cost
            self.stream_bytes -= out.cost
            most -= out.cost
            taken.append(out)
        return taken

    def take_answers(self) -> list[OutFrame]:
        """All frames that never wait; Goodbye, if there is one, is the last."""
        taken = [OutFrame(Done(*done)) for done in self._done]
        if self._returned:
            taken.append(OutFrame(Credit(self._returned)))
        taken += self._answers
        if self._quorum is not None and not (self._answers and self._answers[-1].is_last):
            taken.append(OutFrame(self._quorum))
        self._answers, self._done, self._returned, self._quorum, self.answer_bytes = [], [], 0, None, 0
        return taken

    def add_credit(self, amount: int) -> None:
        self.credit = min(CREDIT_MAX, self.credit + amount)

    # --- from the client --------------------------------------------------------------------------------------------

    def spend(self, cost: int) -> None:
        assert self.send_credit > 0, "a Send without credit is not accepted"
        self.send_credit -= cost
        self.unsent_bytes += cost

    def took(self, count: int, cost: int) -> None:
        """The node took messages: their credit is owed to the client."""
        self.sent += count
        self.unsent_bytes -= cost
        self.owed += cost

    def give_back(self, amount: int) -> None:
        assert 0 < amount <= self.owed, "no more credit than is owed"
        self.owed -= amount
        self.send_credit += amount
        self._returned += amount

    # --- looking in -------------------------------------------------------------------------------------------------

    def status(self) -> SessionStatus:
        return SessionStatus(
            self.number,
            self.name,
            self.label,
            tuple(sorted(self.groups.names)),
            self.stream_bytes,
            self.answer_bytes,
            self.credit,
            self.unsent_bytes,
            self.sent,
            self.received,
            self.connected_us,
            self.checkpoints.dropped,
        )

    def check(self, send_window: int) -> None:
        assert self.send_credit + self.owed + self.unsent_bytes == send_window, "credit of Sends adds up"
        assert self.stream_bytes == sum(out.cost for out in self.stream), "the queue is counted exactly"
        assert self.answer_bytes == self._bytes_of_answers(), "and so are answers"
        for unsent in self.unsent:
            assert unsent.cost == payload_cost(unsent.payloads[unsent.position :]), "what waits to be sent is counted exactly"
        assert self.unsent_bytes == sum(unsent.cost for unsent in self.unsent), "their sum is counted exactly"


# --- limits -----------------------------------------------------------------------------------------------------------

KIB: Final = 1 << 10
MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class SessionPolicy:
    """What a node grants each of its sessions, and what happens to one that wants more.

    The figures are in bytes as `frames.cost` counts them: payload and a little for each message. Objects and encoded copies come
    on top, so with small messages a node may really hold about three times as much.
    """

    send_window: int = MIB
    """Bytes of Sends that a client may have on their way into the node: enough for a busy ring, little enough for a thousand
    clients. An honest client waits for credit; the session of one that sends without it is ended."""
    queue_max: int = 32 * MIB
    """Bytes of its stream that may wait for one client. Above a quarter of this the client's own Sends get credit only in a
    trickle; above all of it the session is ended, and nobody else notices. A burst of the ring must fit, so do not go far below 8
    MiB."""
    patience_us: int = 30 * SECOND
    """How long a stream may wait without any credit from its client before the client counts as hung and its session is ended."""
    sessions_max: int = 4096
    """Sessions at a time: each is a descriptor here and a process in the tables of all nodes. One more is turned away."""
    total_max: int = 512 * MIB
    """Bytes that may wait for and from all clients together. Beyond that the session that holds the most is ended."""
    trickle_us: int = 50 * MS
    """A client that is far behind with its stream gets credit for one Send after this long. Without any, a client that sends
    from inside its handler would wait for itself."""
    answers_max: int = 4 * MIB
    """Bytes of answers and receipts that may wait for a client that asks and does not read. Beyond that its session is ended."""

    @property
    def throttle_above(self) -> int:
        return self.queue_max // 4

    def validated(self) -> SessionPolicy:
        """Check every range and relation; return self, so that a caller can chain."""
        _between("send_window", self.send_window, 4 * KIB, 1 << 31, "bytes")
        _between("queue_max", self.queue_max, 64 * KIB, 1 << 34, "bytes")
        _between("patience_us", self.patience_us, 100 * MS, 24 * 3_600 * SECOND, "microseconds")
        _between("answers_max", self.answers_max, 4 * KIB, 1 << 34, "bytes")
        _between("sessions_max", self.sessions_max, 1, 65_536, "sessions")
        _between("total_max", self.total_max, self.queue_max, 1 << 40, "bytes (at least sessions.queue_max)")
        _between("trickle_us", self.trickle_us, 1 * MS, 10 * SECOND, "microseconds")
        return self


def _between(field: str, value: int, low: int, high: int, unit: str) -> None:
    if not low <= value <= high:
        raise ConfigError(f"sessions.{field}", value, f"must be from {low} to {high} {unit}")
