"""The node's outputs -> the frames of those they are for; the hot path.

What a node tells its application -> what its sessions are told.

1. Messages, views and last words about groups go into the streams of those they are for, in the order of the node's outputs;
   configurations into the streams of those who follow them, in the same order.
2. Answers and receipts leave beside the streams.
3. A full queue is the end of its session, and of no other.

Runs of the order -> Stream frames: the hot path of a node with clients. One step per run, none per message or per client.

1. Runs that go on from each other (sender, address, service, recipients, next counter) share a frame of up to BATCH_BYTES;
   whoever tells the clients anything else closes the frame first, so that one open frame is enough to keep the order.
2. Payloads are copied out here: a slice would keep the whole burst it was cut from in memory for as long as a slow client needs.
3. A frame is made once and shared by all its recipients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from transis.sessions.frames import BATCH_BYTES, MESSAGE_COST, Changed, Configured, Left, NotSent, Stream, cost
from transis.sessions.queues import Outbound, Requests, Turns
from transis.sessions.session import Parcel, Session
from transis.types.ids import NodeId, ProcessId, Service, Stretch, ViewId
from transis.types.outputs import (
    Configure,
    Delivered,
    GroupDelivered,
    GroupLeft,
    GroupRefused,
    GroupViewInstalled,
    News,
    Recipient,
    Refused,
    Room,
    Stopped,
)
from transis.types.views import View
from transis.wire.items import Payloads, payload_size

# --- streaming --------------------------------------------------------------------------------------------------------


def portions(event: GroupDelivered) -> Iterable[GroupDelivered]:
    """A run that is more than a frame should have goes into frames by what ends in one datagram."""
    run, recipients = event
    if _cost_of(run) <= BATCH_BYTES:
        return (event,)
    return (GroupDelivered(part, recipients) for part in run.parts())


def _cost_of(run: Delivered) -> int:
    """What credit counts for it, without a look at each message."""
    return payload_size(run.payloads) + MESSAGE_COST * len(run.payloads)


class OpenFrame:
    """The frame that runs are being put into, if there is one."""

    __slots__ = (
        "_address",
        "_cost",
        "_first",
        "_next",
        "_payloads",
        "_sender",
        "_sent_us",
        "_service",
        "_stretches",
        "_view",
        "recipients",
    )

    def __init__(self) -> None:
        self.recipients: Sequence[Recipient] | None = None
        self._sender: ProcessId | None = None
        self._view: ViewId | None = None
        self._address = b""
        self._service = Service.BASIC
        self._sent_us = 0
        self._first = self._next = 0
        self._stretches: list[Stretch] = []
        self._payloads: list[bytes] = []
        self._cost = 0

    def add(self, event: GroupDelivered) -> bool:
        """Put a run in; False if it does not go on from what is there.

        Recipients are the same object as long as nothing about the groups changed, and are not compared further.
        """
        run, recipients = event
        if (
            recipients is not self.recipients
            or run.first_counter != self._next
            or self._cost + _cost_of(run) > BATCH_BYTES
            or run.process != self._sender
            or run.address != self._address
            or run.service is not self._service
        ):
            return False
        self._put(run)
        return True

    def begin(self, event: GroupDelivered, view: ViewId) -> None:
        """With a run that goes on from nothing; `view` is the configuration in force."""
        assert self.recipients is None, "the frame before was closed"
        run, self.recipients = event
        self._sender, self._address, self._service = run.process, run.address, run.service
        self._view, self._sent_us = view, run.origin_us
        self._first = self._next = run.first_counter
        self._put(run)

    def _put(self, run: Delivered) -> None:
        new = run.payloads
        copies = new.copies() if isinstance(new, Payloads) else list(map(bytes, new))
        self._payloads += copies
        self._next += len(copies)
        self._cost += _cost_of(run)
        self._stretches += run.stretches

    def close(self) -> Parcel:
        """The frame; the next one begins empty."""
        assert self._sender is not None, "there is a frame to close"
        assert self._view is not None
        frame = Stream(
            self._sender, self._address, self._service, self._view, self._sent_us, self._first, self._stretches, self._payloads
        )
        parcel = Parcel(frame, self._cost)
        self.recipients, self._stretches, self._payloads, self._cost = None, [], [], 0
        return parcel

    @property
    def messages(self) -> int:
        return len(self._payloads)


# --- hearing ----------------------------------------------------------------------------------------------------------


class Hearing:
    """`too_slow` ends a session whose queue is full, `stopped` all of them."""

    def __init__(
        self,
        me: NodeId,
        sessions: Mapping[int, Session],
        outbound: Outbound,
        turns: Turns,
        requests: Requests,
        too_slow: Callable[[int, Session], None],
        stopped: Callable[[int, str], None],
    ) -> None:
        self._me = me
        self._sessions = sessions
        self._outbound = outbound
        self._turns = turns
        self._requests = requests
        self._too_slow = too_slow
        self._stopped = stopped
        self._frame = OpenFrame()
        self._configuration: View | None = None

    def hear(self, now: int, news: Sequence[News]) -> None:
        me, frame = self._me, self._frame
        for event in news:
            if type(event) is GroupDelivered:
                for portion in portions(event):
                    if not frame.add(portion):
                        self._close_frame(now)
                        frame.begin(portion, event.run.view if self._configuration is None else self._configuration.id)
            elif type(event) is Delivered:
                if event.process.node is me or event.process.node == me:
                    self._delivered_own(event)
            elif (tell := _TELL.get(type(event))) is not None:
                self._close_frame(now)
                tell(self, now, event)
        self._close_frame(now)

    def _delivered_own(self, run: Delivered) -> None:
        session = self._sessions.get(run.process.number)
        if session is not None and not session.is_over:
            self._outbound.done(session, run.first_counter, len(run.payloads))

    def _close_frame(self, now: int) -> None:
        """To all recipients, the same parcel."""
        recipients = self._frame.recipients
        if recipients is None:
            return
        messages = self._frame.messages
        parcel = self._frame.close()
        for recipient in recipients:
            session = self._sessions.get(recipient.process)
            if session is not None:
                session.received += messages
                self._stream(now, session, parcel)

    def _stream(self, now: int, session: Session, parcel: Parcel) -> None:
        if session.is_over or session.departing:
            return
        if not self._outbound.push(now, session, parcel):
            self._too_slow(now, session)

    def _view_installed(self, now: int, event: GroupViewInstalled) -> None:
        """A view for a process that was not in the group is the answer to its join."""
        name, frame = event.view.name, Changed(event.view)
        parcel = Parcel(frame, cost(frame))
        for number in event.processes:
            session = self._sessions.get(number)
            if session is None or session.is_over:
                continue
            self._requests.entered(now, session, name)
            self._stream(now, session, parcel)

    def _left(self, now: int, event: GroupLeft) -> None:
        session = self._sessions.get(event.process)
        if session is not None and not session.is_over:
            frame = Left(event.name, event.why)
            self._stream(now, session, Parcel(frame, cost(frame)))
            self._requests.left(now, session, event.name)

    def _refused_join(self, now: int, event: GroupRefused) -> None:
        session = self._sessions.get(event.process)
        if session is not None and not session.is_over:
            self._requests.refused(now, session, event.name, event.why)

    def _refused_messages(self, now: int, event: Refused) -> None:
        session = self._sessions.get(event.ids.process)
        if session is not None and not session.is_over:
            self._outbound.answer(session, NotSent(event.ids.first_counter, event.ids.count, event.why))

    def _configured(self, now: int, event: Configure) -> None:
        self._configuration = event.view
        parcel = _configured(event.view)
        for session in list(self._sessions.values()):
            if session.follows:
                self._stream(now, session, parcel)
        self._room(now, event)

    def follow(self, now: int, session: Session) -> None:
        """The stream of this session has configurations from here on; first the one in force, if the node has one."""
        if not session.follows:
            session.follows = True
            if self._configuration is not None:
                self._stream(now, session, _configured(self._configuration))

    def _room(self, now: int, event: Room | Configure) -> None:
        """A node that was full, or did not run yet, takes messages and requests again."""
        self._turns.go_on(now)
        self._requests.go_on(now)

    def _node_stopped(self, now: int, event: Stopped) -> None:
        self._stopped(now, event.why)


def _configured(view: View) -> Parcel:
    frame = Configured(view)
    return Parcel(frame, cost(frame))


_TELL: Final[dict[type[News], Callable[[Hearing, int, Any], None]]] = {
    GroupViewInstalled: Hearing._view_installed,
    GroupLeft: Hearing._left,
    GroupRefused: Hearing._refused_join,
    Refused: Hearing._refused_messages,
    Configure: Hearing._configured,
    Room: Hearing._room,
    Stopped: Hearing._node_stopped,
}
HEARD: Final = frozenset({Delivered, GroupDelivered, *_TELL})
"""All else is nothing to a client."""
