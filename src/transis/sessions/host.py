"""The sessions of a node, without I/O: clients' frames in, the node's events in, frames for the clients out.

Whoever moves frames (a socket server, a thread, the simulator) calls `connect` for a Hello, `receive` for every further frame and
`forget` when a connection is gone; passes the node's events to `hear`; and after any call takes what is `ready`. When
`deadline` has come it calls `wake`. Every door may make the node want something: attend to its outputs afterwards.

1. A client's mistake is answered or ends its session. It never raises and never reaches another client.
2. Every client has one ordered stream, the order of the node. What does not belong to it leaves at once.
3. Everything that waits is counted and bounded: by the credit of Sends, by `queue_max`, by `patience_us`, by `total_max`
   (SessionPolicy says what happens beyond). Who is too slow is ended, with a sentence that says so; the others do not notice.
4. Messages that the node has no room for wait here and go in when there is room, by turns (turns.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from transis.node.node import Node
from transis.sessions.fanout import Hearing
from transis.sessions.frames import (
    SESSION_VERSION,
    TOO_SLOW,
    Answer,
    Ask,
    Bye,
    Checkpoint,
    ClientFrame,
    Credit,
    Follow,
    Goodbye,
    Hello,
    Join,
    Leave,
    NotSent,
    Send,
    Welcome,
    encode_value,
)
from transis.sessions.queues import Outbound, Requests, Turns
from transis.sessions.session import Parcel, Session, SessionPolicy, SessionStatus
from transis.types.errors import UsageError
from transis.types.ids import ProcessId
from transis.types.outputs import Checkpoint as ProcessCheckpoint
from transis.types.outputs import News
from transis.types.views import group_id

__all__ = ["Parcel", "SessionHost", "SessionPolicy", "SessionStatus", "TOO_SLOW"]

ANSWER_BYTES_MAX: Final = 4 << 20
"""Bytes of answers that wait for a client that asks and does not read. Beyond it the session is ended."""

EVERYTHING: Final = 1 << 62


class SessionHost:
    """All sessions of one node."""

    def __init__(
        self,
        node: Node,
        cluster: str,
        policy: SessionPolicy | None = None,
        figures: Callable[[], Mapping[str, object]] | None = None,
    ) -> None:
        """`figures` answers the question for the node's statistics; whoever drives the node knows more of them than the node."""
        self.node = node
        self.cluster = cluster
        self.policy = (policy or SessionPolicy()).validated()
        self.figures: Callable[[], Mapping[str, object]] = figures or node.statistics
        self._sessions: dict[int, Session] = {}
        self._next_number = 1
        self._outbound = Outbound(self.policy)
        self._turns = Turns(node, self.policy, self._outbound)
        self._requests = Requests(node, self._outbound)
        self._departing: dict[int, Session] = {}
        self._over: dict[int, None] = {}
        self._hearing = Hearing(
            node.id, self._sessions, self._outbound, self._turns, self._requests, self._queue_full, self._node_stopped
        )
        self._stopped = ""

    # --- the doors of clients ---------------------------------------------------------------------------------------

    def connect(self, now: int, hello: Hello) -> int:
        """A new session; its process number. Raises UsageError with the reason for a client that cannot be taken."""
        if hello.version != SESSION_VERSION:
            raise UsageError(
                f"this node speaks version {SESSION_VERSION} of the session protocol and the client {hello.version}: "
                f"install the same release of transis on both sides"
            )
        if self._stopped:
            raise UsageError(f"the node has stopped: {self._stopped}")
        if len(self._sessions) >= self.policy.sessions_max:
            raise UsageError(f"{self.policy.sessions_max} sessions are open, and no more are allowed (sessions.sessions_max)")
        number = self._next_number
        self.node.connect(number)
        self._next_number += 1
        window = self.policy.send_window
        self._sessions[number] = session = Session(number, hello.label, hello.credit, window, now)
        self._outbound.answer(session, Welcome(SESSION_VERSION, self.cluster, ProcessId(self.node.id, number), window))
        return number

    def receive(self, now: int, process: int, frame: ClientFrame) -> None:
        """A frame of a client. Frames of a session that is over are dropped."""
        session = self._sessions.get(process)
        if session is None or session.is_over or session.departing:
            return
        _RECEIVE[type(frame)](self, now, session, frame)
        if session.answer_bytes > ANSWER_BYTES_MAX:
            self._end(now, session, f"{session.answer_bytes} bytes of answers wait for a client that asks and does not read")
        self._keep_total(now)

    def disconnect(self, now: int, process: int, why: str) -> None:
        """End a session: its client gets a Goodbye with the reason, its groups see it go."""
        session = self._sessions.get(process)
        if session is not None and not session.is_over:
            self._end(now, session, why)

    def forget(self, now: int, process: int) -> None:
        """The connection is gone: nothing is kept for the client. Who said Bye has its messages sent still."""
        session = self._sessions.get(process)
        if session is None:
            return
        if not session.departing:
            self.disconnect(now, process, "the connection is gone")
        self._remove(session)

    # --- what clients want ------------------------------------------------------------------------------------------

    def _send(self, now: int, session: Session, send: Send) -> None:
        self._end_if(now, session, self._turns.offer(now, session, send))

    def _credit(self, now: int, session: Session, credit: Credit) -> None:
        self._outbound.add_credit(now, session, credit.amount)

    def _join(self, now: int, session: Session, join: Join) -> None:
        self._end_if(now, session, self._requests.join(now, session, join.name))

    def _leave(self, now: int, session: Session, leave: Leave) -> None:
        self._end_if(now, session, self._requests.leave(now, session, leave.name))

    def _answer(self, now: int, session: Session, ask: Ask) -> None:
        if ask.question == "statistics":
            value: Mapping[str, object] = {"node": dict(self.figures()), "session": self.statistics(session.number)}
        elif ask.question == "about":
            value = self.node.about()
        else:
            why = f"{ask.question!r} is no question that this node can answer: ask for 'statistics' or 'about'"
            self._outbound.answer(session, Answer(ask.number, b"", why))
            return
        self._outbound.answer(session, Answer(ask.number, encode_value(value)))

    def _follow(self, now: int, session: Session, follow: Follow) -> None:
        self._hearing.follow(now, session)

    def _checkpoint(self, now: int, session: Session, checkpoint: Checkpoint) -> None:
        """What a client says too often, or about a group that it is not in, is dropped and counted: it has no answer."""
        if checkpoint.name in session.memberships.names and session.checkpoints.may_take(now):
            name, view, place = checkpoint.name, checkpoint.view, checkpoint.place
            behind = (checkpoint.count, checkpoint.sender, checkpoint.counter, place, checkpoint.digest)
            self.node.checkpoint(ProcessCheckpoint(session.number, group_id(name), name, view, *behind))
        else:
            session.checkpoints.dropped += 1

    def _bye(self, now: int, session: Session, bye: Bye) -> None:
        session.departing = True
        self._outbound.drop(session)
        self._departing[session.number] = session
        self._see_off(now)

    def _hello_again(self, now: int, session: Session, hello: Hello) -> None:
        self._end(now, session, "it said Hello twice: a session begins once")

    # --- ends -------------------------------------------------------------------------------------------------------

    def _end(self, now: int, session: Session, why: str) -> None:
        """The last frame is queued, everything else that waits is dropped, and the groups see the process go."""
        assert not session.is_over, "a session ends once"
        session.is_over = True
        self._over[session.number] = None
        self._departing.pop(session.number, None)
        self._outbound.drop(session)
        self._turns.drop(session)
        self._outbound.answer(session, Goodbye(why))
        if not self._stopped:
            self.node.disconnect(now, session.number)
        if session.number not in self._sessions:
            self._remove(session)  # Its connection is gone: nobody will take its last frame.

    def _end_if(self, now: int, session: Session, mistake: str) -> None:
        if mistake:
            self._end(now, session, mistake)

    def _see_off(self, now: int) -> None:
        """Who said Bye goes when the node has taken everything it sent."""
        for session in [one for one in self._departing.values() if not one.unsent]:
            self._end(now, session, "the client said Bye")

    def _remove(self, session: Session) -> None:
        self._outbound.forget(session)
        self._sessions.pop(session.number, None)
        self._over.pop(session.number, None)

    def _too_slow(self, now: int, session: Session, limit: str) -> None:
        waiting, seconds = session.stream_bytes + session.unsent_bytes, self._outbound.waited(now, session) / 1e6
        self._end(
            now,
            session,
            f"{TOO_SLOW}{waiting} bytes waited for this client, who took nothing for {seconds:.1f} s; {limit}. "
            f"Take messages as they come (a handler that takes long belongs in a task of its own), or have the limit raised",
        )

    def _queue_full(self, now: int, session: Session) -> None:
        self._too_slow(now, session, f"more than {self.policy.queue_max} may not wait (sessions.queue_max)")

    def _keep_total(self, now: int) -> None:
        most = self.policy.total_max
        while self._outbound.bytes + self._turns.bytes > most:
            alive = [one for one in (self._sessions | self._departing).values() if not one.is_over]
            if not alive:
                return
            largest = max(alive, key=lambda one: (one.stream_bytes + one.unsent_bytes, one.number))
            self._too_slow(now, largest, f"all clients together may have {most} (sessions.total_max), and it had the most")

    # --- what the node tells ----------------------------------------------------------------------------------------

    def hear(self, now: int, news: Sequence[News]) -> None:
        """What the node handed out, in its order."""
        self._hearing.hear(now, news)
        self._see_off(now)
        self._keep_total(now)

    def _node_stopped(self, now: int, why: str) -> None:
        self._stopped = why
        for session in list(self._sessions.values()):
            if not session.is_over:
                unsent = self._turns.drop(session)
                if unsent:
                    self._outbound.answer(session, NotSent(session.sent + 1, unsent, f"the node has stopped: {why}"))
                self._end(now, session, f"the node has stopped: {why}")

    # --- to the clients ---------------------------------------------------------------------------------------------

    def ready(self) -> list[int]:
        """Sessions that have something to take."""
        return self._outbound.ready()

    def take(self, process: int, most: int = EVERYTHING) -> list[Parcel]:
        """What may leave now; stream frames in order, until they are `most` bytes or more. After a Goodbye comes nothing."""
        session = self._sessions.get(process)
        if session is None:
            return []
        stream = self._outbound.take_stream(session, most)
        self._turns.return_all(session)
        parcels = self._outbound.take_answers(session) + stream
        if session.is_over:
            self._remove(session)
        return parcels

    def over(self) -> list[int]:
        """Sessions that have ended and whose Goodbye nobody took yet."""
        return list(self._over)

    # --- timers -----------------------------------------------------------------------------------------------------

    def deadline(self) -> int:
        return min(self._outbound.deadline(), self._turns.deadline())

    def wake(self, now: int) -> None:
        while self._outbound.deadline() <= now:
            session = self._sessions[self._outbound.longest_stalled()]
            self._too_slow(now, session, f"more than {self.policy.patience_us / 1e6:g} s are not waited (sessions.patience_us)")
        self._turns.wake(now)

    # --- looking in -------------------------------------------------------------------------------------------------

    def wanted(self, process: int) -> set[str]:
        """The groups that a session is in once everything it asked for was answered."""
        session = self._sessions.get(process)
        return set() if session is None else session.memberships.wanted()

    def sessions(self) -> list[SessionStatus]:
        return [session.status() for session in self._sessions.values()]

    def statistics(self, process: int) -> dict[str, Any]:
        """The figures of one session as plain values, empty for one that is not there."""
        session = self._sessions.get(process)
        return {} if session is None else session.status()._asdict()

    def check(self) -> None:
        """Assert the invariants that hold between calls."""
        sessions = list(self._sessions.values())
        shares = sum(Fraction(parcel.cost, parcel.holders) for session in sessions for parcel in session.stream)
        answers = sum(session.answer_bytes for session in sessions)
        assert self._outbound.bytes == shares + answers, "what is shared is counted once, and everything is"
        assert self._turns.bytes == sum(one.unsent_bytes for one in (self._sessions | self._departing).values())
        for session in sessions:
            session.check(self.policy.send_window)


_RECEIVE: Final[dict[type[ClientFrame], Callable[[SessionHost, int, Session, Any], None]]] = {
    Hello: SessionHost._hello_again,
    Join: SessionHost._join,
    Leave: SessionHost._leave,
    Send: SessionHost._send,
    Credit: SessionHost._credit,
    Ask: SessionHost._answer,
    Bye: SessionHost._bye,
    Follow: SessionHost._follow,
    Checkpoint: SessionHost._checkpoint,
}
