"""How control packets lie on the wire: msgpack arrays, field by field in this order.

Nodes are ranks in the packet's own table and sets are bitmaps over it (nodetable.py). Every array has a largest
length, which msgspec checks before it makes room; what the values mean is checked in control.py.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from transis.types.ids import NodeId
from transis.types.limits import PROC_SET_MAX

Nodes = Annotated[tuple[NodeId, ...], msgspec.Meta(max_length=PROC_SET_MAX)]
_Ranks = Annotated[tuple[int, ...], msgspec.Meta(max_length=PROC_SET_MAX)]


class Layout(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Fields travel by position; an array that is too short or too long is no packet."""


class CauseLayout(Layout, frozen=True):
    what: str
    accuser: int | None
    accused: _Ranks
    timer: str


class BeaconLayout(Layout, frozen=True):
    nodes: Nodes
    sender: int
    address: str
    ring_seq: int
    ring_rep: int
    members: bytes
    heard: bytes
    timestamp: int
    digest: bytes
    versions: tuple[int, int]


class ProbeLayout(Layout, frozen=True):
    sender: NodeId
    address: str


class ProbeAnswerLayout(Layout, frozen=True):
    about: NodeId
    by: NodeId
    verdict: str
    known_incarnation: int
