"""Fan-out: deliveries become frames in the streams of the clients they are for.

1. Runs that continue each other (same sender, address, service and recipients, next counter) share a frame of up to BATCH_BYTES.
   The frame is closed before anything else is sent to clients, so one open frame is enough to keep the node's order.
2. Payloads are copied here: a slice would keep the whole burst it was cut from in memory until a slow client has read it.
3. A frame is made once and shared by all its recipients.

Hot path: one step a run, none a message or a client.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from transis.sessions.frames import BATCH_BYTES, MESSAGE_COST, Stream
from transis.sessions.queues import StreamQueues
from transis.sessions.session import OutFrame, SessionState
from transis.types.ids import ProcessId, Service, Stretch, ViewId
from transis.types.outputs import Delivered, GroupDelivered, Recipient
from transis.wire.items import Payloads, payload_size


def portions(event: GroupDelivered) -> Iterable[GroupDelivered]:
    """The run as it is, or, if it is too large for a frame, the parts of it that end in one datagram each."""
    run, recipients = event
    if _cost_of(run) <= BATCH_BYTES:
        return (event,)
    return (GroupDelivered(part, recipients) for part in run.parts())


def _cost_of(run: Delivered) -> int:
    """What the run costs in credit, without looking at each message."""
    return payload_size(run.payloads) + MESSAGE_COST * len(run.payloads)


class OpenFrame:
    """The frame that runs are being added to, if there is one."""

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
        "_times",
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
        self._times: list[tuple[int, int]] = []
        self._payloads: list[bytes] = []
        self._cost = 0

    def add(self, event: GroupDelivered) -> bool:
        """Add a run; False if it does not continue the frame.

        Recipients are the same object as long as nothing changed in the groups, so they are compared by identity.
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
        """Begin a frame with a run; `view` is the configuration in force."""
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
        times, event_us, count = self._times, run.event_us, len(copies)
        if times and times[-1][0] == event_us:
            times[-1] = (event_us, times[-1][1] + count)
        else:
            times.append((event_us, count))

    def close(self) -> OutFrame:
        """Return the frame, and start over with none."""
        assert self._sender is not None, "there is a frame to close"
        assert self._view is not None
        what = (self._sender, self._address, self._service, self._view, self._sent_us, self._first)
        out = OutFrame(Stream(*what, self._stretches, self._payloads, self._times, self._cost), self._cost)
        self.recipients, self._stretches, self._payloads, self._times, self._cost = None, [], [], [], 0
        return out

    @property
    def messages(self) -> int:
        return len(self._payloads)


class Fanout:
    """Puts frames into the streams of sessions, and says whose queue was full: those sessions must be ended."""

    def __init__(self, sessions: Mapping[int, SessionState], queues: StreamQueues) -> None:
        self.frame = OpenFrame()
        self._sessions = sessions
        self._queues = queues

    def close_frame(self, now: int) -> list[SessionState]:
        """Put the open frame, one object, into the streams of all its recipients; return the sessions whose queue was full."""
        recipients = self.frame.recipients
        if recipients is None:
            return []
        messages = self.frame.messages
        out = self.frame.close()
        full = []
        for recipient in recipients:
            session = self._sessions.get(recipient.process)
            if session is not None:
                session.received += messages
                if not self.stream(now, session, out):
                    full.append(session)
        return full

    def stream(self, now: int, session: SessionState, out: OutFrame) -> bool:
        return session.is_over or session.departing or self._queues.push(now, session, out)
