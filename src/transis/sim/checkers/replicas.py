"""Replicas agree: processes of a group that say in which state they are behind the same messages of a view say the same.

A digest is the application's own word (`group.checkpoint`). Compared are those of one group, one view and one count of ordered
messages since it; told is where two first differ, and the last position before it at which all that spoke agreed.
"""

from __future__ import annotations

from transis.model.groups import GroupId, GroupViewId
from transis.model.ids import MessageId, NodeId, ProcessId
from transis.sim.checkers.clients import Crowd
from transis.sim.checkers.verdict import Findings
from transis.sim.checkers.words import several
from transis.trace.events import CheckpointEvent

Told = tuple[NodeId, CheckpointEvent]


def check(crowd: Crowd, findings: Findings) -> None:
    views: dict[tuple[GroupId, GroupViewId], dict[int, list[Told]]] = {}
    for life in crowd.lives:
        for event in life.events:
            if isinstance(event, CheckpointEvent):
                findings.checked += 1
                views.setdefault((event.group, event.view), {}).setdefault(event.count, []).append((life.node, event))
    for counts in views.values():
        _compare(counts, findings)


def _compare(counts: dict[int, list[Told]], findings: Findings) -> None:
    equal: CheckpointEvent | None = None
    for _, told in sorted(counts.items()):
        if len({event.digest for _, event in told}) > 1:
            _tell(equal, told, findings)
            return
        if len({(node, event.process) for node, event in told}) > 1:
            equal = told[0][1]


def _tell(equal: CheckpointEvent | None, told: list[Told], findings: Findings) -> None:
    sides: dict[bytes, list[ProcessId]] = {}
    for node, event in told:
        sides.setdefault(event.digest, []).append(ProcessId(node, event.process))
    ordered = sorted((sorted(set(processes)) for processes in sides.values()), key=lambda side: (-len(side), side))
    differs = told[0][1]
    findings.broken(
        f"{differs.name} in {differs.view}: {_beginning(equal)}, different {_behind(differs)}: "
        f"{' against '.join(several(side) for side in ordered)}; {_between(equal, differs)}",
        tuple((node, event.lseq) for node, event in told),
        tuple(MessageId(event.sender, event.counter) for event in (equal, differs) if event is not None and event.sender),
    )


def _beginning(equal: CheckpointEvent | None) -> str:
    return "never compared before" if equal is None else f"equal {_behind(equal)}"


def _behind(event: CheckpointEvent) -> str:
    return "at the view itself" if event.sender is None else f"behind {MessageId(event.sender, event.counter)}"


def _between(equal: CheckpointEvent | None, differs: CheckpointEvent) -> str:
    """Which messages to look at; the archive of the group has them."""
    count = differs.count - (0 if equal is None else equal.count)
    start = "the view" if equal is None or equal.sender is None else f"place {equal.place.seq}.{equal.place.index}"
    end = f"place {differs.place.seq}.{differs.place.index}"
    return f"it is one of {count} messages after {start}, up to {end}" if count else "before any message"
