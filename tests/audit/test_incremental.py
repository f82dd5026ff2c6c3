"""The past in short: an audit that does not read yesterday again says what one says that reads everything.

An audit takes half a minute, so many runs are in one, and grow together.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.audit.agreement import ALL
from tests.audit.growing import Growing, one_long_view
from tests.guarantees.mutants import GROUP_MUTANTS, MUTANTS
from tests.guarantees.oracle import good_history
from tests.guarantees.surgery import Draft
from transis.audit.guarantees import check
from transis.audit.guarantees.property import BROKEN, NOT_EXERCISED
from transis.audit.job import AuditRequest, audit, keep_all
from transis.audit.plans.incremental import LARGE, PAST, RINGS, TABLE, ProvenPast, VerdictCache
from transis.audit.plans.judge import judge
from transis.audit.plans.lake import Lake
from transis.audit.plans.lay import Tables, lay_out
from transis.audit.plans.store import EventStore, StoreFacts
from transis.audit.report.content import Content
from transis.sim.run import simulate
from transis.spark.inputs import checkpointed
from transis.spark.progress import StepTimer
from transis.trace.events import History
from transis.trace.reader import read_segment
from transis.trace.segment import SegmentWriter

TURNS = 900

COUNTS = {"no_duplicates": True, "fifo": True, "places": True, "self_delivery_3": False, "every_submit_accounted": False}
"""Whether a property looks at each delivery of a message, or at the message once: as much, however short the past is."""
OTHERS = ("total_order_6_1", "causal_5", "safe_7_1", "failure_atomicity_4", "group_members_only", "group_order")

pytestmark = pytest.mark.slow


def audited(place: Path) -> Content:
    """As `transis audit --only`: each property takes its time, and these are those that read most rows."""
    return audit(AuditRequest((str(place / "traces"),), str(place / "store"), only=(*COUNTS, *OTHERS)), StepTimer())


def looked_at(spark: SparkSession, place: Path) -> None:
    """What an audit does that finds everything good, in short: it looks at the order, and keeps the past."""
    with EventStore(spark, place / "store") as store:
        store.add([place / "traces"])
        raw, past = Tables(store.events()), ProvenPast(store)
        laid = lay_out(Tables(past.events()), checkpointed)
        judged = judge(laid, checkpointed, StepTimer(), only=["fifo"])
        results = {"verdicts": judged.verdicts, "violations": judged.violations}
        keep_all(store, {**results, TABLE: VerdictCache(store, raw, results).table(spark)}, past, laid, judged, [], StepTimer())


def require_agreement(content: Content, histories: Mapping[str, History]) -> None:
    """Verdicts and offending messages are those of the checkers, who have read everything; so are those of an audit that has."""
    for name, history in histories.items():
        for said in (one for one in check(history, keep=ALL).verdicts.values() if one.property in (*COUNTS, *OTHERS)):
            rows = [row for row in content.verdicts if (row.run, row.property) == (name, said.property)]
            assert [row.verdict for row in rows] in ([said.verdict], []), (name, said.property)
            assert rows or said.verdict == NOT_EXERCISED, (name, said.property)
            told = {one for row in content.violations if (row.run, row.property) == (name, said.property) for one in row.messages}
            assert told <= {str(one) for violation in said.violations for one in violation.messages}, (name, said.property)


@pytest.mark.parametrize("steps", [2, pytest.param(3, marks=pytest.mark.long, id="a past that is made of a past")])
def test_runs_grow_and_are_judged_as_if_everything_were_read(spark: SparkSession, tmp_path: Path, steps: int) -> None:
    traces, store = tmp_path / "traces", EventStore(spark, tmp_path / "store")
    histories = {"drawn": good_history(11, steps=300), "groups": simulate(12, nodes=4, groups=True).history}
    wounded = wounded_late(11, histories["drawn"]) | wounded_late(12, histories["groups"])
    runs = [Growing(traces, name, history) for name, history in (histories | wounded).items()]
    late = Growing(traces, "a listener's trace comes late", one_long_view(300), absent=frozenset("d"))
    changed = Growing(traces, "a file is written anew", one_long_view(300))
    endless = Growing(traces, "one view", one_long_view(TURNS))
    runs += [late, changed, endless]
    for step in range(1, steps):
        for run in runs:
            run.grow(step, steps)
        looked_at(spark, tmp_path)
        assert ProvenPast(store).runs == sorted(run.key for run in runs)
    assert store.table(RINGS).select("run").distinct().count() == len(runs)
    for run in runs:
        run.grow(steps, steps)
    _write_anew(changed)
    store.add([traces])
    assert ProvenPast(store).runs == sorted({run.key for run in runs} - {late.key, changed.key})
    _require_yesterday_unread(spark, store, tmp_path / "copy")
    content = audited(tmp_path)
    assert {row.run for row in content.verdicts if row.verdict == BROKEN} >= {"a file is written anew"}
    assert {row.run for row in content.violations} & wounded.keys()
    require_agreement(content, histories | wounded | {late.name: late.history, endless.name: endless.history})
    checked = {row.property: row.checked for row in content.verdicts if row.run == endless.name}
    ordered = TURNS * len(endless.history.nodes)
    assert {name: checked[name] for name in COUNTS} == {name: ordered if of_all else TURNS for name, of_all in COUNTS.items()}
    short = store.table(PAST).where(F.col("run") == endless.key).count()
    assert 0 < short < sum(len(trace.events) for trace in endless.history.nodes) / 50


def _require_yesterday_unread(spark: SparkSession, store: EventStore, place: Path) -> None:
    """Take away the files of messages in all batches that are past: what an audit reads is still there."""
    shutil.copytree(store.path, place)
    lake = Lake(store.path, "store", "--store")
    past = set(lake.facts(lake.state(), StoreFacts).past)
    assert past < set(lake.state().tables["events"])
    for batch in past:
        for kind in LARGE:
            shutil.rmtree(place / "events" / f"batch={batch}" / f"kind={kind}", ignore_errors=True)
    assert _read(EventStore(spark, place)) == _read(store)


def _read(store: EventStore) -> Counter[str]:
    """How many rows of each kind an audit has to do with, of runs that have a past."""
    past = ProvenPast(store)
    rows = past.events().where(F.col("run").isin(past.runs)).groupBy("kind").count().collect()
    return Counter({row.kind: row[1] for row in rows})


def wounded_late(seed: int, whole: History) -> dict[str, History]:
    """Some mutants whose first wound stands in the last third of the run."""
    found: dict[str, History] = {}
    unhurt = Draft(whole).history()
    for mutant in (*GROUP_MUTANTS[::4], *MUTANTS[::3]):
        tries = (mutant(whole, Random(f"{seed}:{attempt}")) for attempt in range(6))
        late = (history for history in tries if history is not None and _struck_late(unhurt, history))
        history = next(late, None)
        if history is not None:
            found[f"{seed} {mutant.name}"] = history
    assert len(found) > 2
    return found


def _struck_late(unhurt: History, wounded: History) -> bool:
    last_us = max(event.time_us for trace in wounded.nodes for event in trace.events)
    both = zip(unhurt.nodes, wounded.nodes, strict=True)
    pairs = (pair for good, bad in both for pair in zip_longest(good.events, bad.events))
    struck_us = min(min(event.time_us for event in pair if event is not None) for pair in pairs if pair[0] != pair[1])
    return struck_us > last_us * 2 // 3


def _write_anew(run: Growing) -> None:
    """The first segment of a life says something else than before."""
    first = sorted(run.directory.glob("a-*"))[0]
    segment = read_segment(first)
    writer = SegmentWriter(run.directory / "anew", segment.header)
    assert writer.write(segment.events[:-1])
    writer.seal()
    [anew] = (run.directory / "anew").iterdir()
    anew.replace(first)
    anew.parent.rmdir()


def test_batches_that_are_past_become_one_among_themselves(spark: SparkSession, tmp_path: Path) -> None:
    growing = Growing(tmp_path / "traces", "run", one_long_view(60))
    store = EventStore(spark, tmp_path / "store")
    for step in range(1, 5):
        growing.grow(step, 5)
        store.add([tmp_path / "traces"])
    store.replace_all({}, past=[1, 2])
    rows = store.events().count()
    store.compact()
    lake = Lake(store.path, "store", "--store")
    assert lake.state().tables["events"] == [6, 7]
    assert lake.facts(lake.state(), StoreFacts).past == [6]
    assert store.events().count() == rows
    cuts = store.inputs().where("batch = 6").groupBy("node").agg({"segment": "max"}).toDF("node", "upto")
    assert store.batches_below(cuts) == [6]
    behind = store.events_above(cuts).where("kind = 'segments'").select("file").collect()
    assert sorted(behind) == sorted(store.inputs().where("batch = 7").select("file").collect())
