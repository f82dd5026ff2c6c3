"""A group as an application has it: one ordered stream of messages and views, and the way to send to it.

1. One Group may have several names. Its stream is then the stream of all of them in the one global order, each message once.
2. `view` and `members` show what the iteration has passed, not what has arrived: they match the messages the application sees.
3. Leaving the context leaves the groups, whatever happened inside, and discards what was not read.
4. Within a session a name belongs to one Group at a time. A name that is being left can be joined again once it has been left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from transis.client.attributes import Headers
from transis.client.contexts import UnenteredAsync
from transis.client.events import Batch, Configuration, Passed, Position, View, beginning
from transis.client.sending import Receipt
from transis.client.snapshot import Transfer
from transis.client.state import LOADED, StateTransfer
from transis.client.stream import BufferedFrame, MessageStream, Spool, StreamBuffer
from transis.client.transfer import COMPANION_SUFFIX, TRANSFER_MARK, companion_of
from transis.process.fork import is_inherited
from transis.sessions.frames import CHECKPOINT_MAX, Changed, Checkpoint, ClientFrame, Configured, Join, Leave, Left, Stream
from transis.types.config import GroupWithoutQuorum
from transis.types.errors import JoinRefused, Rejection, TransisError, UsageError
from transis.types.ids import ProcessId, Service
from transis.types.views import Address, GroupId, PrivateName, group_id, private_name, require_group_name
from transis.wire.items import decode_address, encode_address

if TYPE_CHECKING:
    from transis.client.session import Session


# --- group ------------------------------------------------------------------------------------------------------------

T = TypeVar("T")

LEAVE_SECONDS: Final = 5.0
"""How long `close` waits for the node to confirm the leave. The group is left even after that."""


class Group(MessageStream[T]):
    """One or several joined groups: a stream to iterate over, and an address to send to."""

    def __init__(
        self,
        session: Session[T],
        names: tuple[str, ...],
        state: Transfer | None,
        configurations: bool = False,
        without_quorum: GroupWithoutQuorum | None = None,
    ) -> None:
        super().__init__(_buffer_for(state, session.window), session.codec)
        self.names: tuple[str, ...] = names
        self._session = session
        self._address = encode_address(Address(tuple(map(group_id, names))))
        self._memberships: list[Membership] = []
        self._views: dict[str, View] = {}
        self._configurations = configurations
        self._without_quorum = without_quorum
        self._transfer: StateTransfer | None = None
        if state is not None:
            require_group_name(companion_of(names[0]))
            self._transfer = StateTransfer(names[0], state, session, self._buffer)

    # --- views and members ------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The first of its names, mostly the only one."""
        return self.names[0]

    @property
    def views(self) -> dict[str, View]:
        """The view of each name that is in force where the iteration stands."""
        if not self._views:
            first = next((entry for entry in self._buffer.ahead() if not isinstance(entry.frame, Configured)), None)
            view = None if first is None else self._view_of(first)
            return {} if view is None else {view.name: view}
        return dict(self._views)

    def _view_of(self, entry: BufferedFrame) -> View | None:
        frame = entry.frame
        return frame.view if isinstance(frame, Changed) and frame.view.name in self.names else None

    @property
    def view(self) -> View | None:
        """The view in force, None before the first one came. With several names, the view of the first name."""
        return self.views.get(self.names[0])

    @property
    def members(self) -> tuple[ProcessId, ...]:
        """The members of that view; none before the first one came."""
        view = self.view
        return () if view is None else view.members

    @property
    def held(self) -> str:
        """Why nothing is sent to this group from here: what is missing for a quorum. Empty if nothing is, or it is not needed."""
        return self._session.held if self._without_quorum is None else self._session._out.lacks

    # --- sending ----------------------------------------------------------------------------------------------------

    async def send(
        self,
        data: T,
        service: Service = Service.AGREED,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        time: datetime | None = None,
    ) -> Receipt:
        """One multicast of `data` to all members of all names of this group. `service` says what is promised.

        Waits for flow control, not for delivery: that is what the receipt is for. `key` and `headers` are carried and not
        interpreted; `time` is when it happened, if not now.
        """
        return await self._session._send(self._address, data, service, key, headers, time)

    async def send_many(
        self,
        datas: Sequence[T],
        service: Service = Service.AGREED,
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Headers | Sequence[Headers | None] | None = None,
        times: Sequence[datetime | None] | None = None,
    ) -> Receipt:
        """Many messages, the `datas`, with one receipt, at far less cost for each; `service` as for `send`.

        `keys` and `times` are one for each message; `headers` too, or the same for all.
        """
        return await self._session._send_many(self._address, datas, service, keys, headers, times)

    # --- joining and leaving ----------------------------------------------------------------------------------------

    async def _enter(self) -> None:
        session, self._buffer.home = self._session, self._session._out.home
        if self._without_quorum is not None:
            await session._require_list()
        if self._configurations:
            session._followers.add(self._buffer)
        for name in self.names:
            self._memberships.append(await session._memberships.begin(name, self._buffer, self._without_quorum))
        for membership in self._memberships:
            await membership.until_joined()
        if self._transfer is not None:
            session._transfers[self._transfer.group] = self._transfer
            self._memberships.insert(0, await session._memberships.begin(self._transfer.companion, self._buffer))
            await self._memberships[0].until_joined()
            await self._transfer.acquire()

    async def leave(self) -> None:
        """Ask to leave. The iteration goes on to the place of the leave and ends there. Leaving twice is harmless."""
        self._stop()

    def _stop(self) -> None:
        if self._transfer is not None:
            self._transfer.abort(lambda: UsageError(f"the group {self.name!r} was left"))
            self._session._transfers.pop(self._transfer.group, None)
        for membership in self._memberships:
            self._session._memberships.leave(membership)

    def _abandon(self) -> None:
        """Leave, and discard everything that came or still comes."""
        self._stop()
        self._session._followers.remove(self._buffer)
        self._buffer.discard(for_good=True)

    async def close(self) -> None:
        """Leave, discard what was not read, and wait for the node to confirm, but not longer than a few seconds."""
        self._abandon()
        for membership in self._memberships:
            await membership.until_left(LEAVE_SECONDS)

    # --- state ------------------------------------------------------------------------------------------------------

    async def reload(self) -> bool:
        """Replace this member's state by that of another member; the iteration continues behind it.

        False if every member that had a state asked for another one and this member's was chosen: then nothing changes.
        """
        if self._transfer is None:
            raise UsageError("this group was joined without `state`: there is nothing to load")
        loaded = await self._transfer.reload() == LOADED
        if loaded:
            self._current, self._passed = None, self._transfer.begun
        return loaded

    # --- evidence ---------------------------------------------------------------------------------------------------

    @property
    def position(self) -> Position:
        """The position behind what the iteration has passed: the last message, or all of the last batch."""
        return self._require_passed().at(self._taken())

    def is_due(self, every: int) -> bool:
        """Whether every member that records a checkpoint after `every` so many messages does so behind the last one."""
        return self._require_passed().is_due(every, self._taken())

    def checkpoint(self, digest: bytes | str | int) -> None:
        """Record a `digest` of this member's state at `position`; members that record different digests there have diverged."""
        self._session._record_checkpoint(self.name, self.position, digest)

    async def _checkpoint_at(self, position: Position, digest: bytes | str | int) -> None:
        """The same at an explicit position, for a reader that runs ahead of its application."""
        self._session._record_checkpoint(self.name, position, digest)

    def _taken(self) -> int | None:
        """How many messages of the last batch were passed; None for all, because batches are taken whole."""
        return None if self._current is None else self._rank

    def _require_passed(self) -> Passed:
        return require_passed(self.names, self._passed)

    # --- the stream -------------------------------------------------------------------------------------------------

    def _may_take(self) -> bool:
        return self._transfer is None or self._transfer.step()

    def _open(self, entry: BufferedFrame) -> Batch[T] | View | Configuration | None:
        if self._transfer is not None and self._transfer.reach(entry.frame):
            return None
        event = super()._open(entry)
        if isinstance(entry.frame, Stream):
            if self._passed is not None:
                self._passed = self._passed.then(entry.frame)
        elif isinstance(event, View):
            self._enter_view(event)
        return event

    def _enter_view(self, view: View) -> None:
        """A stream that begins with a state begins in the middle of a view: the state already holds some of its messages."""
        self._views[view.name] = view
        begun = None
        if self._transfer is not None:
            self._transfer.passed = view.id
            begun = self._transfer.begun
        self._passed = begun if begun is not None and begun.before.view == view.id else beginning(view.id)

    def __repr__(self) -> str:
        return f"<Group {' '.join(self.names)} of {self._session.process}>"


def require_passed(names: tuple[str, ...], passed: Passed | None) -> Passed:
    if len(names) > 1:
        raise UsageError("a position belongs to one group, and this stream has several names: join them one by one")
    if passed is None:
        raise UsageError("there is no position before the first view: iterate up to it first")
    return passed


def checkpoint_of(name: str, position: Position, digest: bytes | str | int) -> Checkpoint:
    if isinstance(digest, int):
        if not 0 <= digest < 1 << 64:
            raise UsageError(f"digest = {digest}: a number must be from 0 to 2^64 - 1; give bytes for anything larger")
        digest = digest.to_bytes(8, "big")
    data = digest.encode("utf-8", "surrogatepass") if isinstance(digest, str) else bytes(digest)
    if not 1 <= len(data) <= CHECKPOINT_MAX:
        raise UsageError(f"the digest has {len(data)} bytes: 1 to {CHECKPOINT_MAX} are allowed, so hash anything longer")
    return Checkpoint(name, *position, data)


def _buffer_for(state: Transfer | None, window: int) -> StreamBuffer:
    """What a transfer keeps in memory must leave most of the window to the chunks and to other groups."""
    return (
        StreamBuffer()
        if state is None
        else StreamBuffer(memory_max=min(state.memory_max, window // 4), spool=Spool(state.directory))
    )


class Joining(UnenteredAsync, Generic[T]):
    """A context that yields the Group; or call `await joining.open()` and, later, `await group.close()`."""

    _remedy = "this is no group before it is entered: write `async with session.join(...) as group:`"

    def __init__(
        self,
        session: Session[T],
        names: tuple[str, ...],
        state: Transfer | None,
        configurations: bool,
        without_quorum: GroupWithoutQuorum | None,
    ) -> None:
        self._session = session
        self._names = names
        self._state = state
        self._configurations = configurations
        self._without_quorum = without_quorum
        self._group: Group[T] | None = None

    async def open(self) -> Group[T]:
        """Join, for a program that cannot use `async with`."""
        group = Group(self._session, self._names, self._state, self._configurations, self._without_quorum)
        try:
            await group._enter()
        except BaseException:
            group._abandon()
            raise
        return group

    def __repr__(self) -> str:
        return f"<Joining {' '.join(self._names)}>"

    async def __aenter__(self) -> Group[T]:
        if self._group is not None:
            raise UsageError("this join was already entered: call session.join again for another")
        self._group = await self.open()
        return self._group

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._group is not None
        if error is None or not is_inherited(self._group):
            await self._group.close()


# --- memberships ------------------------------------------------------------------------------------------------------

ROUTES_MAX: Final = 4096
"""Addresses whose routes are cached; beyond it the cache starts anew."""


class Membership:
    """One joined name. `inside` holds from its first view until it has left."""

    def __init__(self, name: str, buffer: StreamBuffer, without_quorum: GroupWithoutQuorum | None = None) -> None:
        loop = asyncio.get_running_loop()
        self.name = name
        self.group: GroupId = group_id(name)
        self.buffer = buffer
        self.without_quorum = without_quorum
        self.inside = False
        self.is_leaving = False
        self.joined: asyncio.Future[Callable[[], TransisError] | None] = loop.create_future()
        self.left: asyncio.Future[None] = loop.create_future()

    async def until_joined(self) -> None:
        refusal = await asyncio.shield(self.joined)
        if refusal is not None:
            raise refusal()

    async def until_left(self, timeout: float | None = None) -> None:
        await asyncio.wait({self.left}, timeout=timeout)

    def answer(self, refusal: Callable[[], TransisError] | None) -> None:
        if not self.joined.done():
            self.joined.set_result(refusal)

    def end(self) -> None:
        if not self.left.done():
            self.left.set_result(None)


class Route(NamedTuple):
    """A stream that a frame goes to, and the joined names that lead there."""

    buffer: StreamBuffer
    names: tuple[str, ...]


class Routes(NamedTuple):
    streams: tuple[Route, ...]
    is_private: bool
    is_transfer: bool
    without_quorum: GroupWithoutQuorum | None = None


class JoinedGroups:
    """The groups this session is in, at this point of its stream, and the streams that each frame goes to.

    The meaning of an address changes only when a membership begins, at its first view and at its end, so routes are cached in
    between. The futures here carry outcomes as results, never as exceptions, so none has to be retrieved.
    """

    def __init__(self, me: PrivateName, post: Callable[[ClientFrame], None]) -> None:
        self._me = me
        self._post = post
        self._by_name: dict[str, Membership] = {}
        self._by_group: dict[GroupId, Membership] = {}
        self._routes: dict[bytes, Routes] = {}
        self._failure: Callable[[], TransisError] | None = None

    # --- what the application asks for ------------------------------------------------------------------------------

    async def begin(self, name: str, buffer: StreamBuffer, without_quorum: GroupWithoutQuorum | None = None) -> Membership:
        """Ask to join; `until_joined` gives the outcome."""
        while (known := self._by_name.get(name)) is not None:
            if not known.is_leaving:
                raise UsageError(f"this session has already joined {name!r}: use that group, or another session")
            await known.until_left()
        if self._failure is not None:
            raise self._failure()
        membership = Membership(name, buffer, without_quorum)
        self._by_name[name] = membership
        self._by_group[membership.group] = membership
        self._routes.clear()
        self._post(Join(name))
        return membership

    def leave(self, membership: Membership) -> None:
        if not membership.is_leaving and self._by_name.get(membership.name) is membership:
            membership.is_leaving = True
            self._post(Leave(membership.name))

    # --- what the node answers --------------------------------------------------------------------------------------

    def joined(self, name: str) -> None:
        if name in self._by_name:
            self._by_name[name].answer(None)

    def not_joined(self, name: str, why: str) -> None:
        membership = self._by_name.get(name)
        if membership is not None:
            membership.answer(lambda: JoinRefused(f"{name!r} was not joined: {why}"))
            self._forget(membership)

    def changed(self, view: View) -> Membership | None:
        """The membership that this view belongs to."""
        membership = self._by_group.get(view.group)
        if membership is not None and not membership.inside:
            membership.inside = True
            self._routes.clear()
        return membership

    def left(self, frame: Left) -> Membership | None:
        membership = self._by_name.get(frame.name)
        if membership is not None:
            self._forget(membership)
        return membership

    def _forget(self, membership: Membership) -> None:
        del self._by_name[membership.name], self._by_group[membership.group]
        membership.inside = False
        membership.end()
        self._routes.clear()

    def buffers(self) -> list[StreamBuffer]:
        """Each buffer once, in the order of joining."""
        return list({id(one.buffer): one.buffer for one in self._by_name.values()}.values())

    def has(self, buffer: StreamBuffer) -> bool:
        return any(one.buffer is buffer for one in self._by_name.values())

    def lose(self, failure: Callable[[], TransisError]) -> None:
        """The session is over: all present and future callers get this failure."""
        self._failure = failure
        for membership in list(self._by_name.values()):
            membership.answer(failure)
            self._forget(membership)

    # --- where frames go --------------------------------------------------------------------------------------------

    def routes(self, address: bytes) -> Routes:
        routes = self._routes.get(address)
        if routes is None:
            if len(self._routes) >= ROUTES_MAX:
                self._routes.clear()
            routes = self._routes[address] = self._resolve(address)
        return routes

    def without_quorum(self, address: bytes) -> GroupWithoutQuorum | None:
        """What sends to this address do without a quorum, if one of its groups was joined with a wish."""
        return self.routes(address).without_quorum

    def _resolve(self, address: bytes) -> Routes:
        decoded = decode_address(address)
        if isinstance(decoded, Rejection):
            return Routes((), False, False)
        through: dict[int, Route] = {}
        wishes: set[GroupWithoutQuorum] = set()
        for group in decoded.groups:
            membership = self._by_group.get(group)
            if membership is not None and membership.without_quorum is not None:
                wishes.add(membership.without_quorum)
            if membership is not None and membership.inside:
                route = through.get(id(membership.buffer), Route(membership.buffer, ()))
                through[id(membership.buffer)] = Route(route.buffer, (*route.names, membership.name))
        streams = tuple(Route(buffer, tuple(sorted(names))) for buffer, names in through.values())
        wish = min(wishes, default=None)  # "raise" before "wait": who wants to be told at once is told.
        return Routes(streams, self._me in decoded.processes, TRANSFER_MARK in decoded.groups, wish)


# --- addressing -------------------------------------------------------------------------------------------------------

Destination = str | ProcessId | PrivateName

REMEMBERED_MAX: Final = 4096
"""Destinations whose encoded addresses are cached; beyond it the cache starts anew."""


def has_name(to: Destination | Iterable[Destination]) -> bool:
    """Whether a process is given by its name, which has to be looked up first."""
    if isinstance(to, str):
        return "@" in to
    return not isinstance(to, ProcessId | PrivateName) and any(isinstance(one, str) and "@" in one for one in to)


def require_application_name(name: str) -> str:
    require_text(name)
    if "@" in name:
        raise UsageError(f"{name[:40]!r} is not a group name: with an @ it is the name of a process, as billing@n1")
    if name.endswith(COMPANION_SUFFIX):
        raise UsageError(f"{name!r}: names that end in {COMPANION_SUFFIX!r} are reserved for state transfer")
    return require_group_name(name)


def require_text(name: object) -> None:
    if not isinstance(name, str):
        raise UsageError(f"{name!r} is not a group name: names are text, and several are given one by one, as in join('a', 'b')")


def address_of(destinations: Iterable[Destination]) -> Address:
    """The address of these groups and processes; duplicates and order do not matter."""
    groups, processes = [], []
    for one in destinations:
        if isinstance(one, str):
            groups.append(group_id(require_application_name(one)))
        elif isinstance(one, ProcessId):
            processes.append(private_name(one))
        elif isinstance(one, PrivateName):
            processes.append(one)
        else:
            raise UsageError(f"{one!r} is neither a group name nor a process")
    if not groups and not processes:
        raise UsageError("this goes to nobody: give the name of a group, a process, or several of them")
    return Address(tuple(groups), tuple(processes))


class AddressBook:
    """Caches encoded addresses of single destinations: programs send to few of them, many times."""

    def __init__(self) -> None:
        self._known: dict[Destination, bytes] = {}

    def look_up(self, to: Destination | Iterable[Destination]) -> bytes:
        if not isinstance(to, str | ProcessId | PrivateName):
            return encode_address(address_of(to))
        address = self._known.get(to)
        if address is None:
            if len(self._known) >= REMEMBERED_MAX:
                self._known.clear()
            address = self._known[to] = encode_address(address_of([to]))
        return address
