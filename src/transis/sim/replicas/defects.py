"""Replicas broken on purpose: what the simulator, schedules on an abstract group, or worked examples must catch.

A defect changes a line or two of the machine's source (sim/defects.py says how). What the papers or first drafts got wrong, or a
hurried reader would leave out; the number is that of the deviation (docs/replication.md).
"""

from __future__ import annotations

from typing import Final

from transis.sim.defects import Defect, Edit

SYNCED: Final = "        core.then(round_, lambda: core.send(state))\n"

REPLICA_DEFECTS: Final[dict[str, Defect]] = {
    "minimum": Defect(
        "R1: of those who have the last primary the shortest order decides, with acknowledgements of a majority",
        (Edit("prsl.plan", "    longest = max(states", "    longest = min(states"),),
    ),
    "one_attempt": Defect(
        "a primary is committed at the first ATTEMPT",
        (
            Edit(
                "prsl.corel",
                "all(record.has_majority(round_.attempts) for record in round_.counting)",
                "bool(round_.attempts)",
            ),
        ),
    ),
    "ack_before_sync": Defect(
        "an action is acknowledged before it is synced",
        (
            Edit("prsl.corel", "        round_.acked = core.journal.durable\n", "        round_.acked = core.log.end\n"),
            Edit(
                "prsl.corel",
                "            self._core.append(action)\n",
                "            self._core.append(action)\n            self.acknowledge(round_)\n",
            ),
        ),
    ),
    "attempt_before_sync": Defect(
        "ATTEMPT is said before it is synced",
        (
            Edit(
                "prsl.corel",
                "            core.then(round_, lambda: core.send(Attempt(round_.tag)))\n",
                "            core.send(Attempt(round_.tag))\n",
            ),
        ),
    ),
    "state_before_sync": Defect(
        "STATE is said before what it tells is synced",
        (Edit("prsl.exchange", SYNCED, "        core.send(state)\n"),),
    ),
    "adopted_before_content": Defect(
        "R2: what decides is adopted, and told, before its content is here",
        (
            Edit(
                "prsl.exchange",
                "        round_.stage = Stage.CONTENT\n",
                "        round_.stage = Stage.CONTENT\n        core.committed = plan.committed\n        core.write_marks()\n",
            ),
        ),
    ),
    "yellow_in_transition": Defect(
        "R2b: what is delivered in the transitional view gets a place too",
        (
            Edit(
                "prsl.corel",
                "        if round_.is_over or round_.stage <= Stage.CONTENT:\n",
                "        if round_.stage <= Stage.CONTENT:\n",
            ),
            Edit(
                "prsl.corel",
                "        if round_.may_acknowledge and not round_.is_over and",
                "        if round_.may_acknowledge and",
            ),
        ),
    ),
    "incomplete_red": Defect(
        "R4: content goes round by creator, and is kept though what it depends on is not known",
        (
            Edit(
                "prsl.exchange",
                "batches(sorted(mine, key=lambda action: action.sort_key))",
                "batches(sorted(mine, key=lambda action: action.id))",
            ),
            Edit(
                "prsl.exchange",
                "            if is_complete(one, lambda needed: self._is_known(round_, needed)):\n",
                "            if True:\n",
            ),
        ),
    ),
    "green_before_sync": Defect(
        "R6: what is green is delivered before it is synced here",
        (
            Edit(
                "prsl.delivery",
                "        ready = min(core.log.green.place, core.journal.durable)\n",
                "        ready = core.log.green.place\n",
            ),
        ),
    ),
    "reds_by_id": Defect(
        "R12: red actions get their places by id, not by key",
        (
            Edit(
                "prsl.corel",
                "        others = sorted(plan.others, key=lambda action: content[action].sort_key)\n",
                "        others = sorted(plan.others)\n",
            ),
        ),
    ),
    "half_is_a_majority": Defect(
        "half of the replicas count as a majority",
        (
            Edit(
                "prsl.record",
                "        return 2 * here > len(self.members) if self.is_founded",
                "        return 2 * here >= len(self.members) if self.is_founded",
            ),
            Edit("prsl.corel", "        need = len(acks) // 2 + 1 if", "        need = (len(acks) + 1) // 2 if"),
        ),
    ),
    "last_record_alone": Defect(
        "R15: only the configuration that yellow changes make counts, and not the one at the green line",
        (
            Edit(
                "prsl.corel",
                "        is_majority = all(record.has_majority(round_.numbers) for record in round_.counting)\n",
                "        is_majority = round_.counting[-1].has_majority(round_.numbers)\n",
            ),
            Edit(
                "prsl.corel",
                "all(record.has_majority(round_.attempts) for record in round_.counting)",
                "round_.counting[-1].has_majority(round_.attempts)",
            ),
        ),
    ),
    "nothing_held_back": Defect(
        "R15: a change becomes yellow though the view holds no majority of what it makes",
        (
            Edit(
                "prsl.corel",
                "        if after is not round_.record and not after.has_majority(round_.numbers):\n",
                "        if False:\n",
            ),
        ),
    ),
    "hung_stays": Defect(
        "R16: a replica that cannot write stays in the group while an exchange waits for its STATE",
        (
            Edit(
                "prsl.machine",
                "        if is_hung and round_ is not None and (round_.stage in (Stage.STATES, Stage.CONTENT) or waits):\n",
                "        if False:\n",
            ),
            Edit(
                "prsl.machine",
                "        if core.is_hung:\n            self._go_away()",
                "        if False:\n            self._go_away()",
            ),
        ),
    ),
    "lines_not_capped": Defect(
        "R17: what a member acknowledged beyond green counts as stable in the next view",
        (
            Edit(
                "prsl.corel",
                "            peer.line = max(peer.line, min(synced, core.log.green.place))\n",
                "            peer.line = max(peer.line, synced)\n",
            ),
            Edit("prsl.core", "            peer.line = min(peer.line, self.log.green.place)\n", "            pass\n"),
        ),
    ),
    "others_by_what_is_held": Defect(
        "R19: whether a red action is green elsewhere is asked of the own log",
        (
            Edit(
                "prsl.exchange",
                "        plan = round_.plan = make_plan(states, core.config.behind_max)\n",
                "        plan = make_plan(states, core.config.behind_max)\n"
                "        from transis.prsl.messages import ids_of\n"
                "        held = {one for state in states.values() for one in (*state.yellow, "
                "*ids_of(state.red))} - set(plan.tail)\n"
                "        plan = round_.plan = plan._replace(\n"
                "            others=frozenset(one for one in held if one not in core.log.green.numbers)\n"
                "        )\n",
            ),
        ),
    ),
    "primary_with_part": Defect(
        "R20: who catches up takes over the last primary with the first chunk",
        (
            Edit(
                "prsl.catchup",
                "        log.advance(chunk.place + len(ids))\n",
                "        log.advance(chunk.place + len(ids))\n"
                "        if core.round is not None and core.round.plan is not None:\n"
                "            core.committed = max(core.committed, core.round.plan.committed)\n",
            ),
        ),
    ),
    "sequence_by_what_is_held": Defect(
        "R22: whether a delivered action is new is asked of what is held, which may have run ahead",
        (
            Edit(
                "prsl.corel",
                "lambda action: action in seen)",
                "lambda action: action in seen or action in self._core.log.green.numbers)",
            ),
        ),
    ),
    "trimmed_in_exchange": Defect(
        "R23: the log is trimmed between STATE and the end of the exchange",
        (
            Edit(
                "prsl.delivery",
                "        if round_ is not None and round_.stage in (Stage.STATES, Stage.CONTENT):\n            return\n",
                "",
            ),
        ),
    ),
    "keys_without_horizon": Defect(
        "R25: a key that is not remembered runs, however old it is",
        (Edit("prsl.keys", "        if at < self.evicted_to:\n", "        if False:\n"),),
    ),
    "keys_without_order": Defect(
        "R25: a snapshot has the keys in another order, so that another one is dropped first",
        (
            Edit(
                "prsl.keys", "        return tuple(self._known.items())\n", "        return tuple(sorted(self._known.items()))\n"
            ),
        ),
    ),
    "gone_at_once": Defect(
        "R26: who was removed is gone before the others know",
        (
            Edit(
                "prsl.corel",
                "        return 2 * len(knowing) > len(members)\n",
                "        return True\n",
            ),
        ),
    ),
    "other_views_count": Defect(
        "R10: messages that were sent in another view count",
        (Edit("prsl.machine", "        elif message.view == round_.tag:\n", "        else:\n"),),
    ),
    "own_in_the_log_at_once": Defect(
        "R7: in a primary an own action gets its place when it is posted, not when it is delivered",
        (
            Edit(
                "prsl.machine",
                "        if round_ is not None and settled and not round_.is_behind:\n",
                "        if round_ is not None and round_.stage == Stage.PRIMARY and round_.seen is not "
                "None and not round_.is_over:\n"
                "            core.log.came_back(action.id)\n"
                "            round_.seen.add(action.id)\n"
                "            round_.length += 1\n"
                "            core.append(action.id)\n"
                "            core.then(round_, lambda: core.send(Posted(round_.tag, action)))\n"
                "        elif round_ is not None and settled and not round_.is_behind:\n",
            ),
        ),
    ),
    "green_never_beyond": Defect(
        "R20: it is taken for a contradiction that green is longer than the order that decides",
        (
            Edit(
                "prsl.corel",
                "        assert not (is_majority and plan.is_contradicted), ",
                "        assert not plan.is_contradicted, ",
            ),
        ),
    ),
}
