"""Flush: hold all that the agreed view needs, say so, and install it when everybody has said so (W18; rules in barrier.py).

Pre is what anybody who goes on with me held when it made its statement. What I lack of it, its holders send me: they cannot have
collected it, because nothing is collected from the first statement on.
"""

from __future__ import annotations

from transis.lansis.agreeing import Agreeing
from transis.lansis.core import Core
from transis.lansis.install import Installing
from transis.lansis.operational import Operational
from transis.lansis.packets import Alive, Flushed, Statement
from transis.lansis.proposal import Parting, Proposal, part
from transis.lansis.repair import Repair
from transis.lansis.states import AGREEING, Event, State
from transis.lansis.traps import Trap
from transis.types.ids import NodeId, RingTag
from transis.types.outputs import Audience, Port, Send
from transis.types.views import Cause
from transis.wire.burst import Burst


class Flush:
    def __init__(self, core: Core, agreeing: Agreeing, operational: Operational, repair: Repair, installing: Installing) -> None:
        self._core = core
        self._agreeing = agreeing
        self._operational = operational
        self._repair = repair
        self._installing = installing
        self._pre: list[int] = []
        self._trans: tuple[Statement, ...] = ()
        self._entered_at = 0
        self._datagrams: list[bytes] = []
        self.flushed_sent = 0

    def enter(self) -> None:
        """Everybody in Accept has stated the same: ask for what I lack of it."""
        core, proposal = self._core, self._proposal()
        if core.state is not State.FLUSH:
            core.shift(State.FLUSH, "assented")
        parting = part(proposal, core.view.id, core.view.members)
        self._pre = pre_of(core, parting)
        self._trans = parting.trans
        self._entered_at = core.now
        core.timers.cancel(Event.AGREE)
        core.arm(Event.FLUSH_LATE, self._agreeing.patience_us)
        self._ask()
        self._try_to_flush()

    def _proposal(self) -> Proposal:
        proposal = self._agreeing.barrier.assented
        assert proposal is not None, "Flush is entered with an assent and left when it is withdrawn"
        return proposal

    def _ask(self) -> None:
        core, graph = self._core, self._core.view.graph
        lacking = sum(max(0, want - have) for want, have in zip(self._pre, graph.inserted, strict=True))
        if lacking > core.config.window.window:
            core.trap(Trap.LARGE_FLUSH)
        for rank, counter in enumerate(self._pre):
            graph.name(rank, counter)
        self._repair.look()

    def data_in_flush(self, burst: Burst) -> None:
        """What I lacked may have come. While it comes, nobody is late."""
        before = list(self._core.view.graph.inserted)
        self._operational.data_while_frozen(burst)
        if self._core.view.graph.inserted != before:
            self._core.arm(Event.FLUSH_LATE, self._agreeing.patience_us)
            self._try_to_flush()

    def alive_in_flush(self, alive: Alive) -> None:
        """Who still asks for something is not late: it is on its way to flush."""
        self._operational.alive_while_frozen(alive)
        if alive.nacks:
            self._agreeing.heard_at[self._core.view.node(alive.sender)] = self._core.now

    # --- FLUSHED ----------------------------------------------------------------------------------------------------

    def _try_to_flush(self) -> None:
        core, barrier = self._core, self._agreeing.barrier
        proposal = self._proposal()
        if barrier.flushed is proposal or not core.view.graph.holds_all(self._pre):
            return
        if barrier.flushed is not None:
            core.trap(Trap.ABANDONED)
        barrier.flush(core.me)
        core.view_seq = max(core.view_seq, proposal.id.seq)
        self._agreeing.hurry_statement()
        self._datagrams = core.packet(
            Flushed(core.me, core.config.address, core.view.id, proposal.digest, proposal.id),
        )
        core.note("flushed", view=str(proposal.view_id))
        self.repeat_flushed()
        self._try_to_install()

    def repeat_flushed(self) -> None:
        core = self._core
        if self._agreeing.barrier.flushed is self._agreeing.barrier.assented:
            self.flushed_sent += 1
            core.emit(Send(Audience.WORLD, Port.CONTROL, self._datagrams))
            core.arm(Event.FLUSH_REPEAT, core.config.pulse.repeat_us)

    def flushed_while_agreeing(self, said: Flushed) -> None:
        """It may come before my own assent, and is kept until then."""
        agreeing = self._agreeing
        if agreeing.is_current(said.sender, said.view) and said.sender in agreeing.change.accept:
            agreeing.heard_at[said.sender] = self._core.now
            agreeing.barrier.heard(said)
            self._try_to_install()

    def flushed_in_view(self, said: Flushed) -> None:
        """In an installed view: a member that still waits hears that the wait is over."""
        self._agreeing.is_current(said.sender, said.view)

    def _try_to_install(self) -> None:
        proposal = self._agreeing.barrier.installable()
        if proposal is not None:
            self._installing.install(proposal)

    def hearsay(self, tag: RingTag) -> None:
        """A packet of another view: if I have promised to install that view, its sender knows that all have, so I may."""
        proposal = self._agreeing.barrier.hearsay(tag)
        if proposal is not None and self._core.state in AGREEING:
            self._core.trap(Trap.HEARSAY)
            self._installing.install(proposal)

    # --- who is late ------------------------------------------------------------------------------------------------

    def flush_late(self) -> None:
        """If something is missing here, its holders are late; else those who have not flushed."""
        core, agreeing = self._core, self._agreeing
        holders = self._holders()
        if holders:
            core.trap(Trap.LOST_WITH_ITS_HOLDER)
        late = holders or [node for node in agreeing.barrier.lacking(self._proposal()) if node != core.me]
        given_up = agreeing.give_up(late, self._entered_at)
        if given_up:
            agreeing.break_with(given_up, Cause("did not flush", core.me, tuple(given_up), Event.FLUSH_LATE.value))
        else:
            core.arm(Event.FLUSH_LATE, agreeing.patience_us)

    def _holders(self) -> list[NodeId]:
        """Who said that it holds something of Pre that I lack."""
        have = dict(zip(self._core.view.members, self._core.view.graph.inserted, strict=True))
        return [
            said.sender
            for said in self._trans
            if any(counter > have.get(node, counter) for node, counter in said.recv) and said.sender != self._core.me
        ]

    def figures(self) -> dict[str, int]:
        return {"flushed_sent": self.flushed_sent}

    def check(self) -> None:
        core, barrier = self._core, self._agreeing.barrier
        assert (core.state is State.FLUSH) == (barrier.assented is not None)
        if barrier.flushed is not None:
            pre = pre_of(core, part(barrier.flushed, core.view.id, core.view.members))
            assert core.view.graph.holds_all(pre), "what was flushed is held until a view is installed"


def pre_of(core: Core, parting: Parting) -> list[int]:
    """Pre by rank in the view that ends."""
    return [parting.pre[node] for node in core.view.members]
