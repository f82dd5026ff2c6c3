"""Transis: group communication for Python.

    import transis

    async with transis.connect() as session:
        async with session.join("orders") as group:
            await group.send(b"new order")
            async for event in group:
                ...

Names are imported on first use, so that importing one part of the package never loads the others.
"""

import importlib
import sys
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from transis import blocking
    from transis.client import (
        Batch,
        Codec,
        Configuration,
        Confirmation,
        Connection,
        Group,
        GroupChange,
        Json,
        Listing,
        Members,
        Message,
        MsgPack,
        NameChange,
        Position,
        Raw,
        Receipt,
        Session,
        Transfer,
        View,
        Watch,
        Whereabouts,
        connect,
    )
    from transis.embed.node import Node
    from transis.replication.context import context, once, within
    from transis.replication.entries import Entries, Entry, EntryBatch
    from transis.replication.log import ReplicaLog
    from transis.replication.machine import CallReceipt, ReplicaMachine
    from transis.replication.posts import PostReceipt
    from transis.replication.replica import OpeningReplica, replica
    from transis.replication.replicated import replicated
    from transis.replication.status import ReplicaState, ReplicaStatus
    from transis.types import errors
    from transis.types.ids import MessageId, ProcessId, Service

__all__ = [
    "Batch",
    "CallReceipt",
    "Codec",
    "Configuration",
    "Confirmation",
    "Connection",
    "Entries",
    "Entry",
    "EntryBatch",
    "Group",
    "GroupChange",
    "Json",
    "Listing",
    "Members",
    "Message",
    "MessageId",
    "MsgPack",
    "NameChange",
    "Node",
    "OpeningReplica",
    "Position",
    "PostReceipt",
    "ProcessId",
    "Raw",
    "Receipt",
    "ReplicaLog",
    "ReplicaMachine",
    "ReplicaState",
    "ReplicaStatus",
    "Service",
    "Session",
    "Transfer",
    "View",
    "Watch",
    "Whereabouts",
    "__version__",
    "blocking",
    "connect",
    "context",
    "errors",
    "once",
    "replica",
    "replicated",
    "within",
]

# The guarantees rest on asserted invariants, which must be checked in production too.
if not __debug__:
    raise RuntimeError("transis refuses to run with assertions off: start Python without -O and without PYTHONOPTIMIZE")


_HOMES = {
    "CallReceipt": "transis.replication.machine",
    "ReplicaMachine": "transis.replication.machine",
    "context": "transis.replication.context",
    "replicated": "transis.replication.replicated",
    "once": "transis.replication.context",
    "within": "transis.replication.context",
    "MessageId": "transis.types.ids",
    "ProcessId": "transis.types.ids",
    "Service": "transis.types.ids",
    "Entries": "transis.replication.entries",
    "Entry": "transis.replication.entries",
    "EntryBatch": "transis.replication.entries",
    "Node": "transis.embed.node",
    "OpeningReplica": "transis.replication.replica",
    "PostReceipt": "transis.replication.posts",
    "ReplicaLog": "transis.replication.log",
    "ReplicaState": "transis.replication.status",
    "ReplicaStatus": "transis.replication.status",
    "replica": "transis.replication.replica",
    "blocking": "transis.blocking",
    "errors": "transis.types.errors",
}
"""Where a public name lives; all others are the client's."""


if not TYPE_CHECKING:  # A type checker that saw this would take misspelt names for ours.

    def __getattr__(name: str) -> object:
        """Import a public name on first use."""
        if name not in __all__:
            raise AttributeError(f"module 'transis' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
        home = importlib.import_module(_HOMES.get(name, "transis.client"))
        value = globals()[name] = home if name in ("blocking", "errors") else getattr(home, name)
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
