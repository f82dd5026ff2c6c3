"""What client processes went through in a run, counted from the trace: which of it a sweep never reached says how tame it was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from transis.trace.events import ClientDelivery, ClientLeft, ClientLife, Conf, Delivery, End, Event, GroupConf, History
from transis.trace.reader import read_address
from transis.types.ids import ViewId
from transis.types.views import GroupView

GROUPS_EXPECTED: Final = (
    "process connected",
    "process gone",
    "view by join",
    "view by leave",
    "view by disconnect",
    "view by joins and leaves",
    "view by configuration",
    "transitional view",
    "regular view in a transitional configuration",
    "views merged",
    "member that went and came back",
    "last word",
    "run handed over",
    "run for several groups",
    "run for private names",
    "run that waited",
)
"""What a sweep ought to reach. A refused join is not among it: limits are too far away for a simulation."""


def counted(history: History) -> Counter[str]:
    found: Counter[str] = Counter()
    for trace in history.nodes:
        found.update(_of_life(trace.events))
    return found


def _of_life(events: list[Event]) -> Iterator[str]:
    configuration: ViewId | None = None
    for event in events:
        match event:
            case Conf(view=view):
                configuration = view.id
            case GroupConf(view=group_view):
                yield from _of_view(group_view, configuration)
            case Delivery() if event.address:
                to = read_address(event.address)
                yield from ["run for several groups"] * (len(to.groups) > 1) + ["run for private names"] * bool(to.processes)
            case ClientDelivery(handed=handed, waited=waited):
                yield from ["run handed over"] * sum(len(one.runs) for one in handed) + ["run that waited"] * len(waited)
            case ClientLeft(refused=refused):
                yield "join refused" if refused else "last word"
            case ClientLife(connected=connected):
                yield "process connected" if connected else "process gone"
            case End():
                return
            case _:
                pass


def _of_view(view: GroupView, configuration: ViewId | None) -> Iterator[str]:
    if not view.id.configuration.is_regular:
        yield "transitional view"
        return
    yield f"view by {view.cause.what}"
    if view.id.configuration != configuration:
        yield "regular view in a transitional configuration"
    if len(view.merged_from) > 1:
        yield "views merged"
    if not set(view.joined).isdisjoint(view.left):
        yield "member that went and came back"
