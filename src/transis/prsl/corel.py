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

from collections.abc import Callable, Iterable
from typing import Final

from transis.prsl.actions import Action, ActionId, Lane
from transis.prsl.core import Core, Round, Stage
from transis.prsl.exchange import Exchange, is_complete
from transis.prsl.messages import Ack, Attempt, Posted
from transis.prsl.plan import Plan
from transis.prsl.record import FOUNDING, Entry, Record, configurations, fold, founding


class Corel:
    def __init__(self, core: Core, exchange: Exchange, deliver: Callable[[], None]) -> None:
        self._core = core
        self._exchange = exchange
        self._deliver: Final = deliver

    # --- attempt ------------------------------------------------------------------------------------------------------

    def settle(self, round_: Round) -> None:
        """The exchange is done, at this place for all. Adopt what decides, and try to become primary if there is a majority."""
        plan, core = plan_of(round_), self._core
        content = core.log.content
        if not self._has_all(round_, plan):
            core.trouble = "the exchange ended without all content: a replica told what nobody has"
            return
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

    def _has_all(self, round_: Round, plan: Plan) -> bool:
        """Whether what was told did come. Only a STATE that tells what nobody has can make the difference."""
        content, green = self._core.log.content, self._core.log.green.place
        places = () if round_.is_behind else range(green, plan.green.place)
        return all(one in content for one in (*plan.tail, *plan.others)) and all(place in round_.greens for place in places)

    def _may_attempt(self, round_: Round, plan: Plan) -> bool:
        if any(not self._fits(round_, record) for record in round_.counting):
            self._core.trouble = "a replica here is not the one that the group was founded with: its directory is another one"
            return False
        is_majority = all(record.has_majority(round_.numbers) for record in round_.counting)
        assert not (is_majority and plan.is_contradicted), "a majority contradicts what is green"
        return is_majority

    def _fits(self, round_: Round, record: Record) -> bool:
        """Whether everybody here has the directory that the record has under its number (R18)."""
        entries = [(record.entry(state.number), state) for state in round_.states.values()]
        return not record.is_founded or all(entry is None or entry.directory == state.directory for entry, state in entries)

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

    def _put_in_log(self, round_: Round, plan: Plan, order: Iterable[ActionId]) -> None:
        """The order from the plan's green place on becomes this; below it, what was sent for those who are near."""
        core, green = self._core, plan.green.place
        start = core.log.green.place
        if start > green:
            core.replace(start, list(order)[start - green :])
            return
        missing = [round_.greens[place] for place in range(start, green)]
        for action in missing:
            core.keep(action)
        core.replace(start, [*(action.id for action in missing), *order])

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
        """The first action of all says whose directory is whose (R32). Everybody builds it; nobody posts it."""
        entries = [Entry(state.number, state.name, state.directory) for state in round_.states.values()]
        action = founding(entries)
        self._core.keep(action)
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

    def complete(self, round_: Round) -> None:
        """This replica was behind and is no more (R20: only now it counts as one that has the last primary)."""
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

    def action(self, round_: Round, action: Action) -> None:
        """Whether it is new and complete is asked of the view's order, never of what this replica holds (R22)."""
        if round_.is_over or round_.stage <= Stage.CONTENT:
            self._exchange.take(round_, action)
            return
        seen = round_.seen
        assert seen is not None
        fit = [action]
        while fit:
            one = fit.pop(0)
            if one.id in seen:
                continue
            if not is_complete(one, seen.__contains__):
                round_.wait(one)
                continue
            self._take(round_, one)
            fit += round_.take_pending()

    def _take(self, round_: Round, action: Action) -> None:
        assert round_.seen is not None
        round_.seen.add(action.id)
        self._core.keep(action)
        if round_.is_committed:
            self._place(round_, action)
        else:
            round_.order.append(action.id)

    def _send_out(self, round_: Round) -> None:
        """Own actions, in their order, when they are synced; while the view was not settled they waited."""
        for action in self._core.log.out:
            self.send(round_, action)

    def send(self, round_: Round, action: ActionId) -> None:
        """When it is on this disk."""
        core = self._core
        core.then(round_, lambda: core.send(Posted(round_.tag, core.log.content[action])) if action in core.log.out else None)

    # --- acknowledgements ---------------------------------------------------------------------------------------------

    def synced(self, round_: Round) -> None:
        """One acknowledgement for all that one commit covered."""
        if round_.may_acknowledge and not round_.is_over and self._core.journal.durable > round_.acked:
            self.acknowledge(round_)

    def acknowledge(self, round_: Round) -> None:
        core = self._core
        round_.acked = core.journal.durable
        core.send(Ack(round_.tag, round_.acked, core.log.green.place, core.acked_synced))

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


def plan_of(round_: Round) -> Plan:
    assert round_.plan is not None
    return round_.plan
