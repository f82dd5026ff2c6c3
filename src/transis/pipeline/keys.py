"""Keys: native ids as 64-bit numbers that are the same in every process, so that no table must be read to assign them.

Two ids get one key with a probability of about 2^-64 a pair; the tables of names would show it, for a key then has two names. A
key has the run in it: nothing of two runs can be joined by mistake.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import Final

import msgspec

from transis.types.ids import NodeId, ProcessId, ViewId
from transis.types.views import GroupId, GroupViewId

_SIGNED: Final = Struct(">q")


def key_of(*parts: object) -> int:
    """A signed 64-bit number, as Spark's BIGINT."""
    return int(_SIGNED.unpack(blake2b(msgspec.msgpack.encode(parts), digest_size=8).digest())[0])


class Keys:
    """Keys of one run; each id is hashed once, then remembered."""

    def __init__(self, cluster: str, run: str) -> None:
        self.run = key_of("run", cluster, run)
        self.nodes: dict[NodeId, int] = {}
        self.processes: dict[ProcessId, int] = {}
        self.views: dict[ViewId, int] = {}
        self.addresses: dict[bytes, int] = {}
        self.group_views: dict[tuple[GroupId, GroupViewId], int] = {}

    def node(self, node: NodeId) -> int:
        found = self.nodes.get(node)
        if found is None:
            found = self.nodes[node] = key_of(self.run, "node", node)
        return found

    def process(self, process: ProcessId) -> int:
        found = self.processes.get(process)
        if found is None:
            self.node(process.node)
            found = self.processes[process] = key_of(self.run, "process", process)
        return found

    def view(self, view: ViewId) -> int:
        found = self.views.get(view)
        if found is None:
            self.node(view.rep)
            found = self.views[view] = key_of(self.run, "view", view)
        return found

    def address(self, address: bytes) -> int | None:
        """None for messages that are addressed to nobody in particular: the ring's own."""
        if not address:
            return None
        found = self.addresses.get(address)
        if found is None:
            found = self.addresses[address] = key_of(self.run, "address", address)
        return found

    def group(self, group: GroupId) -> int:
        """Groups are hashes already; as a signed number."""
        return group - (1 << 64) if group >= 1 << 63 else int(group)

    def group_view(self, group: GroupId, view: GroupViewId) -> int:
        named = (group, view)
        found = self.group_views.get(named)
        if found is None:
            self.view(view.configuration)
            found = self.group_views[named] = key_of(self.run, "group view", group, view)
        return found
