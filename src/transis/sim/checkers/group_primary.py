"""A primary component is one: two configurations whose group views say `primary` share a name, and all views of one agree.

A majority of the configured names cannot be in two places, so if two primary configurations had no name in common, there were two
majorities. Without a configured set no view says anything, and nothing is checked.
"""

from __future__ import annotations

from itertools import combinations

from transis.sim.checkers.clients import Change, Crowd
from transis.sim.checkers.verdict import Findings
from transis.types.ids import ViewId


def check_group_primary(crowd: Crowd, findings: Findings) -> None:
    first: dict[ViewId, Change] = {}
    for change in crowd.changes:
        if change.view.primary is None or change.own is None:
            continue
        findings.checked += 1
        known = first.setdefault(change.view.id.configuration, change)
        if known.view.primary != change.view.primary:
            findings.broken(
                f"{known.view.id} of {known.view.name} says primary {known.view.primary}, and {change.view.id} of "
                f"{change.view.name} says {change.view.primary}, in one configuration",
                (known.witness, change.witness),
            )
    primaries = [change for _, change in sorted(first.items()) if change.view.primary]
    for left, right in combinations(primaries, 2):
        if _names(left).isdisjoint(_names(right)):
            findings.broken(
                f"{left.view.id.configuration} and {right.view.id.configuration} both call themselves primary and share no name",
                (left.witness, right.witness),
            )


def _names(change: Change) -> frozenset[str]:
    assert change.own is not None
    return frozenset(node.name for node in change.own.nodes)
