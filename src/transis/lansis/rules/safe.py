"""Safe delivery: agreed, and every member of the view is known to have it (lansis-1992 3.1)."""

from __future__ import annotations

from transis.lansis.node import Node
from transis.lansis.stability import Stability
from transis.types.ids import DatagramClass


def may_leave(node: Node, stability: Stability) -> bool:
    """Whether the head of the order may be delivered; a safe one that may not holds up all behind it: there is one order."""
    return node.klass is not DatagramClass.SAFE or stability.is_stable(node)
