"""Deliberate defects of Lansis: what papers and first drafts had wrong, or what a hurried reader would leave out."""

from __future__ import annotations

from typing import Final

from transis.sim.defect import Change, Defect

LANSIS_DEFECTS: Final[dict[str, Defect]] = {
    "fa_echo_unconditional": Defect(
        "every statement is answered by one of one's own, whether it says anything new or not (F11)",
        (Change("lansis.agreeing", "        if verdict in GROWN:\n", "        if verdict is not Verdict.DROPPED:\n"),),
    ),
    "no_limbo": Defect(
        "who installs delivers all that it holds of the old view, instead of what the statements name",
        (Change("lansis.install", "pre = [parting.pre[node] for node in old.members]", "pre = list(old.graph.inserted)"),),
    ),
    "late_fa": Defect(
        "a statement about a view that was left already counts in the view after it (F12)",
        (Change("lansis.agreeing", "            core.trap(Trap.LATE_FA)\n", "            return True\n"),),
    ),
    "views_from_assent": Defect(
        "a view is installed as soon as all have stated the same sets, as the paper has it, without a flush (W18)",
        (
            Change(
                "lansis.flush",
                "        self._ask()\n        self._try_to_flush()\n",
                "        self._installing.install(proposal)\n",
            ),
        ),
    ),
    "gc_in_join": Defect(
        "what is stable is collected also while views change (L7)",
        (
            Change(
                "lansis.operational",
                "            self._core.trap(Trap.LATE_DATA_WHILE_FROZEN)\n",
                "            graph = self._core.view.graph\n"
                "            if graph.collect(self._core.view.stability.stable):\n"
                '                self._core.note("collected while views change")\n',
            ),
            Change(
                "lansis.operational",
                "        self._repair.look()\n\n    def send_due",
                "        self._repair.look()\n"
                "        if self._core.view.graph.collect(self._core.view.stability.stable):\n"
                '            self._core.note("collected while views change")\n\n    def send_due',
            ),
        ),
        harmless="what is stable is in every statement of every member, was delivered here, and strangers need no old data",
    ),
    "acks_after_fa": Defect(
        "who has stated goes on to acknowledge, and is believed (W2)",
        (
            Change(
                "lansis.alive",
                "        recv = tuple(view.graph.inserted) if frozen is None else frozen.recv\n"
                "        clock = core.clock if frozen is None else frozen.clock\n",
                "        recv, clock = tuple(view.graph.inserted), core.clock\n",
            ),
            Change("lansis.stability", "        self._closed.add(member)\n", "        pass\n"),
        ),
    ),
    "no_flush": Defect(
        "FLUSHED is said at once, whether all of Pre is held or not (W18)",
        (
            Change(
                "lansis.flush",
                "if barrier.flushed is proposal or not core.view.graph.holds_all(self._pre):",
                "if barrier.flushed is proposal:",
            ),
        ),
    ),
    "any_flushed_installs": Defect(
        "who hears of a view installs it if it ever flushed it, whatever it flushed since (M7)",
        (
            Change(
                "lansis.barrier",
                "        self.flushed = self.assented\n",
                '        self.flushed = self.assented\n        self.__dict__.setdefault("all", []).append(self.flushed)\n',
            ),
            Change(
                "lansis.barrier",
                "return self.flushed if self.flushed is not None and tag == self.flushed.tag else None",
                'return next((one for one in self.__dict__.get("all", ()) if one.tag == tag), None)',
            ),
        ),
    ),
    "causal_when_inserted": Defect(
        "a causal message leaves as soon as it is in the DAG, whatever ordered ones its sender had delivered (W5)",
        (
            Change(
                "lansis.rules.causal",
                "        if not by_dep or by_dep[0][0] > frontier:\n            return []\n        ready = []\n"
                "        while by_dep and by_dep[0][0] <= frontier:\n",
                "        ready = []\n        while by_dep:\n",
            ),
        ),
    ),
    "own_d": Defect(
        "who installs delivers in the regular view what it had delivered itself, not what others had",
        (
            Change(
                "lansis.install",
                "finish(pre, parting.delivered, Phase.REGULAR)",
                "finish(pre, old.order.frontier, Phase.REGULAR)",
            ),
        ),
    ),
    "promise_without_holding": Defect(
        "the clock of an ALIVE counts before all that its sender had sent is here",
        (Change("lansis.rules.allack", "        if self._held[member] >= claim[0]:\n", "        if True:\n"),),
    ),
    "outsider_fails_us": Defect(
        "strangers make a machine accuse members of its own view (trap 18)",
        (Change("lansis.statements", "return said.f if said.sender in self.ccs else said.f - self.ccs", "return said.f"),),
    ),
    "toto_at_least": Defect(
        "under ToTo a candidate is beaten by half of the votes, not by more than half",
        (Change("lansis.rules.toto", "return 2 * wins(one, other) > members", "return 2 * wins(one, other) >= members"),),
    ),
    "toto_star_equal": Defect(
        "under ToTo who has not voted counts as one who never will vote otherwise",
        (
            Change(
                "lansis.rules.toto",
                "return 2 * (len(cast) - wins(one, other)) < members",
                "return 2 * (members - wins(one, other)) < members",
            ),
        ),
    ),
}
