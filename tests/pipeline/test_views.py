"""Views, sends and submits: the audit says what the checkers say, of good histories and of bad ones of every kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from itertools import chain
from pathlib import Path
from random import Random
from types import ModuleType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.pipeline.agreement import ALL, disagreements, run_key
from tests.pipeline.frames import tables_of_histories
from transis.model.ids import NodeId, ViewId, ViewKind
from transis.model.view import View
from transis.pipeline.audit import (
    agreement_on_views,
    basic,
    configuration,
    end_together,
    incarnations,
    safe_installed,
    sent_once,
    structure,
    submits,
)
from transis.pipeline.audit.finding import Found, found
from transis.pipeline.audit.lay import Laid, lay
from transis.pipeline.audit.settling import settled
from transis.pipeline.columns import tables_of
from transis.pipeline.tables import Tables
from transis.sim.abstract import good_history
from transis.sim.checkers import check
from transis.sim.checkers.verdict import BROKEN, HELD, NOT_EXERCISED, PENDING
from transis.sim.mutants import MUTANTS
from transis.sim.run import simulate
from transis.trace.events import Conf, End, Event, Fault, Gap, History, NodeTrace
from transis.trace.reader import Segment
from transis.trace.segment import Footer, Header

pytestmark = pytest.mark.slow

PROPERTIES = (
    *(agreement_on_views, structure, end_together, incarnations, configuration, safe_installed),
    *(sent_once, submits, basic),
)
NAMES = [one.NAME for one in PROPERTIES]


# -- histories -------------------------------------------------------------------------------------------------------


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
    """Histories whose lives are written as up to three segments each."""
    yield "good-in-segments", good_history(4, steps=150)
    yield "mangled-in-segments", mangled(good_history(4, steps=150), Random(4))


def write_segments(name: str, history: History, file: Path) -> None:
    parts = (part for trace in history.nodes for part in _segments(name, history, trace))
    pq.write_table(pa.concat_tables([table for part in parts for _, table in tables_of(part, "", 0)]), file)


def _segments(name: str, history: History, trace: NodeTrace) -> Iterator[Segment]:
    size = len(trace.events) // 3 + 1
    for number, start in enumerate(range(0, len(trace.events), size), start=1):
        events = trace.events[start : start + size]
        header = Header("simulated", name, trace.node, number=number)
        footer = Footer(events[0].lseq, events[-1].lseq, len(events), "", history.closed)
        yield Segment("", header, events, footer, "", 0)


# -- the audit of all of them, once ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def drawn() -> dict[str, History]:
    return dict(chain(histories(), in_segments()))


@pytest.fixture(scope="module")
def audit(spark: SparkSession, drawn: dict[str, History], tmp_path_factory: pytest.TempPathFactory) -> Found:
    directory = tmp_path_factory.mktemp("histories")
    for name, history in in_segments():
        write_segments(name, history, directory / f"{name}.parquet")
    events = tables_of_histories(spark, dict(histories()), directory).events
    laid = all_settled(lay(Tables(settled(events.coalesce(1)))))
    every = [one.check(laid) for one in PROPERTIES]
    whole = found([one.checked for one in every], [one.broken for one in every])
    return Found(settled(whole.checked), settled(whole.broken))


def all_settled(laid: Laid) -> Laid:
    parts = {one.name: getattr(laid, one.name) for one in fields(laid)}
    return replace(laid, **{name: settled(part) for name, part in parts.items() if isinstance(part, DataFrame)})


def test_the_audit_and_the_checkers_agree(audit: Found, drawn: dict[str, History]) -> None:
    assert disagreements(drawn, audit, NAMES) == []


def test_they_count_alike_and_say_it_in_the_same_words(audit: Found, drawn: dict[str, History]) -> None:
    amounts: dict[tuple[int, str], tuple[int, int]] = {}
    for row in audit.checked.groupBy("run", "property").agg(F.sum("checked"), F.sum("pending")).collect():
        amounts[row[0], row[1]] = (row[2], row[3])
    said: dict[tuple[int, str], list[str]] = {}
    for row in audit.broken.collect():
        said.setdefault((row.run, row.property), []).append(row.explanation)
    for name, history in drawn.items():
        for verdict in (check(history, keep=ALL).verdicts[one] for one in NAMES):
            key = (run_key(name), verdict.property)
            assert (name, verdict.property, *amounts.get(key, (0, 0))) == (name, *verdict[:1], verdict.checked, verdict.pending)
            assert sorted(said.get(key, [])) == sorted(one.explanation for one in verdict.violations), name


def test_nothing_agrees_for_want_of_trying(drawn: dict[str, History]) -> None:
    """Every property is held in one of the histories, broken in another, and pending in a third, unless it forbids only."""
    forbid_only = {agreement_on_views.NAME, incarnations.NAME, sent_once.NAME}
    reports = [check(history).verdicts for history in drawn.values()]
    for name in NAMES:
        expected = {HELD, BROKEN, NOT_EXERCISED} if name in forbid_only else {HELD, BROKEN, NOT_EXERCISED, PENDING}
        assert {report[name].verdict for report in reports} == expected, name


@pytest.mark.parametrize(
    ("mutant", "module", "sentence"),
    [
        ("forged_cause", agreement_on_views, "a/1 and b/1 installed R24@a/1 with different causes: mutant against drawn"),
        ("lost_submit", submits, "b/1 neither sent nor refused b/1#77:1, which it had accepted"),
        ("left_behind", end_together, "b/1 stayed in R24@a/1 to the end, but its member a/1 stayed in T22@a/1"),
    ],
    ids=["forged_cause", "lost_submit", "left_behind"],
)
def test_a_person_understands_it(audit: Found, mutant: str, module: ModuleType, sentence: str) -> None:
    rows = audit.broken.where((F.col("run") == run_key(mutant)) & (F.col("property") == module.NAME)).collect()
    assert sentence in {row.explanation for row in rows}
