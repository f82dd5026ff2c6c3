"""A session with a node: this process's identity, the groups it joined, what it sends and receives, and how it ends.

1. Everything runs in one event loop. Frames from the node are handled in the order of arrival, each in one step without waiting.
2. The stream of the process is split here into the streams of its groups and of its private name. Taking a frame gives its
   credit back, once a quarter of the window or a few seconds have accumulated, because credit also shows the node that the
   application is alive. A stream that nobody reads uses up the window: then the others stall, and in the end the node closes the
   session as too slow.
3. When the session is lost, everything that waits on it ends: streams once they are drained; sends, joins, answers and receipts
   at once. Nothing reconnects by itself, because to everybody else a new session is a new process.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import count
from typing import Any, Final, Generic, TypeVar

from transis.client.attributes import Headers, all_with_attributes, with_attributes
from transis.client.directory import Directory, Questions, Watch, Whereabouts
from transis.client.events import Codec, Position
from transis.client.group import (
    AddressBook,
    Destination,
    JoinedGroups,
    Joining,
    checkpoint_of,
    has_name,
    require_application_name,
)
from transis.client.link import CONNECT_SECONDS, Link
from transis.client.sending import Receipt, SendBuffer, Sender, require_loop
from transis.client.snapshot import Transfer
from transis.client.state import StateTransfer
from transis.client.stream import ConfigurationFollowers, CreditClaim, MessageStream, PrivateStream, StreamBuffer
from transis.client.transfer import StateReady, StateRequest, decode_transfer, group_of
from transis.process.fork import stays_here
from transis.sessions.frames import (
    SESSION_VERSION,
    TOO_SLOW,
    Answer,
    Bye,
    Changed,
    Configured,
    Credit,
    Done,
    Goodbye,
    Hello,
    Inquire,
    Joined,
    Left,
    NamedHello,
    NodeFrame,
    NotJoined,
    NotSent,
    Stream,
    Welcome,
    WithoutQuorum,
    cost,
)
from transis.types.config import GROUP_WITHOUT_QUORUM, GroupWithoutQuorum
from transis.types.errors import (
    ConnectError,
    JoinRefused,
    NoQuorum,
    Rejection,
    SessionLost,
    SlowConsumer,
    TransisError,
    UsageError,
)
from transis.types.ids import ProcessId, Service
from transis.types.views import ADDRESSED_GROUPS_MAX, GroupId, PrivateName, private_name, require_group_name
from transis.wire.items import attributed_address

# --- session ----------------------------------------------------------------------------------------------------------

T = TypeVar("T")
Failure = Callable[[], TransisError]

CLOSE_SECONDS: Final = 5.0
"""How long `close` waits for the node to take what was sent last. A live node receives it even after that."""

CREDIT_SECONDS: Final = 5.0
"""Credit is not held back longer than this while the application reads: a node closes sessions that take nothing for long, and a
handler that needs a second for each small message would need minutes to use a quarter of the window."""

ATTEMPTS: Final = 1 << 32
"""Range of attempt numbers that one join may use; the next join continues above it."""


class Session(Generic[T]):
    """A session with a node: what `connect` yields. To everybody else it is one process, with an id of its own."""

    def __init__(self, link: Link, name: str, label: str, window: int, codec: Codec[T]) -> None:
        self.name: str = name
        self.codec = codec
        self.cluster: str = ""
        self._link = link
        self._label = label
        self.window: int = window
        self._process: ProcessId | None = None
        self._out = SendBuffer(link.send, link.wall_us, asyncio.get_running_loop())
        self._sending: Sender
        self._memberships: JoinedGroups
        self._transfers: dict[GroupId, StateTransfer] = {}
        self._followers = ConfigurationFollowers(self._out.post)
        self._private_buffer = StreamBuffer()
        self._private_buffer.home = self._out.home
        self._private: MessageStream[T] | None = None
        self._owed = 0
        self._time = asyncio.get_running_loop().time
        self._credited_at = self._time()
        self._counts: Counter[str] = Counter()
        self._addresses = AddressBook()
        self._numbers = count(1)
        self._questions = Questions(self._out.post_anywhere)
        self._directory = Directory(self._inquire)
        self._welcomed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._failure: Failure | None = None
        self._closing = False
        stays_here(self)

    # --- beginning and end ------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        self._link.start(self._on_frames, self._on_lost)
        introduction = (SESSION_VERSION, self._label, self.window)
        self._link.send([NamedHello(*introduction, self.name) if self.name else Hello(*introduction)])
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                refusal = await self._welcomed
        except TimeoutError:
            refusal = f"{self._link.peer} does not answer"
        if refusal:
            raise ConnectError(f"no session: {refusal}")

    def _welcome(self, welcome: Welcome) -> None:
        if welcome.version != SESSION_VERSION:
            self._on_lost(f"it speaks version {welcome.version} of the session protocol, this client {SESSION_VERSION}")
            return
        self.cluster, self._process = welcome.cluster, welcome.process
        self._sending = Sender(self._out, welcome.process)
        self._memberships = JoinedGroups(private_name(welcome.process), self._out.post)
        self._out.grant(welcome.credit)
        if not self._welcomed.done():
            self._welcomed.set_result("")

    async def close(self) -> None:
        """Leave all groups and disconnect. What was sent stays sent; open receipts are in doubt. Closing twice is harmless."""
        require_loop(self._out.home)
        if not self._closing and self._failure is None:
            self._closing = True
            self._out.post(Bye())
            self._out.flush()
            self._stop(lambda: UsageError("the session is closed"), "it was closed before the node answered", clean=True)
        try:
            await asyncio.wait({self._over}, timeout=CLOSE_SECONDS)
        finally:
            await self._link.close()

    def _on_lost(self, why: str) -> None:
        if not self._welcomed.done():
            self._welcomed.set_result(f"{self._link.peer} ended it: {why}")
        if self._failure is None:
            self._end(why)
        if not self._over.done():
            self._over.set_result(None)

    def _goodbye(self, goodbye: Goodbye) -> None:
        self._on_lost(goodbye.why)

    def _end(self, why: str) -> None:
        kind = SlowConsumer if why.startswith(TOO_SLOW) else SessionLost
        text = f"the session with {self._link.peer} is over: {why}. Connect again: the new session is a new process to others"
        self._stop(lambda: kind(text), f"the session was lost ({why})", clean=False)

    def _stop(self, failure: Failure, doubt: str, clean: bool) -> None:
        """End everything that waits; `clean` means that this program asked for it, so streams end quietly."""
        self._failure = failure
        self._out.fail(failure)
        self._questions.lose(failure)
        for transfer in list(self._transfers.values()):
            transfer.abort(failure)
        if self._process is not None:
            self._sending.lose(doubt)
            for buffer in [*self._memberships.buffers(), self._private_buffer]:
                buffer.end(None if clean else failure)
            self._memberships.lose(failure)

    @property
    def closed(self) -> bool:
        """Whether the session is over, for whatever reason."""
        return self._failure is not None

    @property
    def held(self) -> str:
        """Why nothing is sent or delivered here: what is missing for a quorum. Empty if nothing is, or the cluster goes on.

        A group that was joined with `without_quorum` has its own.
        """
        return self._out.held

    @property
    def process(self) -> ProcessId:
        """This process as others see it: a member of views, a sender of messages, an address for private messages."""
        assert self._process is not None, "a session is made by connect"
        return self._process

    # --- groups -----------------------------------------------------------------------------------------------------

    def join(
        self,
        *names: str,
        state: Transfer | None = None,
        configurations: bool = False,
        without_quorum: GroupWithoutQuorum | None = None,
    ) -> Joining[T]:
        """`async with session.join("orders") as group`. Several `names` make one stream over all of them.

        With `state`, this member gets the group's state from another one before its first message, and passes it on. With
        `configurations=True`, `everything()` also yields the node's configurations. `without_quorum` says what this session's
        sends to the group do in a view that is not primary, where the node goes on: "wait" or "raise".
        """
        self._require_open()
        for name in names:
            require_application_name(name)
        if not names or len(set(names)) < len(names):
            raise UsageError("join at least one name, and each once")
        if len(names) > ADDRESSED_GROUPS_MAX:
            raise UsageError(f"one stream may have at most {ADDRESSED_GROUPS_MAX} names, not {len(names)}: join in several calls")
        if state is not None and len(names) > 1:
            raise UsageError("a group with state has one name, because its snapshot belongs to one place in one group")
        if state is not None and configurations:
            raise UsageError(
                "a group with state starts at its snapshot, whose configuration is unknown: leave out state or configurations"
            )
        if without_quorum not in (None, *GROUP_WITHOUT_QUORUM):
            raise UsageError(
                f"without_quorum = {without_quorum!r}: write 'wait' or 'raise', or leave it out to do as the node does"
            )
        return Joining(self, names, state, configurations, without_quorum)

    def _record_checkpoint(self, name: str, position: Position, digest: bytes | str | int) -> None:
        self._require_open()
        self._out.post_anywhere(checkpoint_of(name, position, digest))

    @property
    def private(self) -> MessageStream[T]:
        """Messages to this process by its private name.

        A program that never reads this stream must not be stalled by those who write to it: until the first read, messages beyond
        half of the window are dropped, and counted in `statistics`.
        """
        if self._private is None:
            self._private = PrivateStream(self._private_buffer, self.codec, self.process)
        return self._private

    # --- sending ----------------------------------------------------------------------------------------------------

    async def send(
        self,
        to: Destination | Sequence[Destination],
        data: T,
        service: Service = Service.AGREED,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        time: datetime | None = None,
    ) -> Receipt:
        """One multicast of `data` `to` groups by name and processes; needs no membership. `service` says what is promised.

        A process may be given by its name, `billing@n1`, which is looked up for every call: for many messages, `resolve` it once.
        Waits for flow control, not for delivery: that is what the receipt is for. `key` and `headers` are carried and not
        interpreted; `time` is when it happened, if not now.
        """
        if has_name(to):
            to = await self._resolved(to)
        return await self._send(self._addresses.look_up(to), data, service, key, headers, time)

    async def send_many(
        self,
        to: Destination | Sequence[Destination],
        datas: Sequence[T],
        service: Service = Service.AGREED,
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Headers | Sequence[Headers | None] | None = None,
        times: Sequence[datetime | None] | None = None,
    ) -> Receipt:
        """Many messages, the `datas`, with one receipt; `to` and `service` as for `send`.

        If it is cancelled while it waits, some of the first messages may have been sent.

        `keys` and `times` are one for each message; `headers` too, or the same for all.
        """
        if has_name(to):
            to = await self._resolved(to)
        return await self._send_many(self._addresses.look_up(to), datas, service, keys, headers, times)

    async def _send(
        self, address: bytes, data: T, service: Service, key: bytes | None, headers: Headers | None, time: datetime | None
    ) -> Receipt:
        self._require_open()
        payload = self.codec.encode(data)
        if (wish := self._memberships.without_quorum(address)) is not None:
            await self._out.require_quorum(raises=wish == "raise")
        if key is not None or headers is not None or time is not None:
            address, payload = attributed_address(address), with_attributes(payload, key, headers, time)
        return await self._sending.send(address, payload, service, wish is not None)

    async def _send_many(
        self,
        address: bytes,
        datas: Sequence[T],
        service: Service,
        keys: Sequence[bytes | None] | None,
        headers: Headers | Sequence[Headers | None] | None,
        times: Sequence[datetime | None] | None,
    ) -> Receipt:
        self._require_open()
        if isinstance(datas, bytes | bytearray | str):
            raise UsageError("send_many takes several messages, as in send_many(to, [one, another]): for one there is send")
        payloads = list(map(self.codec.encode, datas))
        if (wish := self._memberships.without_quorum(address)) is not None:
            await self._out.require_quorum(raises=wish == "raise")
        if keys is not None or headers is not None or times is not None:
            address, payloads = attributed_address(address), all_with_attributes(payloads, keys, headers, times)
        return await self._sending.send_many(address, payloads, service, wish is not None)

    async def _require_list(self) -> None:
        """Only a node with a list of nodes that count can say that they are missing."""
        about = await self.about()
        if not about["quorum"]:
            raise UsageError(
                f"without_quorum needs a quorum, and {self.process.node.name!r} has none: set node.quorum on all nodes"
            )
        if about["mode"] == "transis":
            raise UsageError("without_quorum is not for the mode transis, in which messages are sent while views change")

    def _require_open(self) -> None:
        if self._failure is not None:
            raise self._failure()

    # --- for state transfer -----------------------------------------------------------------------------------------

    def _next_attempts(self) -> int:
        return next(self._numbers) * ATTEMPTS

    async def _say(self, address: bytes, payload: bytes) -> Receipt:
        """Without a quorum this waits, whatever `send` does: a transfer goes on when there is one."""
        while True:
            self._require_open()
            try:
                return await self._sending.send(address, payload, Service.AGREED)
            except NoQuorum:
                await self._out.until_quorum()

    # --- what comes -------------------------------------------------------------------------------------------------

    def _on_frames(self, frames: list[NodeFrame]) -> None:
        """A frame that cannot be kept (a full disk, a bug) ends the session: going on would leave a gap in the stream."""
        try:
            self._take_in(frames)
        except Exception as error:
            self._on_lost(f"what arrived could not be kept on this side: {error}")
            raise

    def _take_in(self, frames: list[NodeFrame]) -> None:
        for frame in frames:
            if self._process is None and not isinstance(frame, Welcome | Goodbye):
                self._on_lost("it said something before Welcome")
            if self._failure is not None and not isinstance(frame, Goodbye):
                continue
            _RECEIVE[type(frame)](self, frame)

    def _stream(self, frame: Stream) -> None:
        routes = self._memberships.routes(frame.address)
        self._counts["messages"] += len(frame.payloads)
        if routes.is_transfer:
            self._hand_to_transfer(frame)
        claim = CreditClaim(frame.cost, self._give_back)
        to_private = routes.is_private and not routes.is_transfer and self._takes_private(claim.cost)
        claim.holders = 1 + len(routes.streams) + to_private
        for buffer, names in routes.streams:
            buffer.put(frame, names, claim)
        if to_private:
            self._private_buffer.put(frame, (), claim)
        claim.let_go()

    def _takes_private(self, size: int) -> bool:
        if self._private is not None or 2 * (self._private_buffer.bytes + size) <= self.window:
            return True
        self._counts["private_dropped"] += 1
        return False

    def _hand_to_transfer(self, frame: Stream) -> None:
        for payload in frame.payloads:
            message = decode_transfer(payload)
            if not isinstance(message, Rejection | StateRequest | StateReady):
                transfer = self._transfers.get(group_of(message))
                if transfer is not None:
                    transfer.on_private(frame.sender, message)

    def _changed(self, frame: Changed) -> None:
        membership = self._memberships.changed(frame.view)
        claim = CreditClaim(cost(frame), self._give_back)
        claim.holders = 1
        if membership is None:
            claim.let_go()
        else:
            membership.buffer.put(frame, (membership.name,), claim)

    def _left(self, frame: Left) -> None:
        self._give_back(cost(frame))
        membership = self._memberships.left(frame)
        if membership is None:
            return
        transfer = self._transfers.get(membership.group)
        if not membership.is_leaving:
            membership.buffer.put(frame, (membership.name,))
            if transfer is not None:
                text = f"this process was removed from {frame.name!r}: {frame.why}"
                transfer.abort(lambda: JoinRefused(text))
        if not self._memberships.has(membership.buffer):
            membership.buffer.end()
            self._followers.remove(membership.buffer)

    def _give_back(self, amount: int) -> None:
        self._owed += amount
        if 4 * self._owed >= self.window or self._time() - self._credited_at >= CREDIT_SECONDS:
            self._out.post_anywhere(Credit(self._owed))
            self._owed, self._credited_at = 0, self._time()

    def _done(self, done: Done) -> None:
        self._require_settled(self._sending.delivered(done.first, done.count, done.view), done)

    def _not_sent(self, refused: NotSent) -> None:
        why = refused.why or "the node gave no reason"
        self._require_settled(self._sending.refused(refused.first, refused.count, why), refused)

    def _require_settled(self, settled: bool, frame: Done | NotSent) -> None:
        if not settled:
            last = frame.first + frame.count - 1
            self._on_lost(f"it reported messages {frame.first} to {last}, which were settled before or never sent")

    # --- questions --------------------------------------------------------------------------------------------------

    async def statistics(self) -> dict[str, Any]:
        """Figures of the node, of this session at the node, and of this side under `client`."""
        return {**await self._ask("statistics"), "client": self._own_statistics()}

    async def about(self) -> dict[str, str]:
        """What the node is: its cluster, engine, order, mode, guarantees and build."""
        return await self._ask("about")

    # --- who and where ----------------------------------------------------------------------------------------------

    async def groups(self) -> dict[str, int]:
        """The groups of this node's configuration, by name, and how many members each has: all of them, at most 65,536."""
        self._require_open()
        return (await self._directory.groups())[0]

    async def members(self, group: str) -> dict[ProcessId, str]:
        """The members of `group`, joined or not, each with its name ("" without one); none if there is no such group."""
        self._require_open()
        return (await self._directory.members(group))[0]

    async def names(self) -> dict[str, ProcessId]:
        """All processes that have a name."""
        self._require_open()
        return await self._directory.names()

    async def where(self, who: str | ProcessId) -> Whereabouts:
        """Where `who`, a name or id, is: its node's life and address. UnknownName if it cannot be reached."""
        self._require_open()
        return await self._directory.where(who)

    async def resolve(self, name: str) -> ProcessId:
        """The process that is called so now, as in `billing@n1`. UnknownName if none can be reached."""
        return (await self.where(name)).process

    def watch(self, group: str = "") -> Watch:
        """`async for change in session.watch()`: a list, then what changes, of `group`, or of all groups and names."""
        self._require_open()
        return Watch(self._directory, require_group_name(group) if group else "", lambda: self._closing)

    async def _resolved(self, to: Destination | Sequence[Destination]) -> list[Destination]:
        several = [to] if isinstance(to, str | ProcessId | PrivateName) else to
        return [await self.resolve(one) if isinstance(one, str) and "@" in one else one for one in several]

    async def _inquire(self, question: str, *, name: str = "", process: ProcessId | None = None, at: int = 0) -> bytes:
        self._require_open()
        return await self._questions.put(lambda number: Inquire(number, question, name, process, at))

    async def _ask(self, question: str) -> dict[str, Any]:
        self._require_open()
        return await self._questions.ask(question)

    def _own_statistics(self) -> dict[str, int]:
        waiting = sum(buffer.bytes for buffer in [*self._memberships.buffers(), self._private_buffer])
        return {
            "sent": self._out.accepted,
            "unconfirmed_receipts": self._sending.unconfirmed,
            "send_credit": self._out.credit,
            "received": self._counts["messages"],
            "waiting_bytes": waiting,
            "private_dropped": self._counts["private_dropped"],
            "transfer_bytes_max": max((one.buffered_max for one in self._transfers.values()), default=0),
        }

    def __repr__(self) -> str:
        return f"<Session {self._process} with {self._link.peer}{' (over)' if self.closed else ''}>"


_RECEIVE: Final[dict[type[Any], Callable[[Session[Any], Any], None]]] = {
    Stream: Session._stream,
    Done: Session._done,
    Credit: lambda session, credit: session._out.grant(credit.amount),
    Changed: Session._changed,
    Configured: lambda session, frame: session._followers.configured(frame, session._give_back),
    Left: Session._left,
    Welcome: Session._welcome,
    Joined: lambda session, joined: session._memberships.joined(joined.name),
    NotJoined: lambda session, refused: session._memberships.not_joined(refused.name, refused.why),
    NotSent: Session._not_sent,
    WithoutQuorum: lambda session, frame: session._out.quorum(frame.why, held=frame.held, raises=frame.raises),
    Answer: lambda session, answer: session._questions.answered(answer),
    Goodbye: Session._goodbye,
}
