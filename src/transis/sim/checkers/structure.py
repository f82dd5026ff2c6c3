"""The structure of configurations at each node: regular, then (transitional, regular) again and again (protocols 2.2).

1. The first configuration of a life is regular and says that its node comes from nowhere.
2. A transitional configuration names the regular one it follows; all its members come from there.
3. Its members are those of the next regular configuration whose previous regular one was the same (W13).
4. Ring sequences grow; the representative is a member; members are sorted, each once.
"""

from __future__ import annotations

from transis.sim.checkers.index import Index, Life
from transis.sim.checkers.verdict import Findings
from transis.sim.checkers.words import several
from transis.trace.events import Conf
from transis.types.ids import ViewId, ViewKind
from transis.types.views import View


def check_structure(index: Index, findings: Findings) -> None:
    for life in index.lives:
        findings.checked += len(life.confs)
        findings.pending += len(life.unlinked)
        before: Conf | None = None
        regular: ViewId | None = None
        for conf in life.confs:
            _complain(life, conf, None, _own_fault(conf.view), findings)
            if conf not in life.unlinked:
                _complain(life, conf, before, _fault_after(life, before, conf.view, regular), findings)
            before = conf
            if conf.view.id.is_regular:
                regular = conf.view.id


def _fault_after(life: Life, before: Conf | None, view: View, regular: ViewId | None) -> str:
    return _first_fault(life, view) if before is None else _link_fault(life, before.view, view, regular)


def _complain(life: Life, conf: Conf, before: Conf | None, fault: str, findings: Findings) -> None:
    if fault:
        witness = ((life.node, conf.lseq),)
        findings.broken(
            f"{life.node} installed {conf.view.id}: {fault}",
            witness if before is None else ((life.node, before.lseq), *witness),
        )


def _first_fault(life: Life, view: View) -> str:
    if view.id.kind is not ViewKind.REGULAR:
        return "the first configuration of a life cannot be transitional"
    return _previous_fault(life, view, None)


def _own_fault(view: View) -> str:
    """What is wrong with a view whatever came before it."""
    nodes = view.nodes
    if list(nodes) != sorted(set(nodes)):
        return "its members are not sorted, or one is there twice"
    if view.id.rep not in nodes:
        return "its representative is no member"
    if view.id.kind is ViewKind.REGULAR:
        return "" if view.regular == view.id else f"a regular configuration is its own regular one, not {view.regular}"
    strangers = [member.node for member in view.members if member.previous != view.regular]
    return f"{several(strangers)} did not come from {view.regular}" if strangers else ""


def _link_fault(life: Life, before: View, view: View, regular: ViewId | None) -> str:
    """What is wrong between one configuration and the next."""
    if view.id.kind is ViewKind.TRANSITIONAL:
        if before.id.kind is ViewKind.TRANSITIONAL:
            return f"it follows another transitional configuration, {before.id}"
        return "" if view.regular == before.id else f"it says it follows {view.regular}, but {before.id} was in force"
    if before.id.kind is ViewKind.REGULAR:
        return f"no transitional configuration stands between it and {before.id}"
    if regular is not None and (view.id.seq, view.id.rep) <= (regular.seq, regular.rep):
        return f"its ring sequence does not exceed that of {regular}"
    return _transitional_members_fault(before, view) or _previous_fault(life, view, regular)


def _transitional_members_fault(before: View, view: View) -> str:
    together = tuple(member.node for member in view.members if member.previous == before.regular)
    if together == before.nodes:
        return ""
    return f"{several(together)} came from {before.regular}, but the transitional configuration had {several(before.nodes)}"


def _previous_fault(life: Life, view: View, regular: ViewId | None) -> str:
    claimed = [member.previous for member in view.members if member.node == life.node]
    if not claimed or claimed[0] == regular:
        return ""
    return f"it says that {life.node} came from {claimed[0] or 'nowhere'}, but it came from {regular or 'nowhere'}"
