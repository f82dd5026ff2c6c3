"""Agreement: a group view's id has the same members, origins, cause and flag wherever it is installed.

What joined and left is not part of it: both are told from the view that a node had before.
"""

from __future__ import annotations

from transis.sim.checkers.clients import Change, Crowd
from transis.sim.checkers.verdict import Findings
from transis.sim.checkers.words import several
from transis.types.views import GroupId, GroupView, GroupViewId


def check_group_agreement(crowd: Crowd, findings: Findings) -> None:
    first: dict[tuple[GroupId, GroupViewId], Change] = {}
    for change in crowd.changes:
        findings.checked += 1
        view = change.view
        known = first.setdefault((view.group, view.id), change)
        difference = _difference(known.view, view)
        if difference:
            findings.broken(
                f"{known.life.node} and {change.life.node} have {view.id} of {view.name} with different {difference}",
                (known.witness, change.witness),
            )


def _difference(left: GroupView, right: GroupView) -> str:
    if left is right:
        return ""
    if left.members != right.members:
        return f"members: {several(left.members)} against {several(right.members)}"
    if left.merged_from != right.merged_from:
        return "origins of members"
    if left.cause != right.cause:
        return f"causes: {left.cause} against {right.cause}"
    if left.name != right.name:
        return f"names: {left.name} against {right.name}"
    return f"flags: primary {left.primary} against {right.primary}" if left.primary != right.primary else ""
