"""Mutants of group views: forged, dropped, repeated, late, or made up. See `mutants.py`.

They leave alone what the node itself did, so that only the checkers of groups can see them.
"""

from __future__ import annotations

from itertools import combinations
from random import Random

from tests.guarantees.mutants_of_handing import handings_of
from tests.guarantees.mutants_of_messages import STRANGER, strike
from tests.guarantees.surgery import Draft, Kit
from transis.audit.guarantees.clients import Change, ClientHistory
from transis.trace.events import CheckpointEvent, ClientDelivery, ClientLeft, ClientLife, Delivery, GroupConf, NoteEvent
from transis.types.ids import NodeId, Place, ProcessId, ViewId
from transis.types.views import GroupView, GroupViewId, Origin

GROUP_VIEWS = Kit()

GHOST = ProcessId(NodeId("~ghost", 1, 1), 1)
"""A process of a node that never lived; it sorts behind all others."""


@GROUP_VIEWS.breaks("group_agreement_on_views")
def forged_cause_of_a_group_view(draft: Draft, rng: Random) -> bool:
    """One node says that a process was disconnected where the others say that it left, or the other way round."""
    other = {"leave": "disconnect", "disconnect": "leave"}
    targets = [change for change in _shared(draft) if change.view.cause.what in other]

    def act(change: Change) -> None:
        cause = change.view.cause
        _edit(draft, change, change.view._replace(cause=cause._replace(what=other[cause.what])))

    return strike(rng, targets, act)


@GROUP_VIEWS.breaks("group_agreement_on_views", may=("group_differences", "group_no_ghosts", "group_one_view_per_change"))
def forged_member_of_a_group_view(draft: Draft, rng: Random) -> bool:
    """One node leaves out a member. What it says before and after may not add up, and at rest somebody is missing."""
    targets = [change for change in _shared(draft) if _strangers(change)]

    def act(change: Change) -> None:
        _edit(draft, change, _without(change.view, _strangers(change)[0]))

    return strike(rng, targets, act)


@GROUP_VIEWS.breaks("group_agreement_on_views")
def forged_name_of_a_member(draft: Draft, rng: Random) -> bool:
    """One node calls a member otherwise than the others do."""

    def act(change: Change) -> None:
        names = change.view.names or ("",) * len(change.view.members)
        _edit(draft, change, change.view._replace(names=(f"not {names[0]}", *names[1:])))

    return strike(rng, [change for change in _shared(draft) if change.view.members], act)


@GROUP_VIEWS.breaks("replicas_agree")
def replicas_part(draft: Draft, rng: Random) -> bool:
    """Members of a view are in one state at its beginning, as they say in the end: each spoke before it was given it. One says
    another behind its fifth message. Behind the third it says nothing: what the others say there is not where it was equal."""
    changes = ClientHistory(draft.index).changes
    targets = [change for change in _shared(draft) if change.event.processes]

    def act(change: Change) -> None:
        for other in changes:
            if (other.view.group, other.view.id) == (change.view.group, change.view.id):
                _tell_states(draft, other, b"another" if other.witness == change.witness else b"the same")

    return strike(rng, targets, act)


def _tell_states(draft: Draft, change: Change, last: bytes) -> None:
    view, event = change.view, change.event
    for process in event.processes:
        early = f"{change.life.node}#{process} alone".encode()
        states = [
            (0, None, 0, Place(0, 0), early),
            (0, None, 0, Place(0, 0), b"first"),
            (5, view.members[0], 9, Place(7, 1), last),
        ]
        if last == b"the same":
            states.insert(2, (3, view.members[0], 7, Place(6, 1), b"between"))
        told = [CheckpointEvent(0, event.time_us, process, view.group, view.name, view.id, *state) for state in states]
        draft.put_after(change.life.node, event, *told)


@GROUP_VIEWS.breaks("replicas_agree")
def replicas_begin_apart(draft: Draft, rng: Random) -> bool:
    """Members of a view say what state they are in at its beginning; one says another."""
    changes = ClientHistory(draft.index).changes
    targets = [change for change in _shared(draft) if change.event.processes]

    def act(change: Change) -> None:
        for other in changes:
            if (other.view.group, other.view.id) == (change.view.group, change.view.id):
                digest = b"another" if other.witness == change.witness else b"first"
                told = [_at_the_view(other, process, digest) for process in other.event.processes]
                draft.put_after(other.life.node, other.event, *told)

    return strike(rng, targets, act)


def _at_the_view(change: Change, process: int, digest: bytes) -> CheckpointEvent:
    view = change.view
    return CheckpointEvent(0, change.event.time_us, process, view.group, view.name, view.id, 0, None, 0, Place(0, 0), digest)


@GROUP_VIEWS.breaks("group_one_view_per_change", may=("group_order",))
def told_without_a_reason(draft: Draft, rng: Random) -> bool:
    """A view of the same members, in which nothing changed. A message may have the place that it claims."""

    def act(change: Change) -> None:
        view = change.view
        assert change.base is not None
        place = Place(view.id.place.seq, view.id.place.index + 1)
        cause = view.cause._replace(what="configuration", process=None, configuration=change.base.cause)
        origins = (Origin(view.id, view.members),)
        again = view._replace(id=view.id._replace(place=place), joined=(), left=(), merged_from=origins, cause=cause)
        draft.put_after(change.life.node, change.event, GroupConf(0, change.event.time_us, again, change.event.processes))

    return strike(rng, _last_of_their_group(draft), act)


@GROUP_VIEWS.breaks("group_one_view_per_change", "group_differences", may=("group_virtual_synchrony",))
def transitional_group_view_missing(draft: Draft, rng: Random) -> bool:
    """Members were lost, and those who stay hear of it in the next regular view only."""
    changes = ClientHistory(draft.index).changes
    followed = {(change.life.node, change.before.id) for change in changes if change.before is not None}
    alive = {life.node for life in draft.alive}
    targets = [
        change
        for change in changes
        if not change.view.id.configuration.is_regular
        and change.life.node in alive
        and (change.life.node, change.view.id) in followed
    ]
    return strike(rng, targets, lambda change: draft.cut(change.life.node, change.event))


@GROUP_VIEWS.breaks("group_no_ghosts", may=("group_one_view_per_change", "group_differences"))
def ghost_in_a_group_view(draft: Draft, rng: Random) -> bool:
    """All agree on a member whose node is not there. The change that made the view was another, and may not add up."""
    return strike(rng, _last_of_their_group(draft), lambda change: _let_join(draft, change, GHOST))


@GROUP_VIEWS.breaks("group_no_ghosts", may=("group_one_view_per_change", "group_differences"))
def stranger_in_a_group_view(draft: Draft, rng: Random) -> bool:
    """All agree on a member that never was a process of its node, which is there."""
    targets = [change for change in _last_of_their_group(draft) if change.own is not None]

    def act(change: Change) -> None:
        assert change.own is not None
        _let_join(draft, change, ProcessId(rng.choice(change.own.nodes), STRANGER))

    return strike(rng, targets, act)


def _let_join(draft: Draft, change: Change, process: ProcessId) -> None:
    """Into the same view wherever it was installed."""
    for other in ClientHistory(draft.index).changes:
        if (other.view.group, other.view.id) == (change.view.group, change.view.id):
            view = other.view
            members, joined = (tuple(sorted((*those, process))) for those in (view.members, view.joined))
            _edit(draft, other, view._replace(members=members, joined=joined))


@GROUP_VIEWS.breaks("group_differences", may=("group_one_view_per_change",))
def forged_joined(draft: Draft, rng: Random) -> bool:
    """A node says that a member joined which was there before."""
    targets = [change for change in _changes_from_another(draft) if set(change.view.members) - set(change.view.joined)]

    def act(change: Change) -> None:
        old = min(set(change.view.members) - set(change.view.joined))
        _edit(draft, change, change.view._replace(joined=tuple(sorted((*change.view.joined, old)))))

    return strike(rng, targets, act)


@GROUP_VIEWS.breaks("group_differences", may=("group_one_view_per_change",))
def forged_left(draft: Draft, rng: Random) -> bool:
    """A node does not say who left."""
    targets = [change for change in _changes_from_another(draft) if change.view.left]
    return strike(rng, targets, lambda change: _edit(draft, change, change.view._replace(left=())))


@GROUP_VIEWS.breaks("group_differences")
def wrong_origin(draft: Draft, rng: Random) -> bool:
    """All agree that members come from a view which they never had."""
    targets = [change for change in _changes_from_another(draft) if change.view.merged_from]

    def act(change: Change) -> None:
        for other in ClientHistory(draft.index).changes:
            if (other.view.group, other.view.id) == (change.view.group, change.view.id):
                first, *rest = other.view.merged_from
                place = Place(first.view.place.seq, first.view.place.index + 1)
                origins = tuple(sorted((first._replace(view=first.view._replace(place=place)), *rest)))
                _edit(draft, other, other.view._replace(merged_from=origins))

    return strike(rng, targets, act)


@GROUP_VIEWS.breaks("group_no_duplicates", "group_differences", may=("group_one_view_per_change",))
def group_view_twice(draft: Draft, rng: Random) -> bool:
    """A view is shown again at once; what it says has changed then has not."""
    return strike(rng, _changes_from_another(draft), lambda change: draft.put_after(change.life.node, change.event, change.event))


@GROUP_VIEWS.breaks("group_order", may=("group_members_only", "group_virtual_synchrony"))
def group_view_late(draft: Draft, rng: Random) -> bool:
    """A process is told of a view behind messages that were sent in it. A newcomer got them too early."""
    targets = [target for target in _views_before_messages(draft) if target[0].view.id.configuration.is_regular]

    def act(target: tuple[Change, ClientDelivery]) -> None:
        change, messages = target
        draft.put_after(change.life.node, messages, change.event)
        events = draft.traces[change.life.node]
        del events[next(place for place, event in enumerate(events) if event is change.event)]

    return strike(rng, targets, act)


@GROUP_VIEWS.breaks("group_primary", may=("group_agreement_on_views", "group_only_primary"))
def two_primaries(draft: Draft, rng: Random) -> bool:
    """Two configurations without a common name both call themselves primary."""
    names = {
        change.view.id.configuration: frozenset(node.name for node in change.own.nodes)
        for change in ClientHistory(draft.index).changes
        if change.own is not None
    }
    pairs = [pair for pair in combinations(sorted(names), 2) if names[pair[0]].isdisjoint(names[pair[1]])]
    return strike(rng, pairs, lambda pair: _flag(draft, pair))


@GROUP_VIEWS.breaks("group_primary", may=("group_only_primary",))
def primary_in_doubt(draft: Draft, rng: Random) -> bool:
    """Two group views of one configuration differ in whether it is primary."""
    groups: dict[ViewId, dict[GroupViewId, GroupView]] = {}
    for change in ClientHistory(draft.index).changes:
        if change.view.primary is not None and change.own is not None:
            groups.setdefault(change.view.id.configuration, {})[change.view.id] = change.view
    targets = [min(views.values(), key=lambda view: view.id) for views in groups.values() if len(views) > 1]

    def act(view: GroupView) -> None:
        for other in ClientHistory(draft.index).changes:
            if other.view.id == view.id:
                _edit(draft, other, other.view._replace(primary=not other.view.primary))

    return strike(rng, targets, act)


@GROUP_VIEWS.breaks("group_only_primary")
def handed_without_a_quorum(draft: Draft, rng: Random) -> bool:
    """All agree that a configuration waits for a quorum, and its processes get messages."""
    configurations = {change.view.id.configuration for change, _ in _views_before_messages(draft)}
    targets = sorted(one for one in configurations if one.is_regular)
    return strike(rng, targets, lambda one: _hold(draft, {view.id for view in _views_of(draft, one)}))


@GROUP_VIEWS.breaks("group_only_primary")
def held_in_doubt(draft: Draft, rng: Random) -> bool:
    """Of two group views of one configuration one waits for a quorum."""
    regular = {change.view.id.configuration for change in ClientHistory(draft.index).changes if change.own is not None}
    views = {one: {view.id for view in _views_of(draft, one) if not view.held} for one in sorted(regular) if one.is_regular}
    return strike(rng, [min(ids) for ids in views.values() if len(ids) > 1], lambda id: _hold(draft, {id}))


def _views_of(draft: Draft, configuration: ViewId) -> list[GroupView]:
    return [change.view for change in ClientHistory(draft.index).changes if change.view.id.configuration == configuration]


def _hold(draft: Draft, views: set[GroupViewId]) -> None:
    for change in ClientHistory(draft.index).changes:
        if change.view.id in views:
            _edit(draft, change, change.view._replace(held=True))


def _edit(draft: Draft, change: Change, view: GroupView) -> None:
    draft.exchange(change.life.node, change.event, change.event._replace(view=view))


def _flag(draft: Draft, configurations: tuple[ViewId, ...]) -> None:
    for change in ClientHistory(draft.index).changes:
        if change.view.id.configuration in configurations:
            _edit(draft, change, change.view._replace(primary=True))


def _shared(draft: Draft) -> list[Change]:
    """Views that another node has too."""
    nodes: dict[tuple[int, GroupViewId], set[NodeId]] = {}
    changes = ClientHistory(draft.index).changes
    for change in changes:
        nodes.setdefault((change.view.group, change.view.id), set()).add(change.life.node)
    return [change for change in changes if len(nodes[change.view.group, change.view.id]) > 1]


def _strangers(change: Change) -> list[ProcessId]:
    """Members on other nodes."""
    return [member for member in change.view.members if member.node != change.life.node]


def _without(view: GroupView, gone: ProcessId) -> GroupView:
    members = tuple(member for member in view.members if member != gone)
    joined = tuple(member for member in view.joined if member != gone)
    return view._replace(members=members, joined=joined)


def _changes_from_another(draft: Draft) -> list[Change]:
    """Regular views at living nodes that had one before, so that what they say has changed can be held against it."""
    alive = {life.node for life in draft.alive}
    changes = ClientHistory(draft.index).changes
    return [
        change
        for change in changes
        if change.before is not None and change.view.id.configuration.is_regular and change.life.node in alive
    ]


def _last_of_their_group(draft: Draft) -> list[Change]:
    """The last views that living nodes have of a group, while some of their processes are still in it."""
    alive = {life.node for life in draft.alive}
    last: dict[tuple[NodeId, int], Change] = {}
    for change in ClientHistory(draft.index).changes:
        last[change.life.node, change.view.group] = change
    return [change for change in last.values() if change.life.node in alive and _all_stay(draft, change)]


def _all_stay(draft: Draft, change: Change) -> bool:
    later = draft.traces[change.life.node][change.event.lseq :]
    gone = [
        event.process
        for event in later
        if isinstance(event, ClientLeft) or (isinstance(event, ClientLife) and not event.connected)
    ]
    return set(change.event.processes).isdisjoint(gone)


def _views_before_messages(draft: Draft) -> list[tuple[Change, ClientDelivery]]:
    """Views with, right behind them, a handing of ordered messages to one of the same processes."""
    found = []
    for change in ClientHistory(draft.index).changes:
        node = change.life.node
        later = (event for event in draft.traces[node][change.event.lseq :] if not isinstance(event, Delivery | NoteEvent))
        following = next(later, None)
        if isinstance(following, ClientDelivery) and any(
            handing.process in change.event.processes for handing in handings_of(draft, node, following)
        ):
            found.append((change, following))
    return found
