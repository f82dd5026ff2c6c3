"""`transis.replica(...)`: checks what is given, and opens a replica."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Literal, TypeVar, overload

from transis.client.connection import Connection
from transis.client.connection import connect as connect_to_daemon
from transis.client.contexts import UnenteredAsync
from transis.client.events import Codec, Raw
from transis.process.fork import is_inherited
from transis.prsl.core import Config
from transis.prsl.record import DIRECTORY_SIZE
from transis.replication.attachment import SUFFIX
from transis.replication.log import ReplicaBase, ReplicaLog
from transis.replication.machine import ReplicaMachine
from transis.replication.replicated import methods_of
from transis.replication.settings import given
from transis.replication.store import Store
from transis.types.errors import ConfigError, StoreError, UsageError
from transis.types.limits import NAME_MAX, REPLICAS_MAX
from transis.types.views import GROUP_NAME_MAX, require_group_name

T = TypeVar("T")
M = TypeVar("M")
H = TypeVar("H", bound=ReplicaBase)

Ack = Literal["majority", "all"]


class OpeningReplica(UnenteredAsync, Generic[H]):
    """A context that yields the replica; or call `await opening.open()` and, later, `await replica.close()`."""

    _remedy = "this is no replica before it is entered: write `async with transis.replica(...) as log:`"

    def __init__(self, group: str, config: Config, directory: Path, make: Callable[[Store, Config], H]) -> None:
        self._group = group
        self._config = config
        self._directory = directory
        self._make = make
        self._replica: H | None = None

    async def open(self) -> H:
        """Open the replica, for a program that cannot use `async with`."""
        store = await asyncio.to_thread(self._open_store)
        replica = self._make(store, self._config._replace(directory=store.directory, life=store.life))
        try:
            await replica._start()
        except BaseException:
            await replica.close()
            raise
        return replica

    def _open_store(self) -> Store:
        config = self._config
        store = Store(self._directory, self._group, config.name, config.founders, secrets.token_bytes(DIRECTORY_SIZE))
        record = store.opened.base.record
        names = tuple(entry.name for entry in record.entries)
        if not record.is_founded and store.opened.marks.green == 0 and names != config.founders:
            store.close()
            raise StoreError(
                f"{self._directory} was made for the replicas {_listed(names)}, and these are {_listed(config.founders)}: "
                "start it with the same list, or delete the directory if nothing was ordered yet"
            )
        return store

    def __repr__(self) -> str:
        return f"<OpeningReplica {self._group!r} at {self._config.name!r}>"

    async def __aenter__(self) -> H:
        if self._replica is not None:
            raise UsageError("this replica was already entered: call transis.replica again")
        self._replica = await self.open()
        return self._replica

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._replica is not None
        if error is None or not is_inherited(self._replica):
            await self._replica.close()


def _listed(names: Sequence[str]) -> str:
    return f"[{', '.join(names)}]" if names else "none (it joins a group that is there)"


@overload
def replica(
    group: str,
    *,
    me: str | None = None,
    replicas: Sequence[str] | None = None,
    directory: str | PathLike[str] | None = None,
    settings: str | PathLike[str] | None = None,
    connect: Callable[[], Connection[bytes]] | None = None,
    ack: Ack = "majority",
    explicit_ack: bool = False,
    snapshot_every: int = 100_000,
) -> OpeningReplica[ReplicaLog[bytes]]: ...
@overload
def replica(
    group: str,
    *,
    me: str | None = None,
    replicas: Sequence[str] | None = None,
    directory: str | PathLike[str] | None = None,
    settings: str | PathLike[str] | None = None,
    connect: Callable[[], Connection[bytes]] | None = None,
    ack: Ack = "majority",
    explicit_ack: bool = False,
    snapshot_every: int = 100_000,
    codec: Codec[T],
) -> OpeningReplica[ReplicaLog[T]]: ...
@overload
def replica(
    group: str,
    *,
    me: str | None = None,
    replicas: Sequence[str] | None = None,
    directory: str | PathLike[str] | None = None,
    settings: str | PathLike[str] | None = None,
    connect: Callable[[], Connection[bytes]] | None = None,
    ack: Ack = "majority",
    explicit_ack: bool = False,
    snapshot_every: int = 100_000,
    machine: M,
) -> OpeningReplica[ReplicaMachine[M]]: ...
def replica(
    group: str,
    *,
    me: str | None = None,
    replicas: Sequence[str] | None = None,
    directory: str | PathLike[str] | None = None,
    settings: str | PathLike[str] | None = None,
    connect: Callable[[], Connection[bytes]] | None = None,
    ack: Ack = "majority",
    explicit_ack: bool = False,
    snapshot_every: int = 100_000,
    codec: Codec[Any] | None = None,
    machine: Any = None,
) -> OpeningReplica[Any]:
    """A replica called `me` of the replication group `group`, with its log in `directory`.

    These three may stand in the table `[replica.GROUP]` of a TOML file, `settings`.

    `replicas` names all who found the group, the same at each of them. `connect` opens a session with a node, if not with the
    daemon of this machine: `node.connect` of an embedded one, or `lambda: transis.connect(path)`. With `ack="all"` an order waits
    for all replicas that are together, not only for a majority. With `explicit_ack` stable means that every application called
    `ack`, and only then a log is trimmed. A `codec` turns values into bytes. A `machine` is an object of a replicated class, in
    the state in which all begin; every `snapshot_every` messages a snapshot of it is taken, and what is before may be trimmed.
    """
    me, replicas, directory = given(group, settings, me, replicas, directory)
    founders = _founders(me, replicas)
    if ack not in ("majority", "all"):
        raise ConfigError("ack", ack, "write 'majority' or 'all'")
    if snapshot_every < 1:
        raise ConfigError("snapshot_every", snapshot_every, "give a number of messages above 0")
    if connect is not None and not callable(connect):
        raise ConfigError("connect", connect, "give something to call, as in connect=node.connect")
    name, way = _group_name(group), connect or connect_to_daemon
    config = Config(me, b"", founders, acks_of_all=ack == "all", explicit_ack=explicit_ack)
    if machine is not None:
        _require_machine(machine, codec)
        return OpeningReplica(
            name, config, directory, lambda store, full: ReplicaMachine(store, name, full, way, snapshot_every, machine)
        )
    if isinstance(codec, type):
        raise UsageError(f"codec = {codec.__name__}: this is a class, write {codec.__name__}()")
    config = config._replace(is_replayed=False)
    return OpeningReplica(
        name, config, directory, lambda store, full: ReplicaLog(store, name, full, way, snapshot_every, codec or Raw())
    )


def _require_machine(machine: object, codec: object) -> None:
    if isinstance(machine, type):
        raise UsageError(f"machine = {machine.__name__}: this is a class, write {machine.__name__}()")
    if codec is not None:
        raise UsageError("give a codec or a machine, not both: the types of its actions say how they travel")
    methods_of(type(machine))


def _group_name(group: str) -> str:
    require_group_name(group)
    size = len((group + SUFFIX).encode())
    if "@" in group or size > GROUP_NAME_MAX:
        allowed = GROUP_NAME_MAX - len(SUFFIX.encode())
        raise ConfigError("group", group, f"use at most {allowed} bytes of printable text without @")
    return group


def _founders(me: str, replicas: Sequence[str] | None) -> tuple[str, ...]:
    names = () if replicas is None else tuple(sorted(replicas))
    if isinstance(replicas, str):
        raise ConfigError("replicas", replicas, "give a list of names, as in replicas=['ann', 'bob', 'cyd']")
    for field, name in [("me", me), *(("replicas", one) for one in names)]:
        if not 1 <= len(name.encode()) <= NAME_MAX or not name.isprintable():
            raise ConfigError(field, name, f"a replica's name is 1 to {NAME_MAX} bytes of printable text")
    if len(set(names)) < len(names) or len(names) > REPLICAS_MAX:
        raise ConfigError("replicas", list(names), f"name each replica once, and at most {REPLICAS_MAX}")
    if names and me not in names:
        raise ConfigError(
            "me",
            me,
            f"the replicas are {', '.join(names)}: add it to the list, or leave the list out to join a group",
        )
    return names
