"""Mutants that forge, drop or misplace configurations and ends. See `mutants.py`."""

from __future__ import annotations

from random import Random

from tests.guarantees.mutants_of_messages import strike
from tests.guarantees.surgery import Draft, Kit
from transis.audit.guarantees.history import Life, Stay
from transis.trace.events import Conf, End
from transis.types.ids import NodeId, Service, ViewId, ViewKind
from transis.types.views import Cause, Member, View

VIEWS = Kit()

GHOST = NodeId("ghost", 1, 1)
"""A node that never lived; its name sorts behind the short names of drawn histories."""


@VIEWS.breaks("agreement_on_views")
def forged_view(draft: Draft, rng: Random) -> bool:
    """One node installs a view, not its last, with a member that the others do not have."""
    targets = [stay for stay in draft.stays if stay.following is not None and len(draft.index.rings[stay.ring].stays) > 1]

    def act(stay: Stay) -> None:
        draft.edit_view(stay.node, stay.conf, lambda view: _with_member(view, Member(GHOST, "", None)))

    return strike(rng, targets, act)


@VIEWS.breaks("agreement_on_views", "structure")
def forged_transitional(draft: Draft, rng: Random) -> bool:
    """One node leaves another out of a transitional configuration that both installed."""
    targets = [stay for stay in draft.stays if draft.company(stay)]

    def act(stay: Stay) -> None:
        assert stay.trans is not None
        rep = stay.trans.view.id.rep
        out = next(member.node for member in reversed(stay.trans.view.members) if member.node not in (rep, stay.node))
        draft.edit_view(stay.node, stay.trans, lambda view: _without_member(view, out))

    return strike(rng, [stay for stay in targets if _third_member(stay)], act)


@VIEWS.breaks("agreement_on_views")
def forged_cause(draft: Draft, rng: Random) -> bool:
    """One node gives another reason for a view than the others."""
    targets = [stay for stay in draft.stays if len(draft.index.rings[stay.ring].stays) > 1]
    forged = Cause("mutant")
    return strike(rng, targets, lambda stay: draft.edit_view(stay.node, stay.conf, lambda view: view._replace(cause=forged)))


@VIEWS.breaks("configuration_2_2", "agreement_on_views", may=("structure",))
def not_a_member_of_its_own_view(draft: Draft, rng: Random) -> bool:
    """A node installs a view without itself in it. If it came from another, its transitional members differ: structure."""
    targets = [stay for stay in draft.stays if stay.ring.rep != stay.node and len(draft.index.rings[stay.ring].stays) > 1]
    return strike(rng, targets, lambda stay: draft.edit_view(stay.node, stay.conf, lambda view: _without_member(view, stay.node)))


@VIEWS.breaks("structure")
def transitional_view_missing(draft: Draft, rng: Random) -> bool:
    """A node goes from regular to regular; nothing was delivered in between."""
    targets = [(stay.node, stay.trans) for stay in draft.stays if stay.trans is not None and stay.cut == len(stay.codes)]
    return strike(rng, targets, lambda target: draft.cut(*target))


@VIEWS.breaks("structure")
def transitional_view_twice(draft: Draft, rng: Random) -> bool:
    targets = [(stay.node, stay.trans) for stay in draft.stays if stay.trans is not None]
    return strike(rng, targets, lambda target: draft.put_after(*target, target[1]))


@VIEWS.breaks("structure")
def wrong_previous(draft: Draft, rng: Random) -> bool:
    """All agree on a view that says of one who installed it that it came from nowhere."""
    targets = [stay for stay in draft.stays if stay.previous is not None]

    def act(stay: Stay) -> None:
        for other in draft.index.rings[stay.ring].stays:
            draft.edit_view(other.node, other.conf, lambda view: _from_nowhere(view, stay.node))

    return strike(rng, targets, act)


@VIEWS.breaks("structure")
def follows_another_view(draft: Draft, rng: Random) -> bool:
    """All agree on a transitional configuration that names a regular one which nobody had."""
    targets = [stay.trans for stay in draft.stays if stay.trans is not None]

    def act(conf: Conf) -> None:
        for stay in draft.stays:
            if stay.trans is not None and stay.trans.view.id == conf.view.id:
                draft.edit_view(stay.node, stay.trans, _of_another_ring)

    return strike(rng, targets, act)


@VIEWS.breaks("end_together_2_1", may=("safe_7_1", "safe_7_2"))
def left_behind(draft: Draft, rng: Random) -> bool:
    """A silent member never gets into the last view. If somebody delivered safe messages there, 7.1 and 7.2 see it."""
    return strike(rng, _silent_at_the_end(draft), lambda stay: draft.cut_from(stay.node, stay.conf))


@VIEWS.breaks("safe_7_2", "safe_7_1", "end_together_2_1")
def safe_without_a_member(draft: Draft, rng: Random) -> bool:
    """Safe messages are delivered in a regular view that one member failed to install before it crashed."""
    targets = [stay for stay in _silent_at_the_end(draft) if any(run.service is Service.SAFE for run in stay.runs)]

    def act(stay: Stay) -> None:
        draft.cut_from(stay.node, stay.conf)
        draft.append(stay.node, End(0, stay.conf.time_us, "failed"))

    return strike(rng, targets, act)


@VIEWS.breaks("safe_7_2", "safe_7_1")
def safe_beside_a_stranger(draft: Draft, rng: Random) -> bool:
    """All agree that a node which lived elsewhere was a member of a view in which safe messages were delivered."""
    targets = [(stays, node) for stays in _left_with_safe(draft) for node in _living_elsewhere(draft, stays[0])]

    def act(target: tuple[list[Stay], NodeId]) -> None:
        stays, node = target
        for stay in stays:
            draft.edit_view(stay.node, stay.conf, lambda view: _with_member(view, Member(node, "", None)))

    return strike(rng, targets, act)


@VIEWS.breaks("end_together_2_1")
def failed_unnoticed(draft: Draft, rng: Random) -> bool:
    """A member of the last view fails at the very end, and the others stay."""
    targets = [life for life in draft.alive if len(life.stays[-1].conf.view.members) > 1]
    return strike(rng, targets, lambda life: draft.append(life.node, End(0, life.events[-1].time_us, "failed")))


@VIEWS.breaks("configuration_2_2")
def alive_after_its_end(draft: Draft, rng: Random) -> bool:
    """A node that ended repeats its first event afterwards."""
    targets = [life for life in draft.index.lives if life.end is not None]
    return strike(rng, targets, lambda life: draft.append(life.node, life.events[0]))


@VIEWS.breaks("incarnations_never_overlap")
def incarnation_overlap(draft: Draft, rng: Random) -> bool:
    """A second life of a name installs a view of its own while the first is there."""

    def act(life: Life) -> None:
        twin = life.node._replace(incarnation=life.node.incarnation + 1000, boot=life.node.boot + 1)
        own = ViewId(ViewKind.REGULAR, 1, twin)
        view = View(own, own, (Member(twin, "", None),), Cause("mutant"), 0)
        draft.traces[twin] = [Conf(1, life.confs[0].time_us, view)]

    lives = [life for life in draft.index.lives if life.confs and life.events[-1].time_us > life.confs[0].time_us]
    return strike(rng, lives, act)


@VIEWS.breaks("incarnations_never_overlap", "agreement_on_views")
def two_lives_of_one_name_in_a_view(draft: Draft, rng: Random) -> bool:
    """One node has a view, not its last, in which its own name stands twice."""
    targets = [stay for stay in draft.stays if stay.following is not None and len(draft.index.rings[stay.ring].stays) > 1]

    def act(stay: Stay) -> None:
        twin = stay.node._replace(incarnation=stay.node.incarnation + 1000)
        draft.edit_view(stay.node, stay.conf, lambda view: _with_member(view, Member(twin, "", None)))

    return strike(rng, targets, act)


def _silent_at_the_end(draft: Draft) -> list[Stay]:
    """Last stays, in company, of living nodes that sent nothing there and came from somewhere."""
    return [
        life.stays[-1]
        for life in draft.alive
        if len(life.stays) > 1 and not life.stays[-1].origins and len(life.stays[-1].conf.view.members) > 1
    ]


def _left_with_safe(draft: Draft) -> list[list[Stay]]:
    """Who was in a view in which safe messages were delivered before it broke, where nobody stayed in it to the end."""
    return [
        ring.stays
        for ring in draft.index.rings.values()
        if any(run.service is Service.SAFE for stay in ring.stays for run in stay.runs[: stay.run_cut])
        and all(stay.following is not None or stay.life.end is not None for stay in ring.stays)
    ]


def _living_elsewhere(draft: Draft, stay: Stay) -> list[NodeId]:
    names = {node.name for node in stay.conf.view.nodes}
    return [life.node for life in draft.alive if life.node.name not in names]


def _third_member(stay: Stay) -> bool:
    assert stay.trans is not None
    return any(node not in (stay.trans.view.id.rep, stay.node) for node in stay.trans.view.nodes)


def _with_member(view: View, member: Member) -> View:
    return view._replace(members=tuple(sorted((*view.members, member), key=lambda one: one.node)))


def _without_member(view: View, node: NodeId) -> View:
    return view._replace(members=tuple(member for member in view.members if member.node != node))


def _from_nowhere(view: View, node: NodeId) -> View:
    members = tuple(member._replace(previous=None) if member.node == node else member for member in view.members)
    return view._replace(members=members)


def _of_another_ring(view: View) -> View:
    regular = view.regular._replace(seq=view.regular.seq + 1)
    return view._replace(regular=regular, members=tuple(member._replace(previous=regular) for member in view.members))
