"""Transis: group communication for Python.

    import transis

    async with transis.connect() as session:
        async with session.join("orders") as group:
            await group.send(b"new order")
            async for event in group:
                ...

Names are imported on first use, so that importing one part of the package never loads the others.
"""

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from transis import blocking
    from transis.client import (
        Batch,
        Configuration,
        Group,
        Json,
        Message,
        MsgPack,
        Position,
        Raw,
        Receipt,
        Session,
        Transfer,
        View,
        connect,
    )
    from transis.embed.node import EmbeddedNode as Node
    from transis.types import errors
    from transis.types.ids import MessageId, ProcessId, Service

__all__ = [
    "Batch",
    "Configuration",
    "Group",
    "Json",
    "Message",
    "MessageId",
    "MsgPack",
    "Node",
    "Position",
    "ProcessId",
    "Raw",
    "Receipt",
    "Service",
    "Session",
    "Transfer",
    "View",
    "__version__",
    "blocking",
    "connect",
    "errors",
]

# The guarantees rest on asserted invariants, which must be checked in production too.
if not __debug__:
    raise RuntimeError("transis refuses to run with assertions off: start Python without -O and without PYTHONOPTIMIZE")


def __getattr__(name: str) -> object:
    """Import a public name on first use."""
    if name not in __all__:
        raise AttributeError(f"module 'transis' has no attribute {name!r}")
    value = _import(name)
    globals()[name] = value
    return value


def _import(name: str) -> object:
    if name in ("MessageId", "ProcessId"):
        from transis.types import ids

        return getattr(ids, name)
    if name == "Service":
        from transis.types.ids import Service

        return Service
    if name == "errors":
        from transis.types import errors

        return errors
    if name == "Node":
        from transis.embed.node import EmbeddedNode

        return EmbeddedNode
    if name == "blocking":
        import transis.blocking

        return transis.blocking
    from transis import client

    return getattr(client, name)


def __dir__() -> list[str]:
    return sorted(__all__)
