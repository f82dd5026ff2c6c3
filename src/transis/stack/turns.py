"""Clients' messages on their way into the node: at once if there is room, else by turns when there is.

1. A Send is given to the node at once if nobody waits. Otherwise it waits behind the others, bounded by its session's credit, so
   that a client that sends all the time cannot keep one that sends a little out of a full node.
2. A turn is worth TURN_BYTES, or everything while nobody else waits. A session whose first message did not fit keeps its turn:
   the node says that there is room when that very message fits, and a large one would wait for ever if smaller ones went before.
3. Credit goes back when the node took the messages; in pieces, as a client that may go on anyway needs no frame for every Send.
   While its stream is far behind, a client gets just enough for one Send every `trickle_us`: backpressure, never a standstill.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from transis.sessions.frames import Send, payload_cost
from transis.stack.grouped import GroupedNode
from transis.stack.outbound import Outbound
from transis.stack.session import Session, Unsent
from transis.stack.sessionpolicy import SessionPolicy
from transis.types.errors import Rejection
from transis.types.limits import MESSAGE_MAX, RUN_MESSAGES_MAX
from transis.types.outputs import NEVER
from transis.wire.items import decode_address

TURN_BYTES: Final = 64 * 1024
"""What one session hands to the node before it is the next one's turn."""


class Turns:
    """`bytes` is what waits for room in the node, of all sessions."""

    def __init__(self, node: GroupedNode, policy: SessionPolicy, outbound: Outbound) -> None:
        self.bytes = 0
        self._node = node
        self._policy = policy
        self._outbound = outbound
        self._waiting: deque[Session] = deque()
        self._trickles: dict[int, tuple[int, Session]] = {}
        self._address = b""

    # --- into the node ----------------------------------------------------------------------------------------------

    def offer(self, now: int, session: Session, send: Send) -> str:
        """Take a Send; what is wrong with it if it cannot be taken."""
        wrong = self._mistake(session, send)
        if wrong:
            return wrong
        cost = payload_cost(send.payloads)
        session.spend(cost)
        self.bytes += cost
        session.unsent.append(Unsent(send, cost))
        if self._waiting:
            if len(session.unsent) == 1:
                self._waiting.append(session)
        elif not self._serve(now, session, cost):
            self._waiting.append(session)
        return ""

    def _mistake(self, session: Session, send: Send) -> str:
        """The same addresses come again and again, so the last good one is remembered."""
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

    def go_on(self, now: int) -> None:
        """The node may have room: everybody's turn comes until it has none."""
        while self._waiting:
            session = self._waiting.popleft()
            before = session.sent
            has_room = self._serve(now, session, TURN_BYTES if self._waiting else session.unsent_bytes)
            if session.unsent and (has_room or session.sent > before):
                self._waiting.append(session)
            elif session.unsent:
                self._waiting.appendleft(session)
            if not has_room:
                return

    def _serve(self, now: int, session: Session, budget: int) -> bool:
        """One turn; False if the node was full before it ended."""
        while session.unsent and budget > 0:
            unsent = session.unsent[0]
            batch = unsent.next_batch(budget)
            taken = self._node.submit(now, unsent.service, batch, unsent.address, session.number)
            cost = unsent.cost if taken == unsent.remaining else payload_cost(batch[:taken])
            if taken:
                self._book(now, session, taken, cost)
            if taken < len(batch):
                return False
            budget -= cost
        return True

    def _book(self, now: int, session: Session, taken: int, cost: int) -> None:
        unsent = session.unsent[0]
        unsent.position += taken
        unsent.cost -= cost
        if not unsent.remaining:
            session.unsent.popleft()
        session.took(taken, cost)
        self.bytes -= cost
        self.return_credit(now, session)

    def drop(self, session: Session) -> int:
        """What waits will not be sent; how many messages that are."""
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

    def return_credit(self, now: int, session: Session) -> None:
        """A client that has no credit left is always given some in the end: all it lacks is owed to it or waits here."""
        if session.stream_bytes <= self._policy.throttle_above:
            self.return_all(session)
        elif session.owed and session.send_credit <= 0:
            self._trickles.setdefault(session.number, (now + self._policy.trickle_us, session))

    def return_all(self, session: Session) -> None:
        if session.owed >= self._policy.send_window // 4 and session.stream_bytes <= self._policy.throttle_above:
            session.give_back(session.owed)
            self._outbound.mark_ready(session)

    def deadline(self) -> int:
        """The first is the earliest: all wait equally long."""
        return next(iter(self._trickles.values()))[0] if self._trickles else NEVER

    def wake(self, now: int) -> None:
        while self.deadline() <= now:
            number = next(iter(self._trickles))
            _, session = self._trickles.pop(number)
            if session.stream_bytes <= self._policy.throttle_above:
                self.return_all(session)
            elif session.send_credit <= 0 < session.owed + session.send_credit:
                session.give_back(1 - session.send_credit)
                self._outbound.mark_ready(session)
