"""`transis.blocking`: the same API for threads and scripts. Every call waits, and takes a timeout if that is wanted.

Sessions are in client/blocking.py; a node embedded in the program is loaded only when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from transis.client.blocking import Connection, Group, Joining, Receipt, Session, Stream, Transfer, connect

if TYPE_CHECKING:
    from transis.embed.blocking import Node

__all__ = ["Connection", "Group", "Joining", "Node", "Receipt", "Session", "Stream", "Transfer", "connect"]


def __getattr__(name: str) -> object:
    if name != "Node":
        raise AttributeError(f"module 'transis.blocking' has no attribute {name!r}")
    from transis.embed.blocking import Node

    return Node
