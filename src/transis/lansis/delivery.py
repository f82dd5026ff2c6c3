"""The delivery loop: deliver what may be delivered, causal messages first, then the next in the order (lansis-1992 3.1; W5).

1. Basic: once, on receipt, whether or not something before it is missing. A basic burst is a node of the DAG like any other, so
   it is acknowledged, and sent again when it was lost; but it is in no queue.
2. Safe: agreed, and every member of the view is known to have it. A safe message that may not be delivered yet holds up all
   behind it: there is one order. So does a fence (orders.py), which moreover leaves no causal message behind that belongs before
   it.
3. From my first statement about the next view on, only basic messages are delivered. The rest is delivered with the installation
   (`finish`), when all members that go on together know what they have. In mode `transis` delivery goes on in steps, each of
   which ends with a newer statement (`go_on`).

`Synchrony` is the paper's index of synchrony: how many members are known to have a message when it is delivered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from transis.lansis.dag import DagNode, order_key, place_seq
from transis.lansis.stability import Stability
from transis.lansis.states import Trap
from transis.lansis.view import Frozen, LansisCore
from transis.types.ids import DatagramClass
from transis.types.outputs import Deliver, Phase
from transis.wire.burst import Burst

# --- basic ------------------------------------------------------------------------------------------------------------


def basic_messages(fresh: Sequence[Burst]) -> list[Burst]:
    """The datagrams to deliver at once: the messages of a basic burst are whole in its last datagram."""
    return [part.slice(part.last_seq, part.last_seq) for part in fresh if part.klass is DatagramClass.BASIC and part.ends_visit]


# --- safe and fences --------------------------------------------------------------------------------------------------


def may_leave(node: DagNode, stability: Stability) -> bool:
    """May the head of the order be delivered? Not if it is safe or a fence and not yet stable, and not if it is a fence and
    something that belongs before it may still come."""
    if node.is_fence:
        return stability.is_stable(node) and stability.all_else_follows(node)
    return node.klass is not DatagramClass.SAFE or stability.is_stable(node)


# --- synchrony --------------------------------------------------------------------------------------------------------

_NAMES: Final = {
    DatagramClass.BASIC: "basic",
    DatagramClass.CAUSAL: "causal",
    DatagramClass.ORDERED: "agreed",
    DatagramClass.SAFE: "safe",
}


class Synchrony:
    """The index of synchrony by class, over the life of the node; each burst counts once."""

    def __init__(self) -> None:
        self._count = [0] * len(_NAMES)
        self._sum = [0] * len(_NAMES)
        self._least = [0] * len(_NAMES)

    def delivered(self, klass: DatagramClass, holders: int) -> None:
        least = self._least[klass]
        self._count[klass] += 1
        self._sum[klass] += holders
        self._least[klass] = holders if not least or holders < least else least

    def statistics(self) -> dict[str, int]:
        """The mean in thousandths and the minimum; nothing for a class that was never delivered."""
        found: dict[str, int] = {}
        for klass, name in _NAMES.items():
            if self._count[klass]:
                found[f"synchrony_{name}_milli"] = 1000 * self._sum[klass] // self._count[klass]
                found[f"synchrony_{name}_min"] = self._least[klass]
        return found


# --- delivery ---------------------------------------------------------------------------------------------------------


class DagDelivery:
    def __init__(self, core: LansisCore) -> None:
        self._core = core
        self._synchrony = Synchrony()
        self._held_last_us = 0
        self._held_max_us = 0
        self._in_changes = 0
        """Bursts that left while views changed."""

    def on_receipt(self, fresh: Sequence[Burst]) -> None:
        """Deliver basic messages, which wait for nothing."""
        view = self._core.view
        for part in basic_messages(fresh):
            header = part.header
            key = order_key(header.timestamp - view.base, header.sender)
            self._hand_up(part, Phase.REGULAR, key, early=True)
            self._synchrony.delivered(DatagramClass.BASIC, 1)

    def run(self) -> int:
        """Deliver everything that may be delivered in the regular view now; how many bursts that is."""
        if self._core.frozen is not None:
            return 0
        view, count = self._core.view, 0
        while True:
            for node in view.waiting.eligible(view.order.frontier):
                self._deliver(node, Phase.REGULAR)
                count += 1
            head = self._next()
            if head is None:
                return count
            self._leave(head, Phase.REGULAR)
            count += 1

    def _next(self) -> DagNode | None:
        """The head of the order, if it may leave in the regular view."""
        view = self._core.view
        head = view.order.next()
        return head if head is not None and may_leave(head, view.stability) else None

    def finish(self, pre: Sequence[int], upto: int | None, phase: Phase) -> None:
        """The view ends: deliver what is left of `pre`, up to a frontier that some member reached, or all of it."""
        core, view = self._core, self._core.view
        for node in view.order.rest(pre, upto):
            self._finish_causal(view.waiting.eligible(view.order.frontier), pre, phase)
            if phase is Phase.TRANSITIONAL and node.klass is DatagramClass.SAFE:
                core.trap(Trap.SAFE_IN_TRANSITIONAL)
            self._leave(node, phase)
        self._finish_causal(view.waiting.eligible(view.order.frontier), pre, phase)
        if upto is None:
            self._finish_causal(view.waiting.rest(pre), pre, phase)

    def _finish_causal(self, nodes: Sequence[DagNode], pre: Sequence[int], phase: Phase) -> None:
        """Deliver those within `pre`; what is above it dies with the view."""
        for node in nodes:
            if node.last <= pre[node.rank]:
                self._deliver(node, phase)

    def _leave(self, node: DagNode, phase: Phase) -> None:
        view = self._core.view
        view.order.took(node)
        self._deliver(node, phase)
        view.waiting.delivered(node)

    def _deliver(self, node: DagNode, phase: Phase) -> None:
        for piece in node.pieces:
            self._hand_up(piece, phase, node.key, early=False)
        node.delivered = True
        holders = self._core.view.stability.holders(node) if node.is_ordered else 1
        self._synchrony.delivered(node.klass, holders)

    def _hand_up(self, burst: Burst, phase: Phase, key: int, *, early: bool) -> None:
        view = self._core.view
        sender = view.members[burst.header.sender]
        self._core.emit(Deliver(burst, sender, view.view_id, phase, early, place_seq(key, burst.header.index)))

    # --- while views change -----------------------------------------------------------------------------------------

    def freeze(self) -> None:
        """My first statement in this view: from here on delivery stands still, and so does what I acknowledge."""
        core, view = self._core, self._core.view
        if core.frozen is None:
            core.frozen = Frozen(tuple(view.dag.inserted), view.order.frontier, core.clock)
            core.held_since = None if core.flows else core.now

    def can_go_on(self) -> bool:
        """Would anything of the order leave if delivery did not stand?"""
        return self._next() is not None

    def go_on(self) -> None:
        """While views change, and before this member has promised any: deliver what may be delivered, and stand again. A
        statement has to follow in the same step, for what was delivered is to be in every view that may come of this change."""
        core, view = self._core, self._core.view
        core.frozen = None
        count = self.run()
        core.frozen = Frozen(tuple(view.dag.inserted), view.order.frontier, core.clock)
        if count:
            self._in_changes += count
            core.note("delivered in the change", count=count)

    def thaw(self) -> None:
        """The next view is installed: note how long messages were held up for it."""
        core = self._core
        if core.frozen is not None:
            self._held_last_us = 0 if core.held_since is None else core.now - core.held_since
            self._held_max_us = max(self._held_max_us, self._held_last_us)
            core.note("held", us=self._held_last_us)
            core.frozen = None

    def statistics(self) -> dict[str, int]:
        figures = {"held_last_us": self._held_last_us, "held_max_us": self._held_max_us}
        if self._core.flows:
            figures["delivered_in_changes"] = self._in_changes
        return self._synchrony.statistics() | figures

    def check(self) -> None:
        core, view = self._core, self._core.view
        if core.frozen is not None:
            assert view.order.frontier == core.frozen.delivered, "nothing ordered is delivered while frozen"
