"""The ordering engine broken on purpose, as its papers have it or as a first draft had it (defects.py has those of corel)."""

from __future__ import annotations

from typing import Final

from transis.sim.defects import Defect, Edit

ENGINE_DEFECTS: Final[dict[str, Defect]] = {
    "bits_never_set": Defect(
        "F14: those who are in doubt never learn that all of them are",
        (
            Edit(
                "prsl.votes",
                "            asked |= {number, *other.asked}\n",
                "            asked |= {*other.asked}\n",
            ),
        ),
    ),
    "yellow_skipped": Defect(
        "what is delivered in the transitional view of a primary is red like anything else",
        (Edit("prsl.engine", "yellow=tuple(round_.order))", "yellow=())"),),
    ),
    "cpc_before_sync": Defect(
        "CPC is said before this replica has written down that it is vulnerable",
        (
            Edit(
                "prsl.engine",
                "        core.then(round_, lambda: core.send(Attempt(round_.tag), is_safe=True))\n",
                "        core.send(Attempt(round_.tag), is_safe=True)\n",
            ),
        ),
    ),
    "records_without_set": Defect(
        "R13: two attempts of one number are taken for one, though different replicas made them, and compared only once",
        (
            Edit(
                "prsl.votes",
                "mine == (other.index, other.attempt, other.members)",
                "mine[:2] == (other.index, other.attempt)",
            ),
            Edit("prsl.votes", "        if found == before:\n            return found\n", "        return found\n"),
        ),
    ),
    "engine_reds_by_id": Defect(
        "R12: red actions become green by id, not by key",
        (
            Edit(
                "prsl.engine",
                "sorted((log.content[action] for action in log.red), key=lambda action: action.sort_key)",
                "sorted((log.content[action] for action in log.red), key=lambda action: action.id)",
            ),
        ),
    ),
    "lost_session_as_transition": Defect(
        "R9: a lost session ends the view like a transitional one",
        (
            Edit(
                "prsl.machine",
                "        self._core.round = None\n        self._core.cap_lines()\n",
                "        if self._core.round is not None and self._core.voting is not None:\n"
                "            self._core.round.is_over = True\n"
                "            self._ordering.leave(self._core.round)\n"
                "        self._core.round = None\n        self._core.cap_lines()\n",
            ),
        ),
    ),
    "line_from_memory": Defect(
        "R11: a replica tells how much of the order it has in memory, not on its disk",
        (
            Edit(
                "prsl.engine",
                "            round_.acked = core.synced_line\n",
                "            round_.acked = core.log.green.place\n",
            ),
        ),
    ),
    "line_of_all": Defect(
        "R11: whoever installs takes it that all replicas have what its view has",
        (
            Edit(
                "prsl.engine",
                "            for member in self._members():\n",
                "            for member in self._core.log.green.record.members:\n",
            ),
        ),
    ),
    "any_half": Defect(
        "half of the last primary is enough, without the distinguished one",
        (
            Edit(
                "prsl.votes",
                "    return 2 * len(present) > len(servers) or (bool(present) and "
                "2 * len(present) == len(servers) and min(servers) in present)\n",
                "    return bool(present) and 2 * len(present) >= len(servers)\n",
            ),
        ),
    ),
    "nobody_vulnerable": Defect(
        "R14: any quorum goes on, whoever is in doubt",
        (Edit("prsl.votes", "    if doubts:\n", "    if False:\n"),),
    ),
    "green_leave_shrinks_any_primary": Defect(
        "R27: who has left by the green order is out of the servers of any primary, however it got green",
        (
            Edit(
                "prsl.votes",
                "    servers = frozenset(primary.servers)\n    yield servers\n",
                "    servers = frozenset(primary.servers) & frozenset(record.members)\n    yield servers\n",
            ),
        ),
    ),
    "yellow_leave_ignored": Defect(
        "R27: who has left by a yellow action counts as if it were there",
        (Edit("prsl.votes", "    made = configurations(record, yellow)\n", "    made = configurations(record, ())\n"),),
    ),
    "last_may_leave": Defect(
        "R28: a LEAVE becomes green though it leaves nobody of the primary",
        (
            Edit(
                "prsl.engine",
                "        if after is not round_.record and not set(servers).intersection(after.members):\n",
                "        if False:\n",
            ),
        ),
    ),
    "cleared_by_servers": Defect(
        "R31: who left the primary's servers since it was installed is taken for one that did not install it",
        (
            Edit(
                "prsl.votes",
                "number not in primary.members\n",
                "number not in primary.servers\n",
            ),
        ),
    ),
    "doubt_of_the_last_only": Defect(
        "R34: who did not belong to the last primary is not in doubt about an attempt behind it",
        (Edit("prsl.votes", "    is_past = one.index < primary.index and ", "    is_past = "),),
    ),
    "free_at_once": Defect(
        "R26: who was removed is gone before a primary without it is known",
        (Edit("prsl.engine", "        return self._knows_it_is_free\n", "        return True\n"),),
    ),
    "engine_green_before_sync": Defect(
        "R6: what is green is delivered before it is synced here",
        (
            Edit(
                "prsl.delivery",
                "        ready = min(core.log.green.place, core.journal.durable)\n",
                "        ready = core.log.green.place\n",
            ),
        ),
    ),
    "engine_state_before_sync": Defect(
        "STATE is said before what it tells is synced",
        (Edit("prsl.exchange", "        core.then(round_, lambda: core.send(state))\n", "        core.send(state)\n"),),
    ),
    "not_safe": Defect(
        "actions and CPC are agreed, and not safe",
        (
            Edit(
                "prsl.core",
                "        self.outputs.append(Multicast(encode(message), is_safe))\n",
                "        self.outputs.append(Multicast(encode(message)))\n",
            ),
        ),
    ),
}
