"""What a run's history is judged by: the promises of its engine, which may depend on what really happened.

ToTo promises one order as long as the living members of a view stay together and know all votes that were counted. A plan without
partitions sees to that as far as a plan can. Where a member was suspected wrongly and left out all the same, or died ahead of the
others (its own vote may have been lost with it, and decided for it alone), its run is judged as any run of ToTo is.

Who asks for the judge `evs` gets all of extended virtual synchrony checked, promised or not: so the runs are found that show why
ToTo does not promise it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from transis.model.guarantees import UNPROMISED
from transis.sim.life import Life
from transis.sim.plan import Plan
from transis.trace.events import Conf, Delivery, History, NodeTrace
from transis.types.ids import ViewId

ONE_ORDER: Final = "toto one component"
"""What ToTo keeps where a view does not part."""


def history_of(plan: Plan, lives: Iterable[Life], closed: bool) -> History:
    """The traces of these lives, and what they are held to."""
    traces = [NodeTrace(life.id, life.recorder.events) for life in lives]
    history = History(traces, closed, plan.config.guarantees, plan.config.engine)
    if plan.judge == "evs":
        return held_to_evs(history)
    if plan.one_component and history.promises == "toto" and not splits(history) and not deaths_ahead(history):
        return history._replace(promises=ONE_ORDER)
    return history


def held_to_evs(history: History) -> History:
    """The same traces, judged by all of EVS. Places that are known at sending are not part of it, and ToTo has none."""
    return history._replace(promises=ONE_ORDER if history.promises in ("toto", ONE_ORDER) else "evs")


def beyond_promise(plan: Plan, broken: Sequence[str]) -> str:
    """A sentence for runs that are held to more than their views promise; empty if what broke was promised."""
    beyond = [name for name in broken if plan.judge == "evs" and name in UNPROMISED[plan.config.guarantees]]
    if not beyond:
        return ""
    return (
        f"Views with the guarantees {plan.config.guarantees!r} do not promise {', '.join(beyond)}; this is a run that shows why."
    )


def splits(history: History) -> int:
    """Views from which living members went different ways."""
    ways: dict[ViewId, set[ViewId]] = {}
    for trace in history.nodes:
        for event in trace.events:
            if isinstance(event, Conf) and not event.view.id.is_regular:
                ways.setdefault(event.view.regular, set()).add(event.view.id)
    return sum(1 for found in ways.values() if len(found) > 1)


def deaths_ahead(history: History) -> int:
    """Views in which somebody who did not go on had delivered more of the order than somebody who did."""
    died: dict[ViewId, int] = {}
    went_on: dict[ViewId, int] = {}
    for trace in history.nodes:
        for view, (count, is_last) in _delivered_in_views(trace).items():
            if is_last:
                died[view] = max(count, died.get(view, 0))
            else:
                went_on[view] = min(count, went_on.get(view, count))
    return sum(1 for view, count in died.items() if count > went_on.get(view, count))


def _delivered_in_views(trace: NodeTrace) -> dict[ViewId, tuple[int, bool]]:
    """How much of the order a life delivered in each regular view, and whether that view was its last."""
    found: dict[ViewId, tuple[int, bool]] = {}
    current: ViewId | None = None
    for event in trace.events:
        if isinstance(event, Conf):
            if current is not None:
                found[current] = (found[current][0], False)
            current = event.view.id if event.view.id.is_regular else None
            if current is not None:
                found[current] = (0, True)
        elif isinstance(event, Delivery) and current is not None and event.tpos >= 0:
            found[current] = (found[current][0] + event.count, True)
    return found
