"""EVS 2.2, structure, agreement on views.

EVS 2.2: an event belongs to the configuration in force; a node is a member of every configuration it installs.

What an event claims (`conf`, `regular`) is held against the last CONF before it, and nothing follows an END.

The structure of configurations at each node: regular, then (transitional, regular) again and again (protocols 2.2).

1. The first configuration of a life is regular and says that its node comes from nowhere.
2. A transitional configuration names the regular one it follows; all its members come from there.
3. Its members are those of the next regular configuration whose previous regular one was the same (W13).
4. Ring sequences grow; the representative is a member; members are sorted, each once.

Agreement on views: one id means one configuration, with the same members, origins and cause wherever it is installed.

Without it every other property speaks about different things under one name.
"""

from __future__ import annotations

from transis.audit.guarantees.history import LaidHistory, Life, Stay
from transis.audit.guarantees.property import Findings, several
from transis.trace.events import Conf, Delivery
from transis.types.ids import ViewId, ViewKind
from transis.types.views import View

# --- configuration ----------------------------------------------------------------------------------------------------


def check_configuration(history: LaidHistory, findings: Findings) -> None:
    for life in history.lives:
        for conf in life.confs:
            _member(life, conf, findings)
        for stay in life.stays:
            _claims(stay, findings)
        for event in life.homeless:
            findings.broken(f"{life.node} delivered a message before it installed any configuration", ((life.node, event.lseq),))
        if life.afterwards and life.end is not None:
            findings.broken(
                f"{life.node} has {len(life.afterwards)} events after its end",
                ((life.node, life.end.lseq), (life.node, life.afterwards[0].lseq)),
            )


def _member(life: Life, conf: Conf, findings: Findings) -> None:
    findings.checked += 1
    if life.node not in conf.view.nodes:
        findings.broken(f"{life.node} installed {conf.view.id}, of which it is no member", ((life.node, conf.lseq),))


def _claims(stay: Stay, findings: Findings) -> None:
    line = stay.all
    findings.checked += sum(run.count for run in line.runs) + sum(origin.sent.count for origin in stay.origins)
    if not stay.whole:
        findings.pending += 1
        return
    regular = stay.ring
    transitional = regular if stay.trans is None else stay.trans.view.id
    wrong = [run for run in line.runs[: line.run_cut] if run.regular != regular or run.conf != regular]
    wrong += [run for run in line.runs[line.run_cut :] if run.regular != regular or run.conf != transitional]
    for run in wrong:
        _wrong_delivery(stay, run, findings)
    for origin in stay.origins:
        if origin.sent.conf != regular:
            findings.broken(
                f"{stay.node} claims to have sent in {origin.sent.conf} while {regular} was in force",
                ((stay.node, stay.conf.lseq), (stay.node, origin.sent.lseq)),
            )


def _wrong_delivery(stay: Stay, run: Delivery, findings: Findings) -> None:
    in_force: ViewId = stay.ring
    lseq = stay.conf.lseq
    if stay.trans is not None and stay.trans.lseq < run.lseq:
        in_force, lseq = stay.trans.view.id, stay.trans.lseq
    findings.broken(
        f"{stay.node} claims to have delivered {run.process}:{run.first} in {run.conf} of {run.regular} "
        f"while {in_force} was in force",
        ((stay.node, lseq), (stay.node, run.lseq)),
    )


# --- structure --------------------------------------------------------------------------------------------------------


def check_structure(history: LaidHistory, findings: Findings) -> None:
    for life in history.lives:
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


# --- agreement on views -----------------------------------------------------------------------------------------------


def check_agreement_on_views(history: LaidHistory, findings: Findings) -> None:
    first: dict[ViewId, tuple[Life, Conf]] = {}
    for life in history.lives:
        for conf in life.confs:
            findings.checked += 1
            known_life, known = first.setdefault(conf.view.id, (life, conf))
            difference = _difference(known.view, conf.view)
            if difference:
                findings.broken(
                    f"{known_life.node} and {life.node} installed {conf.view.id} with different {difference}",
                    ((known_life.node, known.lseq), (life.node, conf.lseq)),
                )


def _difference(left: View, right: View) -> str:
    if left is right:
        return ""
    if left.nodes != right.nodes:
        return f"members: {several(left.nodes)} against {several(right.nodes)}"
    if left.members != right.members:
        return "previous views, addresses or info of members"
    if left.regular != right.regular:
        return f"regular configurations before it: {left.regular} against {right.regular}"
    if left.cause != right.cause:
        return f"causes: {left.cause} against {right.cause}"
    return ""
