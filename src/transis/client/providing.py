"""Giving the state to those who ask: one task per joiner, each with its own snapshot, taken at its own cut.

While a snapshot is read, the member's own stream waits, so that `save` may be a generator over the living state; with
`background=True` it does not, and `save` must return something that later messages do not change.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from transis.client.chunks import Window, packs
from transis.client.transfer import Begin, Chunks, End, Failed, Private
from transis.types.errors import SessionLost, UsageError
from transis.types.ids import ProcessId
from transis.types.views import GroupId

ERROR_TEXT_MAX: Final = 1000
"""Characters of an error that travel to the joiner."""

Whisper = Callable[[ProcessId, Private], Awaitable[object]]
"""A private message to one process."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """How a group's members give their state to those who come later (docs/client.md)."""

    save: Callable[[], Iterable[bytes] | AsyncIterable[bytes]]
    """Called at the cut, in the member's own stream: the application has seen everything before it, and nothing behind it."""
    load: Callable[[AsyncIterator[bytes]], Awaitable[None]]
    """Gets the chunks of one `save`, in order. May be called again from the beginning; what it makes counts when it returns."""
    background: bool = False
    """The member's stream goes on while `save`'s chunks are read."""
    patience: float = 30.0
    """Seconds without `load` taking anything before the joiner is given up."""
    memory_max: int = 1 << 20
    """Bytes of what arrives during a transfer that stay in memory; more goes to a temporary file."""
    directory: str | None = None
    """Where that file is made, if not where temporary files are."""


class Provision:
    """One snapshot on its way to one joiner."""

    def __init__(self, joiner: ProcessId, attempt: int, patience: float) -> None:
        self.joiner = joiner
        self.attempt = attempt
        self.window = Window(patience)
        self.task: asyncio.Task[None] | None = None
        self.is_read = False


class Provisions:
    """All that one member gives at this moment. `changed` is called when a snapshot was read to its end, or given up."""

    def __init__(self, group: GroupId, transfer: Transfer, whisper: Whisper, changed: Callable[[], None]) -> None:
        self._group = group
        self._transfer = transfer
        self._whisper = whisper
        self._changed = changed
        self._active: dict[ProcessId, Provision] = {}

    @property
    def holds_the_stream(self) -> bool:
        return not self._transfer.background and any(not one.is_read for one in self._active.values())

    def provide(self, joiner: ProcessId, attempt: int, holders: tuple[ProcessId, ...]) -> None:
        """Take the snapshot now and send it in a task of its own."""
        self.stop(joiner)
        provision = self._active[joiner] = Provision(joiner, attempt, self._transfer.patience)
        try:
            chunks = self._transfer.save()
            _require_iterable(chunks)
        except Exception as error:
            provision.task = asyncio.ensure_future(self._fail(provision, error))
        else:
            provision.task = asyncio.ensure_future(self._send(provision, chunks, holders))

    async def _send(self, one: Provision, chunks: Iterable[bytes] | AsyncIterable[bytes], holders: tuple[ProcessId, ...]) -> None:
        try:
            await self._whisper(one.joiner, Begin(self._group, one.attempt, holders))
            async with aclosing(packs(chunks)) as source:
                async for pack in source:
                    await one.window.enter()
                    await self._whisper(one.joiner, Chunks(self._group, one.attempt, pack))
            await self._whisper(one.joiner, End(self._group, one.attempt))
        except SessionLost:
            pass
        except Exception as error:
            await self._fail(one, error)
        finally:
            self._finished(one)

    async def _fail(self, one: Provision, error: Exception) -> None:
        """The joiner asks somebody else; whoever wrote `save` is told here, and the member goes on."""
        asyncio.get_running_loop().call_exception_handler(
            {"message": f"the state for {one.joiner} could not be given: {error}", "exception": error}
        )
        try:
            await self._whisper(one.joiner, Failed(self._group, one.attempt, str(error)[:ERROR_TEXT_MAX], False))
        except SessionLost:
            pass
        finally:
            self._finished(one)

    def _finished(self, one: Provision) -> None:
        one.is_read = True
        if self._active.get(one.joiner) is one:
            del self._active[one.joiner]
        self._changed()

    # --- what the joiners say ---------------------------------------------------------------------------------------

    def taken(self, joiner: ProcessId, attempt: int) -> None:
        one = self._active.get(joiner)
        if one is not None and one.attempt == attempt:
            one.window.taken()

    def stop(self, joiner: ProcessId, attempt: int | None = None) -> None:
        """It wants no more of this attempt, or of any, or is gone."""
        one = self._active.get(joiner)
        if one is not None and attempt in (None, one.attempt):
            del self._active[joiner]
            if one.task is not None:
                one.task.cancel()
            self._changed()

    def keep_only(self, members: tuple[ProcessId, ...]) -> None:
        for joiner in [one for one in self._active if one not in members]:
            self.stop(joiner)

    def stop_all(self) -> None:
        self.keep_only(())


def _require_iterable(chunks: object) -> None:
    """A mistake that would otherwise show as a state of numbers."""
    if isinstance(chunks, bytes | bytearray | str) or not isinstance(chunks, Iterable | AsyncIterable):
        raise UsageError(f"save returned {type(chunks).__name__}: return an iterable of bytes")
