"""What waits between clients and their node: sends, joins and leaves on their way in, answers and streams on their way out.

1. Clients take turns, one step each (Turns): a client that says a lot holds up neither the others nor the node.
2. In: messages that the node has no room for wait and go in by turns (SendQueue), requests about a group one by one
   (GroupRequests).
3. Out: answers leave at once, streams by credit (StreamQueues).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Final, Generic, Protocol, TypeVar

from transis.node.node import Node
from transis.sessions.frames import Joined, NodeFrame, NotJoined, Send, WithoutQuorum, payload_cost
from transis.sessions.session import REQUESTS_MAX, OutFrame, Request, SessionPolicy, SessionState, Unsent
from transis.types.errors import Rejection, UsageError
from transis.types.ids import ViewId
from transis.types.limits import MESSAGE_MAX, RUN_MESSAGES_MAX
from transis.types.outputs import NEVER
from transis.types.views import require_group_name
from transis.wire.items import decode_address

# --- turns ------------------------------------------------------------------------------------------------------------


class Speaker(Protocol):
    """Somebody whose words wait to be handled."""

    def work_off(self) -> bool:
        """One step: a frame, or what is needed to have one. False when nothing is left."""


Waiting = TypeVar("Waiting", bound=Speaker)


class Turns(Generic[Waiting]):
    """Who waits, in the order of their turns. Whoever runs the node says after each step whether there is time for another."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[Waiting, None] = OrderedDict()

    def __contains__(self, speaker: Waiting) -> bool:
        return speaker in self._waiting

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __iter__(self) -> Iterator[Waiting]:
        return iter(list(self._waiting))

    def add(self, speaker: Waiting) -> None:
        """Again is nothing: it keeps its place."""
        self._waiting.setdefault(speaker)

    def drop(self, speaker: Waiting) -> None:
        self._waiting.pop(speaker, None)

    def work(self, may_go_on: Callable[[], bool]) -> None:
        """At least one step, if anybody waits."""
        while self._waiting:
            speaker, _ = self._waiting.popitem(last=False)
            if speaker.work_off():
                self._waiting.setdefault(speaker)
            if not may_go_on():
                return


# --- out --------------------------------------------------------------------------------------------------------------


class StreamQueues:
    """The streams and answers of all sessions. `bytes` is what waits in all of them.

    1. A frame that waits in several queues is counted once, because it is in memory once. Answers are counted, too.
    2. A stream is stalled from the moment something waits in it. The clock restarts with every credit from its client, and stops
       when everything has left. Entries are made in the order of time, so the first one is the oldest.
    """

    def __init__(self, policy: SessionPolicy) -> None:
        self.bytes = 0
        self._policy = policy
        self._ready: dict[int, None] = {}
        self._stalled: dict[int, int] = {}

    def answer(self, session: SessionState, frame: NodeFrame) -> None:
        self.bytes += session.answer(frame)
        self._ready[session.number] = None

    def done(self, session: SessionState, first: int, count: int, view: ViewId) -> None:
        self.bytes += session.done(first, count, view)
        self._ready[session.number] = None

    def stands(self, session: SessionState, quorum: WithoutQuorum) -> None:
        session.stands(quorum)
        self._ready[session.number] = None

    def push(self, now: int, session: SessionState, out: OutFrame) -> bool:
        """Put a frame into a session's stream; False if too much waits there already."""
        if session.stream_bytes > self._policy.queue_max:
            return False
        if not session.stream:
            self._stalled.setdefault(session.number, now)
        session.stream.append(out)
        session.stream_bytes += out.cost
        if not out.holders:
            self.bytes += out.cost
        out.holders += 1
        if session.credit > 0:
            self._ready[session.number] = None
        return True

    def add_credit(self, now: int, session: SessionState, amount: int) -> None:
        session.add_credit(amount)
        if session.stream:
            self._stalled.pop(session.number, None)
            self._stalled[session.number] = now
            if session.credit > 0:
                self._ready[session.number] = None

    def take_stream(self, session: SessionState, most: int) -> list[OutFrame]:
        leaving = session.take_stream(most)
        for out in leaving:
            self._let_go(out)
        if not session.stream:
            self._stalled.pop(session.number, None)
        return leaving

    def take_answers(self, session: SessionState) -> list[OutFrame]:
        self.bytes -= session.answer_bytes
        if not session.may_stream():
            self._ready.pop(session.number, None)
        return session.take_answers()

    def drop_answers(self, session: SessionState, *, but_receipts: bool = False) -> int:
        """Nothing that it asked for will leave any more; how many bytes that frees."""
        freed = session.drop_answers(but_receipts=but_receipts)
        self.bytes -= freed
        return freed

    def drop(self, session: SessionState) -> None:
        """Drop what waits in the session's stream."""
        for out in session.stream:
            self._let_go(out)
        session.stream.clear()
        session.stream_bytes = 0
        self._stalled.pop(session.number, None)

    def _let_go(self, out: OutFrame) -> None:
        out.holders -= 1
        if not out.holders:
            self.bytes -= out.cost

    # --- whose turn it is -------------------------------------------------------------------------------------------

    def mark_ready(self, session: SessionState) -> None:
        self._ready[session.number] = None

    def forget(self, session: SessionState) -> None:
        """Drop everything that waits for the session."""
        self.drop(session)
        self.take_answers(session)

    def ready(self) -> list[int]:
        return list(self._ready)

    def waited(self, now: int, session: SessionState) -> int:
        """How long something has waited without any credit from the client."""
        return now - self._stalled.get(session.number, now)

    def deadline(self) -> int:
        return next(iter(self._stalled.values())) + self._policy.patience_us if self._stalled else NEVER

    def longest_stalled(self) -> int:
        return next(iter(self._stalled))


# --- in ---------------------------------------------------------------------------------------------------------------

TURN_BYTES: Final = 64 * 1024
"""How much one session hands to the node before it is the next one's turn."""
SLICE_MESSAGES: Final = 8 * 1024
"""Messages that a node with room again takes in one go: about two milliseconds of work if they are empty."""


class SendQueue:
    """Clients' messages on their way into the node. `bytes` is what waits for room there, of all sessions.

    1. A Send is given to the node at once if nobody waits. Otherwise it waits behind the others, bounded by its session's credit,
       so that a client that sends all the time cannot keep one that sends a little out of a full node.
    2. A turn is worth TURN_BYTES; who waits alone is served whole. A session whose first message did not fit keeps its turn: the
       node says that there is room when that very message fits, and a large one would wait forever if smaller ones overtook it.
       A slice, of SLICE_MESSAGES, is what may pass before the node reads its sockets again.
    3. Credit goes back when the node has taken the messages; in larger amounts, as a client that has credit left needs no frame
       for every Send. While its stream is far behind, a client gets just enough for one Send every `trickle_us`: backpressure,
       never a standstill.
    """

    def __init__(self, node: Node, policy: SessionPolicy, queues: StreamQueues) -> None:
        self.bytes = 0
        self._node = node
        self._policy = policy
        self._queues = queues
        self._waiting: deque[SessionState] = deque()
        self._may_have_room = True
        self._trickles: dict[int, tuple[int, SessionState]] = {}
        self._address = b""

    # --- into the node ----------------------------------------------------------------------------------------------

    def offer(self, now: int, session: SessionState, send: Send) -> str:
        """Take a Send; if it cannot be taken, return what is wrong with it."""
        wrong = self._mistake(session, send)
        if wrong:
            return wrong
        cost = payload_cost(send.payloads)
        session.spend(cost)
        self.bytes += cost
        if session.unsent and session.unsent[-1].add(send, cost):
            return ""
        session.unsent.append(Unsent(send, cost))
        if self._waiting:
            if len(session.unsent) == 1:
                self._waiting.append(session)
        elif not self._serve(now, session, cost, SLICE_MESSAGES):
            self._waiting.append(session)
            self._may_have_room = False
        return ""

    def _mistake(self, session: SessionState, send: Send) -> str:
        """What is wrong with a Send, if anything. Addresses repeat, so the last good one is remembered."""
        if session.send_credit <= 0:
            return "it sent without credit: a client waits for Credit when its window is used up"
        if not 1 <= len(send.payloads) <= RUN_MESSAGES_MAX:
            return f"it sent {len(send.payloads)} messages at once: 1 to {RUN_MESSAGES_MAX} are allowed"
        if max(map(len, send.payloads)) > MESSAGE_MAX:
            return f"it sent a message of more than {MESSAGE_MAX} bytes: split it"
        if send.address != self._address:
            decoded = decode_address(send.address)
            if isinstance(decoded, Rejection):
                return f"it sent to {decoded.why}"
            self._address = send.address
        return ""

    @property
    def is_busy(self) -> bool:
        """Something waits for which there may be room."""
        return self._may_have_room and bool(self._waiting)

    def has_room(self) -> None:
        """The node may take messages again."""
        self._may_have_room = True

    def go_on(self, now: int) -> None:
        """A slice: serve sessions by turns until the node has no room or has taken SLICE_MESSAGES."""
        taken = 0
        while self.is_busy and taken < SLICE_MESSAGES:
            session = self._waiting.popleft()
            before = session.sent
            budget = TURN_BYTES if self._waiting else session.unsent_bytes
            self._may_have_room = self._serve(now, session, budget, SLICE_MESSAGES - taken)
            taken += session.sent - before
            if session.unsent and (self._may_have_room or session.sent > before):
                self._waiting.append(session)
            elif session.unsent:
                self._waiting.appendleft(session)

    def _serve(self, now: int, session: SessionState, budget: int, most: int) -> bool:
        """One turn, of `budget` bytes or `most` messages; False if the node was full before its end."""
        while session.unsent and budget > 0 and most > 0:
            unsent = session.unsent[0]
            batch = unsent.next_batch(budget, most)
            what = (unsent.service, batch, unsent.address, session.number, unsent.event_us, unsent.for_primary)
            taken = self._node.submit(now, *what)
            cost = unsent.cost if taken == unsent.remaining else payload_cost(batch[:taken])
            if taken:
                self._book(now, session, taken, cost)
            if taken < len(batch):
                return False
            budget -= cost
            most -= taken
        return True

    def _book(self, now: int, session: SessionState, taken: int, cost: int) -> None:
        unsent = session.unsent[0]
        unsent.position += taken
        unsent.cost -= cost
        if not unsent.remaining:
            session.unsent.popleft()
        session.took(taken, cost)
        self.bytes -= cost
        self.return_credit(now, session)

    def drop(self, session: SessionState) -> int:
        """Drop a session's waiting messages; return how many."""
        messages = sum(unsent.remaining for unsent in session.unsent)
        if session.unsent:
            self._waiting.remove(session)
        session.unsent.clear()
        self.bytes -= session.unsent_bytes
        session.owed += session.unsent_bytes
        session.unsent_bytes = 0
        self._trickles.pop(session.number, None)
        return messages

    # --- credit -----------------------------------------------------------------------------------------------------

    def return_credit(self, now: int, session: SessionState) -> None:
        """Return credit that is due. A client without any gets some in the end: all it lacks is owed to it or waits here."""
        if session.stream_bytes <= self._policy.throttle_above:
            self.return_all(session)
        elif session.owed and session.send_credit <= 0:
            self._trickles.setdefault(session.number, (now + self._policy.trickle_us, session))

    def return_all(self, session: SessionState) -> None:
        if session.owed >= self._policy.send_window // 4 and session.stream_bytes <= self._policy.throttle_above:
            session.give_back(session.owed)
            self._queues.mark_ready(session)

    def deadline(self) -> int:
        """When the next trickle is due: the first is the earliest, as all wait equally long."""
        return next(iter(self._trickles.values()))[0] if self._trickles else NEVER

    def wake(self, now: int) -> None:
        while self.deadline() <= now:
            number = next(iter(self._trickles))
            _, session = self._trickles.pop(number)
            if session.stream_bytes <= self._policy.throttle_above:
                self.return_all(session)
            elif session.send_credit <= 0 < session.owed + session.send_credit:
                session.give_back(1 - session.send_credit)
                self._queues.mark_ready(session)


UNDER_WAY_MAX: Final = 64
"""Joins and leaves of all sessions that are on their way through the order. They may come back all at once, and every node then
shows that many views in one go: a few milliseconds."""


class GroupRequests:
    """Joins and leaves on their way into the node, and their answers.

    1. Each session makes one request about a name at a time (PendingGroups says why), all sessions UNDER_WAY_MAX.
    2. Requests beyond that, or for which the node has no room, are put off and made when there is room: sessions take turns.
    3. A view with a process that was not in the group before is the answer to its join. Joined leaves at once, so that a client
       that is behind with its stream learns of it; the view itself is in the stream.
    """

    def __init__(self, node: Node, queues: StreamQueues) -> None:
        self._node = node
        self._queues = queues
        self._under_way: set[tuple[int, str]] = set()
        self._put_off: OrderedDict[int, tuple[SessionState, deque[str]]] = OrderedDict()
        self._is_full = False

    def join(self, now: int, session: SessionState, name: str) -> str:
        """Ask to join; return why the session must end, if it must."""
        try:
            require_group_name(name)
        except UsageError as error:
            self._queues.answer(session, NotJoined(name, str(error)))
            return ""
        if session.groups.will_be_in(name):
            self._queues.answer(session, NotJoined(name, f"this session joined {name!r} already"))
            return ""
        return self._ask(now, session, name, Request.JOIN)

    def leave(self, now: int, session: SessionState, name: str) -> str:
        """Ask to leave; return why the session must end, if it must."""
        return self._ask(now, session, name, Request.LEAVE) if session.groups.will_be_in(name) else ""

    def _ask(self, now: int, session: SessionState, name: str, request: Request) -> str:
        if session.groups.count >= REQUESTS_MAX:
            return f"{REQUESTS_MAX} of its joins and leaves have no answer yet, and no more are allowed: wait for answers"
        if session.groups.ask(name, request):
            self._put_off_one(session, name)
            self.go_on(now)
        return ""

    def _put_off_one(self, session: SessionState, name: str) -> None:
        self._put_off.setdefault(session.number, (session, deque()))[1].append(name)

    def _make(self, now: int, session: SessionState, name: str, request: Request) -> bool:
        """Whether the node took it, or has refused it."""
        try:
            if request is Request.JOIN:
                taken = self._node.join_group(now, session.number, name)
            else:
                taken = self._node.leave_group(now, session.number, name)
        except UsageError as error:
            self._refused_by_node(now, session, name, request, str(error))
            return True
        if taken:
            self._under_way.add((session.number, name))
        return taken

    def _refused_by_node(self, now: int, session: SessionState, name: str, request: Request, why: str) -> None:
        """Answer a refused join. A leave is refused only if the process was just removed, and then its Left is on its way."""
        if request is Request.JOIN:
            self._queues.answer(session, NotJoined(name, why))
        self._settle(now, session, name, request)

    @property
    def is_busy(self) -> bool:
        """Something is put off that may be made now."""
        return bool(self._put_off) and not self._is_full and len(self._under_way) < UNDER_WAY_MAX

    def has_room(self) -> None:
        """The node may take requests again."""
        self._is_full = False

    def go_on(self, now: int) -> None:
        """A slice."""
        for _ in range(UNDER_WAY_MAX):
            if not self.is_busy:
                return
            self._make_next(now)

    def _make_next(self, now: int) -> None:
        """The first request of the session whose turn it is."""
        number, (session, names) = next(iter(self._put_off.items()))
        name = names.popleft()
        if names:
            self._put_off.move_to_end(number)
        else:
            del self._put_off[number]
        request = session.groups.first(name)
        assert request is not None, "what is put off was asked for, and has no answer"
        if not self._make(now, session, name, request):
            self._is_full = True
            self._put_off.setdefault(number, (session, names))[1].appendleft(name)
            self._put_off.move_to_end(number, last=False)

    def forget(self, session: SessionState) -> None:
        """It has ended: nobody waits for its answers."""
        self._put_off.pop(session.number, None)
        self._under_way -= {(session.number, name) for name in session.groups.asked()}

    # --- answers ----------------------------------------------------------------------------------------------------

    def entered(self, now: int, session: SessionState, name: str) -> None:
        """A view includes this process: answer its join."""
        if name not in session.groups.names:
            session.groups.names.add(name)
            self._queues.answer(session, Joined(name))
            self._settle(now, session, name, Request.JOIN)

    def left(self, now: int, session: SessionState, name: str) -> None:
        session.groups.names.discard(name)
        if not session.is_over:
            self._settle(now, session, name, Request.LEAVE)

    def refused(self, now: int, session: SessionState, name: str, why: str) -> None:
        self._queues.answer(session, NotJoined(name, why))
        self._settle(now, session, name, Request.JOIN)

    def _settle(self, now: int, session: SessionState, name: str, request: Request) -> None:
        """The request was answered. The next one, about this name or another, is made when the node has read its sockets: a node
        that holds the token would send and answer one after the other in one go."""
        if not session.groups.answered(name, request):
            return
        self._under_way.discard((session.number, name))
        if session.groups.first(name) is not None:
            self._put_off_one(session, name)
