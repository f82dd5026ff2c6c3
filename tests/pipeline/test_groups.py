"""Groups: the audit says what the checkers say, of good histories and of bad ones of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from random import Random

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.checkers.wounds import wounded
from tests.pipeline.agreement import disagreements, run_key
from tests.pipeline.frames import tables_of_histories
from transis.pipeline.audit import (
    group_agreement,
    group_changes,
    group_differences,
    group_duplicates,
    group_ghosts,
    group_members,
    group_order,
    group_primary,
    group_synchrony,
    replicas,
)
from transis.pipeline.audit.clients import lay_clients
from transis.pipeline.audit.finding import Found, found
from transis.pipeline.audit.lay import lay
from transis.pipeline.audit.settling import settled
from transis.pipeline.tables import Tables
from transis.sim.checkers import GROUP_PROPERTIES, check, check_groups
from transis.sim.checkers.verdict import BROKEN, HELD, PENDING
from transis.sim.mutants import GROUP_MUTANTS
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

pytestmark = pytest.mark.slow

SEEDS = (3, 4, 5, 6, 9, 11)

MUTANTS = {mutant.name: mutant for mutant in GROUP_MUTANTS}

PROPERTIES = (
    *(group_order, group_agreement, group_synchrony, group_members, group_changes),
    *(group_ghosts, group_differences, group_duplicates, group_primary, replicas),
)


# -- histories -------------------------------------------------------------------------------------------------------


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


# -- the audit of all of them, once ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def drawn() -> dict[str, History]:
    return dict(histories())


@pytest.fixture(scope="module")
def audit(spark: SparkSession, drawn: dict[str, History], tmp_path_factory: pytest.TempPathFactory) -> Found:
    events = tables_of_histories(spark, drawn, tmp_path_factory.mktemp("histories")).events
    crowd = lay_clients(lay(Tables(settled(events.coalesce(1)))), settled)
    every = [one.check(crowd) for one in PROPERTIES]
    whole = found([one.checked for one in every], [one.broken for one in every])
    return Found(settled(whole.checked), settled(whole.broken))


def test_the_audit_and_the_checkers_agree(audit: Found, drawn: dict[str, History]) -> None:
    assert {one.NAME for one in PROPERTIES} == set(GROUP_PROPERTIES)
    assert disagreements(drawn, audit, GROUP_PROPERTIES) == []


def test_nothing_agrees_for_want_of_trying(drawn: dict[str, History]) -> None:
    """Every property is held in one of the histories and broken in another; those that oblige are pending in a third."""
    oblige = {group_members.NAME, group_differences.NAME, group_ghosts.NAME}
    reports = [verdicts for history in drawn.values() if group_order.NAME in (verdicts := check(history).verdicts)]
    for name in GROUP_PROPERTIES:
        expected = {HELD, BROKEN, PENDING} if name in oblige else {HELD, BROKEN}
        assert {report[name].verdict for report in reports} >= expected, name


def test_a_gap_alone_breaks_nothing(drawn: dict[str, History]) -> None:
    """Whatever it hides, also the configuration in which the next group view stands."""
    assert [check_groups(drawn[f"gap-{at}"]).broken for at in range(3)] == [(), (), ()]


@pytest.mark.parametrize(
    ("mutant", "name", "sentence"),
    [
        ("message_twice", group_duplicates.NAME, "a/1#1 got d/1#3:22 twice"),
        ("handed_to_an_outsider", group_members.NAME, "a/1#3 got d/1#3:25 through 1 groups, but is not addressed"),
        (
            "transitional_group_view_missing",
            group_changes.NAME,
            "a/1: T26@a/1 lost members of R16@a/1+4.1 of g8, but gave the group no transitional view",
        ),
    ],
    ids=["message_twice", "handed_to_an_outsider", "transitional_group_view_missing"],
)
def test_a_person_understands_it(audit: Found, mutant: str, name: str, sentence: str) -> None:
    rows = audit.broken.where((F.col("run") == run_key(mutant)) & (F.col("property") == name)).collect()
    assert sentence in {row.explanation for row in rows}


def test_replicas_that_part_are_told_as_the_checker_tells_it(drawn: dict[str, History], audit: Found) -> None:
    (expected,) = check(drawn["replicas_part"]).verdicts["replicas_agree"].violations
    (row,) = audit.broken.where(f"run = {run_key('replicas_part')} and property = 'replicas_agree'").collect()
    assert row.explanation == expected.explanation
    assert "it is one of 5 messages after the view, up to place 7.1" in row.explanation
    assert len(row.witness) == len(expected.witness)
