"""Membership: members state whom they want in the next view until all want the same (membership-1992).

1. Stage 1 only collects names (AJ). From its first statement (JOIN, FA) on, a member neither sends nor delivers in its view,
   and what it acknowledges stands still, because others may install the next view on the strength of that statement.
2. A statement is repeated until a view is installed.
3. A member that does not agree in time is accused: at once if it was silent, after the second timeout if it was heard.

The flush barrier (W18): FLUSHED says "I hold all that the proposal needs, and whatever I state from now on covers it".
Deviations: (M7) only the proposal that was flushed *last* may be installed, because a member that flushed a later one has given
the earlier one up for good; without this W18 is not enough: a late packet of the earlier view would split the members of the
later one; (M8) a member that has flushed a proposal and hears anything from its view installs it at once, because the sender had
the FLUSHED of all (W1, W6).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final
from zlib import crc32

from transis.engine.core import Health, is_clock_in_reach, is_seq_in_reach
from transis.lansis.alive import Heartbeat
from transis.lansis.delivery import DagDelivery
from transis.lansis.packets import Attempt, Faults, Flushed, Joining, Statement
from transis.lansis.statements import GROWN, MembershipSets, Opinion, Proposal, propose
from transis.lansis.states import AGREEING, Event, State, Trap
from transis.lansis.view import LansisCore
from transis.types.errors import Rejection
from transis.types.ids import NodeId, RingId, RingTag
from transis.types.outputs import Audience, Port, Send
from transis.types.views import Cause
from transis.wire.envelope import WIRE_VERSION, WIRE_VERSION_MIN

if TYPE_CHECKING:
    from transis.lansis.engine import LansisParts

# --- barrier ----------------------------------------------------------------------------------------------------------


class Barrier:
    def __init__(self) -> None:
        self.assented: Proposal | None = None
        """The proposal that all its members stated, and whose Pre I am collecting; None while sets still grow."""
        self.flushed: Proposal | None = None
        """The only proposal that I may install."""
        self._said: dict[NodeId, tuple[int, bytes]] = {}

    @property
    def promises(self) -> int:
        return len(self._said)

    def flush(self, me: NodeId) -> None:
        """All that the assented proposal needs is held here. This promise replaces any earlier one."""
        assert self.assented is not None
        self.flushed = self.assented
        self._said[me] = self.flushed.id.seq, self.flushed.digest

    def heard(self, said: Flushed) -> None:
        """A FLUSHED, perhaps before my own assent. Of each member only the last promise counts; numbers never go down."""
        if said.next_view.seq >= self._said.get(said.sender, (0, b""))[0]:
            self._said[said.sender] = said.next_view.seq, said.proposal

    def has_flushed(self, node: NodeId, proposal: Proposal) -> bool:
        return self._said.get(node, (0, b""))[1] == proposal.digest

    def lacking(self, proposal: Proposal) -> list[NodeId]:
        return [node for node in proposal.members if not self.has_flushed(node, proposal)]

    def installable(self) -> Proposal | None:
        """The proposal that I flushed last, if all of its members have flushed it."""
        return self.flushed if self.flushed is not None and not self.lacking(self.flushed) else None

    def hearsay(self, tag: RingTag) -> Proposal | None:
        """Somebody is in the view with this tag. The proposal, if it is the one that I promised to install."""
        return self.flushed if self.flushed is not None and tag == self.flushed.tag else None


# --- membership change ------------------------------------------------------------------------------------------------

STRIKES: Final = 2
"""At this many timeouts a member that is heard but still does not agree is given up."""
CROWD: Final = 32
"""For every so many members, everybody gets more time to agree."""
JITTER: Final = 4
"""First JOINs are spread, by name, over alpha divided by this, so that the first one finds the others still listening."""
REPEATS_PER_AGREE: Final = 5


class MembershipChange:
    def __init__(self, core: LansisCore, delivery: DagDelivery, heartbeat: Heartbeat, health: Health, parts: LansisParts) -> None:
        self._core = core
        self._parts = parts
        self._delivery = delivery
        self._heartbeat = heartbeat
        self._health = health
        self._version = 0
        self.statements_sent = 0
        self.sets = MembershipSets(core.me, core.view.members)
        self._clear()

    def _clear(self) -> None:
        self.barrier = Barrier()
        self.heard_at: dict[NodeId, int] = {}
        """When each member last said anything about this change."""
        self.left: set[NodeId] = set()
        self.proposals = 0
        self._strikes: dict[NodeId, int] = {}
        self._sends: list[Send] = []
        self._stated_at = 0

    def installed(self) -> None:
        """A view was installed: everything that only grew during the change starts afresh."""
        if self.proposals >= 3:
            self._core.trap(Trap.MANY_ATTEMPTS)
        self.sets = MembershipSets(self._core.me, self._core.view.members, self.sets.last)
        self._clear()
        self._core.timers.cancel(
            Event.ALPHA, Event.STATEMENT_SEND, Event.STATEMENT_REPEAT, Event.AGREE, Event.FLUSH_REPEAT, Event.FLUSH_LATE
        )

    @property
    def patience_us(self) -> int:
        """How long others may take to agree, and as long again to flush."""
        return self._core.config.pulse.agree_us * (1 + len(self.sets.accept) // CROWD) * (1 + self._health.score)

    # --- Stage 1 ----------------------------------------------------------------------------------------------------

    def gather(self, cause: Cause, nodes: Iterable[NodeId]) -> None:
        """Others are there: say AJ, and for alpha collect the names of those that say it too."""
        core = self._core
        if not self.sets.invite(nodes):
            return
        self._set_cause(cause)
        core.shift(State.STAGE_1, cause.what)
        alpha_us = core.config.pulse.alpha_us
        core.arm(Event.ALPHA, alpha_us + crc32(core.me.name.encode()) % (1 + alpha_us // JITTER))
        self.repeat_attempt()

    def repeat_attempt(self) -> None:
        core = self._core
        core.broadcast(self._statement(Attempt))
        core.arm(Event.STATEMENT_REPEAT, max(1, core.config.pulse.alpha_us // 2))

    def attempt_in_stage_1(self, said: Statement) -> None:
        if self.is_current(said.sender, said.view):
            self.sets.invite(said.j | {said.sender})

    def statement_in_stage_1(self, said: Statement) -> None:
        """A JOIN adds names; a fault in my own view ends Stage 1."""
        opinion = self.take(said)
        if opinion in (Opinion.KEPT, *GROWN) and (isinstance(said, Faults) or opinion is Opinion.BROKEN):
            self.state_now("member has faults")

    def alpha(self) -> None:
        self.state_now(Event.ALPHA.value)

    # --- statements of others ---------------------------------------------------------------------------------------

    def is_current(self, sender: NodeId, view: RingId) -> bool:
        """Is the sender in my view, or a stranger? A member that is in another view is behind me, or gone (W6). A stranger that
        says it is in my view is in none."""
        core = self._core
        if core.view.rank_of(sender) is None and view == core.view.id:
            core.reject(Rejection("view", f"{sender} says that it is in {core.view.view_id}, and is not"))
            return False
        if view == core.view.id or core.view.rank_of(sender) is None:
            return True
        flushed = self.barrier.flushed
        if view.seq < core.view.id.seq:
            core.trap(Trap.LATE_FA)
            self._heartbeat.alive_now()
        elif flushed is None or view != flushed.id:
            self.break_with((sender,), Cause("member in another view", core.me, (sender,)))
        return False

    def take(self, said: Statement) -> Opinion:
        """Let a statement change my sets. It closes its sender's row: what that member acknowledges later does not count."""
        core, sets = self._core, self.sets
        if not self.is_current(said.sender, said.view) or not self._is_in_reach(said):
            return Opinion.DROPPED
        is_known = said.sender in sets.j
        opinion = sets.take(said, has_flushed=self.barrier.flushed is not None)
        rank = core.view.rank_of(said.sender)
        if rank is not None and opinion is not Opinion.DROPPED:
            core.view.stability.close(rank)
        if said.sender in sets.j:
            self.heard_at[said.sender] = core.now
        self._note_statement(said, opinion, is_known=is_known)
        return opinion

    def _is_in_reach(self, said: Statement) -> bool:
        """May its numbers become ours? In the next view they would."""
        core, is_alone = self._core, self._core.view.is_singleton
        if not is_seq_in_reach(said.view_seq, core.view_seq, is_alone=is_alone):
            return False
        return is_clock_in_reach(said.clock, core.clock, is_alone=is_alone)

    def _note_statement(self, said: Statement, opinion: Opinion, *, is_known: bool) -> None:
        core = self._core
        if opinion is Opinion.BROKEN:
            core.note("break", node=str(said.sender), why="it leaves" if said.leaving else "it accuses me")
            if said.leaving:
                self.left.add(said.sender)
            else:
                core.trap(Trap.ACCUSED_ME)
        elif opinion is not Opinion.DROPPED:
            if self.sets.believable(said) != said.f:
                core.trap(Trap.STRANGER_FAILS_US)
            if not is_known and core.state in AGREEING:
                core.trap(Trap.OUTSIDER_IN_STAGE_2)

    def statement_while_agreeing(self, said: Statement) -> None:
        opinion = self.take(said)
        if opinion in GROWN:
            self.state_now("statement of another")
        elif opinion is Opinion.KEPT:
            self.try_to_assent()

    # --- my own -----------------------------------------------------------------------------------------------------

    def break_with(self, nodes: Iterable[NodeId], cause: Cause) -> None:
        """Accuse members, in any state; the view, or the change that is under way, goes on without them."""
        broken = [node for node in nodes if self.sets.break_with(node)]
        for node in broken:
            self._core.note("break", node=str(node), why=cause.what)
        if broken:
            self.begin(cause)

    def begin(self, cause: Cause) -> None:
        """Begin to end my view, or extend the change that ends it. The next view names the cause with which the change began."""
        if self._core.state is State.OPERATIONAL:
            self._set_cause(cause)
        self.state_now(cause.what)

    def _set_cause(self, cause: Cause) -> None:
        """Keep only accused nodes that I know: another member's cause may name more than a statement has room for."""
        known = tuple(node for node in cause.accused if node in self.sets.j)
        self._core.cause = cause._replace(accused=known)

    def renew(self) -> None:
        """My view has used up its timestamps: the same members install a new one."""
        self._core.note("renewed")
        self.begin(Cause("renewed", self._core.me))

    def state_now(self, why: str) -> None:
        """Make the statement that my sets demand. It leaves a little later, with whatever else is known by then (W10)."""
        self._enter(why)
        self._make_statement()
        self._stated_at = self._core.now
        self._arm_timers()
        self.try_to_assent()

    def _make_statement(self) -> None:
        core, view = self._core, self._core.view
        self._version += 1
        mine = self._statement(Joining if self.sets.has_strangers else Faults)
        self.sets.last[core.me] = mine
        self.barrier.assented = None
        view.gone = {rank for rank, node in enumerate(view.members) if node in self.sets.f}
        unsent = self._sends if core.timers.armed(Event.STATEMENT_SEND) else []
        self._sends = self._ways_out(mine, unsent)

    @property
    def is_free(self) -> bool:
        """Have I promised to install no view yet? Then none can come of a statement of mine that I replace."""
        return self.barrier.flushed is None

    def may_restate(self) -> bool:
        """I am free, others have still to agree, and my newest statement is out. Who has assented makes no new statement of its
        own accord: each begins the proposal anew."""
        core = self._core
        return core.state in (State.FAULTS, State.STAGE_2) and self.is_free and not core.timers.armed(Event.STATEMENT_SEND)

    def restate(self) -> None:
        """The same sets, and all that this member has and has delivered by now. Who is late to agree stays late."""
        self._delivery.go_on()
        self._make_statement()
        self._send_soon()

    def _arm_timers(self) -> None:
        self._send_soon()
        self._arm_repeat()
        self._core.arm(Event.AGREE, self.patience_us)

    def _send_soon(self) -> None:
        core = self._core
        if not core.timers.armed(Event.STATEMENT_SEND):
            core.arm(Event.STATEMENT_SEND, core.config.pulse.coalesce_us)

    def _enter(self, why: str) -> None:
        core = self._core
        if core.state not in AGREEING:
            self._delivery.freeze()
            core.timers.cancel(Event.ALPHA, Event.WATCH, Event.SEND_DUE)
        elif core.flows and self.is_free:
            self._delivery.go_on()
        core.timers.cancel(Event.FLUSH_REPEAT, Event.FLUSH_LATE)
        joins = self.sets.has_strangers or core.state in (State.STAGE_1, State.STAGE_2)
        target = State.STAGE_2 if joins else State.FAULTS
        if core.state is not target:
            core.shift(target, why)

    def _statement(self, kind: type[Statement], *, leaving: bool = False) -> Statement:
        core, sets, view = self._core, self.sets, self._core.view
        frozen = core.frozen
        return kind(
            core.me,
            core.config.address,
            core.config.info,
            self._version,
            view.id,
            core.view_seq,
            sets.j,
            sets.f_before | {core.me} if leaving else sets.f_before,
            sets.f_after,
            tuple(zip(view.members, view.dag.inserted, strict=True)),
            view.order.frontier if frozen is None else frozen.delivered,
            core.clock,
            core.cause,
            leaving,
            core.digest,
            (WIRE_VERSION_MIN, WIRE_VERSION),
        )

    def _ways_out(self, mine: Statement, unsent: list[Send]) -> list[Send]:
        """The packets by which a new statement leaves, given earlier ones that have not left yet. On the control socket the
        newest suffices: it says all that those before it said (M1)."""
        control = self._parts.control
        if control is not None:
            return control.statement_out(mine, unsent)
        return [Send(Audience.WORLD, Port.CONTROL, self._core.packet(mine))]

    def leave_now(self) -> None:
        """Say goodbye with a statement that accuses its own sender, and stop. It is sent twice at once: nobody will repeat it."""
        self._version += 1
        self._core.cause = Cause("leave", self._core.me, (self._core.me,))
        datagrams = self._core.packet(self._statement(Faults, leaving=True))
        for _ in range(2):
            self._core.emit(Send(Audience.WORLD, Port.CONTROL, datagrams))
        self._core.stop("left")

    def send_statement(self) -> None:
        """Send the same bytes until my sets grow, so that a receiver that lost some parts gets them from a repetition (D25)."""
        self._core.timers.cancel(Event.STATEMENT_SEND)
        self.statements_sent += 1
        for send in self._sends:
            self._core.emit(send)

    def repeat_statement(self) -> None:
        self.send_statement()
        self._arm_repeat()

    def hurry_statement(self) -> None:
        """Send a waiting statement now: what follows from it must not overtake it."""
        if self._core.timers.armed(Event.STATEMENT_SEND):
            self.send_statement()

    def _arm_repeat(self) -> None:
        """Repeat often enough to be heard in time, but seldom enough for a large view (W10)."""
        core = self._core
        crowded_us = core.config.pulse.repeat_us * max(1, len(self.sets.accept) // CROWD)
        core.arm(Event.STATEMENT_REPEAT, max(1, min(crowded_us, self.patience_us // REPEATS_PER_AGREE)))

    # --- agreement --------------------------------------------------------------------------------------------------

    def try_to_assent(self) -> None:
        """If all members in Accept say the same, that is a proposal. A newer statement with the same sets makes a new one."""
        core, barrier = self._core, self.barrier
        statements = self.sets.assent()
        if statements is None or (barrier.assented is not None and barrier.assented.statements == statements):
            return
        proposal = propose(statements)
        if proposal.id.rep == core.me and proposal.id.seq <= core.view_seq:
            self.state_now("the number of the view is used")
            return
        barrier.assented = proposal
        self.proposals += 1
        core.note("assented", view=str(proposal.view_id), members=len(proposal.members))
        self._parts.flush.enter()

    def agree_expired(self) -> None:
        late = [node for node in sorted(self.sets.accept) if not self.sets.agrees(node)]
        given_up = self.give_up(late, self._stated_at)
        if given_up:
            self.break_with(given_up, Cause("did not agree", self._core.me, tuple(given_up), Event.AGREE.value))
        else:
            self._core.arm(Event.AGREE, self.patience_us)

    def give_up(self, late: Iterable[NodeId], since: int) -> list[NodeId]:
        """The members to wait for no longer, of those that are late: silent ones at once, others after their last strike."""
        given_up = []
        for node in late:
            self._strikes[node] = self._strikes.get(node, 0) + 1
            if self.heard_at.get(node, -1) < since or self._strikes[node] >= STRIKES:
                given_up.append(node)
        return given_up
