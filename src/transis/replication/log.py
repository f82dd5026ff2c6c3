"""A replica as a program has it: post, read, and see how it stands.

async with transis.replica("accounts", me="ann", replicas=["ann", "bob", "cyd"], directory="/var/lib/bank") as log:
    receipt = await log.post(b"open 7")
    offset = await receipt.ordered(timeout=5)
    async for entry in log.read(after=offset - 1): ...
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from hashlib import blake2b
from time import time_ns
from typing import Final, Generic, TypeVar

from transis.client.events import Codec
from transis.process.fork import stays_here
from transis.prsl.actions import KEY_SIZE, ActionId
from transis.prsl.core import Config
from transis.prsl.log import Snapshot
from transis.prsl.outputs import Accepted, LoadSnapshot, Ordered, Refused, StableTo, TakeSnapshot
from transis.replication.admin import Admin
from transis.replication.attachment import Connect
from transis.replication.entries import Delivered, Entries
from transis.replication.host import Application, Host, News
from transis.replication.posts import Bundle, Outcome, PostReceipt, Posts
from transis.replication.status import ReplicaStatus, describe
from transis.replication.store import Store
from transis.types.errors import MessageTooLarge, NoPrimary, NotYet, Rejection, ReplicaError, TransisError, UsageError
from transis.types.limits import ACTION_BYTES_MAX, ACTION_MESSAGES_MAX, MESSAGE_MAX

T = TypeVar("T")

POST_MAX: Final = MESSAGE_MAX - (64 << 10)
"""Bytes of one message: with what an action says about itself it must still be one message of the group."""


class ReplicaBase:
    """What a replicated log and a replicated machine have in common."""

    def __init__(self, store: Store, group: str, config: Config, connect: Connect, snapshot_every: int) -> None:
        self.group: str = group
        self.me: str = config.name
        self.life: int = config.life
        """How often its directory was opened."""
        self._posts = Posts(self._post_bundle, self._not_yet)
        self._posts.needs_acknowledgement = config.explicit_ack
        opened = store.opened
        self._delivered = Delivered(store, (opened.snapshot if config.is_replayed else opened.checkpoint).base)
        self._host = Host(store, group, config, connect, Application(self._hear, self._ended))
        self._snapshot_every = snapshot_every
        self._snapshot_at = self._delivered.end
        """Where the last snapshot was taken, an offset."""
        self._trouble = ""
        self._is_closed = False
        stays_here(self)

    # --- looking --------------------------------------------------------------------------------------------------------

    def status(self) -> ReplicaStatus:
        """How this replica stands: primary or not and why, who is missing, who lags, and what waits for what."""
        host = self._host
        trouble = host.trouble or self._trouble
        now = asyncio.get_running_loop().time()
        return describe(self.group, self.me, host.machine.status(), host.seen, now, trouble)

    @property
    def admin(self) -> Admin:
        """Changes of who is a replica: `add`, `remove`, `replace`."""
        return Admin(self)

    @property
    def end(self) -> int:
        """The offset behind the last message that was delivered here."""
        return self._delivered.end

    async def _start(self) -> None:
        self._host.start()

    async def close(self) -> None:
        """End the replica here. What was posted is on the disk and goes on when it is opened again. Closing twice is harmless."""
        if not self._is_closed:
            self._is_closed = True
            self._end(UsageError("the replica is closed"))
            await self._host.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.group!r} at {self.me!r}>"

    # --- for the host -----------------------------------------------------------------------------------------------------

    def _post_bundle(self, bundle: Bundle) -> ActionId | Rejection:
        answer = self._host.post(bundle.messages, bundle.kind, bundle.key, bundle.at, time_ns() // 1000)
        if isinstance(answer, Rejection) and answer.field == "disk":
            return Rejection("disk", f"{self._host.trouble}. It is tried again each second: post again when it is better")
        return answer

    def _hear(self, news: News) -> None:
        match news:
            case Ordered():
                self._ordered(news)
            case Accepted(ids):
                self._posts.accepted(ids)
            case StableTo(place, acked):
                self._posts.stable(place, acked)
            case Refused(ids, why):
                self._posts.refused(ids, why)
            case TakeSnapshot(snapshot):
                self._take_snapshot(snapshot)
            case LoadSnapshot(snapshot):
                self._load_snapshot(snapshot)

    def _take_snapshot(self, snapshot: Snapshot) -> None:
        """A log has no state beside itself."""
        asyncio.get_running_loop().call_soon(self._host.snapshot_written, snapshot.base.place)

    def _load_snapshot(self, snapshot: Snapshot) -> None:
        self._delivered.jump(snapshot.base)
        self._posts.loaded(snapshot.base)

    def _ordered(self, news: Ordered) -> None:
        self._note(news)

    def _note(self, news: Ordered, results: Sequence[Outcome] = ()) -> None:
        self._delivered.record = self._host.machine.record
        self._delivered.add(news)
        self._posts.ordered(news, results)

    def _ended(self, why: str) -> None:
        self._end(ReplicaError(why))

    def _end(self, failure: TransisError) -> None:
        kind, why = type(failure), str(failure)
        self._posts.end(lambda: kind(why))
        self._delivered.end_with(failure)

    def _not_yet(self, receipt: PostReceipt, what: str) -> NotYet:
        status = self.status()
        which = f"it stays posted as {' '.join(map(str, receipt.actions))}" if receipt.actions else "it waits to be written"
        if self._host.disk_trouble:
            return NotYet(f"not {what} yet: {self._host.disk_trouble}; {which}", receipt)
        if status.is_primary:
            return NotYet(f"not {what} yet; {which}", receipt)
        return NoPrimary(f"not {what} yet, no primary here: {status.why}; {which}", receipt)


class ReplicaLog(ReplicaBase, Generic[T]):
    """A replicated log: what `transis.replica` yields without a machine."""

    def __init__(self, store: Store, group: str, config: Config, connect: Connect, snapshot_every: int, codec: Codec[T]) -> None:
        self._codec = codec
        super().__init__(store, group, config, connect, snapshot_every)

    async def post(self, data: T, *, key: str | bytes | None = None, at: int | None = None) -> PostReceipt:
        """Post one message, in any partition: when this returns, it is on this disk and will be ordered.

        With a client `key` it counts once, however often it is posted and by whom; `at` is an offset that was delivered when the
        key was first used, the same in every retry. PostRefused if it cannot be posted.
        """
        return await self.post_many([data], key=key, at=at)

    async def post_many(self, datas: Sequence[T], *, key: str | bytes | None = None, at: int | None = None) -> PostReceipt:
        """Post several messages, the `datas`, with one receipt; with a `key` they count once, together; `at` as for `post`."""
        if isinstance(datas, bytes | bytearray | str):
            raise UsageError("post_many takes several messages, as in post_many([one, another]): for one there is post")
        payloads = [self._codec.encode(data) for data in datas]
        if not payloads:
            raise UsageError("no messages to post")
        _require_sizes(payloads, key)
        receipt = self._posts.add(payloads, key=key_of(key), at=self.end if at is None else at)
        await receipt.accepted()
        return receipt

    def read(self, after: int | None = None) -> Entries[T]:
        """What is ordered, from behind the offset `after` on, or from the first that is kept; it follows the end."""
        self._delivered.first = self._host.machine.kept_from
        return Entries(self._delivered, None if after is None else after + 1, self._codec)

    def ack(self, offset: int) -> None:
        """This application needs nothing up to and with this `offset` any more. It may be trimmed when all have said so."""
        if not 0 <= offset < self.end:
            raise UsageError(f"offset = {offset}: this log was delivered up to {self.end - 1}")
        self._host.acknowledge(offset + 1)
        if self.end - self._snapshot_at >= self._snapshot_every:
            self._snapshot_at = self.end
            self._host.take_snapshot()


def _require_sizes(payloads: Sequence[bytes], key: str | bytes | None) -> None:
    largest, total = max(map(len, payloads)), sum(map(len, payloads))
    if largest > POST_MAX:
        raise MessageTooLarge(f"the message has {largest} bytes: a replica takes at most {POST_MAX}; post it in parts")
    if key is not None and (len(payloads) > ACTION_MESSAGES_MAX or (len(payloads) > 1 and total > ACTION_BYTES_MAX)):
        raise MessageTooLarge(
            f"{len(payloads)} messages of {total} bytes with one key: at most {ACTION_MESSAGES_MAX} of {ACTION_BYTES_MAX} bytes"
        )


def key_of(key: str | bytes | None) -> bytes:
    """Any text or bytes, as the 16 bytes that travel."""
    if key is None:
        return b""
    return blake2b(key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key, digest_size=KEY_SIZE).digest()
