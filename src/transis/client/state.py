"""State transfer at work: the rules of transfer.py between the stream, `save` and `load` of one group at one member.

Two points of the order matter. What *arrives* passes `arrived` at once: views, requests and founders are noticed there even if
the application is far behind. What the application *reaches* passes `step`, at its place: there, and only there, a holder knows
its own state, and provides it.

1. While this member has no state, its application does not iterate: what lies before the cut is dropped, what follows is kept.
2. A member that had a state and wants another keeps everything from where its application stood: it may become the founder.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Protocol

import msgspec

from transis.client.events import Passed, beginning
from transis.client.snapshot import ChunkReader, SnapshotProviders, Transfer
from transis.client.stream import StreamBuffer
from transis.client.transfer import (
    Acquisition,
    Action,
    ChunksTaken,
    DeclineOffer,
    FoundState,
    GiveUp,
    HolderTable,
    InterruptLoad,
    LoadFrom,
    MarkCut,
    PrivateMessage,
    PublicMessage,
    SendRequest,
    StateBegin,
    StateChunks,
    StateEnd,
    StateFailed,
    StateReady,
    StateRefused,
    StateRequest,
    TransferMessage,
    companion_of,
    decode_transfer,
    encode_transfer,
    transfer_address,
)
from transis.sessions.frames import Changed, Stream, StreamFrame
from transis.types.errors import SessionLost, TransferError, TransferInterrupted, TransisError, UsageError
from transis.types.ids import ProcessId, ViewKind
from transis.types.views import Address, GroupId, GroupView, GroupViewId, group_id
from transis.wire.items import encode_address

# --- state transfer --------------------------------------------------------------------------------------------------

LOADED: Final = "loaded"
FOUNDED: Final = "founded"
Reached = GroupView | tuple[ProcessId, PublicMessage]


class _Loading(NamedTuple):
    load: LoadFrom
    reader: ChunkReader


class StateTransfer:
    """State transfer of one group at this member: it first acquires the state, and provides it to others from then on."""

    def __init__(self, name: str, transfer: Transfer, session: TransferSession, buffer: StreamBuffer) -> None:
        self.name = name
        self.group: GroupId = group_id(name)
        self.companion: str = companion_of(name)
        self.buffered_max: int = 0
        self.passed: GroupViewId | None = None
        self.begun: Passed | None = None
        self._transfer = transfer
        self._session = session
        self._buffer = buffer
        self._me = session.process
        self._companion_id = group_id(self.companion)
        self._companion_address = encode_address(Address((self._companion_id,)))
        self._arrived = HolderTable()
        self._reached = HolderTable()
        self._to_reach: deque[Reached] = deque()
        self._open_requests: dict[ProcessId, int] = {}
        self._acquisition: Acquisition | None = Acquisition(self._me, False, session._next_attempts())
        self._has_state = False
        self._keeping = False
        self._beginnings = 0
        self._last_view: GroupView | None = None
        self._cut_at = 0
        self._cut_view: GroupView | None = None
        self._cut_passed: Passed | None = None
        self._arrived_passed: Passed | None = None
        self._cut_table = HolderTable()
        self._reader: ChunkReader | None = None
        self._news: asyncio.Queue[_Loading | FoundState | GiveUp | Callable[[], TransisError]] = asyncio.Queue()
        self._sender = TransferSender(session)
        self._providers = SnapshotProviders(self.group, transfer, self._sender.send_now, self._providers_changed)
        buffer.filter = self.arrived

    # --- what arrives -----------------------------------------------------------------------------------------------

    def arrived(self, frame: StreamFrame) -> StreamFrame | None:
        """The part of a frame that the application has to reach, if any."""
        if isinstance(frame, Stream) and frame.address == self._companion_address:
            return self._arrived_messages(frame)
        if isinstance(frame, Changed):
            if frame.view.group == self._companion_id:
                self._arrived_view(frame.view)
            else:
                self._last_view, self._arrived_passed = frame.view, beginning(frame.view.id)
        elif isinstance(frame, Stream) and self._arrived_passed is not None:
            self._arrived_passed = self._arrived_passed.then(frame)
        return frame if self._is_keeping else None

    @property
    def _is_keeping(self) -> bool:
        return self._acquisition is None or self._has_state or self._keeping

    def _arrived_view(self, view: GroupView) -> None:
        self._arrived.view(view)
        self._open_requests = {one: attempt for one, attempt in self._open_requests.items() if one in view.members}
        self._providers.keep_only(view.members)
        if self._acquisition is not None:
            self._perform(self._acquisition.view(view))

    def _arrived_messages(self, frame: Stream) -> Stream | None:
        """A frame may hold several messages of one sender, and the application's stream may begin between two of them."""
        kept: list[bytes] = []
        for payload in frame.payloads:
            message = decode_transfer(payload)
            before = (self._is_keeping, self._beginnings)
            if isinstance(message, StateRequest | StateReady) and self._arrived.heeds(frame.sender):
                self._arrived_message(frame.sender, message)
            if before == (True, self._beginnings) and self._is_keeping:
                kept.append(payload)
        return msgspec.structs.replace(frame, payloads=kept) if kept else None

    def _arrived_message(self, sender: ProcessId, message: PublicMessage) -> None:
        acquisition = self._acquisition
        if isinstance(message, StateReady):
            self._arrived.ready(sender)
            self._open_requests.pop(sender, None)
            if acquisition is not None:
                self._perform(acquisition.ready(message))
            return
        founder = self._arrived.request(sender, message.has_state)
        self._open_requests[sender] = message.attempt
        self._providers.stop(sender)
        if acquisition is not None:
            self._perform(acquisition.request(sender, message, founder))

    def on_private(self, sender: ProcessId, message: PrivateMessage) -> None:
        """A private message about this group."""
        acquisition = self._acquisition
        match message:
            case ChunksTaken():
                self._providers.taken(sender, message.attempt)
            case StateRefused():
                self._providers.stop(sender, message.attempt)
            case StateBegin() if acquisition is None:
                self._sender.send_to(sender, StateRefused(self.group, message.attempt))
            case StateBegin() if acquisition is not None:
                self._perform(acquisition.begin(sender, message))
            case StateFailed() if acquisition is not None:
                self._perform(acquisition.failed(sender, message))
            case StateChunks() | StateEnd() if acquisition is not None and acquisition.is_from_provider(sender, message.attempt):
                self._loading(message)

    def _loading(self, message: StateChunks | StateEnd) -> None:
        assert self._reader is not None
        if isinstance(message, StateEnd):
            self._reader.finish()
        else:
            self._reader.feed(message.chunks)
            self.buffered_max = max(self.buffered_max, self._reader.bytes + self._buffer.bytes)

    # --- actions of the acquisition ---------------------------------------------------------------------------------

    def _perform(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case SendRequest(request):
                    self._stop_keeping()
                    self._send_to_all(request)
                case MarkCut():
                    self._cut()
                case LoadFrom(provider, attempt):
                    self._reader = ChunkReader(lambda: self._sender.send_to(provider, ChunksTaken(self.group, attempt)))
                    self._news.put_nowait(_Loading(action, self._reader))
                case InterruptLoad(why):
                    self._interrupt(why)
                case DeclineOffer(provider, attempt):
                    self._sender.send_to(provider, StateRefused(self.group, attempt))
                case FoundState(is_asking):
                    self._found()
                    self._news.put_nowait(action)
                    if is_asking:
                        self._send_to_all(StateReady())
                case GiveUp(why):
                    self._interrupt(why)
                    self._news.put_nowait(action)

    def _interrupt(self, why: str) -> None:
        self._stop_keeping()
        if self._reader is not None:
            self._reader.interrupt(why)

    def _stop_keeping(self) -> None:
        if not self._has_state:
            self._keeping = False
            self._buffer.discard()

    def _cut(self) -> None:
        self._cut_table = self._arrived.copy()
        self._cut_view, self._cut_passed = self._last_view, self._arrived_passed
        self._cut_at = self._buffer.put_count
        self._keeping = self._buffer.held = True

    def _found(self) -> None:
        """A founder that had a state goes on where its application stood, and later reaches what made it the founder."""
        if not self._has_state:
            self._reached = self._arrived.copy()
            self._buffer.discard()
            self._begin_stream(self._last_view, self._arrived_passed)

    def _begin_stream(self, view: GroupView | None, passed: Passed | None) -> None:
        """The application begins here, with the view in force, unless it has seen that view already.

        `begun` is the position where it begins: the state already holds what came between the view and here.
        """
        self._to_reach.clear()
        self.begun = None if passed is None else Passed(passed.at())
        self._keeping = True
        self._beginnings += 1
        if view is not None and view.id != self.passed:
            self._buffer.put_first(Changed(view), (self.name,))

    # --- getting the state ------------------------------------------------------------------------------------------

    async def acquire(self) -> str:
        """Wait until this member has the state; returns LOADED or FOUNDED."""
        while True:
            news = await self._news.get()
            if isinstance(news, FoundState):
                self._acquired()
                return FOUNDED
            if isinstance(news, GiveUp):
                self._acquired()
                raise TransferError(f"no member could provide the state of {self.name!r}: {news.why}")
            if not isinstance(news, _Loading):
                raise news()
            if await self._load(*news):
                return LOADED

    async def _load(self, load: LoadFrom, reader: ChunkReader) -> bool:
        """Whether the state was loaded to the end; if not, another provider has been asked already."""
        try:
            if not reader.is_interrupted():
                await self._transfer.load(reader)
        except Exception as error:
            if not (isinstance(error, TransferInterrupted) and reader.is_interrupted()):
                self._sender.send_to(load.provider, StateRefused(self.group, load.attempt))
                raise
        if reader.is_interrupted():
            return False
        self._loaded(load, reader)
        return True

    def _loaded(self, load: LoadFrom, reader: ChunkReader) -> None:
        assert self._acquisition is not None
        self._acquisition.loaded()
        if not reader.finished:
            self._sender.send_to(load.provider, StateRefused(self.group, load.attempt))
        self._buffer.drop_before(self._cut_at)
        self._reached = self._cut_table
        self._reached.holders = set(load.holders)
        self._begin_stream(self._cut_view, self._cut_passed)
        self._acquired()
        self._send_to_all(StateReady())

    def _acquired(self) -> None:
        self._acquisition = self._reader = None
        self._providers_changed()

    async def reload(self) -> str:
        if self._acquisition is not None:
            raise UsageError(f"the state of {self.name!r} is already being loaded")
        self._has_state = self._buffer.held = True
        self._acquisition = Acquisition(self._me, True, self._session._next_attempts())
        self._perform(self._acquisition.ask())
        try:
            return await self.acquire()
        except BaseException:
            self._interrupt("the reload was cancelled")
            self._acquired()
            self._send_to_all(StateReady())  # It still has its old state, and every message since.
            raise

    # --- what the application reaches -------------------------------------------------------------------------------

    def reach(self, frame: StreamFrame) -> bool:
        """Whether this frame belongs to the transfer; `step` then handles it."""
        if isinstance(frame, Changed) and frame.view.group == self._companion_id:
            self._to_reach.append(frame.view)
            return True
        if isinstance(frame, Stream) and frame.address == self._companion_address:
            messages = [decode_transfer(payload) for payload in frame.payloads]
            self._to_reach.extend((frame.sender, one) for one in messages if isinstance(one, StateRequest | StateReady))
            return True
        return False

    def step(self) -> bool:
        """Handle what was reached. False while the application has to wait."""
        while self._acquisition is None and not self._buffer.held:
            if not self._to_reach:
                return True
            reached = self._to_reach.popleft()
            if isinstance(reached, GroupView):
                self._reach_view(reached)
            elif self._reached.heeds(reached[0]):
                self._reach_message(*reached)
        return False

    def _providers_changed(self) -> None:
        """While a snapshot is read from the live state, the state must not change."""
        if self._acquisition is None:
            self._buffer.held = self._providers.holds_the_stream
            self._buffer.wake()

    def _reach_view(self, view: GroupView) -> None:
        self._reached.view(view)
        if view.kind is ViewKind.REGULAR and len(view.merged_from) > 1 and self._me in self._reached.holders:
            self._send_to_all(StateReady())

    def _reach_message(self, sender: ProcessId, message: PublicMessage) -> None:
        table = self._reached
        if isinstance(message, StateRequest):
            if table.request(sender, message.has_state) is None:
                self._reach_request(sender, message)
            return
        table.ready(sender)
        if sender == self._me and not message.invitation and table.holders == {self._me} and table.asking:
            self._send_to_all(StateReady(True))

    def _reach_request(self, sender: ProcessId, request: StateRequest) -> None:
        """A joiner that has asked again meanwhile, or is gone, gets nothing here."""
        if self._open_requests.get(sender) != request.attempt:
            return
        provider = self._reached.provider(request.tried)
        if provider == self._me:
            self._providers.provide(sender, request.attempt, tuple(sorted(self._reached.holders)))
            self._providers_changed()
        elif provider is None and self._me == min(self._reached.holders, default=None):
            self._sender.send_to(
                sender, StateFailed(self.group, request.attempt, "every member that has it was tried and failed", True)
            )

    def _send_to_all(self, message: PublicMessage) -> None:
        self._sender.send(self._companion_address, message)

    # --- the end ----------------------------------------------------------------------------------------------------

    def abort(self, failure: Callable[[], TransisError]) -> None:
        """The session is over, or this process left the group or was removed: callers that wait for the state raise this."""
        if self._reader is not None:
            self._reader.interrupt("this member left, or lost its session")
        self._news.put_nowait(failure)
        self._providers.stop_all()
        self._sender.stop()


# --- sending ----------------------------------------------------------------------------------------------------------


class TransferSession(Protocol):
    """What state transfer needs from a session."""

    @property
    def process(self) -> ProcessId: ...

    def _next_attempts(self) -> int:
        """A number above all attempts this process has made so far, with room for many more."""
        ...

    async def _say(self, address: bytes, payload: bytes) -> object:
        """Send an agreed message; waits for credit."""
        ...


class TransferSender:
    """Sends messages of a transfer in order, from a task of its own: code in the middle of a frame cannot wait for credit."""

    def __init__(self, session: TransferSession) -> None:
        self._session = session
        self._queue: asyncio.Queue[tuple[bytes, TransferMessage]] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False

    def send(self, address: bytes, message: TransferMessage) -> None:
        if self._is_stopped:
            return
        self._queue.put_nowait((address, message))
        if self._task is None:
            self._task = asyncio.ensure_future(self._drain())

    def send_to(self, process: ProcessId, message: PrivateMessage) -> None:
        self.send(encode_address(transfer_address(process)), message)

    def send_now(self, process: ProcessId, message: PrivateMessage) -> Awaitable[object]:
        """Bypass the queue, for callers that can wait for credit."""
        return self._session._say(encode_address(transfer_address(process)), encode_transfer(message))

    async def _drain(self) -> None:
        try:
            while True:
                address, message = await self._queue.get()
                await self._session._say(address, encode_transfer(message))
        except (SessionLost, UsageError):
            pass  # The session is over, and nothing more can be sent in it.

    def stop(self) -> None:
        """Drop what was not sent yet."""
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()
            self._task = None
