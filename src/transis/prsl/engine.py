"""Ordering engine: what is safe in a primary is final at once, without acknowledgements; which view may be one is voted for.

    ExchangeStates → ExchangeActions → Construct → RegPrim → TransPrim
                           ↓               ↓
                        NonPrim         No → Un          each is a stage of a round, and whether its regular view is over

1. An action that is delivered as safe in RegPrim is green: everybody of the view has it, or will take it as yellow (AMIR95).
2. Before CPC a replica writes down that it is vulnerable: others may install the next primary on the strength of it. It is
   free when a view tells what came of the attempt (votes.py). *Un*: all wanted the primary, and nobody knows who has it.
3. A transitional view makes yellow what it delivers. A lost session is no view: vulnerable stays, yellow is dropped (R9).
4. Installing: yellow first, then red by key (R12), all of it synced before anybody hears of it or an application sees it (R6).
5. Who installs without having been told (Un) learns it from an action that was sent in the primary of this view (R10).
6. The exchange waits for members that are behind: all of a view take part in its attempt.
"""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from transis.prsl.actions import Action, ActionId, Lane
from transis.prsl.base import Ordering, plan_of
from transis.prsl.core import Round, Stage
from transis.prsl.exchange import becoming_complete
from transis.prsl.messages import Ack, Attempt, CaughtUp, Posted
from transis.prsl.outputs import JoinGroup, LeaveGroup
from transis.prsl.plan import Plan
from transis.prsl.prefix import Numbers
from transis.prsl.record import fold
from transis.prsl.votes import Knowledge, Primary, Verdict, Voting, Vulnerable, first_voting, judge, knowledge_of

STATES: Final = {
    (Stage.STATES, False): "ExchangeStates",
    (Stage.CONTENT, False): "ExchangeActions",
    (Stage.ATTEMPT, False): "Construct",
    (Stage.ATTEMPT, True): "No",
    (Stage.PRIMARY, False): "RegPrim",
    (Stage.PRIMARY, True): "TransPrim",
}


class Engine(Ordering):
    needs_everybody: ClassVar = True
    _knows_it_is_free = False

    @property
    def _voting(self) -> Voting:
        assert self._core.voting is not None
        return self._core.voting

    def _vote(self, **changes: object) -> None:
        self._core.voting = msgspec.structs.replace(self._voting, **changes)
        self._core.journal.write(self._core.voting)

    def start(self) -> None:
        """All that is in the order is green, since only that gets a place. A new directory writes down where it begins."""
        core = self._core
        if core.voting is None:
            core.voting = first_voting(core.log.green.record)
            core.journal.write(core.voting)
        core.log.advance(core.log.end)
        core.find_number()

    def state(self, round_: Round | None) -> str:
        if round_ is not None and round_.is_over and self._is_wanted_by_all(round_) and round_.stage == Stage.ATTEMPT:
            return "Un"
        return STATES.get((round_.stage, round_.is_over), "NonPrim") if round_ is not None else "NonPrim"

    # --- the end of a view --------------------------------------------------------------------------------------------

    def leave(self, round_: Round) -> None:
        """In Un it stays vulnerable. A primary may end, and an attempt may be cut short, without a transitional view (R8)."""
        if round_.stage == Stage.PRIMARY:
            self._vote(vulnerable=None, yellow=tuple(round_.order))
        elif round_.stage == Stage.ATTEMPT and not self._is_wanted_by_all(round_):
            self._vote(vulnerable=None)

    # --- attempt ------------------------------------------------------------------------------------------------------

    def settle(self, round_: Round) -> bool:
        plan = plan_of(round_)
        known = knowledge_of(self._votings(round_), Numbers(plan.green.numbers))
        if not self._has_all(round_, plan, known.yellow or ()):
            return False
        if plan.behind <= round_.caught_up:
            self._adopt(round_, plan, known)
        return True

    def complete(self, round_: Round) -> None:
        round_.is_behind = False
        self._core.then(round_, lambda: self._core.send(CaughtUp(round_.tag)))

    def caught_up(self, round_: Round, number: int) -> None:
        if round_.stage != Stage.CONTENT or round_.is_over or round_.plan is None:
            return
        round_.caught_up.add(number)
        if round_.plan.behind <= round_.caught_up and not round_.is_behind and not round_.wanted and not round_.wanted_places:
            self.settle(round_)

    def _adopt(self, round_: Round, plan: Plan, known: Knowledge) -> None:
        """What all know together becomes what each knows; then attempt, or wait for somebody."""
        core = self._core
        self._put_in_log(round_, plan, ())
        core.log.advance(core.log.end)
        record = core.log.green.record
        here = frozenset(round_.numbers.intersection(record.members))
        yellow = [core.log.content[action] for action in known.yellow or ()]
        verdict = judge(known, here, record, yellow, core.config.servers_min)
        vulnerable = known.vulnerable[core.number]
        self._vote(primary=known.primary, attempt=known.attempt, yellow=known.yellow, vulnerable=vulnerable)
        if verdict.may_attempt and self._fits(round_, record):
            self._attempt(round_, here)
        else:
            self._wait(round_, verdict)
        core.write_marks()
        self._deliver()

    def _votings(self, round_: Round) -> dict[int, Voting]:
        return {state.number: state.voting for state in round_.states.values() if state.voting is not None}

    def _attempt(self, round_: Round, here: frozenset[int]) -> None:
        """A replica that has left by the green order does not count, and only looks on."""
        core, voting = self._core, self._voting
        round_.attempting = here
        if core.number not in here:
            round_.stage = Stage.MINORITY
            return
        round_.stage = Stage.ATTEMPT
        attempt = voting.attempt + 1
        self._vote(attempt=attempt, vulnerable=Vulnerable(voting.primary.index, attempt, tuple(sorted(here))))
        core.then(round_, lambda: core.send(Attempt(round_.tag), is_safe=True))

    def _wait(self, round_: Round, verdict: Verdict) -> None:
        core = self._core
        round_.stage = Stage.MINORITY
        if not verdict.may_attempt:
            core.why, core.waits_for = verdict.why, verdict.waits_for
        self._send_out(round_)

    def attempt(self, round_: Round, number: int) -> None:
        """In a transitional view too it counts: it tells that others may have installed the primary."""
        round_.attempts.add(number)
        if round_.stage == Stage.ATTEMPT and not round_.is_over and self._is_wanted_by_all(round_):
            line = self._core.log.green.place
            for member in self._members():
                peer = self._core.peer(member)
                peer.line = max(peer.line, line)
            self._install(round_)
            self._core.then(round_, lambda: self._start(round_))
            self._send_out(round_)

    def _is_wanted_by_all(self, round_: Round) -> bool:
        return bool(round_.attempting) and round_.attempting <= round_.attempts

    def _members(self) -> tuple[int, ...]:
        assert self._voting.vulnerable is not None, "a primary is installed by those who attempted it"
        return self._voting.vulnerable.members

    # --- primary ------------------------------------------------------------------------------------------------------

    def _install(self, round_: Round) -> None:
        """Everything that is known gets its place; what was sent since this view was settled comes behind it."""
        core, voting, members = self._core, self._voting, self._members()
        log = core.log
        record = round_.record = log.green.record
        reds = sorted((log.content[action] for action in log.red), key=lambda action: action.sort_key)
        yellow = [log.content[action] for action in voting.yellow or ()]
        known = [*yellow, *(action for action in reds if action.id not in set(voting.yellow or ()))]
        known = known if record.is_founded else [self._founding(round_), *known]
        placed = [action.id for action in known if not self._is_held_back(round_, action, members)]
        core.replace(log.end, placed)
        log.advance(log.end)
        servers = tuple(number for number in members if number in log.green.record.members)
        primary = Primary(voting.primary.index + 1, voting.attempt, members, servers)
        self._vote(primary=primary, attempt=0, yellow=None)
        round_.stage, round_.primary = Stage.PRIMARY, primary.index
        core.write_marks()
        self._deliver()

    def _is_held_back(self, round_: Round, action: Action, servers: tuple[int, ...]) -> bool:
        """A change that leaves nobody of the primary stays red: nobody could ever go on (R28). Otherwise it counts from here."""
        if action.id.lane != Lane.CHANGES:
            return False
        assert round_.record is not None
        after = fold(round_.record, action)
        if after is not round_.record and not set(servers).intersection(after.members):
            return True
        round_.record = after
        return False

    def _start(self, round_: Round) -> None:
        """Only now that the primary is on this disk it is said that there is one."""
        round_.may_acknowledge = True
        self.acknowledge(round_)

    def posted(self, round_: Round, number: int, message: Posted) -> None:
        peer = self._core.peer(number)
        peer.line = max(peer.line, message.line)
        if message.is_primary and self.state(round_) == "Un":
            self._install(round_)
        if round_.stage != Stage.PRIMARY:
            self._exchange.take(round_, message.action)
            return
        log = self._core.log
        for one in becoming_complete(round_, message.action, lambda action: log.knows(action) and action not in log.out):
            self._core.keep(one)
            if not self._is_held_back(round_, one, self._voting.primary.servers):
                self._place(round_, one)
        self._deliver()

    def _place(self, round_: Round, action: Action) -> None:
        """Green in the regular view, yellow behind it. Who leaves counts no more from here, and only from here (R27)."""
        core = self._core
        if round_.is_over:
            round_.order.append(action.id)
            return
        core.append(action.id)
        core.log.advance(core.log.end)
        if action.id.lane == Lane.CHANGES:
            primary, members = self._voting.primary, core.log.green.record.members
            servers = tuple(number for number in primary.servers if number in members)
            self._vote(primary=msgspec.structs.replace(primary, servers=servers))

    def _send(self, round_: Round, action: ActionId) -> None:
        core = self._core
        if core.number in core.log.green.record.members:
            is_primary = round_.stage == Stage.PRIMARY
            round_.acked = core.synced_line
            core.send(Posted(round_.tag, core.log.content[action], round_.acked, is_primary), is_safe=True)

    # --- lines --------------------------------------------------------------------------------------------------------

    def synced(self, round_: Round) -> None:
        """Who posts tells it with each action; who does not, now and then."""
        is_due = self._core.synced_line >= round_.acked + self._core.config.line_stride
        if is_due and round_.may_acknowledge and not round_.is_over:
            self.acknowledge(round_)

    def acknowledge(self, round_: Round) -> None:
        core = self._core
        round_.acked = core.synced_line
        core.send(Ack(round_.tag, round_.acked, round_.acked, core.acked_synced))

    def ack(self, round_: Round, number: int, ack: Ack) -> None:
        """It also says that there is a primary: one without a replica that only looks on, because it has left (R26)."""
        peer = self._core.peer(number)
        peer.line, peer.green = max(peer.line, ack.synced), max(peer.green, ack.green)
        peer.acked = max(peer.acked, ack.acked)
        if number in round_.attempting and self._core.number not in round_.attempting:
            self._knows_it_is_free = True
        self._deliver()

    def is_free(self, left_at: int) -> bool:
        return self._knows_it_is_free

    def look_on(self) -> None:
        """Its LEAVE is green in the primary: the next one is without it, and it hears of that from outside (R26)."""
        core, round_ = self._core, self._core.round
        if round_ is not None and not round_.is_over and round_.stage == Stage.PRIMARY:
            core.round = None
            core.outputs += [LeaveGroup("this replica was removed, and waits until the others know"), JoinGroup()]
