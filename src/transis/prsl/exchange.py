"""The exchange: in each new view replicas tell what they have, and give each other what some lack.

STATE of every member is delivered → a plan (plan.py), the same at all → content goes round → *done*, at the same place of the
group's order for everybody, also for those that are behind. Nothing of the plan is adopted before its content is in the log (R2).

Deviations: R32, the group is founded when all founders are together (record.py). R33, a process in the group that never says its
STATE is no replica, or a dead one that looks alive: when the host says that it is silent, the others go on without it, by an
EXCLUDE at one place of the order. Who is excluded leaves the group and comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from transis.prsl.actions import Action, ActionId, batches
from transis.prsl.core import Core, Round, Stage
from transis.prsl.messages import Exclude, GreenPlaces, Retransmission, State, ranges
from transis.prsl.outputs import JoinGroup, LeaveGroup
from transis.prsl.plan import Plan, make_plan
from transis.prsl.prefix import Numbers
from transis.types.ids import ProcessId


class Exchange:
    def __init__(self, core: Core, settle: Callable[[Round], None]) -> None:
        self._core = core
        self._settle: Final = settle

    def enter(self, round_: Round) -> None:
        """A regular view: own actions that did not come back are told as red ones; then everything is told, when it is synced."""
        core = self._core
        core.cap_lines()
        for action in list(core.log.out):
            core.log.came_back(action)
        core.round = round_
        state = self._state(round_)
        core.then(round_, lambda: core.send(state))

    def _state(self, round_: Round) -> State:
        core, log, config = self._core, self._core.log, self._core.config
        return State(
            round_.tag,
            config.name,
            config.directory,
            config.life,
            core.number,
            core.committed,
            core.attempted,
            tuple(log.ids(log.green.place, log.end)),
            ranges(log.red),
            core.held_from,
            core.acked,
            log.green.base(),
            core.lines(),
            core.voting,
        )

    # --- who is here --------------------------------------------------------------------------------------------------

    def state(self, round_: Round, sender: ProcessId, state: State) -> None:
        if round_.is_over or round_.stage != Stage.STATES or sender not in round_.members or sender in round_.states:
            return
        core = self._core
        round_.states[sender] = state
        if (state.name, state.directory) == (core.config.name, core.config.directory) and state.life > core.config.life:
            core.stop(f"{core.config.name!r} runs again from this directory (life {state.life}): this process is superseded")
            return
        self._begin_if_all(round_)

    def exclude(self, round_: Round, me: ProcessId, message: Exclude) -> None:
        if round_.is_over or round_.stage != Stage.STATES:
            return
        gone = round_.members.intersection(message.processes).difference(round_.states)
        round_.members -= gone
        if me in gone:
            self._come_back("the others did not wait for this replica's state")
            return
        self._begin_if_all(round_)

    def _come_back(self, why: str) -> None:
        if not self._core.is_stopped:
            self._core.round = None
            self._core.outputs += [LeaveGroup(why), JoinGroup()]

    def _begin_if_all(self, round_: Round) -> None:
        if round_.members == set(round_.states) and not self._somebody_is_wrong(round_):
            self._begin(round_)

    def _somebody_is_wrong(self, round_: Round) -> bool:
        """Whether a STATE is not that of a replica. Who is wrong stops and leaves, and the others get a view without it."""
        core = self._core
        best = max(round_.states.values(), key=lambda state: (state.green.place, -state.number)).green.record
        if not best.is_founded and len({state.green.record.entries for state in round_.states.values()}) > 1:
            core.trouble = self._lists(round_)
            return True
        if len({state.voting is None for state in round_.states.values()}) > 1:
            core.trouble = self._orderings(round_)
            return True
        wrong = {
            sender
            for sender, state in round_.states.items()
            if best.number_of(state.name, state.directory) != (state.number or -1)
        }
        mine = (core.config.name, core.config.directory)
        if any((round_.states[sender].name, round_.states[sender].directory) == mine for sender in wrong):
            core.stop(self._refusal(best.is_founded))
        return bool(wrong) or len(round_.numbers) < len(round_.states)

    def _lists(self, round_: Round) -> str:
        told = sorted(
            (state.name, ", ".join(entry.name for entry in state.green.record.entries)) for state in round_.states.values()
        )
        lists = "; ".join(f"{name} has [{names}]" for name, names in told)
        return f"the lists of replicas differ: {lists}. Start them all with the same list"

    def _orderings(self, round_: Round) -> str:
        told = sorted((state.name, "corel" if state.voting is None else "engine") for state in round_.states.values())
        names = "; ".join(f"{name} has {ordering}" for name, ordering in told)
        return f"the orderings of replicas differ: {names}. Start them all with the same one"

    def _refusal(self, is_founded: bool) -> str:
        name = self._core.config.name
        if is_founded and self._core.number:
            return (
                f"a replica {name!r} with another directory is a member: start it from that one. If that is lost, start it "
                "with an empty directory and without a list of replicas, and have it replaced at a member"
            )
        return f"{name!r} with this directory is no replica of this group: add it first, or start it with the group's list"

    # --- content ------------------------------------------------------------------------------------------------------

    def _begin(self, round_: Round) -> None:
        core = self._core
        states = round_.by_number()
        if not self._agrees(states):
            return
        plan = round_.plan = make_plan(states, core.config.behind_max)
        for number, state in states.items():
            peer = core.peer(number)
            peer.line, peer.green = max(peer.line, state.green.place), max(peer.green, state.green.place)
            peer.acked = max(peer.acked, state.acked)
            for other, line in state.lines:
                core.peer(other).line = max(core.peer(other).line, line)
        round_.stage = Stage.CONTENT
        round_.is_behind = core.number in plan.behind
        round_.seen = Numbers(plan.green.numbers)
        round_.wanted, round_.wanted_places = set(plan.wanted), set(plan.places)
        round_.providers = [sender for sender, _ in sorted(self._ahead(round_), key=lambda pair: pair[1])]
        if not self._send_places(round_, plan):
            self._come_back("this replica's disk is damaged: it comes back to tell that it has less")
            return
        self._send_content(round_, plan)
        self._settle_if_done(round_)

    def _agrees(self, states: Mapping[int, State]) -> bool:
        """Two digests of one green place must not differ. Nothing can repair that, so whoever sees it stops."""
        core = self._core
        for state in states.values():
            own = core.digest_at(state.green.place)
            if own is not None and own != state.green.digest:
                core.stop(
                    f"diverged: the first {state.green.place} actions of {state.name!r} are not those of {core.config.name!r}"
                )
                return False
        return not core.is_stopped

    def _ahead(self, round_: Round) -> Iterator[tuple[ProcessId, int]]:
        green = self._core.log.green.place
        yield from ((sender, state.number) for sender, state in round_.states.items() if state.green.place > green)

    def _send_places(self, round_: Round, plan: Plan) -> bool:
        """The places for which one replica was chosen follow each other (plan.py). False if one cannot be read here."""
        log = self._core.log
        mine = [
            place for place, number in plan.places.items() if number == self._core.number and log.base.place <= place < log.end
        ]
        place, end = min(mine, default=0), max(mine, default=-1) + 1
        while place < end:
            batch = self._core.batch(place, end)
            if not batch:
                return False
            self._core.send(GreenPlaces(round_.tag, place, tuple(batch)))
            place += len(batch)
        return True

    def _send_content(self, round_: Round, plan: Plan) -> None:
        """Ascending by key, so that an action comes behind what it depends on, wherever the view ends (R4)."""
        content = self._core.log.content
        mine = [content[action] for action, number in plan.wanted.items() if number == self._core.number and action in content]
        for batch in batches(sorted(mine, key=lambda action: action.sort_key)):
            self._core.send(Retransmission(round_.tag, tuple(batch)))

    def retransmission(self, round_: Round, actions: Iterable[Action]) -> None:
        """Content counts in a transitional view too; it is only not the end of the exchange any more."""
        for action in actions:
            self.take(round_, action)
            round_.wanted.discard(action.id)
        self._settle_if_done(round_)

    def places(self, round_: Round, message: GreenPlaces) -> None:
        if round_.stage != Stage.CONTENT:
            return
        for place, action in enumerate(message.actions, message.place):
            if place in round_.wanted_places:
                round_.greens[place] = action
                round_.wanted_places.discard(place)
        self._settle_if_done(round_)

    def _settle_if_done(self, round_: Round) -> None:
        if round_.stage == Stage.CONTENT and not round_.is_over and not round_.wanted and not round_.wanted_places:
            round_.pending.clear()
            self._settle(round_)

    # --- content without a place ----------------------------------------------------------------------------------------

    def take(self, round_: Round, action: Action) -> None:
        """Keep it as red if everything that it depends on is known; otherwise it waits in memory, and nobody hears of it (R4)."""
        fit = [action]
        while fit:
            one = fit.pop()
            if self._core.log.knows(one.id) and one.id not in self._core.log.out:
                continue
            if is_complete(one, lambda needed: self._is_known(round_, needed)):
                self._core.keep(one)
                fit += round_.take_pending()
            else:
                round_.wait(one)

    def _is_known(self, round_: Round, action: ActionId) -> bool:
        return self._core.log.knows(action) or (round_.seen is not None and action in round_.seen)


def becoming_complete(round_: Round, action: Action, knows: Callable[[ActionId], bool]) -> Iterator[Action]:
    """The action, if it is new and complete, and what waited for it. Who gets one makes it known before the next is asked for."""
    fit = [action]
    while fit:
        one = fit.pop(0)
        if knows(one.id):
            continue
        if not is_complete(one, knows):
            round_.wait(one)
            continue
        yield one
        fit += round_.take_pending()


def is_complete(action: Action, knows: Callable[[ActionId], bool]) -> bool:
    """Whether its creator's action before it, and all that its poster could have seen, are known. Changes need nothing."""
    creator, lane, number = action.id
    if lane:
        return True
    before = number == 1 or knows(ActionId(creator, lane, number - 1))
    return before and all(knows(ActionId(other, lane, highest)) for other, highest in action.deps)
