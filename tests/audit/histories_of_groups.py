"""Histories for the properties of groups: good ones, open ones, and bad ones of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from random import Random

from tests.guarantees.histories_of_fences import of_lansis
from tests.guarantees.mutants import FENCE_MUTANTS, GROUP_MUTANTS
from tests.guarantees.wounds import wounded
from transis.sim.run import simulate
from transis.trace.events import (
    CheckpointEvent,
    ClientDelivery,
    ClientLeft,
    ClientLife,
    Delivery,
    Event,
    Gap,
    GroupConf,
    History,
    NodeTrace,
    NoteEvent,
)

SEEDS = (3, 4, 5, 6, 9, 11)

MUTANTS = {mutant.name: mutant for mutant in GROUP_MUTANTS}


@cache
def recorded(seed: int) -> History:
    return simulate(seed, nodes=4, groups=True).history


def cut_short(history: History, share: float) -> History:
    """Still going on, and read up to some point."""
    nodes = [NodeTrace(node, events[: int(len(events) * share)]) for node, events in history.nodes]
    return history._replace(nodes=nodes, closed=False)


def with_a_gap(history: History, at: int, share: float) -> History:
    """The recorder of one node had to drop four events."""
    node, events = history.nodes[at]
    first = int(len(events) * share)
    gap = Gap(events[first + 3].lseq, events[first].time_us, events[first].lseq, events[first + 3].lseq - 1)
    hurt = NodeTrace(node, [*events[:first], gap, *events[first + 4 :]])
    return history._replace(nodes=[*history.nodes[:at], hurt, *history.nodes[at + 1 :]])


def without_words_of_life(history: History) -> History:
    """Traces that do not say who connects and who goes."""

    def silent(event: Event) -> Event:
        return NoteEvent(event.lseq, event.time_us, "nothing", ()) if isinstance(event, ClientLife) else event

    return history._replace(nodes=[NodeTrace(node, [silent(event) for event in events]) for node, events in history.nodes])


def mangled(history: History, rng: Random) -> History:
    """Events about clients are dropped, or change places with what comes later: what no mutant thinks of."""
    nodes = []
    for node, events in history.nodes:
        changed = list(events)
        ours = [at for at, event in enumerate(events) if isinstance(event, GroupConf | ClientDelivery | ClientLeft | ClientLife)]
        for at in rng.sample(ours, min(2, len(ours))):
            lseq, time_us = changed[at].lseq, changed[at].time_us
            other = min(at + rng.randint(1, 6), len(changed) - 1)
            if rng.random() < 0.5:
                changed[at] = NoteEvent(lseq, time_us, "nothing", ())
            elif not isinstance(changed[other], Delivery):
                moved = changed[other]._replace(lseq=lseq)
                changed[at], changed[other] = moved, changed[at]._replace(lseq=changed[other].lseq)
        nodes.append(NodeTrace(node, changed))
    return history._replace(nodes=nodes)


def in_one_state(history: History) -> History:
    """All that processes say of their states is the same."""

    def same(event: Event) -> Event:
        return event._replace(digest=b"the same") if isinstance(event, CheckpointEvent) else event

    return history._replace(nodes=[NodeTrace(node, [same(event) for event in events]) for node, events in history.nodes])


def histories() -> Iterator[tuple[str, History]]:
    for seed in SEEDS:
        yield f"good-{seed}", recorded(seed)
    for mutant in GROUP_MUTANTS:
        yield mutant.name, wounded(mutant, recorded, SEEDS, 1)[0]
    yield "good on lansis", of_lansis(0)
    for mutant in FENCE_MUTANTS:
        yield mutant.name, wounded(mutant, of_lansis, (0,), 1)[0]
    yield "replicas that agree", in_one_state(wounded(MUTANTS["replicas_part"], recorded, SEEDS, 1)[0])
    for share in (0.4, 0.7, 1.0):
        yield f"open-{share}", cut_short(recorded(5), share)
    for at in range(3):
        yield f"gap-{at}", with_a_gap(recorded(9), at, 0.3 + 0.2 * at)
    yield "untold", without_words_of_life(recorded(6))
    for seed in (3, 6, 11):
        yield f"mangled-{seed}", mangled(recorded(seed), Random(seed))
    yield "untold-mangled", without_words_of_life(mangled(recorded(4), Random(4)))
    yield "no-clients", simulate(5, nodes=3).history
