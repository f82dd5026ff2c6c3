"""What a run's history is judged by: the promises of its engine, which may depend on what really happened.

ToTo promises one order as long as the living members of a view stay together. A plan without partitions sees to that as far as
a plan can; where a member was suspected wrongly and left out all the same, its run is judged as any run of ToTo is.
"""

from __future__ import annotations

from collections.abc import Iterable

from transis.model.ids import ViewId
from transis.sim.life import Life
from transis.sim.plan import Plan
from transis.trace.events import Conf, History, NodeTrace


def history_of(plan: Plan, lives: Iterable[Life], closed: bool) -> History:
    """The traces of these lives, and what they are held to."""
    traces = [NodeTrace(life.id, life.recorder.events) for life in lives]
    history = History(traces, closed, plan.config.guarantees, plan.config.engine)
    if plan.one_component and history.promises == "toto" and not splits(history):
        return history._replace(promises="toto one component")
    return history


def splits(history: History) -> int:
    """Views from which living members went different ways."""
    ways: dict[ViewId, set[ViewId]] = {}
    for trace in history.nodes:
        for event in trace.events:
            if isinstance(event, Conf) and not event.view.id.is_regular:
                ways.setdefault(event.view.regular, set()).add(event.view.id)
    return sum(1 for found in ways.values() if len(found) > 1)
