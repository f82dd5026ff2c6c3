"""Histories for the properties of views, sends and submits: good ones, open ones, and bad ones of every kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from tests.guarantees.mutants import MUTANTS
from tests.guarantees.oracle import good_history
from transis.sim.run import simulate
from transis.trace.events import Conf, End, Event, Fault, Gap, History, NodeTrace
from transis.types.ids import NodeId, ViewId, ViewKind
from transis.types.views import View


def with_gaps(history: History, rng: Random) -> History:
    """The recorder of two nodes had to drop a few events."""
    wounded = set(rng.sample(range(len(history.nodes)), 2))
    return history._replace(nodes=[_gapped(trace, rng) if i in wounded else trace for i, trace in enumerate(history.nodes)])


def _gapped(trace: NodeTrace, rng: Random) -> NodeTrace:
    events = trace.events
    first = rng.randrange(len(events) // 2)
    last = first + rng.randint(1, 9)
    gap = Gap(events[last].lseq, events[last].time_us, events[first].lseq, events[last].lseq - 1)
    return NodeTrace(trace.node, [*events[:first], gap, *events[last + 1 :]])


def with_unknown_end(history: History, rng: Random) -> History:
    """A life whose end nobody saw."""
    at = rng.randrange(len(history.nodes))
    node, events = history.nodes[at]
    cut = events[: rng.randrange(len(events) // 2, len(events))]
    end = End(cut[-1].lseq + 1, cut[-1].time_us, "unknown")
    return history._replace(nodes=[*history.nodes[:at], NodeTrace(node, [*cut, end]), *history.nodes[at + 1 :]])


def without_a_trace(history: History, rng: Random) -> History:
    nodes = list(history.nodes)
    del nodes[rng.randrange(len(nodes))]
    return history._replace(nodes=nodes)


def mangled(history: History, rng: Random) -> History:
    """Events of one node are dropped, repeated and moved at random: what no mutant thinks of, such as a send before any view."""
    nodes = list(history.nodes)
    at = rng.randrange(len(nodes))
    events = list(nodes[at].events)
    for _ in range(5):
        here = rng.randrange(len(events))
        change = rng.choice(("drop", "repeat", "move"))
        event = events[here] if change == "repeat" else events.pop(here)
        if change != "drop":
            events.insert(rng.randrange(len(events) + 1) if rng.random() < 0.7 else 0, event)
    nodes[at] = NodeTrace(nodes[at].node, _numbered(events))
    return history._replace(nodes=nodes)


def _numbered(events: list[Event]) -> list[Event]:
    return [event._replace(lseq=lseq) for lseq, event in enumerate(events, start=1)]


def misshapen(history: History, rng: Random) -> History:
    """One view of one node is not as views are."""
    nodes = list(history.nodes)
    at = rng.choice([number for number, trace in enumerate(nodes) if any(isinstance(event, Conf) for event in trace.events)])
    events = list(nodes[at].events)
    here = rng.choice([number for number, event in enumerate(events) if isinstance(event, Conf)])
    conf = events[here]
    assert isinstance(conf, Conf)
    events[here] = conf._replace(view=rng.choice(MISSHAPES)(conf.view))
    nodes[at] = NodeTrace(nodes[at].node, events)
    return history._replace(nodes=nodes)


def _with_id(view: View, new: ViewId) -> View:
    return view._replace(id=new, regular=new if view.id.is_regular else view.regular)


MISSHAPES: tuple[Callable[[View], View], ...] = (
    lambda view: view._replace(members=view.members[::-1]),
    lambda view: view._replace(members=view.members[:1] + view.members),
    lambda view: view._replace(members=view.members[1:]),
    lambda view: view._replace(members=tuple(member._replace(address="elsewhere") for member in view.members)),
    lambda view: view._replace(members=tuple(member._replace(previous=view.id) for member in view.members)),
    lambda view: view._replace(regular=view.regular._replace(seq=view.regular.seq + 1)),
    lambda view: _with_id(view, view.id._replace(rep=view.id.rep._replace(name="nobody"))),
    lambda view: _with_id(view, view.id._replace(seq=0)),
    lambda view: _with_id(view, view.id._replace(kind=ViewKind(1 - view.id.kind))),
)


HURT = (with_gaps, with_unknown_end, without_a_trace, mangled, misshapen)


def wounded_by(name: str) -> History:
    """The first drawn history in which a mutant finds a place to strike."""
    mutant = next(one for one in MUTANTS if one.name == name)
    drawn = (mutant(good_history(seed, steps=150), Random(seed)) for seed in range(1, 200))
    return next(history for history in drawn if history is not None)


def with_a_copied_twin() -> History:
    """Two lives of one name at a time, but the harness copied a state directory: exempt."""
    history = wounded_by("incarnation_overlap")
    *others, (twin, events) = history.nodes
    fault = Fault(1, 0, "copied its state directory")
    return history._replace(nodes=[*others, NodeTrace(twin, _numbered([fault, *events]))])


def histories() -> Iterator[tuple[str, History]]:
    for seed in (1, 2):
        good = good_history(seed, steps=300)
        yield f"good-{seed}", good
        yield f"open-{seed}", good._replace(closed=False)
        for hurt in HURT:
            wounded = hurt(good, Random(seed))
            yield f"{hurt.__name__}-{seed}", wounded
            yield f"{hurt.__name__}-open-{seed}", wounded._replace(closed=False)
    for seed in range(3, 15):
        yield f"mangled-{seed}", mangled(good_history(seed, steps=60), Random(seed))
        yield f"misshapen-{seed}", misshapen(good_history(seed, steps=60), Random(seed))
    yield "simulated", simulate(5).history
    yield "with_a_copied_twin", with_a_copied_twin()
    for mutant in MUTANTS:
        yield mutant.name, wounded_by(mutant.name)
    yield "silent", History([NodeTrace(NodeId("a", 1, 1), [])], closed=True)


def in_segments() -> Iterator[tuple[str, History]]:
    """Those whose lives are written as up to three segments each."""
    yield "good-in-segments", good_history(4, steps=150)
    yield "mangled-in-segments", mangled(good_history(4, steps=150), Random(4))
