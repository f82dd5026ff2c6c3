"""The sessions of a node, without I/O: clients' frames in, the node's news in, frames for the clients out.

The caller that moves frames (a socket server, a thread, the simulator) calls `connect` for a Hello, `receive` for every further
frame and `forget` when a connection is gone; passes the node's news to `hear`; and after any call takes what is `ready`. At
`deadline` it calls `wake`, and while the host `is_busy`, `go_on`. Any call may make the node produce outputs: carry them out
afterwards.

1. A client's mistake is answered or ends its session. It never raises and never affects another client.
2. Every client has one ordered stream: messages, group views, ends of memberships and, for clients that follow them,
   configurations, in the node's order. Receipts and answers do not wait in it; they leave at once.
3. Everything that waits is counted and bounded: by the credit of Sends, by `queue_max`, by `patience_us`, by `total_max`
   (SessionPolicy says what happens beyond). The session of a client that is too slow is ended, with a sentence that says so; the
   others do not notice.
4. Messages that the node has no room for wait here and go in by turns when there is room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from transis.node.node import Node
from transis.sessions.directory import DirectoryAnswers
from transis.sessions.fanout import Fanout, portions
from transis.sessions.frames import (
    SESSION_VERSION,
    TOO_SLOW,
    Answer,
    Ask,
    Bye,
    Changed,
    Checkpoint,
    ClientFrame,
    Configured,
    Credit,
    Follow,
    Goodbye,
    Hello,
    Inquire,
    Join,
    Leave,
    Left,
    NamedHello,
    NotSent,
    Send,
    SendToPrimary,
    Welcome,
    WithoutQuorum,
    cost,
    encode_value,
)
from transis.sessions.queues import GroupRequests, SendQueue, StreamQueues
from transis.sessions.session import OutFrame, SessionPolicy, SessionState, SessionStatus
from transis.types.errors import UsageError
from transis.types.ids import ProcessId, ViewId
from transis.types.outputs import Checkpoint as ProcessCheckpoint
from transis.types.outputs import (
    Configure,
    Delivered,
    GroupDelivered,
    GroupLeft,
    GroupRefused,
    GroupsChanged,
    GroupViewInstalled,
    News,
    QuorumChanged,
    Refused,
    Room,
    Stopped,
)
from transis.types.views import View, group_id

__all__ = ["OutFrame", "SessionHost", "SessionPolicy", "SessionStatus", "TOO_SLOW"]

EVERYTHING: Final = 1 << 62

TOLD_MAX: Final = 64
"""Checkpoints that the node takes before it records them."""


class SessionHost:
    """All sessions of one node."""

    def __init__(
        self,
        node: Node,
        cluster: str,
        policy: SessionPolicy | None = None,
        statistics: Callable[[], Mapping[str, object]] | None = None,
    ) -> None:
        """`statistics` answers clients that ask for the node's statistics: its driver knows more figures than the node does."""
        self.node = node
        self.cluster = cluster
        self.policy = (policy or SessionPolicy()).validated()
        self._statistics: Callable[[], Mapping[str, object]] = statistics or node.statistics
        self._sessions: dict[int, SessionState] = {}
        self._next_number = 1
        self._queues = StreamQueues(self.policy)
        self._sends = SendQueue(node, self.policy, self._queues)
        self._requests = GroupRequests(node, self._queues)
        self._directory: DirectoryAnswers | None = None
        self._departing: dict[int, SessionState] = {}
        self._over: dict[int, None] = {}
        self._fanout = Fanout(self._sessions, self._queues)
        self._configuration: View | None = None
        self._without_quorum = WithoutQuorum("", held=False, raises=False)
        self._stopped = ""
        self._told = 0

    # --- clients ----------------------------------------------------------------------------------------------------

    def connect(self, now: int, hello: Hello) -> int:
        """Open a session; return its process number. Raises UsageError with the reason if the client cannot be accepted."""
        if hello.version != SESSION_VERSION:
            raise UsageError(
                f"this node speaks version {SESSION_VERSION} of the session protocol and the client {hello.version}: "
                f"install the same release of transis on both sides"
            )
        if self._stopped:
            raise UsageError(f"the node has stopped: {self._stopped}")
        if len(self._sessions) + len(self._departed()) >= self.policy.sessions_max:
            raise UsageError(f"{self.policy.sessions_max} sessions are open, and no more are allowed (sessions.sessions_max)")
        name = hello.name if isinstance(hello, NamedHello) else ""
        if isinstance(hello, NamedHello):
            self.node.require_free_name(name)
        number = self._next_number
        self.node.connect(number)
        if name:
            self.node.name(now, number, name)
        self._next_number += 1
        window = self.policy.send_window
        self._sessions[number] = session = SessionState(number, hello.label, hello.credit, window, now, name)
        self._queues.answer(session, Welcome(SESSION_VERSION, self.cluster, ProcessId(self.node.id, number), window))
        if self._without_quorum.why:
            self._queues.stands(session, self._without_quorum)
        return number

    def receive(self, now: int, process: int, frame: ClientFrame) -> None:
        """A frame of a client. Frames of a session that is over are dropped."""
        session = self._sessions.get(process)
        if session is None or session.is_over or session.departing:
            return
        _RECEIVE[type(frame)](self, now, session, frame)
        if session.answer_bytes > self.policy.answers_max and not session.is_over:
            self._end_for_memory(
                now, session, f"{session.answer_bytes} bytes of answers wait for a client that asks and does not read"
            )
        self._keep_total(now)

    def disconnect(self, now: int, process: int, why: str) -> None:
        """End a session: its client gets a Goodbye with the reason, its groups see it go."""
        session = self._sessions.get(process)
        if session is not None and not session.is_over:
            self._end(now, session, why)

    def forget(self, now: int, process: int) -> None:
        """The connection is gone: nothing is kept for the client. If it said Bye, its messages are still sent."""
        session = self._sessions.get(process)
        if session is None:
            return
        if not session.departing:
            self.disconnect(now, process, "the connection is gone")
        self._remove(session)

    # --- what clients want ------------------------------------------------------------------------------------------

    def _send(self, now: int, session: SessionState, send: Send) -> None:
        self._end_if(now, session, self._sends.offer(now, session, send))

    def _credit(self, now: int, session: SessionState, credit: Credit) -> None:
        self._queues.add_credit(now, session, credit.amount)

    def _join(self, now: int, session: SessionState, join: Join) -> None:
        self._end_if(now, session, self._requests.join(now, session, join.name))

    def _leave(self, now: int, session: SessionState, leave: Leave) -> None:
        self._end_if(now, session, self._requests.leave(now, session, leave.name))

    def _answer(self, now: int, session: SessionState, ask: Ask) -> None:
        if ask.question == "statistics":
            value: Mapping[str, object] = {"node": dict(self._statistics()), "session": self.statistics(session.number)}
        elif ask.question == "about":
            value = self.node.about()
        else:
            why = f"{ask.question!r} is not a question that this node can answer: ask for 'statistics' or 'about'"
            self._queues.answer(session, Answer(ask.number, b"", why))
            return
        self._queues.answer(session, Answer(ask.number, encode_value(value)))

    def _inquire(self, now: int, session: SessionState, inquire: Inquire) -> None:
        if self._directory is None:
            self._directory = DirectoryAnswers(self.node, self._queues)
        self._directory.inquire(session, inquire)

    def _follow(self, now: int, session: SessionState, follow: Follow) -> None:
        """Put configurations into the session's stream from here on; first the one in force, if the node has one."""
        if not session.follows:
            session.follows = True
            if self._configuration is not None:
                self._stream(now, session, Configured(self._configuration))

    def _checkpoint(self, now: int, session: SessionState, checkpoint: Checkpoint) -> None:
        """Checkpoints have no answer. One too many, or about a group that the client is not in, is dropped and counted."""
        if checkpoint.name in session.groups.names and session.checkpoints.may_take(now):
            name, view, place = checkpoint.name, checkpoint.view, checkpoint.place
            behind = (checkpoint.count, checkpoint.sender, checkpoint.counter, place, checkpoint.digest)
            self.node.checkpoint(ProcessCheckpoint(session.number, group_id(name), name, view, *behind))
            self._told += 1
        else:
            session.checkpoints.dropped += 1

    def _bye(self, now: int, session: SessionState, bye: Bye) -> None:
        session.departing = True
        self._queues.drop(session)
        self._departing[session.number] = session
        self._see_off(now)

    def _hello_again(self, now: int, session: SessionState, hello: Hello) -> None:
        self._end(now, session, "it said Hello twice: a session begins once")

    # --- ends -------------------------------------------------------------------------------------------------------

    def _end(self, now: int, session: SessionState, why: str) -> None:
        """End a session: queue its Goodbye, drop all else that waits but receipts, and let the groups see the process go."""
        assert not session.is_over, "a session ends once"
        session.is_over = True
        self._over[session.number] = None
        self._departing.pop(session.number, None)
        self._queues.drop(session)
        self._queues.drop_answers(session, but_receipts=True)
        self._sends.drop(session)
        self._queues.answer(session, Goodbye(why))
        if not self._stopped:
            self.node.disconnect(now, session.number)
            self._requests.forget(session)
        if self._directory is not None:
            self._directory.forget(session)
        if session.number not in self._sessions:
            self._remove(session)  # Its connection is gone: nobody will take the Goodbye.

    def _end_for_memory(self, now: int, session: SessionState, why: str) -> None:
        """What it held is free at once: not even receipts are kept."""
        self._queues.drop_answers(session)
        self._end(now, session, why)

    def _end_if(self, now: int, session: SessionState, mistake: str) -> None:
        if mistake:
            self._end(now, session, mistake)

    def _see_off(self, now: int) -> None:
        """End sessions that said Bye once the node has taken everything they sent."""
        for session in [one for one in self._departing.values() if not one.unsent]:
            self._end(now, session, "the client said Bye")

    def _remove(self, session: SessionState) -> None:
        self._queues.forget(session)
        self._sessions.pop(session.number, None)
        self._over.pop(session.number, None)

    def _too_slow(self, now: int, session: SessionState, limit: str) -> None:
        seconds = self._queues.waited(now, session) / 1e6
        self._end_for_memory(
            now,
            session,
            f"{TOO_SLOW}{session.held_bytes} bytes waited for this client, who took nothing for {seconds:.1f} s; {limit}. "
            f"Take messages as they come (a handler that takes long belongs in a task of its own), or have the limit raised",
        )

    def _queue_full(self, now: int, session: SessionState) -> None:
        self._too_slow(now, session, f"more than {self.policy.queue_max} may not wait (sessions.queue_max)")

    def _keep_total(self, now: int) -> None:
        """Whoever holds the most is ended. Of one that has ended, only its Goodbye is kept, and that is the least there is."""
        most = self.policy.total_max
        while self.held_bytes > most:
            largest = max((self._sessions | self._departing).values(), key=lambda one: (one.held_bytes, one.number))
            if not largest.is_over:
                self._too_slow(now, largest, f"all clients together may have {most} (sessions.total_max), and it had the most")
            elif not self._queues.drop_answers(largest):
                return

    # --- the node's news --------------------------------------------------------------------------------------------

    def hear(self, now: int, news: Sequence[News]) -> None:
        """Handle what the node handed out, in order."""
        self._told = 0
        me, frame = self.node.id, self._fanout.frame
        for one in news:
            if type(one) is GroupDelivered:
                for portion in portions(one):
                    if not frame.add(portion):
                        self._close_frame(now)
                        frame.begin(portion, self._view_of(one.run))
            elif type(one) is Delivered:
                if one.process.node is me or one.process.node == me:
                    self._own_delivered(one)
            elif (tell := _TELL.get(type(one))) is not None:
                self._close_frame(now)
                tell(self, now, one)
        self._close_frame(now)
        self._see_off(now)
        self._keep_total(now)

    def _close_frame(self, now: int) -> None:
        for session in self._fanout.close_frame(now):
            self._queue_full(now, session)

    def _stream(self, now: int, session: SessionState, frame: Changed | Configured | Left) -> None:
        self._stream_to_all(now, [session], frame)

    def _stream_to_all(self, now: int, sessions: Iterable[SessionState], frame: Changed | Configured | Left) -> None:
        out = OutFrame(frame, cost(frame))
        for session in sessions:
            if not self._fanout.stream(now, session, out):
                self._queue_full(now, session)

    def _open_session(self, process: int) -> SessionState | None:
        session = self._sessions.get(process)
        return None if session is None or session.is_over else session

    def _own_delivered(self, run: Delivered) -> None:
        session = self._open_session(run.process.number)
        if session is not None:
            self._queues.done(session, run.first_counter, len(run.payloads), self._view_of(run))

    def _view_of(self, run: Delivered) -> ViewId:
        """The configuration in force, regular or transitional."""
        return run.view if self._configuration is None else self._configuration.id

    def _messages_refused(self, now: int, refused: Refused) -> None:
        session = self._open_session(refused.ids.process)
        if session is not None:
            self._queues.answer(session, NotSent(refused.ids.first_counter, refused.ids.count, refused.why))

    def _view_installed(self, now: int, installed: GroupViewInstalled) -> None:
        """A view with a process that was not in the group before is the answer to its join."""
        frame = Changed(installed.view)
        out = OutFrame(frame, cost(frame))
        for number in installed.processes:
            session = self._open_session(number)
            if session is None:
                continue
            self._requests.entered(now, session, installed.view.name)
            if not self._fanout.stream(now, session, out):
                self._queue_full(now, session)

    def _group_left(self, now: int, left: GroupLeft) -> None:
        session = self._open_session(left.process)
        if session is not None:
            self._stream(now, session, Left(left.name, left.why))
            self._requests.left(now, session, left.name)

    def _join_refused(self, now: int, refused: GroupRefused) -> None:
        session = self._open_session(refused.process)
        if session is not None:
            self._requests.refused(now, session, refused.name, refused.why)

    def _configured(self, now: int, configure: Configure) -> None:
        self._configuration = configure.view
        self._stream_to_all(now, [one for one in self._sessions.values() if one.follows], Configured(configure.view))
        self._has_room(now, configure)

    def _groups_changed(self, now: int, changed: GroupsChanged) -> None:
        if self._directory is not None:
            self._directory.changed()

    def _quorum_changed(self, now: int, changed: QuorumChanged) -> None:
        raises = changed.held and self.node.raises_without_quorum
        self._without_quorum = WithoutQuorum(changed.lacks, changed.held, raises)
        for session in self._sessions.values():
            if not session.is_over:
                self._queues.stands(session, self._without_quorum)

    def _has_room(self, now: int, news: Room | Configure) -> None:
        """The node was full or not yet running, and now takes messages and requests again."""
        self._sends.has_room()
        self._requests.has_room()
        self._work(now)

    # --- what waits here --------------------------------------------------------------------------------------------

    @property
    def is_ahead(self) -> bool:
        """What clients told the node is to be recorded before they tell more: that takes longer than telling it."""
        return self._told >= TOLD_MAX

    @property
    def is_busy(self) -> bool:
        """Something that waits here could go on: call `go_on` when the node has read its sockets."""
        watched = self._directory is not None and bool(self._directory.due)
        return self._sends.is_busy or self._requests.is_busy or watched

    def go_on(self, now: int) -> None:
        """A slice of what waits."""
        self._work(now)
        self._see_off(now)
        self._keep_total(now)

    def _work(self, now: int) -> None:
        self._sends.go_on(now)
        self._requests.go_on(now)
        if self._directory is not None and self._directory.due:
            self._directory.go_on()

    def _node_stopped(self, now: int, stopped: Stopped) -> None:
        why = self._stopped = stopped.why
        for session in [*self._sessions.values(), *self._departed()]:
            if not session.is_over:
                unsent = self._sends.drop(session)
                if unsent:
                    self._queues.answer(session, NotSent(session.sent + 1, unsent, f"the node has stopped: {why}"))
                self._end(now, session, f"the node has stopped: {why}")

    # --- to the clients ---------------------------------------------------------------------------------------------

    def ready(self) -> list[int]:
        """Sessions for which there are frames to take."""
        return self._queues.ready()

    def take(self, process: int, most: int = EVERYTHING) -> list[OutFrame]:
        """The frames that may leave now; stream frames in order, until they have `most` bytes or more. Goodbye is the last."""
        session = self._sessions.get(process)
        if session is None:
            return []
        stream = self._queues.take_stream(session, most)
        self._sends.return_all(session)
        leaving = self._queues.take_answers(session) + stream
        if session.is_over:
            self._remove(session)
        return leaving

    def over(self) -> list[int]:
        """Sessions that have ended and whose Goodbye nobody has taken yet."""
        return list(self._over)

    # --- timers -----------------------------------------------------------------------------------------------------

    def deadline(self) -> int:
        return min(self._queues.deadline(), self._sends.deadline())

    def wake(self, now: int) -> None:
        while self._queues.deadline() <= now:
            session = self._sessions[self._queues.longest_stalled()]
            self._too_slow(now, session, f"more than {self.policy.patience_us / 1e6:g} s are not waited (sessions.patience_us)")
        self._sends.wake(now)

    # --- looking in -------------------------------------------------------------------------------------------------

    def wanted(self, process: int) -> set[str]:
        """The groups that a session will be in once all its requests are answered."""
        session = self._sessions.get(process)
        return set() if session is None else session.groups.wanted()

    @property
    def held_bytes(self) -> int:
        """What waits for all clients and from all of them: what `total_max` bounds."""
        return self._queues.bytes + self._sends.bytes

    def _departed(self) -> list[SessionState]:
        """They said Bye and are gone; the node has not yet taken all they sent."""
        return [session for number, session in self._departing.items() if number not in self._sessions]

    def sessions(self) -> list[SessionStatus]:
        return [session.status() for session in self._sessions.values()]

    def statistics(self, process: int) -> dict[str, Any]:
        """The figures of one session as plain values; empty if there is no such session."""
        session = self._sessions.get(process)
        return {} if session is None else session.status()._asdict()

    def check(self) -> None:
        """Assert the invariants that hold between calls."""
        sessions = list(self._sessions.values())
        shares = sum(Fraction(out.cost, out.holders) for session in sessions for out in session.stream)
        answers = sum(session.answer_bytes for session in sessions)
        assert self._queues.bytes == shares + answers, "everything is counted, and what is shared only once"
        assert self._sends.bytes == sum(one.unsent_bytes for one in (self._sessions | self._departing).values())
        for session in sessions:
            session.check(self.policy.send_window)


class WaitingInHost:
    """What waits in a host takes its turn like a client."""

    def __init__(self, host: SessionHost, now: Callable[[], int]) -> None:
        self._host = host
        self._now = now

    def work_off(self) -> bool:
        if self._host.is_busy:
            self._host.go_on(self._now())
        return self._host.is_busy


_RECEIVE: Final[dict[type[ClientFrame], Callable[[SessionHost, int, SessionState, Any], None]]] = {
    Hello: SessionHost._hello_again,
    Join: SessionHost._join,
    Leave: SessionHost._leave,
    Send: SessionHost._send,
    Credit: SessionHost._credit,
    Ask: SessionHost._answer,
    Bye: SessionHost._bye,
    Follow: SessionHost._follow,
    Checkpoint: SessionHost._checkpoint,
    NamedHello: SessionHost._hello_again,
    Inquire: SessionHost._inquire,
    SendToPrimary: SessionHost._send,
}

_TELL: Final[dict[type[News], Callable[[SessionHost, int, Any], None]]] = {
    GroupViewInstalled: SessionHost._view_installed,
    GroupLeft: SessionHost._group_left,
    GroupRefused: SessionHost._join_refused,
    GroupsChanged: SessionHost._groups_changed,
    Refused: SessionHost._messages_refused,
    Configure: SessionHost._configured,
    Room: SessionHost._has_room,
    QuorumChanged: SessionHost._quorum_changed,
    Stopped: SessionHost._node_stopped,
}
HEARD: Final = frozenset({Delivered, GroupDelivered, *_TELL})
"""The news that sessions handle; no other concerns a client."""
