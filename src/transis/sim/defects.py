"""Engines broken on purpose: what the simulator must catch, or it is too tame.

A defect changes the text of one or several source files, a line or two each. The change is applied to the code objects of the
running process, so that the engine itself carries no switch for it; the old text must occur exactly once, or the defect is out
of date and says so. The defects of Lansis are what papers and first drafts got wrong, or what a hurried reader would leave out.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Final, NamedTuple

from transis.types.config import ENGINES
from transis.types.errors import UsageError

# --- defect -----------------------------------------------------------------------------------------------------------


class Edit(NamedTuple):
    """`module` is named within the package. The node has loaded it; the simulator itself must not import it."""

    module: str
    old: str
    new: str


class Defect(NamedTuple):
    why: str
    changes: tuple[Edit, ...]
    harmless: str = ""
    """Why the change breaks nothing, though it looks like a defect; empty if it breaks something."""

    @property
    def engines(self) -> tuple[str, ...]:
        """The engines whose rooms it changes; all of them if it changes none."""
        rooms = {change.module.partition(".")[0] for change in self.changes}
        return tuple(engine for engine in ENGINES if engine in rooms) or ENGINES


# --- lansis defects ---------------------------------------------------------------------------------------------------

LANSIS_DEFECTS: Final[dict[str, Defect]] = {
    "fa_echo_unconditional": Defect(
        "every statement is answered with one's own, whether it says anything new or not (F11)",
        (Edit("lansis.membership", "        if opinion in GROWN:\n", "        if opinion is not Opinion.DROPPED:\n"),),
    ),
    "no_limbo": Defect(
        "a member that installs delivers all that it holds of the old view, not only what the statements name",
        (Edit("lansis.flush", "pre = [parting.pre[node] for node in old.members]", "pre = list(old.dag.inserted)"),),
    ),
    "late_fa": Defect(
        "a statement about a view already left counts in the view after it (F12)",
        (Edit("lansis.membership", "            core.trap(Trap.LATE_FA)\n", "            return True\n"),),
    ),
    "views_from_assent": Defect(
        "a view is installed as soon as all have stated the same sets, as the paper has it, without a flush (W18)",
        (
            Edit(
                "lansis.flush",
                "        self._ask()\n        self._try_to_flush()\n",
                "        self._installation.install(proposal)\n",
            ),
        ),
    ),
    "gc_in_join": Defect(
        "stable messages are collected even while views change (L7)",
        (
            Edit(
                "lansis.operational",
                "            self._core.trap(Trap.LATE_DATA_WHILE_FROZEN)\n",
                "            dag = self._core.view.dag\n"
                "            if dag.collect(self._core.view.stability.stable):\n"
                '                self._core.note("collected while views change")\n',
            ),
            Edit(
                "lansis.operational",
                "        self._repair.look()\n\n    def send_due",
                "        self._repair.look()\n"
                "        if self._core.view.dag.collect(self._core.view.stability.stable):\n"
                '            self._core.note("collected while views change")\n\n    def send_due',
            ),
        ),
        harmless="what is stable is in every statement of every member, was delivered here, and strangers need no old data",
    ),
    "acks_after_fa": Defect(
        "a member that has made a statement goes on acknowledging, and is believed (W2)",
        (
            Edit(
                "lansis.alive",
                "        recv = tuple(view.dag.inserted) if frozen is None else frozen.recv\n"
                "        clock = core.clock if frozen is None else frozen.clock\n",
                "        recv, clock = tuple(view.dag.inserted), core.clock\n",
            ),
            Edit("lansis.stability", "        self._closed.add(member)\n", "        pass\n"),
        ),
    ),
    "no_flush": Defect(
        "FLUSHED is sent at once, whether all of Pre is held or not (W18)",
        (
            Edit(
                "lansis.flush",
                "if barrier.flushed is proposal or not core.view.dag.holds_all(self._pre):",
                "if barrier.flushed is proposal:",
            ),
        ),
    ),
    "any_flushed_installs": Defect(
        "a member installs any view that it ever flushed, whatever it has flushed since (M7)",
        (
            Edit(
                "lansis.membership",
                "        self.flushed = self.assented\n",
                '        self.flushed = self.assented\n        self.__dict__.setdefault("all", []).append(self.flushed)\n',
            ),
            Edit(
                "lansis.membership",
                "return self.flushed if self.flushed is not None and tag == self.flushed.tag else None",
                'return next((one for one in self.__dict__.get("all", ()) if one.tag == tag), None)',
            ),
        ),
    ),
    "causal_when_inserted": Defect(
        "a causal message is delivered as soon as it is in the DAG, whatever ordered messages its sender had delivered (W5)",
        (
            Edit(
                "lansis.orders",
                "        if not by_dep or by_dep[0][0] > frontier:\n            return []\n        ready = []\n"
                "        while by_dep and by_dep[0][0] <= frontier:\n",
                "        ready = []\n        while by_dep:\n",
            ),
        ),
    ),
    "no_fence": Defect(
        "joins and leaves are agreed messages like others, to which causal ones have no relation (P15)",
        (Edit("lansis.sending", "return FENCE if has_control and", "return 0 if has_control and"),),
    ),
    "fence_passes_early": Defect(
        "a join takes effect when everybody has it, though what was sent before it may still be on its way (P15)",
        (
            Edit(
                "lansis.delivery",
                "return stability.is_stable(node) and stability.all_else_follows(node)",
                "return stability.is_stable(node)",
            ),
        ),
    ),
    "fence_not_followed": Defect(
        "a causal message does not wait for a join that its sender had, but had not delivered (P15)",
        (Edit("lansis.orders", "if node.follows(fence)]", "if False]"),),
    ),
    "own_d": Defect(
        "a member that installs delivers in the regular view what it had delivered itself, not what others had",
        (
            Edit(
                "lansis.flush",
                "finish(pre, parting.delivered, Phase.REGULAR)",
                "finish(pre, old.order.frontier, Phase.REGULAR)",
            ),
        ),
    ),
    "promise_without_holding": Defect(
        "the clock of an ALIVE counts before everything that its sender had sent has arrived",
        (Edit("lansis.orders", "        if self._held[member] >= claim[0]:\n", "        if True:\n"),),
    ),
    "outsider_fails_us": Defect(
        "strangers make a machine accuse members of its own view (trap 18)",
        (Edit("lansis.statements", "return said.f if said.sender in self.ccs else said.f - self.ccs", "return said.f"),),
    ),
    "toto_at_least": Defect(
        "under ToTo half of the votes beat a candidate, not more than half",
        (Edit("lansis.toto", "return 2 * wins(one, other) > members", "return 2 * wins(one, other) >= members"),),
    ),
    "toto_star_equal": Defect(
        "under ToTo a member that has not voted counts as if it could never vote otherwise",
        (
            Edit(
                "lansis.toto",
                "return 2 * (len(cast) - wins(one, other)) < members",
                "return 2 * (members - wins(one, other)) < members",
            ),
        ),
    ),
    "transis_moves_after_flushed": Defect(
        "in the mode transis the view that ends goes on at a machine that has said FLUSHED (S11)",
        (
            Edit(
                "lansis.membership",
                "return core.state in (State.FAULTS, State.STAGE_2) and self.is_free and",
                "return core.state in (State.FAULTS, State.STAGE_2) and",
            ),
        ),
    ),
    "transis_step_unsaid": Defect(
        "in the mode transis a machine goes on in the view that ends and makes no statement that says so (S3)",
        (Edit("lansis.transis_mode", "            self._membership.restate()\n", "            self._delivery.go_on()\n"),),
    ),
    "transis_part_claimed": Defect(
        "in the mode transis a part of a message is claimed in the view that ends, and its rest in the next (S4)",
        (Edit("lansis.sending", "if flow.is_end), default=0)", "), default=0)"),),
    ),
}


# --- broken -----------------------------------------------------------------------------------------------------------

GROUP_DEFECTS: Final[dict[str, Defect]] = {
    "requests_of_the_lost": Defect(
        "in a transitional configuration, joins of processes whose node is lost take effect (trap 2)",
        (
            Edit(
                "groups.layer",
                "if self._transitional is not None and process.node not in self._transitional.nodes:",
                "if False:",
            ),
        ),
    ),
    "one_id_for_two_sides": Defect(
        "sides that lose members before they have exchanged give their transitional views one id",
        (Edit("groups.layer", "if self._exchange is None or group.in_force is None:", "if True:"),),
    ),
    "lane_opened_early": Defect(
        "applications may send before the exchange is complete, when nobody knows yet whom their messages are for (trap 40)",
        (
            Edit(
                "groups.layer",
                "            self._exchange = Exchange(view, self._identify)\n",
                "            self._exchange = Exchange(view, self._identify); self._out.append(Settled(view.id))\n",
            ),
        ),
    ),
    "lists_unheard": Defect(
        "a node judges by its own quorum list, whatever the others have",
        (
            Edit(
                "groups.quorum",
                "primary = judge(lists, nodes)",
                "return QuorumVerdict(judge([self._own], nodes))",
            ),
        ),
    ),
    "new_list_alone": Defect(
        "while a quorum list is being changed, a majority of the new list is enough",
        (
            Edit(
                "groups.quorum",
                "for one in lists for names in (one.names, one.before) if names",
                "for one in lists for names in (one.names,) if names",
            ),
        ),
    ),
    "quorum_not_awaited": Defect(
        "without a quorum messages are sent and delivered, although settings say that applications wait for one",
        (
            Edit("node.node", "self._to_open = None if self._held else settled.view", "self._to_open = settled.view"),
            Edit("groups.layer", "        if self._held:\n", "        if False:\n"),
        ),
    ),
    "waits_alone": Defect(
        "a node waits for a quorum by its own settings, whatever those of the other members say",
        (Edit("groups.quorum", "any(one.holds for one in self._members.values())", "self._own.holds"),),
    ),
    "everybody_is_told": Defect(
        "a configuration shows every group a view, even groups to which nothing happened",
        (Edit("groups.table", "if group.transitional is None and not joined and not left:", "if False:"),),
    ),
    "origins_stay_regular": Defect(
        "members of a transitional view go on as if they came from the regular one, and pass for members that never parted",
        (Edit("groups.table", "                self.members[member] = view.id\n", "                pass\n"),),
    ),
}
"""Defects of the groups: only nodes with groups can go wrong this way."""

TOTEM_DEFECTS: Final[dict[str, Defect]] = {
    "safe_one_rotation_early": Defect(
        "a safe message is delivered after one rotation with aru above it instead of two (TOCS95 4.3)",
        (Edit("totem.visit", "min(ring.last_aru_sent, token.aru)", "token.aru"),),
    ),
    "after_gap_from_anyone": Defect(
        "behind the first gap, messages of lost members are delivered too (1.8 step C)",
        (Edit("totem.recovery", "if not gap or old.members[burst.sender] in self._deliver_memb:", "if True:"),),
    ),
    "transitional_only_deliver_memb": Defect(
        "after the transitional view only my_deliver_memb's messages are delivered, as the paper's text has it (F1)",
        (Edit("totem.recovery", "if not gap or old.members[burst.sender]", "if old.members[burst.sender]"),),
    ),
    "obligations_off": Defect(
        "a node that acknowledged an exchange owes nothing later, and the fail set is cleared on re-entering Gather (F3)",
        (
            Edit("totem.recovery", "self.obligation |= self._deliver_memb", "pass"),
            Edit("totem.gather", "        core.forming = None\n", "        core.forming = None\n        self.fail_set.clear()\n"),
        ),
    ),
    "rotations_not_told_apart": Defect(
        "a repeated first-rotation commit token is taken for the second rotation (F2)",
        (
            Edit("totem.engine", "if packet.rotation == 1 else", "if self._core.state is State.GATHER else"),
            Edit(
                "totem.commit",
                "            return False\n        return all(entry.filled",
                "            return True\n        return True or all(entry.filled",
            ),
        ),
    ),
    "obligation_of_trans_memb": Defect(
        "the obligation grows by my_trans_memb instead of my_deliver_memb (W3)",
        (
            Edit(
                "totem.recovery",
                "self.obligation |= self._deliver_memb",
                "self.obligation |= frozenset(entry.node for entry in self._trans_memb)",
            ),
        ),
    ),
    "incarnation_not_durable": Defect(
        "the node runs before its incarnation is on disk (C4)",
        (
            Edit(
                "node.node",
                'self._out.append(Persist(IDENTITY_TICKET, "incarnation", self.id.incarnation))',
                'self._out.append(Persist(IDENTITY_TICKET, "incarnation", self.id.incarnation)); self._identity.durable(now)',
            ),
        ),
    ),
    "floor_before_minimum": Defect(
        "the floor of one datagram is applied to the share only, before the minimum with the window (W4)",
        (Edit("totem.visit", "return min(max(1, fair), hard_cap)", "return max(0, min(fair, hard_cap))"),),
    ),
    "fragments_kept_across_views": Defect(
        "partial messages survive a regular view, at the sender and at the receivers (trap 1)",
        (
            Edit("node.node", "            self._assembler.reset()\n", ""),
            Edit("totem.recovery", "if core.outbox.restart():", "if False:"),
            Edit("lansis.flush", "if core.outbox.restart((Lane.CONTROL,) if core.flowed else tuple(Lane)):", "if False:"),
        ),
    ),
}

SHARED_DEFECTS: Final[dict[str, Defect]] = {
    "skips_messages": Defect(
        "the first run of every 64th burst is not delivered, which a follower of digests must notice",
        (
            Edit(
                "wire.reassembly",
                "        return [] if visit is None else self._feed_visit(visit, context)\n",
                "        found = [] if visit is None else self._feed_visit(visit, context)\n"
                "        self.rejections['fed'] += bool(found)\n"
                "        skips = found and not self.rejections['fed'] % 64 and found[0].process.number < 1 << 31\n"
                "        return found[1:] if skips else found\n",
            ),
        ),
    ),
}
"""Defects outside the engines: any node can go wrong this way."""

DEFECTS: Final = SHARED_DEFECTS | TOTEM_DEFECTS | LANSIS_DEFECTS | GROUP_DEFECTS


def defects_of(engine: str) -> dict[str, Defect]:
    """The defects that an engine can have."""
    return {name: defect for name, defect in DEFECTS.items() if engine in defect.engines}


@contextmanager
def broken_engine(name: str) -> Iterator[None]:
    """Run with the named defect; an empty name changes nothing. The sound engine is back afterwards."""
    if not name:
        yield
        return
    if name not in DEFECTS:
        raise UsageError(f"no defect is called {name!r}; known are {', '.join(DEFECTS)}")
    with changed(DEFECTS[name].changes):
        yield


@contextmanager
def changed(changes: Iterable[Edit]) -> Iterator[None]:
    """Run with these edits of the source."""
    sound: list[tuple[FunctionType, CodeType]] = []
    try:
        for edit in changes:
            sound += _apply(edit)
        yield
    finally:
        for function, code in reversed(sound):
            function.__code__ = code


def _apply(change: Edit) -> list[tuple[FunctionType, CodeType]]:
    """Swap the code of every function of the module that compiles differently from the changed text."""
    module = sys.modules[f"transis.{change.module}"]
    source = inspect.getsource(module)
    if source.count(change.old) != 1:
        raise UsageError(f"the defect is out of date: {change.old!r} occurs {source.count(change.old)} times in {change.module}")
    changed_line = source[: source.index(change.old)].count("\n") + 1
    tree = ast.parse(source.replace(change.old, change.new))
    qualname = _enclosing(tree, changed_line)
    function = _lookup(vars(module), qualname)
    namespace: dict[str, object] = dict(vars(module))
    exec(compile(tree, inspect.getfile(module), "exec"), namespace)
    broken = _lookup(namespace, qualname)
    before = function.__code__
    function.__code__ = broken.__code__
    return [(function, before)]


def _enclosing(tree: ast.Module, line: int) -> tuple[str, ...]:
    """The qualified name of the function around a line: at most one class deep, as the engine is written."""
    for outer in tree.body:
        if isinstance(outer, ast.FunctionDef) and outer.lineno <= line <= (outer.end_lineno or 0):
            return (outer.name,)
        if isinstance(outer, ast.ClassDef):
            for inner in outer.body:
                if isinstance(inner, ast.FunctionDef) and inner.lineno <= line <= (inner.end_lineno or 0):
                    return (outer.name, inner.name)
    raise UsageError(f"line {line} is in no function")


def _lookup(namespace: Mapping[str, object], qualname: tuple[str, ...]) -> FunctionType:
    found = namespace[qualname[0]]
    for part in qualname[1:]:
        found = vars(found)[part]
    assert isinstance(found, FunctionType)
    return found
