"""Ordering corel: any majority that is together and can write orders all it knows.

    exchange done → ATTEMPT → a majority's ATTEMPTs: the primary is committed → actions get places (yellow) → ACKs → green

1. Green needs acknowledgements of a majority of the replicas, and the longest order of the last primary decides (R1). What a
   majority acknowledged in a primary is in the order of a member of every later majority, and the longest of these has it.
2. Committed numbers are unique: a commit needs a majority that synced the attempt, and two majorities share a member.
3. Yellow is given in the regular view only: behind a gap of the transitional view one place would be two actions (R2b).
4. The view's order is carried on by ids at all members alike, also at those that are behind (R22). A change of membership gets a
   place only if the view holds a majority of what it makes; that is decided once, at its place (R15, R24).
5. All is agreed delivery (R5). A transitional view ends attempts and orders; acknowledgements still count, actions become red.
"""

from __future__ import annotations

from typing import ClassVar, Final

from transis.prsl.actions import Action, ActionId, Lane
from transis.prsl.base import Ordering, plan_of
from transis.prsl.core import Round, Stage
from transis.prsl.exchange import becoming_complete
from transis.prsl.messages import Ack, Attempt, Posted
from transis.prsl.plan import Plan
from transis.prsl.record import FOUNDING, Record, configurations, fold

NAMES: Final = {
    Stage.STATES: "exchange of states",
    Stage.CONTENT: "exchange of content",
    Stage.MINORITY: "minority",
    Stage.ATTEMPT: "attempt",
    Stage.PRIMARY: "primary",
}


class Corel(Ordering):
    needs_everybody: ClassVar = False

    def start(self) -> None:
        """Nothing is needed: marks that were never written are nought."""

    def leave(self, round_: Round) -> None:
        """A view needs no end: what has no majority's acknowledgement is decided by the next exchange."""

    def state(self, round_: Round | None) -> str:
        return "away" if round_ is None else NAMES[round_.stage] + (", which is over" if round_.is_over else "")

    # --- attempt ------------------------------------------------------------------------------------------------------

    def settle(self, round_: Round) -> bool:
        """Adopt what decides, and try to become primary if there is a majority."""
        plan, core = plan_of(round_), self._core
        content = core.log.content
        if not self._has_all(round_, plan):
            return False
        round_.counting = configurations(plan.green.record, [content[action] for action in plan.tail])
        round_.record = round_.counting[-1]
        others = sorted(plan.others, key=lambda action: content[action].sort_key)
        round_.order = [*plan.tail, *others]
        assert round_.seen is not None
        round_.seen = round_.seen.with_added(round_.order)
        round_.stage = Stage.ATTEMPT if self._may_attempt(round_, plan) else Stage.MINORITY
        round_.primary = plan.attempted + 1
        if not round_.is_behind:
            self._adopt(round_, plan)
        return True

    def _may_attempt(self, round_: Round, plan: Plan) -> bool:
        if any(not self._fits(round_, record) for record in round_.counting):
            return False
        is_majority = all(record.has_majority(round_.numbers) for record in round_.counting)
        assert not (is_majority and plan.is_contradicted), "a majority contradicts what is green"
        return is_majority

    def _adopt(self, round_: Round, plan: Plan) -> None:
        """Everything of it is in the log, so that this replica may vote for it and provide it."""
        core = self._core
        self._put_in_log(round_, plan, plan.tail)
        core.committed = plan.committed
        core.log.advance(max(core.log.green.place, plan.green.place))
        if round_.stage == Stage.ATTEMPT:
            core.attempted = round_.primary
            core.then(round_, lambda: core.send(Attempt(round_.tag)))
        else:
            self._send_out(round_)
        core.write_marks()
        self._deliver()

    def attempt(self, round_: Round, number: int) -> None:
        if round_.is_over or round_.is_committed or round_.stage not in (Stage.CONTENT, Stage.ATTEMPT):
            return
        round_.attempts.add(number)
        self._commit_if_wanted(round_)

    def _commit_if_wanted(self, round_: Round) -> None:
        """A majority's ATTEMPTs are enough, so that a slow disk holds up nobody (R3)."""
        if round_.stage == Stage.ATTEMPT and all(record.has_majority(round_.attempts) for record in round_.counting):
            self._commit(round_)

    # --- primary ------------------------------------------------------------------------------------------------------

    def _commit(self, round_: Round) -> None:
        round_.is_committed = True
        plan = plan_of(round_)
        found = round_.order[len(plan.tail) :]
        round_.order = list(plan.tail)
        if round_.record is not None and not round_.record.is_founded:
            self._found(round_)
        for action in found:
            self._place(round_, self._core.log.content[action])
        if not round_.is_behind:
            self.enter(round_)

    def _found(self, round_: Round) -> None:
        action = self._founding(round_)
        assert round_.seen is not None
        round_.seen.add(FOUNDING)
        self._place(round_, action)

    def _place(self, round_: Round, action: Action) -> None:
        """The next in the view's order, unless it is held back."""
        assert round_.record is not None
        after = fold(round_.record, action) if action.id.lane == Lane.CHANGES else round_.record
        if after is not round_.record and not after.has_majority(round_.numbers):
            return
        round_.record = after
        if round_.stage == Stage.PRIMARY:
            round_.length += 1
            self._grow(round_, action.id)
        else:
            round_.order.append(action.id)

    def enter(self, round_: Round) -> None:
        """Take part in the committed primary: at the commit, or whenever a replica that was behind is complete."""
        core, plan = self._core, plan_of(round_)
        self._put_in_log(round_, plan, round_.order)
        core.log.advance(max(core.log.green.place, plan.green.place))
        round_.length, round_.order = len(round_.order), []
        core.committed = core.attempted = round_.primary
        round_.stage = Stage.PRIMARY
        core.write_marks()
        core.then(round_, lambda: self._start(round_))
        self._send_out(round_)
        self.advance(round_)

    def _start(self, round_: Round) -> None:
        """Only now that the primary is on this disk an acknowledgement means that a later majority finds it there."""
        round_.may_acknowledge = True
        self.synced(round_)

    def caught_up(self, round_: Round, number: int) -> None:
        """Nobody waits for who is behind."""

    def complete(self, round_: Round) -> None:
        """Only now it counts as one that has the last primary (R20)."""
        round_.is_behind = False
        if round_.is_over:
            return
        if round_.is_committed:
            self.enter(round_)
        else:
            self._adopt(round_, plan_of(round_))

    def _grow(self, round_: Round, action: ActionId) -> None:
        """A snapshot may have run ahead of what was delivered here: below its place there is nothing to do."""
        if plan_of(round_).green.place + round_.length > self._core.log.end:
            self._core.append(action)

    def posted(self, round_: Round, number: int, message: Posted) -> None:
        """Whether it is new and complete is asked of the view's order, never of what this replica holds (R22)."""
        if round_.is_over or round_.stage <= Stage.CONTENT:
            self._exchange.take(round_, message.action)
            return
        seen = round_.seen
        assert seen is not None
        for one in becoming_complete(round_, message.action, lambda action: action in seen):
            self._take(round_, one)

    def _take(self, round_: Round, action: Action) -> None:
        assert round_.seen is not None
        round_.seen.add(action.id)
        self._core.keep(action)
        if round_.is_committed:
            self._place(round_, action)
        else:
            round_.order.append(action.id)

    def _send(self, round_: Round, action: ActionId) -> None:
        self._core.send(Posted(round_.tag, self._core.log.content[action]))

    # --- acknowledgements ---------------------------------------------------------------------------------------------

    def synced(self, round_: Round) -> None:
        """One acknowledgement for all that one commit covered."""
        if round_.may_acknowledge and not round_.is_over and self._core.journal.durable > round_.acked:
            self.acknowledge(round_)

    def acknowledge(self, round_: Round) -> None:
        core = self._core
        round_.acked = core.journal.durable
        core.send(Ack(round_.tag, round_.acked, core.log.green.place, core.acked_synced))

    def is_free(self, left_at: int) -> bool:
        """Whoever of the others are together can go on: most of them know."""
        members = self._core.log.green.record.members
        knowing = [number for number in members if self._core.peer(number).green >= left_at]
        return 2 * len(knowing) > len(members)

    def look_on(self) -> None:
        """It goes on as before: its acknowledgements may be needed."""

    def ack(self, round_: Round, number: int, ack: Ack) -> None:
        round_.acks[number] = max(round_.acks.get(number, 0), ack.synced)
        peer = self._core.peer(number)
        peer.green, peer.acked = max(peer.green, ack.green), max(peer.acked, ack.acked)
        self.advance(round_)

    def advance(self, round_: Round) -> None:
        if round_.stage != Stage.PRIMARY:
            return
        core = self._core
        before = core.log.green.record
        core.log.advance(self._green_line(round_))
        for number, synced in round_.acks.items():
            peer = core.peer(number)
            peer.line = max(peer.line, min(synced, core.log.green.place))
        after = core.log.green.record
        if not set(before.members) <= set(after.members) and not round_.is_over:
            core.then(round_, lambda: self.acknowledge(round_))
        self._deliver()

    def _green_line(self, round_: Round) -> int:
        """The largest place that a majority of every configuration up to it has on disk."""
        log = self._core.log
        place, record = log.green.place, log.green.record
        best = self._acknowledged(round_, record)
        for action in log.actions(place, min(best, log.end)) if best > place else ():
            if action.id.lane == Lane.CHANGES:
                after = fold(record, action)
                if after is not record:
                    best, record = min(best, max(place, self._acknowledged(round_, after))), after
            if place >= best:
                break
            place += 1
        return place

    def _acknowledged(self, round_: Round, record: Record) -> int:
        """How far a majority of the configuration has acknowledged, or all who are connected if that is asked for."""
        acks = sorted((round_.acks.get(number, 0) for number in record.members), reverse=True)
        need = len(acks) // 2 + 1 if record.is_founded else len(acks)
        if self._core.config.acks_of_all:
            need = max(need, len(round_.numbers.intersection(record.members)))
        return acks[need - 1] if acks else 0
