"""How control packets lie on the wire: msgpack arrays, field by field in this order.

Nodes are ranks in the packet's own table and sets are bitmaps over it (nodetable.py). Every array has a largest
length, which msgspec checks before it makes room; what the values mean is checked in control.py.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from transis.model.ids import NodeId
from transis.model.limits import MEMBERS_MAX, PROC_SET_MAX

Nodes = Annotated[tuple[NodeId, ...], msgspec.Meta(max_length=PROC_SET_MAX)]
_Ranks = Annotated[tuple[int, ...], msgspec.Meta(max_length=PROC_SET_MAX)]


class Layout(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Fields travel by position; an array that is too short or too long is no packet."""


class RowLayout(Layout, frozen=True):
    node: int
    version: int
    beat: int
    unheard: bytes


class JoinLayout(Layout, frozen=True):
    nodes: Nodes
    sender: int
    address: str
    info: bytes
    ring_seq: int
    proc_set: bytes
    fail_set: bytes
    proposal: bytes
    rows: Annotated[tuple[RowLayout, ...], msgspec.Meta(max_length=PROC_SET_MAX)]
    attempt_seq: int
    attempt_index: int
    leaving: bool
    timestamp: int
    digest: bytes
    versions: tuple[int, int]


class CauseLayout(Layout, frozen=True):
    what: str
    accuser: int | None
    accused: _Ranks
    timer: str


class EntryLayout(Layout, frozen=True):
    node: int
    address: str
    info: bytes
    filled: bool
    old_ring: tuple[int, int] | None
    old_members_digest: bytes
    aru: int
    high_delivered: int
    received_flg: bool
    obligation: bytes
    timestamp: int


class CommitLayout(Layout, frozen=True):
    """The ring's representative is the first entry's node, so only the ring's sequence travels."""

    nodes: Nodes
    ring_seq: int
    rotation: int
    token_seq: int
    sender: int
    target: int
    attempt: int
    cause: CauseLayout
    entries: Annotated[tuple[EntryLayout, ...], msgspec.Meta(min_length=1, max_length=MEMBERS_MAX)]


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
