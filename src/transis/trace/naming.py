"""Nodes, processes and views as words in tables: whole, so that two lives never share one."""

from __future__ import annotations

from transis.types.ids import NodeId, ProcessId, ViewId
from transis.types.views import GroupViewId


def node_name(node: NodeId) -> str:
    """Name, incarnation and boot id: two lives never share it, also not those of a copied directory."""
    return f"{node.name}/{node.incarnation}/{node.boot:016x}"


def view_name(view: ViewId) -> str:
    return f"{'R' if view.is_regular else 'T'}{view.seq}@{node_name(view.rep)}"


def process_name(process: ProcessId) -> str:
    return f"{node_name(process.node)}#{process.number}"


def group_view_name(view: GroupViewId) -> str:
    return f"{view_name(view.configuration)}+{view.place.seq}.{view.place.index}"
