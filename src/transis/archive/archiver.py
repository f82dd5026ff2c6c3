"""A member that writes down its group's stream.

An archiver: a member of a group that writes down its stream, and comes back whenever it was away.

Three strands: the event loop takes frames into rows and nothing else; one thread writes and syncs journals; one publishes them.
1. Every session is a life of its own: a new process to the group, rows numbered from 1, a first row that says where the life
   before it ended. What was missed in between is a gap, and shows.
2. What the disk cannot take in time is not taken from the node either: then the node's own limits for slow clients act.
3. A disk that refuses ends the life at the last row that is whole there. The archiver comes back when there is room.

What the strands of an archiver wait for: each other, and a while before they try again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from transis.archive.directory import Place, require_name
from transis.archive.journal import Unreadable
from transis.archive.publish import Recovered, publish, recover
from transis.archive.rows import Position, Rows
from transis.archive.writing import Acknowledged, Life, Limits
from transis.client.connection import Connection
from transis.client.group import Group
from transis.client.session import Session
from transis.types.errors import ArchiveError, ConnectError, SessionLost, TransisError
from transis.types.views import require_group_name

# --- archiver ---------------------------------------------------------------------------------------------------------

T = TypeVar("T")

WAITING_BYTES: Final = 8 << 20
"""Of rows that wait for the thread that writes. Beyond it nothing is taken from the session."""

FLUSH_BYTES: Final = 2 << 20
FLUSH_S: Final = 0.05
"""Rows are written when they are so many bytes or have waited so long, or when the sync is over that goes on."""

WINDOW: Final = 16 << 20
"""Of the session: what a node may send ahead."""

LEAVE_S: Final = 5.0
"""How long an archiver that ends waits for its last place in the order."""

ROOM_S: Final = 1.0
"""How often it is looked whether there is room on the disk."""


class Strand(Protocol):
    """Runs what blocks somewhere else, one thing after the other."""

    def __call__(self, work: Callable[[], T]) -> Awaitable[T]: ...


class Surroundings(NamedTuple):
    """What an archiver needs of the world, so that a test can be the world."""

    connect: Callable[[], Connection[bytes]]
    disk: Strand
    publishing: Strand
    clock: Callable[[], float]
    wall_us: Callable[[], int]
    say: Callable[[str], None]


class _NoRoom(Exception):
    """The disk has less free than is to be left to others, or refused."""

    def __init__(self, why: str) -> None:
        super().__init__(f"{why}, so the archiver left the group")


def _refusal(error: OSError) -> str:
    return f"the disk refused ({error.strerror or error})"


class Archiver:
    def __init__(self, group: str, directory: Path, name: str, limits: Limits, surroundings: Surroundings) -> None:
        """An empty name is that of the node."""
        self._group, self._directory = require_group_name(group), directory
        self._name = name and require_name(name)
        self._limits = limits
        self._world = surroundings
        self._session: Session[bytes] | None = None
        self._life: Life | None = None
        self._last: Position | None = None
        self._pause = Pause()
        self._rows_before = 0
        self._acknowledged: Acknowledged | None = None
        self._sealed: deque[Path] = deque()
        self._news = asyncio.Event()
        """For the strand that publishes."""
        self._is_over = False
        self._stop = asyncio.Event()
        self._files = self._bytes = self._gaps = 0

    def stop(self) -> None:
        """Leave, write down what came until then, publish it, and end."""
        self._stop.set()

    async def run(self) -> None:
        """Until it is told to stop. Raises what keeps it from beginning, and JoinRefused if it is put out of the group."""
        session = await self._world.connect().open()
        try:
            place = Place(self._directory, self._group, self._name or session.process.node.name)
            place.open(session.cluster, session.process.node)
            recovered = await self._recover(place)
        except BaseException:
            await session.close()
            raise
        self._last = recovered.last
        for journal in recovered.damaged:
            self._tell_damage(journal)
        for unread in recovered.unread:
            self._tell_unread(unread)
        publishing = asyncio.create_task(self._publish(place))
        try:
            await self._live_on(place, session)
        finally:
            self._is_over = True
            self._news.set()
            await publishing
            place.close()

    async def _recover(self, place: Place) -> Recovered:
        try:
            return await self._world.disk(partial(recover, place))
        except OSError as error:
            raise ArchiveError(f"what is left of the last life cannot be published: {error}; make room there") from error

    # --- lives ------------------------------------------------------------------------------------------------------

    async def _live_on(self, place: Place, first: Session[bytes]) -> None:
        session: Session[bytes] | None = first
        why = "started"
        while session is not None:
            try:
                why = await self._live(place, session, why)
            finally:
                self._session = None
                await session.close()
            if self._stop.is_set():
                return
            self._world.say(f"{why}: connecting again; what is missed is a gap")
            session = await self._connect_again(place)

    async def _live(self, place: Place, session: Session[bytes], why: str) -> str:
        """One session from its join to its end; why it ended."""
        self._session = session
        try:
            life = self._life = await self._begin(place, session, why)
            async with session.join(self._group, configurations=True) as group:
                return await self._take_and_write(place, group, life)
        except (SessionLost, _NoRoom) as error:
            return str(error)
        finally:
            self._end_life()

    async def _begin(self, place: Place, session: Session[bytes], why: str) -> Life:
        number = await self._begin_on_disk(place, session)
        about = await session.about()
        engine, guarantees = about["engine"], about["guarantees"]
        if guarantees != "evs":
            self._world.say(f"the views of this cluster promise {guarantees!r}: messages are known by process and counter only")
        self._gaps += self._last is not None
        rows = Rows(self._group, place.archiver, number, engine, guarantees, self._last)
        rows.begin(why, self._world.wall_us())
        return Life(place, session.cluster, number, rows, self._limits, self._world.clock)

    async def _begin_on_disk(self, place: Place, session: Session[bytes]) -> int:
        """The number of the life."""
        try:
            await self._world.disk(partial(place.require_cluster, session.cluster, session.process.node))
            return await self._world.disk(place.begin_life)
        except OSError as error:
            raise _NoRoom(_refusal(error)) from error

    def _end_life(self) -> None:
        life = self._life
        if life is None:
            return
        life.release()
        self._last = life.last or self._last
        self._acknowledged = life.acknowledged or self._acknowledged
        self._rows_before += 0 if life.acknowledged is None else life.acknowledged.row
        if life.acknowledged is not None and not life.is_refused:
            self._pause.reset()
        self._life = None

    async def _take_and_write(self, place: Place, group: Group[bytes], life: Life) -> str:
        flow = Flow()
        taking = asyncio.create_task(self._take(group, life, flow))
        writing = asyncio.create_task(self._write(place, life, flow))
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({taking, writing, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not taking.done() and not writing.done():
                await self._leave(group, taking)
            flow.end()
            return await self._outcome(taking, writing)
        finally:
            for task in (taking, writing, stopping):
                task.cancel()
            await asyncio.gather(taking, writing, stopping, return_exceptions=True)

    async def _leave(self, group: Group[bytes], taking: asyncio.Task[None]) -> None:
        """To the place in the order where it happens, if that comes soon."""
        await group.leave()
        await asyncio.wait({taking}, timeout=LEAVE_S)

    async def _outcome(self, taking: asyncio.Task[None], writing: asyncio.Task[None]) -> str:
        """When what was taken is written. What ended the stream counts, unless the disk did."""
        try:
            await writing
            if taking.done():
                await taking
        except (_NoRoom, SessionLost) as error:
            return str(error)
        return "told to stop"

    async def _take(self, group: Group[bytes], life: Life, flow: Flow) -> None:
        async for event in group.everything():
            life.add(event, self._world.wall_us())
            if life.rows.bytes >= FLUSH_BYTES:
                flow.wake.set()
            while life.rows.bytes >= WAITING_BYTES:
                flow.room.clear()
                await flow.room.wait()

    # --- to disk ----------------------------------------------------------------------------------------------------

    async def _write(self, place: Place, life: Life, flow: Flow) -> None:
        looked_at = self._world.clock()
        while True:
            is_last = flow.is_over
            await self._write_portion(life, flow, is_last)
            if is_last:
                return
            if self._world.clock() - looked_at >= ROOM_S:
                looked_at = self._world.clock()
                await self._keep_room(place, life, flow)
            await flow.wait(FLUSH_S)

    async def _write_portion(self, life: Life, flow: Flow, is_last: bool) -> None:
        portion, since = life.take()
        flow.room.set()
        try:
            if portion.rows:
                await self._world.disk(partial(life.write, portion, since))
            if is_last:
                await self._world.disk(life.seal)
            elif life.sync_is_due:
                await self._world.disk(life.sync)
        except OSError as error:
            await self._world.disk(life.give_up)
            raise _NoRoom(_refusal(error)) from error
        finally:
            self._hand_on(life)

    def _hand_on(self, life: Life) -> None:
        while life.sealed:
            self._sealed.append(life.sealed.popleft())
            self._news.set()

    async def _keep_room(self, place: Place, life: Life, flow: Flow) -> None:
        """What came is written still: that is little, and there is room for it."""
        if lack := await self._lack_of_room(place):
            await self._write_portion(life, flow, is_last=True)
            raise _NoRoom(lack)

    async def _lack_of_room(self, place: Place) -> str:
        """In words; nothing if there is room."""
        wanted = self._limits.free_bytes
        try:
            free = await self._world.disk(place.free_bytes)
        except OSError as error:
            return _refusal(error)
        return "" if free >= wanted else f"only {free >> 20} MB are free, {wanted >> 20} shall be"

    # --- coming back ------------------------------------------------------------------------------------------------

    async def _connect_again(self, place: Place) -> Session[bytes] | None:
        """None if it is told to stop first."""
        while not await set_within(self._stop, self._pause.take()):
            if await self._lack_of_room(place):
                continue
            try:
                return await self._world.connect().open()
            except ConnectError:
                continue
        return None

    # --- publishing -------------------------------------------------------------------------------------------------

    async def _publish(self, place: Place) -> None:
        """Until nothing is left and nothing more comes. What a disk refuses stays a journal and is tried again, when the others
        had their turn."""
        refused = 0
        while len(self._sealed) > refused or not self._is_over:
            self._news.clear()
            if not self._sealed:
                await self._news.wait()
            elif await self._publish_first(place):
                refused = 0
            elif self._is_over:
                refused += 1
            else:
                await set_within(self._news, PAUSE_S[1])
        if refused:
            self._world.say(f"{refused} journals stay as they are: the next start publishes them, or transis archive --publish")

    async def _publish_first(self, place: Place) -> bool:
        try:
            path, size, damaged = await self._world.publishing(partial(publish, place, self._sealed[0]))
        except Unreadable as error:
            self._tell_unread(error)
            path, size, damaged = None, 0, None
        except (OSError, ArchiveError) as error:
            self._world.say(f"{self._sealed[0].name} could not be published ({error})")
            self._sealed.rotate(-1)
            return False
        self._files, self._bytes = self._files + (path is not None), self._bytes + size
        if damaged is not None:
            self._tell_damage(damaged)
        self._sealed.popleft()
        return True

    def _tell_damage(self, journal: Path) -> None:
        self._world.say(f"a part of {journal} could not be read: its rows are a gap; move it away when you have seen to it")

    def _tell_unread(self, error: Unreadable) -> None:
        self._world.say(f"{error}: its rows are a gap; the next start tries again")

    # --- figures ----------------------------------------------------------------------------------------------------

    async def figures(self) -> dict[str, Any]:
        """What there is to say now; rows are those that were acknowledged."""
        life = self._life
        acknowledged = self._acknowledged if life is None or life.acknowledged is None else life.acknowledged
        return {
            "rows": self._rows_before + (0 if life is None or life.acknowledged is None else life.acknowledged.row),
            "acknowledged": None if acknowledged is None else acknowledged.as_json(),
            "lag_ms": 0 if life is None else round(1000 * life.lag_s),
            "behind_bytes": await self._behind_bytes(),
            "files": self._files,
            "bytes": self._bytes,
            "gaps": self._gaps,
        }

    async def _behind_bytes(self) -> int:
        """What waits for this archiver at its node."""
        if self._session is None:
            return 0
        try:
            return int((await self._session.statistics())["session"]["queue_bytes"])
        except TransisError:
            return 0


# --- flow -------------------------------------------------------------------------------------------------------------

PAUSE_S: Final = (0.2, 5.0)
"""Between two attempts: at first, and at most."""


class Flow:
    """Between who takes and who writes: `wake` says that there is much to write, `room` that more may be taken."""

    def __init__(self) -> None:
        self.wake, self.room = asyncio.Event(), asyncio.Event()
        self.is_over = False

    def end(self) -> None:
        """Nothing more comes."""
        self.is_over = True
        self.wake.set()

    async def wait(self, seconds: float) -> None:
        if await set_within(self.wake, seconds):
            self.wake.clear()


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


class Pause:
    """Before an attempt: each time twice as long, until one was worth it."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._next, self._longest = PAUSE_S

    def take(self) -> float:
        taken, self._next = self._next, min(2 * self._next, self._longest)
        return taken
