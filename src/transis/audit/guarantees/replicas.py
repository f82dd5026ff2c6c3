"""Replicas agree: processes of a group that say in which state they are behind the same messages of a view say the same.

A digest is the application's own word (`group.checkpoint`). Compared are those of one group, one view and one count of ordered
messages since it; told is where two first differ, and the last position before it at which processes of both sides said the same.
Of several words of a process behind one count the last counts: it may speak before and after it was given its state.
"""

from __future__ import annotations

from transis.audit.guarantees.clients import ClientHistory
from transis.audit.guarantees.property import Findings, several
from transis.trace.events import CheckpointEvent
from transis.types.ids import MessageId, NodeId, ProcessId
from transis.types.views import GroupId, GroupViewId

Told = tuple[NodeId, CheckpointEvent]


def check_replicas(history: ClientHistory, findings: Findings) -> None:
    views: dict[tuple[GroupId, GroupViewId], dict[int, dict[ProcessId, Told]]] = {}
    for life in history.lives:
        for event in life.events:
            if isinstance(event, CheckpointEvent):
                findings.checked += 1
                there = views.setdefault((event.group, event.view), {}).setdefault(event.count, {})
                there[ProcessId(life.node, event.process)] = life.node, event
    for counts in views.values():
        _compare({count: list(there.values()) for count, there in counts.items()}, findings)


def _compare(counts: dict[int, list[Told]], findings: Findings) -> None:
    ordered = [told for _, told in sorted(counts.items())]
    for number, told in enumerate(ordered):
        if len({event.digest for _, event in told}) > 1:
            _tell(_last_equal(ordered[:number], told), told, findings)
            return


def _last_equal(before: list[list[Told]], told: list[Told]) -> CheckpointEvent | None:
    """Where processes that differ now were last seen equal; what others of one side said among themselves proves nothing."""
    side_of = {(node, event.process): event.digest for node, event in told}
    for there in reversed(before):
        if len({side_of[who] for node, event in there if (who := (node, event.process)) in side_of}) > 1:
            return there[0][1]
    return None


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
