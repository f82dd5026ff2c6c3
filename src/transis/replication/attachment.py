"""A replica's way to its group: one session after another, since a session ends with its node and a replica must not.

1. The replica owns connecting. A session that is lost is `lost` to the machine, and the next one is another process to others.
2. What the machine says goes through one lane, in order. What waits there when a session ends is dropped: it belongs to a view
   that is over, and whatever matters of it is told again in the next one.
3. Leaving the group ends the session too, so that nothing of the old membership can come after it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from transis.client.connection import Connection
from transis.client.events import Batch, View
from transis.client.session import Session
from transis.types.errors import ConnectError, NoQuorum, TransisError, plainly
from transis.types.ids import ProcessId, Service

SUFFIX: Final = " ⟨replicas⟩"
"""The process group of `accounts` is `accounts ⟨replicas⟩`: an application may have a group `accounts` of its own."""

RETRY_FIRST_S: Final = 0.1
RETRY_MAX_S: Final = 2.0
QUORUM_RETRY_S: Final = 0.2
BATCH_MAX: Final = 256
"""Messages that are handed to the session in one call."""

Connect = Callable[[], Connection[bytes]]


class Inputs(Protocol):
    """What comes of the sessions, for the host."""

    def connected(self, session: Session[bytes]) -> None: ...
    def lost(self) -> None: ...
    def view(self, view: View, me: ProcessId) -> None: ...
    def batch(self, batch: Batch[bytes]) -> None: ...
    def private(self, sender: ProcessId, payload: bytes) -> None: ...


Target = tuple[ProcessId | None, Service]
"""One process, or the group if it is None; and how it is sent."""


class Attachment:
    def __init__(self, group: str, connect: Connect, inputs: Inputs) -> None:
        self.group = group + SUFFIX
        self.trouble = ""
        """Why there is no session, empty if there is one."""
        self._connect = connect
        self._inputs = inputs
        self._session: Session[bytes] | None = None
        self._is_wanted = False
        self._changed = asyncio.Event()
        self._outgoing: deque[tuple[Target, bytes]] = deque()
        self._waiting = asyncio.Event()

    # --- what the host asks for -----------------------------------------------------------------------------------------

    def join(self) -> None:
        self._is_wanted = True
        self._changed.set()

    def leave(self) -> None:
        """Be no member of the group from here on, by the end of this session. Another one is opened at once."""
        self._is_wanted = False
        self._drop()

    def send(self, payload: bytes, service: Service) -> None:
        self._put((None, service), payload)

    def tell(self, to: ProcessId, payload: bytes) -> None:
        self._put((to, Service.AGREED), payload)

    @property
    def session(self) -> Session[bytes] | None:
        return self._session

    def _put(self, to: Target, payload: bytes) -> None:
        if self._session is not None:
            self._outgoing.append((to, payload))
            self._waiting.set()

    def _drop(self) -> None:
        self._session = None
        self._outgoing.clear()
        self._changed.set()

    # --- sessions -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until it is cancelled."""
        pause = RETRY_FIRST_S
        while True:
            try:
                session = await self._connect().open()
            except (TransisError, OSError) as error:
                self.trouble = f"no node can be reached: {plainly(error)}"
                await asyncio.sleep(pause)
                pause = min(2 * pause, RETRY_MAX_S)
                continue
            pause = RETRY_FIRST_S
            await self._serve(session)

    async def _serve(self, session: Session[bytes]) -> None:
        try:
            await self._require_order(session)
            self._session, self.trouble = session, ""
            self._changed.clear()
            self._inputs.connected(session)
            await self._until_it_ends(session)
        except TransisError as error:
            self.trouble = plainly(error)
            await asyncio.sleep(RETRY_FIRST_S)
        finally:
            self._drop()
            self._inputs.lost()
            await session.close()

    async def _require_order(self, session: Session[bytes]) -> None:
        found = (await session.about())["guarantees"]
        if found != "evs":
            raise ConnectError(
                f"the node's views give {found!r}, and a replica needs 'evs': choose another mode for it (docs/choosing.md)"
            )

    async def _until_it_ends(self, session: Session[bytes]) -> None:
        works = [self._take_private(session), self._send(session), self._be_member(session)]
        tasks = [asyncio.ensure_future(work) for work in works]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # --- what comes -----------------------------------------------------------------------------------------------------

    async def _take_private(self, session: Session[bytes]) -> None:
        async for message in session.private:
            if self._session is not session:
                return
            assert not isinstance(message, View), "private messages have no views"
            self._inputs.private(message.sender, message.data)

    async def _be_member(self, session: Session[bytes]) -> None:
        """Ends when the replica has left."""
        while not self._is_wanted and self._session is session:
            self._changed.clear()
            await self._changed.wait()
        if self._session is not session:
            return
        group = await session.join(self.group).open()
        leaving = asyncio.ensure_future(self._until_left(session))
        taking = asyncio.ensure_future(self._take(session, group.batches()))
        try:
            done, _ = await asyncio.wait((leaving, taking), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            leaving.cancel()
            taking.cancel()

    async def _until_left(self, session: Session[bytes]) -> None:
        while self._session is session:
            self._changed.clear()
            await self._changed.wait()

    async def _take(self, session: Session[bytes], events: Any) -> None:
        async for event in events:
            if self._session is not session:
                return
            if isinstance(event, View):
                self._inputs.view(event, session.process)
            else:
                self._inputs.batch(event)

    # --- what goes out --------------------------------------------------------------------------------------------------

    async def _send(self, session: Session[bytes]) -> None:
        while True:
            while not self._outgoing:
                self._waiting.clear()
                await self._waiting.wait()
            if self._session is not session:
                return
            (to, service), payloads = self._take_outgoing()
            await self._hand_over(session, self.group if to is None else to, payloads, service)

    def _take_outgoing(self) -> tuple[Target, list[bytes]]:
        """What goes to the same address by one service, from the front."""
        to, first = self._outgoing.popleft()
        payloads = [first]
        while self._outgoing and self._outgoing[0][0] == to and len(payloads) < BATCH_MAX:
            payloads.append(self._outgoing.popleft()[1])
        return to, payloads

    async def _hand_over(self, session: Session[bytes], to: str | ProcessId, payloads: list[bytes], service: Service) -> None:
        """Where nothing may be sent without a quorum of nodes, this waits for one. The machine takes no harm from repetitions."""
        while True:
            try:
                await session.send_many(to, payloads, service)
            except NoQuorum as error:
                self.trouble = plainly(error)
                await asyncio.sleep(QUORUM_RETRY_S)
            else:
                self.trouble = ""
                return
