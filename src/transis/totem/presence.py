"""Presence: rings that do not share a token find each other (L1), and healthy rings are not bounced (protocols 1.5, 1.6).

Deviation (D24): who beacons, and when, is in engine/presence.py.
"""

from __future__ import annotations

from transis.engine.presence import (
    Mercy,
    Quarantine,
    are_all_heard,
    are_too_many,
    beacon_interval_us,
    broadcast_beacon,
    was_superseded,
)
from transis.totem.core import Core
from transis.totem.gather import FOREIGN_RING, MEMBER_GATHERS, Gathering
from transis.totem.packets import Join
from transis.totem.states import Event
from transis.totem.traps import Trap
from transis.types.ids import NodeId
from transis.types.views import Cause
from transis.wire.control import Beacon


class Presence:
    def __init__(self, core: Core, gathering: Gathering, quarantine: Quarantine) -> None:
        self._core = core
        self._gathering = gathering
        self._quarantine = quarantine

    def send_beacon(self) -> None:
        core, ring = self._core, self._core.ring
        broadcast_beacon(core, ring.id, ring.member_set)
        core.arm(Event.BEACON_SEND, beacon_interval_us(core, ring.i_represent))

    def beacon_in_operational(self, beacon: Beacon) -> None:
        """A beacon of another ring: gather, unless its sender is one of us with an old ring, or in quarantine."""
        core, sender = self._core, beacon.sender
        if sender in core.ring.member_set or self._was_superseded(sender) or self._is_full(beacon.members):
            return
        mutual = core.ring.member_set <= beacon.heard and self._hear_all(beacon.members)
        if self._quarantine.holds(sender, core.now, Mercy.HEARING if mutual else None):
            return
        self._gathering.shift(Cause(FOREIGN_RING, sender), proc=beacon.members | {sender})

    def _is_full(self, others: frozenset[NodeId]) -> bool:
        return are_too_many(self._core.ring.members, others)

    def _hear_all(self, nodes: frozenset[NodeId]) -> bool:
        return are_all_heard(self._core, nodes, self._core.ring.member_set)

    def join_in_operational(self, join: Join) -> None:
        core, sender = self._core, join.sender
        if self._is_noise(join):
            return
        if join.leaving:
            self._gathering.shift(Cause("leave", sender, (sender,)), fail=(sender,))
            return
        stranger = sender not in core.ring.member_set
        self._gathering.shift(Cause("foreign join" if stranger else MEMBER_GATHERS, sender), proc=(sender,), join=join)

    def _is_noise(self, join: Join) -> bool:
        """Joins that must not bounce a healthy ring (trap 17): stale, superseded, in quarantine, or from strangers who fail
        one of us: they finish their own Gather first and meet us by their beacon."""
        core, sender = self._core, join.sender
        if sender in core.ring.member_set:
            fails_me = core.me in join.fail_set and not join.leaving
            if fails_me:
                core.trap(Trap.FAILS_ME)
            return join.ring_seq < core.ring.id.seq or fails_me
        if self._is_full(frozenset()) and not self._replaces_a_member(sender):
            return True
        fails_us = not join.fail_set.isdisjoint(core.ring.member_set)
        return join.leaving or fails_us or self._was_superseded(sender) or self._stays_in_quarantine(join)

    def _stays_in_quarantine(self, join: Join) -> bool:
        """A Join that proposes all of us and only nodes that I hear shows that the network allows it again."""
        mutual = self._core.ring.member_set <= join.proposal and self._hear_all(join.proposal)
        return self._quarantine.holds(join.sender, self._core.now, Mercy.ANSWER if mutual else None)

    def _replaces_a_member(self, node: NodeId) -> bool:
        return any(member.name == node.name for member in self._core.ring.members)

    def _was_superseded(self, node: NodeId) -> bool:
        return was_superseded(node, self._core.ring.members)
