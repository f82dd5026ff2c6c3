"""Flush: hold all that the agreed view needs, say so, and install it when everybody has said so (W18; M7, M8: membership.py).

Pre, the cut vector, is what the members that go on with me held, each when it made its statement. What I lack of it, its holders
send me: they cannot have collected it, because nothing is collected from the first statement on.

Installation is one local step without communication. 1. What any member that goes on with me had delivered is delivered in the
regular view. 2. The transitional view. 3. The rest of Pre. 4. The new regular view. What is above Pre is forgotten with the
old view: no member that goes on with me counts it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from transis.engine.presence import Release
from transis.lansis.detector import BROKEN, LAGS
from transis.lansis.packets import Alive, Flushed, Statement
from transis.lansis.statements import Proposal, ViewEnd, part
from transis.lansis.states import AGREEING, Event, State, Trap
from transis.lansis.view import LansisCore, ViewState
from transis.types.ids import NodeId, RingTag, ViewId, ViewKind
from transis.types.outputs import Audience, Configure, Lane, Phase, Port, Send
from transis.types.views import Cause, Member, View
from transis.wire.burst import Burst

if TYPE_CHECKING:
    from transis.lansis.engine import LansisParts

# --- install ----------------------------------------------------------------------------------------------------------

FOREIGN_VIEW = "foreign view"
"""The cause of a change that the beacon of another view began."""


class Installation:
    def __init__(self, parts: LansisParts) -> None:
        self._core = parts.core
        self._membership = parts.membership
        self._delivery = parts.delivery
        self._parts = parts

    def install(self, proposal: Proposal) -> None:
        core = self._core
        self._membership.hurry_statement()
        self._end(proposal)
        core.shift(State.OPERATIONAL, "installed")
        self._quarantine_left_out(proposal)
        self._enter(proposal)
        self._configure(self._regular_view(proposal))
        core.arm(Event.BEACON_SEND, core.config.timing.beacon_us)
        self._parts.detector.begin_view()
        self._parts.heartbeat.begin_view()
        self._parts.operational.submitted()

    def _end(self, proposal: Proposal) -> None:
        """Steps 1 to 3, in the view that ends."""
        core, old = self._core, self._core.view
        parting = part(proposal, old.id, old.members)
        pre = [parting.pre[node] for node in old.members]
        self._delivery.finish(pre, parting.delivered, Phase.REGULAR)
        core.emit(Configure(self._transitional_view(proposal, parting)))
        self._delivery.finish(pre, None, Phase.TRANSITIONAL)

    def _enter(self, proposal: Proposal) -> None:
        core = self._core
        members, expected = proposal.members, proposal.expected()
        core.view = ViewState(proposal.id, proposal.tag, members, core.me, proposal.base, expected, core.config, core.now)
        assert expected[core.view.rank] == core.counter + 1 or core.flows, "nothing was sent since my statement"
        core.counter = core.view.expected[core.view.rank] - 1
        core.view_seq = max(core.view_seq, proposal.id.seq)
        core.observe(proposal.base)
        self._delivery.thaw()
        self._membership.installed()
        if self._parts.flow is not None:
            self._parts.flow.installed()
        core.forget_strangers(members)
        core.addresses |= {said.sender: said.address for said in proposal.statements}

    def _configure(self, view: View) -> None:
        """Messages bound to another view are refused, and the application lane waits for the groups."""
        core = self._core
        if core.outbox.restart((Lane.CONTROL,) if core.flowed else tuple(Lane)):
            core.trap(Trap.HALF_SENT)
        core.outbox.hold(Lane.APPLICATION)
        core.emit(Configure(view))
        core.refuse(core.outbox.drop_bound(view.id), "the view changed first")

    def _transitional_view(self, proposal: Proposal, parting: ViewEnd) -> View:
        members = tuple(_member(said) for said in parting.trans)
        return View(
            parting.transitional_id(proposal),
            self._core.view.view_id,
            members,
            proposal.cause,
            proposal.base,
            self._core.config.guarantees,
        )

    def _regular_view(self, proposal: Proposal) -> View:
        members = tuple(_member(said) for said in proposal.statements)
        return View(proposal.view_id, proposal.view_id, members, proposal.cause, proposal.base, self._core.config.guarantees)

    def _quarantine_left_out(self, proposal: Proposal) -> None:
        """Quarantine the nodes that this change left out although they are alive, with what would bring each back early.

        Nodes that were silent, left, or were restarted are not among them: they may come at any time.
        """
        core, membership = self._core, self._membership
        left_out = dict.fromkeys(membership.heard_at, Release.HEARING)
        cause = core.cause
        if cause.what == FOREIGN_VIEW and cause.accuser is not None and cause.accuser not in membership.heard_at:
            left_out[cause.accuser] = Release.ANSWER
        if cause.what in (LAGS, BROKEN):
            left_out |= dict.fromkeys(cause.accused, Release.NONE)
        names = {node.name: node.incarnation for node in proposal.members}
        waiting = {
            node: release
            for node, release in left_out.items()
            if node not in membership.left and node.incarnation > names.get(node.name, -1)
        }
        self._parts.quarantine.installed(proposal.members, waiting, core.now)


def _member(said: Statement) -> Member:
    return Member(said.sender, said.address, _regular(said), said.info)


def _regular(said: Statement) -> ViewId:
    return ViewId(ViewKind.REGULAR, said.view.seq, said.view.rep)


# --- flush ------------------------------------------------------------------------------------------------------------


class Flush:
    def __init__(self, parts: LansisParts) -> None:
        self._core = parts.core
        self._membership = parts.membership
        self._operational = parts.operational
        self._repair = parts.repair
        self._installation = parts.installation
        self._pre: list[int] = []
        self._trans: tuple[Statement, ...] = ()
        self._entered_at = 0
        self._datagrams: list[bytes] = []
        self.flushed_sent = 0

    def enter(self) -> None:
        """All members in Accept have stated the same: ask for what I lack of Pre."""
        core, proposal = self._core, self._proposal()
        if core.state is not State.FLUSH:
            core.shift(State.FLUSH, "assented")
        parting = part(proposal, core.view.id, core.view.members)
        self._pre = pre_of(core, parting)
        self._trans = parting.trans
        self._entered_at = core.now
        core.timers.cancel(Event.AGREE)
        core.arm(Event.FLUSH_LATE, self._membership.patience_us)
        self._ask()
        self._try_to_flush()

    def _proposal(self) -> Proposal:
        proposal = self._membership.barrier.assented
        assert proposal is not None, "Flush is entered with an assent and left when it is withdrawn"
        return proposal

    def _ask(self) -> None:
        core, dag = self._core, self._core.view.dag
        lacking = sum(max(0, want - have) for want, have in zip(self._pre, dag.inserted, strict=True))
        if lacking > core.config.window.window:
            core.trap(Trap.LARGE_FLUSH)
        for rank, counter in enumerate(self._pre):
            dag.name(rank, counter)
        self._repair.look()

    def data_in_flush(self, burst: Burst) -> None:
        """Something that I lacked may have come. As long as it comes, nobody is late."""
        before = list(self._core.view.dag.inserted)
        self._operational.data_while_frozen(burst)
        if self._core.view.dag.inserted != before:
            self._core.arm(Event.FLUSH_LATE, self._membership.patience_us)
            self._try_to_flush()

    def alive_in_flush(self, alive: Alive) -> None:
        """A member that still asks for something is not late: it is on its way to flush."""
        self._operational.alive_while_frozen(alive)
        if alive.nacks:
            self._membership.heard_at[self._core.view.node(alive.sender)] = self._core.now

    # --- FLUSHED ----------------------------------------------------------------------------------------------------

    def _try_to_flush(self) -> None:
        core, barrier = self._core, self._membership.barrier
        proposal = self._proposal()
        if barrier.flushed is proposal or not core.view.dag.holds_all(self._pre):
            return
        if barrier.flushed is not None:
            core.trap(Trap.ABANDONED)
        barrier.flush(core.me)
        core.view_seq = max(core.view_seq, proposal.id.seq)
        self._membership.hurry_statement()
        self._datagrams = core.packet(
            Flushed(core.me, core.config.address, core.view.id, proposal.digest, proposal.id),
        )
        core.note("flushed", view=str(proposal.view_id))
        self.repeat_flushed()
        self._try_to_install()

    def repeat_flushed(self) -> None:
        core = self._core
        if self._membership.barrier.flushed is self._membership.barrier.assented:
            self.flushed_sent += 1
            core.emit(Send(Audience.WORLD, Port.CONTROL, self._datagrams))
            core.arm(Event.FLUSH_REPEAT, core.config.pulse.repeat_us)

    def flushed_while_agreeing(self, said: Flushed) -> None:
        """A FLUSHED. It may come before my own assent, and is kept until then."""
        membership = self._membership
        if membership.is_current(said.sender, said.view) and said.sender in membership.sets.accept:
            membership.heard_at[said.sender] = self._core.now
            membership.barrier.heard(said)
            self._try_to_install()

    def flushed_in_view(self, said: Flushed) -> None:
        """A FLUSHED in an installed view: its sender may still wait for a view that is over, and is then told by an ALIVE."""
        self._membership.is_current(said.sender, said.view)

    def _try_to_install(self) -> None:
        proposal = self._membership.barrier.installable()
        if proposal is not None:
            self._installation.install(proposal)

    def hearsay(self, tag: RingTag) -> None:
        """A packet of another view. If I have promised to install that view, its sender had the FLUSHED of all, so I may too."""
        proposal = self._membership.barrier.hearsay(tag)
        if proposal is not None and self._core.state in AGREEING:
            self._core.trap(Trap.HEARSAY)
            self._installation.install(proposal)

    # --- who is late ------------------------------------------------------------------------------------------------

    def flush_late(self) -> None:
        """If something is missing here, its holders are late; otherwise the members that have not flushed are."""
        core, membership = self._core, self._membership
        holders = self._holders()
        if holders:
            core.trap(Trap.LOST_WITH_ITS_HOLDER)
        late = holders or [node for node in membership.barrier.lacking(self._proposal()) if node != core.me]
        given_up = membership.give_up(late, self._entered_at)
        if given_up:
            membership.break_with(given_up, Cause("did not flush", core.me, tuple(given_up), Event.FLUSH_LATE.value))
        else:
            core.arm(Event.FLUSH_LATE, membership.patience_us)

    def _holders(self) -> list[NodeId]:
        """The members whose statements say that they hold something of Pre that I lack."""
        have = dict(zip(self._core.view.members, self._core.view.dag.inserted, strict=True))
        return [
            said.sender
            for said in self._trans
            if any(counter > have.get(node, counter) for node, counter in said.recv) and said.sender != self._core.me
        ]

    def statistics(self) -> dict[str, int]:
        return {"flushed_sent": self.flushed_sent}

    def check(self) -> None:
        core, barrier = self._core, self._membership.barrier
        assert (core.state is State.FLUSH) == (barrier.assented is not None)
        if barrier.flushed is not None:
            pre = pre_of(core, part(barrier.flushed, core.view.id, core.view.members))
            assert core.view.dag.holds_all(pre), "what was flushed is held until a view is installed"


def pre_of(core: LansisCore, parting: ViewEnd) -> list[int]:
    """Pre by rank in the view that ends."""
    return [parting.pre[node] for node in core.view.members]
