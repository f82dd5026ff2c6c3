"""Gather: agree on who forms the next ring (TOCS95 section 5 and figure 5; W7, W8, W10).

proc_set, fail_set and the rows of reachability only grow until a ring is installed (F3), so every Gather ends, at worst with a
singleton. Failed attempts are counted: when one membership fails twice, one of its members is blamed (L2).

Deviations: (D11) a Join names the membership that its sender proposes, and there is consensus when every proposed member proposes
the same: the results must agree, not the sets they came from; (D12) a member that others hear but I do not is *unheard* in my
row and not failed (W7); only one that nobody hears goes to fail_set; (D13) an outsider cannot fail a member of my old ring
(trap 18); (D14) changes within join_coalesce_us leave as one Join (W10); (D15) after two failed attempts with one membership, the
representative fails the member at which the commit token was lost (W8).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from transis.engine.presence import Release
from transis.totem.packets import Join, Row
from transis.totem.reach import Reachability, clique_of
from transis.totem.ring import Ring
from transis.totem.states import Event, State, Trap
from transis.types.ids import NodeId
from transis.types.limits import PROC_SET_MAX
from transis.types.outputs import Audience, Port, Send
from transis.types.views import Cause
from transis.wire.burst import Burst
from transis.wire.envelope import WIRE_VERSION, WIRE_VERSION_MIN

if TYPE_CHECKING:
    from transis.totem.engine import TotemParts

# --- attempts ---------------------------------------------------------------------------------------------------------

ATTEMPTS_BEFORE_BLAME = 2


class Attempts:
    """Failed attempts by membership. `progress` counts the hops of an attempt's commit token: the index of the last member known
    to have forwarded it, plus the number of members in the second rotation."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._failures: dict[frozenset[NodeId], int] = {}
        self._order: tuple[NodeId, ...] = ()
        self.seq = 0
        self.progress = 0

    def forwarded(self, ring: Ring, rotation: int) -> None:
        """This node forwarded the commit token of this ring."""
        self.seq = ring.id.seq
        self._order = ring.members
        self.progress = (rotation - 1) * len(ring.members) + ring.rank

    def failed(self, ring: Ring) -> None:
        self._failures[ring.member_set] = self._failures.get(ring.member_set, 0) + 1

    @property
    def total(self) -> int:
        """Failed attempts of this Gather, whatever the membership."""
        return sum(self._failures.values())

    def count(self, members: frozenset[NodeId]) -> int:
        return self._failures.get(members, 0)

    def blame(self, members: frozenset[NodeId], me: NodeId, joins: Iterable[Join]) -> NodeId | None:
        """After repeated failures, the member at which the commit token was lost; never this node."""
        if self.count(members) < ATTEMPTS_BEFORE_BLAME or len(members) == 1:
            return None
        if frozenset(self._order) != members:
            return max(members - {me})
        progress = max([self.progress, *(join.attempt_index for join in joins if join.attempt_seq == self.seq)])
        suspect = self._order[(progress + 1) % len(self._order)]
        return suspect if suspect != me and progress + 1 < 2 * len(self._order) else max(members - {me})


# --- gather -----------------------------------------------------------------------------------------------------------

MEMBER_GATHERS = "member gathers"
"""The cause of a Gather that another member of the ring began."""
FOREIGN_RING = "foreign ring"
"""The cause of a Gather that the beacon of another ring began."""
FAILED_TO_RECEIVE = "failed to receive"
BLAMED = "blamed for failed attempts"
CONDEMNING = (FAILED_TO_RECEIVE, BLAMED)
"""Causes whose accused hear and are heard, yet break every ring they are in."""
STRIKES = 2
"""After this many consensus timeouts a member that is heard but still does not agree is given up."""
REPEATS_PER_CONSENSUS = 5
REPEATS_PER_BEAT = 2
"""A Join is repeated this often before its beat changes: receivers can put together the parts of equal repetitions."""


class Gather:
    def __init__(self, parts: TotemParts) -> None:
        self._parts = parts
        self._core = parts.core
        self._passing = parts.passing
        self._delivery = parts.delivery
        self._quarantine = parts.quarantine
        self._reach = Reachability()
        self.attempts = Attempts()
        self._version = 0
        self._repeats = 0
        self._clear()

    def _clear(self) -> None:
        self.proc_set: set[NodeId] = set()
        self.fail_set: set[NodeId] = set()
        self.joins: dict[NodeId, Join] = {}
        self._heard_at: dict[NodeId, int] = {}
        self._strikes: dict[NodeId, int] = {}
        self._left: set[NodeId] = set()
        self._inviter: NodeId | None = None
        self._sent: tuple[object, list[bytes]] = (None, [])
        self._started_at = 0
        self.proposal: frozenset[NodeId] = frozenset((self._core.me,))

    # --- entering ---------------------------------------------------------------------------------------------------

    def shift(self, cause: Cause, *, fail: Iterable[NodeId] = (), proc: Iterable[NodeId] = (), join: Join | None = None) -> None:
        """Enter Gather: afresh from Operational; after a failed attempt the sets go on growing (F3)."""
        core = self._core
        if core.state is State.OPERATIONAL:
            self._begin(cause)
        core.shift(State.GATHER, cause.what)
        core.forming = None
        self._passing.forget()
        self.joins.clear()
        self.proc_set.update(proc)
        self.fail_set.update(node for node in fail if node != core.me)
        self.proc_set.update(self.fail_set)
        if join is not None:
            self._absorb(join)
        self._propose()
        self._send_now()
        self._arm_repeat()
        self._arm_consensus()
        self.try_to_form()

    def _begin(self, cause: Cause) -> None:
        core = self._core
        self._clear()
        core.cause = cause
        self._inviter = cause.accuser if cause.what == FOREIGN_RING else None
        self._started_at = core.now
        self._version += 1
        self.proc_set.update(core.ring.members)
        self._reach.merge(Row(core.me, self._version, 0, frozenset()), core.now)

    def token_lost(self) -> None:
        """Token loss in Operational, Commit or Recovery."""
        core = self._core
        core.note("token lost", state=core.state.value)
        if core.forming is not None:
            self.attempts.failed(core.forming)
        self.shift(Cause("token lost", core.me, (), Event.TOKEN_LOSS.value))

    # --- Joins ------------------------------------------------------------------------------------------------------

    def join(self, join: Join) -> None:
        if self._absorb(join):
            self._propose()
            self._touch()
            self._arm_consensus()
        self.try_to_form()

    def _absorb(self, join: Join) -> bool:
        """Remember a Join and learn from it; True if that changes my own Join."""
        core, sender = self._core, join.sender
        if sender in self.fail_set or self._is_outdated(sender) or not core.is_in_reach(join.ring_seq):
            return False
        if len(self.proc_set | join.proc_set) >= PROC_SET_MAX:
            core.note("join names too many nodes", node=str(sender))
            return False
        self._heard_at[sender] = core.now
        self.joins[sender] = join
        core.reserve(join.ring_seq)
        core.ring_seq_seen = max(core.ring_seq_seen, join.ring_seq)
        return self._learn(join)

    def _learn(self, join: Join) -> bool:
        """Add what a Join says to the sets and rows; True if that changes my own Join."""
        before = (len(self.proc_set), len(self.fail_set))
        self.proc_set.add(join.sender)
        self.proc_set.update(join.proc_set)
        self.fail_set.update(self._believable_failures(join))
        self._fail_outdated()
        self.proc_set.update(self.fail_set)
        if join.leaving:
            self._left.add(join.sender)
        rows_changed = [self._reach.merge(row, self._core.now) for row in join.rows if row.node in self.proc_set]
        return any(rows_changed) or before != (len(self.proc_set), len(self.fail_set))

    def _believable_failures(self, join: Join) -> set[NodeId]:
        """The nodes that a Join makes me fail: its sender if it fails me, else its fail_set; no outsider fails my ring (D13)."""
        me, sender = self._core.me, join.sender
        if join.leaving or me in join.fail_set:
            return {sender}
        if sender in self._core.ring.member_set:
            return set(join.fail_set)
        if not join.fail_set.isdisjoint(self._core.ring.member_set):
            self._core.trap(Trap.STRANGER_FAILS_US)
        return set(join.fail_set - self._core.ring.member_set)

    def _is_outdated(self, node: NodeId) -> bool:
        """Whether a later life of the same name is known, so that this one is over."""
        return any(other.name == node.name and other.incarnation > node.incarnation for other in self.proc_set)

    def _fail_outdated(self) -> None:
        newest: dict[str, int] = {}
        for node in sorted(self.proc_set):
            newest[node.name] = node.incarnation
        outdated = {node for node in self.proc_set if node.incarnation < newest[node.name]}
        if self._core.ring.id.rep in outdated - self.fail_set:
            self._core.trap(Trap.REBORN_REPRESENTATIVE)
        self.fail_set.update(outdated)
        self.fail_set.discard(self._core.me)

    def repeat_join(self) -> None:
        self._repeats += 1
        self._send_now()
        self._arm_repeat()

    def _arm_repeat(self) -> None:
        """Repeat often enough that several repetitions fit into the wait for consensus, however large the membership (W10)."""
        patience_us = self._core.timeouts.consensus_us(len(self.proposal))
        self._core.arm(Event.JOIN_REPEAT, max(self._core.config.timing.join_us, patience_us // REPEATS_PER_CONSENSUS))

    def _touch(self) -> None:
        if not self._core.timers.armed(Event.JOIN_SEND):
            self._core.arm(Event.JOIN_SEND, self._core.config.timing.join_coalesce_us)

    def send_join(self) -> None:
        self._send_now()

    def _send_now(self) -> None:
        """Send my Join. Until its content or its beat changes it is the same packet, byte for byte, so that a receiver that lost
        some parts gets them from a repetition (D25); the clock and relayed beats alone do not change it."""
        core = self._core
        core.timers.cancel(Event.JOIN_SEND)
        known = tuple(sorted((node, row.version, row.unheard) for node, row in self._reach.rows.items()))
        content = (
            frozenset(self.proc_set), frozenset(self.fail_set), self.proposal, known, core.ring_seq,
            self.attempts.seq, self.attempts.progress, self._repeats // REPEATS_PER_BEAT,
        )  # fmt: skip
        if content != self._sent[0]:
            self._sent = (content, core.packet(self._my_join(leaving=False)))
        core.emit(Send(Audience.WORLD, Port.CONTROL, self._sent[1]))

    def _my_join(self, *, leaving: bool) -> Join:
        core = self._core
        self._reach.merge(self._my_row(frozenset()), core.now)
        rows = tuple(self._reach.rows[node] for node in sorted(self._reach.rows))
        fail = frozenset(self.fail_set | {core.me}) if leaving else frozenset(self.fail_set)
        return Join(
            core.me,
            core.config.address,
            core.config.info,
            core.ring_seq,
            frozenset(self.proc_set | fail),
            fail,
            self.proposal,
            rows,
            self.attempts.seq,
            self.attempts.progress,
            leaving,
            core.clock,
            core.digest,
            (WIRE_VERSION_MIN, WIRE_VERSION),
        )

    def _my_row(self, unheard: frozenset[NodeId]) -> Row:
        return Row(self._core.me, self._version, self._repeats // REPEATS_PER_BEAT, unheard)

    def leave_now(self) -> None:
        """Say goodbye with a Join that fails its own sender, and stop. It is sent twice at once, as nobody will repeat it."""
        self.proc_set.update(self._core.ring.members)
        datagrams = self._core.packet(self._my_join(leaving=True))
        for _ in range(2):
            self._core.emit(Send(Audience.WORLD, Port.CONTROL, datagrams))
        self._core.stop("left")

    # --- consensus --------------------------------------------------------------------------------------------------

    def _propose(self) -> None:
        """The proposal is my part of the clique partition of all nodes that are not failed."""
        candidates = self.proc_set - self.fail_set
        self.proposal = clique_of(self._core.me, candidates, self._reach.unheard())

    def _agrees(self, node: NodeId) -> bool:
        return node == self._core.me or (node in self.joins and self.joins[node].proposal == self.proposal)

    def _arm_consensus(self) -> None:
        self._core.arm(Event.CONSENSUS, self._core.timeouts.consensus_us(len(self.proposal)))
        self._core.timers.cancel(Event.TOKEN_LOSS)

    def _has_strangers(self) -> bool:
        return not self.proposal <= self._core.ring.member_set

    def try_to_form(self) -> None:
        """If there is consensus, the lowest member makes the commit token and the others wait for it."""
        core = self._core
        if not all(self._agrees(node) for node in self.proposal):
            return
        earliest = self._started_at + core.config.timing.gather_min_us
        if self._has_strangers() and core.now < earliest:
            core.timers.arm(Event.GATHER_MIN, earliest)
            return
        if core.me == min(self.proposal):
            self._form_or_blame()
        elif not core.timers.armed(Event.TOKEN_LOSS):
            core.timers.cancel(Event.CONSENSUS)
            core.arm(Event.TOKEN_LOSS, core.timeouts.consensus_us(len(self.proposal)))

    def _form_or_blame(self) -> None:
        blamed = self.attempts.blame(self.proposal, self._core.me, self.joins.values())
        if blamed is None:
            self._parts.commit.create(self.proposal)
            return
        self._core.note("blamed", node=str(blamed))
        self._core.cause = Cause(BLAMED, self._core.me, (blamed,))
        self.fail_set.add(blamed)
        self._changed()

    def consensus_timeout(self) -> None:
        """Give up the members that did not agree in time, each according to whether it is silent, unheard here, or disagrees."""
        since = self._core.now - self._core.timeouts.consensus_us(len(self.proposal))
        for node in sorted(self.proposal):
            if not self._agrees(node):
                self._give_up(node, since)
        self._changed()

    def commit_never_came(self) -> None:
        """All agreed, but the representative's commit token never came."""
        representative = min(self.proposal)
        assert representative != self._core.me, "the representative forms the ring as soon as there is consensus"
        self._give_up(representative, self._core.now - self._core.timeouts.consensus_us(len(self.proposal)))
        self._changed()

    def _give_up(self, node: NodeId, since: int) -> None:
        if self._heard_at.get(node, -1) >= since:
            self._strikes[node] = self._strikes.get(node, 0) + 1
            if self._strikes[node] >= STRIKES:
                self._reach.merge(self._my_row(frozenset((node,))), self._core.now)
        elif self._reach.beat_at.get(node, -1) >= since:
            self._reach.merge(self._my_row(frozenset((node,))), self._core.now)
        else:
            self.fail_set.add(node)

    def _changed(self) -> None:
        self._propose()
        self._send_now()
        self._arm_consensus()
        self.try_to_form()

    # --- leaving Gather ---------------------------------------------------------------------------------------------

    def committed(self) -> None:
        """A commit token was made or accepted: no Join is sent from here on (F5)."""
        self._core.timers.cancel(Event.JOIN_REPEAT, Event.JOIN_SEND, Event.CONSENSUS, Event.GATHER_MIN, Event.TOKEN_LOSS)

    def installed(self, members: tuple[NodeId, ...]) -> None:
        """A ring was installed: everything that only grew during the Gather starts afresh."""
        if self.attempts.total >= 3:
            self._core.trap(Trap.MANY_ATTEMPTS)
        self._quarantine.installed(members, self._left_out(members), self._core.now)
        self._reach.reset(members)
        self.attempts.clear()
        self._clear()

    def _left_out(self, members: tuple[NodeId, ...]) -> dict[NodeId, Release]:
        """The nodes that this Gather left out although they are alive, and what would bring each back early.

        Nodes that were never heard, left, or were restarted are not among them: they may come at any time.
        """
        fell_silent = {node for node in self.fail_set if node in self._heard_at}
        left_out = dict.fromkeys(self.proc_set - self.fail_set | fell_silent, Release.HEARING)
        if self._inviter in self.fail_set:
            left_out[self._inviter] = Release.ANSWER
        if self._core.cause.what in CONDEMNING:
            left_out |= dict.fromkeys(self._core.cause.accused, Release.NONE)
        return {node: release for node, release in left_out.items() if node not in members and node not in self._left}

    def old_data_in_gather(self, burst: Burst) -> None:
        """Until my commit entry is written, data of the old ring is still accepted and delivered eagerly (W12)."""
        core = self._core
        if self._delivery.receive(core.ring, burst, installed=True):
            self._delivery.eager(core.ring)
