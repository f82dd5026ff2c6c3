"""The same API for threads and scripts: every call waits, and takes a timeout in seconds if it should not wait indefinitely.

    with transis.blocking.connect() as session:
        with session.join("orders") as group:
            group.send(b"new order").wait(timeout=5)
            for event in group:
                ...

1. A session runs in a thread of its own. Any thread may send; one thread at a time may iterate over a stream.
2. What arrived is kept until it is returned: a timeout or Ctrl-C in the middle loses nothing.
3. Streams are read ahead by whole frames, except those with state: there the place the application has reached matters.
4. A call that gives up (a timeout, Ctrl-C) waits for the end of its coroutine: it raises if nothing was done, else it returns.
5. A call in a thread with a running event loop is refused: it would stop that loop. (So it is in notebooks, where `async with`
   works at the top level.)
6. No call waits forever for a loop that cannot run it: stopping it ends what waits, and a call from its own thread is refused.
"""

from typing import TYPE_CHECKING, Final

from transis.blocking.group import Group, Joining, Receipt, Stream, Transfer
from transis.blocking.node import Node
from transis.blocking.session import Connection, Session, connect

if TYPE_CHECKING:
    from transis.blocking.replicas import (
        CallReceipt,
        EntryStream,
        OpeningReplica,
        PostReceipt,
        ReplicaLog,
        ReplicaMachine,
        replica,
    )

__all__ = [
    "CallReceipt",
    "Connection",
    "EntryStream",
    "Group",
    "Joining",
    "Node",
    "OpeningReplica",
    "PostReceipt",
    "Receipt",
    "ReplicaLog",
    "ReplicaMachine",
    "Session",
    "Stream",
    "Transfer",
    "connect",
    "replica",
]

_OF_REPLICAS: Final = {"CallReceipt", "EntryStream", "OpeningReplica", "PostReceipt", "ReplicaLog", "ReplicaMachine", "replica"}

if not TYPE_CHECKING:  # Sessions alone load no replica; and a type checker that saw this would take misspelt names for ours.

    def __getattr__(name: str) -> object:
        if name not in _OF_REPLICAS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
        from transis.blocking import replicas

        value = globals()[name] = getattr(replicas, name)
        return value
