"""Beacons: how views that share no traffic find each other (L1, D24).

Every member beacons, whether or not there is traffic: the representative every T_merge, the others at a fifth of that. A beacon
carries whom its sender heard since its view was installed, which ends a quarantine early (W7).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from transis.ordering.core import BaseCore
from transis.types.ids import NodeId, RingId
from transis.types.limits import MEMBERS_MAX
from transis.wire.control import Beacon
from transis.wire.envelope import WIRE_VERSION, WIRE_VERSION_MIN

BEACONS_OF_OTHERS: Final = 5
HEARD_BEACONS: Final = 12
"""A node counts as heard for so many beacon intervals: two beacons of an ordinary member may be lost."""


def broadcast_beacon(core: BaseCore[Any, Any], view: RingId, members: frozenset[NodeId]) -> None:
    lately = core.now - HEARD_BEACONS * core.config.timing.beacon_us
    core.heard_at = {node: at for node, at in core.heard_at.items() if at >= lately}
    heard, versions = frozenset(core.heard_at), (WIRE_VERSION_MIN, WIRE_VERSION)
    core.broadcast(Beacon(core.me, core.config.address, view, members, heard, core.clock, core.digest, versions))


def beacon_interval_us(core: BaseCore[Any, Any], i_represent: bool) -> int:
    return core.config.timing.beacon_us * (1 if i_represent else BEACONS_OF_OTHERS)


def are_too_many(members: Sequence[NodeId], others: frozenset[NodeId]) -> bool:
    """Nobody can be added to a full view: a change would end with the same two views, again and again."""
    return max(len(members), len(others)) >= MEMBERS_MAX


def are_all_heard(core: BaseCore[Any, Any], nodes: frozenset[NodeId], members: frozenset[NodeId]) -> bool:
    """Have I heard all of these since my view was installed? Whom I heard before, I may not hear any more."""
    return nodes <= core.heard_at.keys() | members


def was_superseded(node: NodeId, members: Sequence[NodeId]) -> bool:
    """Is a later life of it one of us?"""
    return any(member.name == node.name and member.incarnation > node.incarnation for member in members)
