"""An archiver: a member of a group that writes its stream to disk, and comes back whenever it was away.

Three workers share the load: the event loop turns frames into rows and does nothing else; one thread writes and syncs journals;
another publishes them.

1. Every session is a new life of the archiver: a new process to the group, rows numbered from 1, and a first row that says where
   the previous life ended. What was missed in between is a visible gap.
2. What the disk cannot take in time is not taken from the node either: then the node's own limits for slow clients apply.
3. A disk that refuses to write ends the life at the last row that is whole. The archiver comes back when there is room.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from transis.archive.directory import ArchiveDirectory, require_name
from transis.archive.journal import UnreadableJournal
from transis.archive.life import Acknowledged, ArchiveLimits, ArchiverLife
from transis.archive.publish import Recovered, publish, recover
from transis.archive.rows import RowBuilder, RowPosition
from transis.client.connection import Connection
from transis.client.group import Group
from transis.client.session import Session
from transis.types.errors import ArchiveError, ConnectError, SessionLost, TransisError
from transis.types.views import require_group_name

# --- archiver ---------------------------------------------------------------------------------------------------------

T = TypeVar("T")

WAITING_BYTES: Final = 8 << 20
"""Bytes of rows that may wait for the writing thread. Beyond it nothing is taken from the session."""

FLUSH_BYTES: Final = 2 << 20
FLUSH_S: Final = 0.05
"""Rows are written once they reach this size or age, or when the current sync has finished."""

WINDOW: Final = 16 << 20
"""Window of the session: how far the node may send ahead."""

LEAVE_S: Final = 5.0
"""How long a stopping archiver waits for the place of its leave in the order."""

ROOM_S: Final = 1.0
"""How often free disk space is checked."""


class BlockingWorker(Protocol):
    """Runs blocking calls elsewhere, one after the other."""

    def __call__(self, work: Callable[[], T]) -> Awaitable[T]: ...


class ArchiverContext(NamedTuple):
    """What an archiver needs from its environment, so that a test can provide it."""

    connect: Callable[[], Connection[bytes]]
    disk: BlockingWorker
    publishing: BlockingWorker
    clock: Callable[[], float]
    wall_us: Callable[[], int]
    report: Callable[[str], None]


class _NoRoom(Exception):
    """The disk refused, or less is free than must be left to others."""

    def __init__(self, why: str) -> None:
        super().__init__(f"{why}, so the archiver left the group")


def _refusal(error: OSError) -> str:
    return f"the disk refused ({error.strerror or error})"


class Archiver:
    def __init__(self, group: str, directory: Path, name: str, limits: ArchiveLimits, context: ArchiverContext) -> None:
        """Without a name the archiver is named after its node."""
        self._group, self._directory = require_group_name(group), directory
        self._name = name and require_name(name)
        self._limits = limits
        self._context = context
        self._session: Session[bytes] | None = None
        self._life: ArchiverLife | None = None
        self._last: RowPosition | None = None
        self._backoff = Backoff()
        self._rows_before = 0
        self._acknowledged: Acknowledged | None = None
        self._sealed: deque[Path] = deque()
        self._sealed_or_over = asyncio.Event()
        """Wakes the publisher."""
        self._is_over = False
        self._stop = asyncio.Event()
        self._files = self._bytes = self._gaps = 0

    def stop(self) -> None:
        """Leave, write what came until then, publish it, and end."""
        self._stop.set()

    async def run(self) -> None:
        """Run until `stop`. Raises whatever prevents the start, and JoinRefused if the archiver is removed from the group."""
        session = await self._context.connect().open()
        try:
            archive = ArchiveDirectory(self._directory, self._group, self._name or session.process.node.name)
            archive.open(session.cluster, session.process.node)
            recovered = await self._recover(archive)
        except BaseException:
            await session.close()
            raise
        self._last = recovered.last
        for journal in recovered.damaged:
            self._report_damage(journal)
        for unread in recovered.unread:
            self._report_unread(unread)
        publishing = asyncio.create_task(self._publish(archive))
        try:
            await self._live_on(archive, session)
        finally:
            self._is_over = True
            self._sealed_or_over.set()
            await publishing
            archive.close()

    async def _recover(self, archive: ArchiveDirectory) -> Recovered:
        try:
            return await self._context.disk(partial(recover, archive))
        except OSError as error:
            raise ArchiveError(f"the journals of the last life cannot be published: {error}; free some disk space") from error

    # --- lives ------------------------------------------------------------------------------------------------------

    async def _live_on(self, archive: ArchiveDirectory, first: Session[bytes]) -> None:
        session: Session[bytes] | None = first
        why = "started"
        while session is not None:
            try:
                why = await self._live(archive, session, why)
            finally:
                self._session = None
                await session.close()
            if self._stop.is_set():
                return
            self._context.report(f"{why}: connecting again; what is missed is a gap")
            session = await self._connect_again(archive)

    async def _live(self, archive: ArchiveDirectory, session: Session[bytes], why: str) -> str:
        """One session from join to end; returns the reason of its end."""
        self._session = session
        try:
            life = self._life = await self._begin(archive, session, why)
            async with session.join(self._group, configurations=True) as group:
                return await self._take_and_write(archive, group, life)
        except (SessionLost, _NoRoom) as error:
            return str(error)
        finally:
            self._end_life()

    async def _begin(self, archive: ArchiveDirectory, session: Session[bytes], why: str) -> ArchiverLife:
        number = await self._begin_on_disk(archive, session)
        about = await session.about()
        engine, guarantees = about["engine"], about["guarantees"]
        if guarantees != "evs":
            self._context.report(
                f"this cluster promises {guarantees!r}: rows have no order, messages only a process and a counter"
            )
        self._gaps += self._last is not None
        rows = RowBuilder(self._group, archive.archiver, number, engine, guarantees, self._last)
        rows.begin(why, self._context.wall_us())
        return ArchiverLife(archive, session.cluster, number, rows, self._limits, self._context.clock)

    async def _begin_on_disk(self, archive: ArchiveDirectory, session: Session[bytes]) -> int:
        """The number of the new life."""
        try:
            await self._context.disk(partial(archive.require_cluster, session.cluster, session.process.node))
            return await self._context.disk(archive.begin_life)
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
            self._backoff.reset()
        self._life = None

    async def _take_and_write(self, archive: ArchiveDirectory, group: Group[bytes], life: ArchiverLife) -> str:
        pacing = Pacing()
        taking = asyncio.create_task(self._take(group, life, pacing))
        writing = asyncio.create_task(self._write(archive, life, pacing))
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({taking, writing, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not taking.done() and not writing.done():
                await self._leave(group, taking)
            pacing.end()
            return await self._outcome(taking, writing)
        finally:
            for task in (taking, writing, stopping):
                task.cancel()
            await asyncio.gather(taking, writing, stopping, return_exceptions=True)

    async def _leave(self, group: Group[bytes], taking: asyncio.Task[None]) -> None:
        """Leave, and take what comes before the place of the leave, if that place comes soon."""
        await group.leave()
        await asyncio.wait({taking}, timeout=LEAVE_S)

    async def _outcome(self, taking: asyncio.Task[None], writing: asyncio.Task[None]) -> str:
        """Wait until everything taken is written; returns why the stream ended. A refusing disk takes precedence."""
        try:
            await writing
            if taking.done():
                await taking
        except (_NoRoom, SessionLost) as error:
            return str(error)
        return "stopped"

    async def _take(self, group: Group[bytes], life: ArchiverLife, pacing: Pacing) -> None:
        async for event in group.everything():
            life.add(event, self._context.wall_us())
            if life.rows.bytes >= FLUSH_BYTES:
                pacing.wake.set()
            while life.rows.bytes >= WAITING_BYTES:
                pacing.room.clear()
                await pacing.room.wait()

    # --- to disk ----------------------------------------------------------------------------------------------------

    async def _write(self, archive: ArchiveDirectory, life: ArchiverLife, pacing: Pacing) -> None:
        looked_at = self._context.clock()
        while True:
            is_last = pacing.is_over
            await self._write_portion(life, pacing, is_last)
            if is_last:
                return
            if self._context.clock() - looked_at >= ROOM_S:
                looked_at = self._context.clock()
                await self._keep_room(archive, life, pacing)
            await pacing.wait(FLUSH_S)

    async def _write_portion(self, life: ArchiverLife, pacing: Pacing, is_last: bool) -> None:
        portion, since = life.take()
        pacing.room.set()
        try:
            if portion.rows:
                await self._context.disk(partial(life.write, portion, since))
            if is_last:
                await self._context.disk(life.seal)
            elif life.sync_is_due:
                await self._context.disk(life.sync)
        except OSError as error:
            await self._context.disk(life.give_up)
            raise _NoRoom(_refusal(error)) from error
        finally:
            self._hand_on(life)

    def _hand_on(self, life: ArchiverLife) -> None:
        while life.sealed:
            self._sealed.append(life.sealed.popleft())
            self._sealed_or_over.set()

    async def _keep_room(self, archive: ArchiveDirectory, life: ArchiverLife, pacing: Pacing) -> None:
        """What came already is still written: it is little, and there is room for it."""
        if lack := await self._lack_of_room(archive):
            await self._write_portion(life, pacing, is_last=True)
            raise _NoRoom(lack)

    async def _lack_of_room(self, archive: ArchiveDirectory) -> str:
        """A sentence; empty if there is room."""
        wanted = self._limits.free_bytes
        try:
            free = await self._context.disk(archive.free_bytes)
        except OSError as error:
            return _refusal(error)
        return "" if free >= wanted else f"only {free >> 20} MB are free, the limit is {wanted >> 20} MB"

    # --- coming back ------------------------------------------------------------------------------------------------

    async def _connect_again(self, archive: ArchiveDirectory) -> Session[bytes] | None:
        """None if the archiver is stopped first."""
        while not await set_within(self._stop, self._backoff.take()):
            if await self._lack_of_room(archive):
                continue
            try:
                return await self._context.connect().open()
            except ConnectError:
                continue
        return None

    # --- publishing -------------------------------------------------------------------------------------------------

    async def _publish(self, archive: ArchiveDirectory) -> None:
        """Publish until nothing is left and nothing more comes.

        A journal that the disk refuses to publish stays a journal and is tried again after the others.
        """
        refused = 0
        while len(self._sealed) > refused or not self._is_over:
            self._sealed_or_over.clear()
            if not self._sealed:
                await self._sealed_or_over.wait()
            elif await self._publish_first(archive):
                refused = 0
            elif self._is_over:
                refused += 1
            else:
                await set_within(self._sealed_or_over, BACKOFF_S[1])
        if refused:
            self._context.report(
                f"{refused} journals remain unpublished: the next start publishes them, or transis archive --publish"
            )

    async def _publish_first(self, archive: ArchiveDirectory) -> bool:
        try:
            path, size, damaged = await self._context.publishing(partial(publish, archive, self._sealed[0]))
        except UnreadableJournal as error:
            self._report_unread(error)
            path, size, damaged = None, 0, None
        except (OSError, ArchiveError) as error:
            self._context.report(f"{self._sealed[0].name} could not be published ({error})")
            self._sealed.rotate(-1)
            return False
        self._files, self._bytes = self._files + (path is not None), self._bytes + size
        if damaged is not None:
            self._report_damage(damaged)
        self._sealed.popleft()
        return True

    def _report_damage(self, journal: Path) -> None:
        self._context.report(
            f"part of {journal} cannot be read: its rows are a gap; move the file away when you have dealt with it"
        )

    def _report_unread(self, error: UnreadableJournal) -> None:
        self._context.report(f"{error}: its rows are a gap; the next start tries again")

    # --- statistics -------------------------------------------------------------------------------------------------

    async def statistics(self) -> dict[str, Any]:
        """Progress so far; `rows` counts acknowledged rows."""
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
        """Bytes that wait for this archiver at its node."""
        if self._session is None:
            return 0
        try:
            return int((await self._session.statistics())["session"]["queue_bytes"])
        except TransisError:
            return 0


# --- pacing -----------------------------------------------------------------------------------------------------------

BACKOFF_S: Final = (0.2, 5.0)
"""Seconds between two attempts: the first wait, and the longest."""


class Pacing:
    """Between the reader and the writer: `wake` means that there is much to write, `room` that more may be taken."""

    def __init__(self) -> None:
        self.wake, self.room = asyncio.Event(), asyncio.Event()
        self.is_over = False

    def end(self) -> None:
        """Nothing more will be taken."""
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


class Backoff:
    """The wait before an attempt: doubles each time, until a life has written something."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._next, self._longest = BACKOFF_S

    def take(self) -> float:
        taken, self._next = self._next, min(2 * self._next, self._longest)
        return taken
