"""Measures against plain computations over the same histories; clocks against those that the simulator gave its hosts."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, log
from statistics import mean, median

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from tests.audit import schemas
from tests.audit.frames import tables_of_histories
from tests.audit.plainly import Flow, delivered, flows, incidents, visits
from transis.audit.measure import incidents as incident_rows
from transis.audit.measure.clocks import compare_clocks
from transis.audit.measure.measures import compare, measures, of_build
from transis.audit.measure.traffic import bins, cells, ring, throughput
from transis.audit.plans.lay import HistoryTables, Tables, lay_out
from transis.sim.host import Clock
from transis.sim.run import SimulatedRun
from transis.sim.swarm import draw, draw_groups
from transis.trace.events import End, Event, Fault, History, NodeTrace, Submit
from transis.trace.tables import RunKeys
from transis.types.ids import NodeId, Service

pytestmark = pytest.mark.slow

SEED = 2
"""Four nodes whose clocks start up to 1,000 s apart and run up to 2 % fast or slow; partitions, crashes, and much traffic."""

SMALL = ("runs", "lives", "confs", "stays", "deliveries", "node_names", "process_names", "view_names")


@dataclass(frozen=True)
class Measured:
    """Two runs. `local`: everything by the clocks of the hosts, as real nodes do it. `mixed`: recorded in virtual time and
    stamped by the clocks of hosts, as the simulator does it; with client processes and crashes."""

    histories: dict[str, History]
    clocks: dict[str, dict[NodeId, Clock]]
    dtypes: dict[str, list[tuple[str, str]]]
    tables: dict[str, list[Row]]
    """Those with `recorded` before their names are in the time that was recorded: they can be compared to the microsecond."""

    def rows(self, table: str, run: str) -> list[Row]:
        return [row for row in self.tables[table] if row.run == RunKeys("simulated", run).run]

    def names(self, run: str) -> dict[int, NodeId]:
        keys = RunKeys("simulated", run)
        return {keys.node(trace.node): trace.node for trace in self.histories[run].nodes}


@pytest.fixture(scope="module")
def measured(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    plain, mixed = SimulatedRun(draw(SEED, nodes=4)), SimulatedRun(draw_groups(4, nodes=4))
    for run in (plain, mixed):
        run.safety()
        run.liveness()
    clocks = {"local": clocks_of(plain), "mixed": clocks_of(mixed)}
    histories = {"local": by_clocks(plain.judged("").history, clocks["local"]), "mixed": mixed.judged("").history}
    laid = laid_out(tables_of_histories(spark, histories, tmp_path_factory.mktemp("measured")))
    found = measures(laid, checkpointed)
    dtypes = {name: rows.dtypes for name, rows in found.items()}
    kept = {name: rows.collect() for name, rows in (found | recorded(laid)).items() if name not in ("throughput", "ring")}
    return Measured(histories, clocks, dtypes, kept)


def clocks_of(run: SimulatedRun) -> dict[NodeId, Clock]:
    return {node: run.world.hosts[life.host].clock for node, life in run.world.lives.items()}


def by_clocks(history: History, clocks: dict[NodeId, Clock]) -> History:
    def shown(node: NodeId, events: list[Event]) -> NodeTrace:
        return NodeTrace(node, [event._replace(time_us=clocks[node].local(event.time_us)) for event in events])

    return history._replace(nodes=[shown(*trace) for trace in history.nodes])


def checkpointed(name: str, rows: DataFrame) -> DataFrame:
    return rows.localCheckpoint()


def laid_out(tables: Tables) -> HistoryTables:
    build = F.when(F.col("run") == RunKeys("simulated", "mixed").run, "1.1").otherwise("1.0")
    laid = lay_out(Tables(tables.events.withColumn("build", build).localCheckpoint()))
    return replace(laid, **{name: getattr(laid, name).localCheckpoint() for name in SMALL})


def recorded(laid: HistoryTables) -> dict[str, DataFrame]:
    """What would be measured if no clock could be compared."""
    known = compare_clocks(laid.tables, checkpointed)
    known = replace(known, clocks=known.clocks.where("false").localCheckpoint())
    cut = bins(known).localCheckpoint()
    return {
        "recorded throughput": throughput(cells(laid.tables, known, cut), cut, laid.tables, laid.node_names),
        "recorded ring": ring(laid.tables, known, cut, laid.node_names),
        "recorded incidents": incident_rows.incidents(laid, known, checkpointed),
    }


# -- shapes ----------------------------------------------------------------------------------------------------------


def test_tables_have_the_columns_of_their_schemas(measured: Measured) -> None:
    declared = {name: getattr(schemas, name.upper()) for name in measured.dtypes}
    assert measured.dtypes == {
        name: [(field.name, field.dataType.simpleString()) for field in schema] for name, schema in declared.items()
    }


# -- clocks ----------------------------------------------------------------------------------------------------------


def test_every_pair_of_clocks_is_estimated_within_the_stated_uncertainty(measured: Measured) -> None:
    clocks, names = measured.clocks["local"], measured.names("local")
    shown = defaultdict(list)
    for row in measured.rows("offsets", "local"):
        truth = row.at_us - clocks[names[row.reference]].local(clocks[names[row.node]].virtual(row.at_us))
        assert abs(row.offset_us - truth) <= row.uncertainty_us + 2, row
        shown[row.node].append((row.offset_us - truth, row.uncertainty_us))
    assert shown.keys() == names.keys()
    for one, other in product(shown.values(), repeat=2):
        for (error, uncertainty), (other_error, other_uncertainty) in zip(one, other, strict=False):
            assert abs(error - other_error) <= uncertainty + other_uncertainty + 4


def test_offsets_are_large_and_much_better_known_than_that(measured: Measured) -> None:
    rows = measured.rows("offsets", "local")
    assert max(abs(row.offset_us) for row in rows) > 100_000_000
    assert min(row.uncertainty_us for row in rows if row.hops) < 10_000
    assert max(abs(row.drift_ppm) for row in rows) > 1_000


def test_the_stamping_clock_is_told_apart_from_the_recording_one(measured: Measured) -> None:
    """In this run all nodes record in one time, so the truth is no offset at all."""
    rows = measured.rows("offsets", "mixed")
    assert rows
    for row in rows:
        assert abs(row.offset_us) <= row.uncertainty_us + 2


# -- latency ---------------------------------------------------------------------------------------------------------

Path = tuple[int, int, int]


def true_latencies(measured: Measured, run: str) -> dict[Path, list[int]]:
    """A number a message, by the clock of the reference, or by that of the node if it hears itself."""
    keys, clocks = RunKeys("simulated", run), measured.clocks[run]
    is_local = run == "local"
    (reference,) = {measured.names(run)[row.reference] for row in measured.rows("offsets", "local")} if is_local else (None,)
    found = defaultdict(list)
    for node, event in delivered(measured.histories[run]):
        sender = event.process.node
        clock = Clock() if reference is None else clocks[node if sender == node else reference]
        arrived = clocks[node].virtual(event.time_us) if is_local else event.time_us
        latency = clock.local(arrived) - clock.local(clocks[sender].virtual(event.origin_us))
        found[keys.node(sender), keys.node(node), event.service.value] += [latency] * event.count
    return found


@pytest.mark.parametrize("run", ["mixed", "local"])
def test_latency_is_right_within_the_uncertainty_on_every_path(measured: Measured, run: str) -> None:
    truth = true_latencies(measured, run)
    rows = {(row.sender, row.node, row.service): row for row in measured.rows("latency_summary", run)}
    assert {path: row.messages for path, row in rows.items()} == {path: len(found) for path, found in truth.items()}
    for path, row in rows.items():
        assert row.uncertainty_us is not None
        assert abs(row.mean_us - mean(truth[path])) <= row.uncertainty_us + 3


def test_the_buckets_of_a_path_hold_its_latencies(measured: Measured) -> None:
    own = {path: found for path, found in true_latencies(measured, "local").items() if path[0] == path[1]}
    buckets = defaultdict(list)
    for row in measured.rows("latency", "local"):
        buckets[row.sender, row.node, row.service].append(row)
    for path, latencies in own.items():
        assert sum(row.messages for row in buckets[path]) == len(latencies)
        assert sum(row.share for row in buckets[path]) == pytest.approx(1)
        assert max(row.to_us for row in buckets[path]) >= max(latencies) - 2
        assert all(row.bucket == -1 or row.to_us / row.from_us == pytest.approx(2 ** (1 / 8)) for row in buckets[path])


def test_percentiles_are_in_the_bucket_of_the_exact_ones(measured: Measured) -> None:
    truth = true_latencies(measured, "local")
    checked = 0
    for row in measured.rows("latency_summary", "local"):
        latencies = sorted(truth[row.sender, row.node, row.service])
        if row.sender != row.node or len(latencies) < 10:
            continue
        for percentile, part in ((row.p50_us, 0.5), (row.p90_us, 0.9), (row.p99_us, 0.99)):
            exact = latencies[ceil(len(latencies) * part) - 1]
            if exact > 50:
                checked += 1
                assert abs(log(percentile / exact, 2)) <= 1 / 8 + 0.1
    assert checked > 10


def test_densities_add_up_to_one(measured: Measured) -> None:
    sums: dict[int, float] = defaultdict(float)
    for row in measured.rows("densities", "local"):
        sums[row.service] += row.per_ms * (row.to_us - row.from_us) / 1000
    assert sums == pytest.approx(dict.fromkeys({event.service.value for _, event in delivered(measured.histories["local"])}, 1))


def test_groups_have_percentiles_over_time(measured: Measured) -> None:
    counted: dict[tuple[int, str], int] = defaultdict(int)
    for row in measured.rows("group_latency", "mixed"):
        counted[row.group, row.group_name] += row.messages
        assert 0 <= row.p50_us <= row.p90_us <= row.p99_us
    expected: dict[int, int] = defaultdict(int)
    keys = RunKeys("simulated", "mixed")
    for flow, (messages, _) in flows(measured.histories["mixed"], 1).items():
        if flow.group is not None:
            expected[keys.group(flow.group)] += messages
    assert {group: messages for (group, _), messages in counted.items()} == expected
    assert {name for _, name in counted} == {f"g{number}" for number in range(len(counted))}


# -- throughput ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", ["local", "mixed"])
def test_throughput_is_what_was_delivered(measured: Measured, run: str) -> None:
    rows = measured.rows("recorded throughput", run)
    (width_us,) = {row.width_us for row in rows}
    keys, names = RunKeys("simulated", run), measured.names(run)
    signed = {flow._replace(group=flow.group and keys.group(flow.group)): counts
              for flow, counts in flows(measured.histories[run], width_us).items()}  # fmt: skip
    assert {_flow(row, names): (row.messages, row.bytes) for row in rows} == signed
    assert all(row.messages_per_s == pytest.approx(row.messages * 1e6 / width_us) for row in rows)
    assert all((row.node_name, row.sender_name) == (str(names[row.node]), str(names[row.sender])) for row in rows)


def _flow(row: Row, names: dict[int, NodeId]) -> Flow:
    return Flow(names[row.node], names[row.sender], row.group, row.service, row.size_up_to, row.bin_us)


def test_a_point_of_the_figures_has_what_was_offered_and_what_a_node_delivered(measured: Measured) -> None:
    history = measured.histories["mixed"]
    offered: dict[int, int] = defaultdict(int)
    for event in (event for trace in history.nodes for event in trace.events if isinstance(event, Submit)):
        offered[event.service.value] += event.count
    got: dict[int, dict[NodeId, int]] = defaultdict(lambda: defaultdict(int))
    for node, event in delivered(history):
        got[event.service.value][node] += event.count
    rows = {row.service: row for row in measured.rows("figures", "mixed")}
    assert rows.keys() == got.keys()
    for service, row in rows.items():
        seconds = row.span_us / 1e6
        assert row.nodes == len(got[service])
        assert row.offered_per_s == pytest.approx(offered[service] / seconds)
        assert row.delivered_per_s == pytest.approx(mean(got[service].values()) / seconds)


# -- the ring --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", ["local", "mixed"])
def test_the_ring_is_what_its_nodes_noted_and_what_their_queues_show(measured: Measured, run: str) -> None:
    rows = defaultdict(list)
    for row in measured.rows("recorded ring", run):
        rows[row.node].append(row)
    keys = RunKeys("simulated", run)
    for trace in measured.histories[run].nodes:
        mine, plain = rows[keys.node(trace.node)], visits(trace)
        assert sum(row.visits for row in mine) == plain.count
        assert max((row.backlog for row in mine if row.backlog is not None), default=0) == plain.backlog_max
        assert sum(row.retransmitted for row in mine) == plain.retransmitted
        assert sum(row.tokens_retransmitted for row in mine) == plain.notes["token retransmitted"]
        assert sum(row.tokens_lost for row in mine) == plain.notes["token lost"]
        assert sum(row.state_changes for row in mine) == plain.notes["state"]
        assert {row.rotation_us for row in mine} - {None} <= set(plain.rotations)


# -- incidents -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", ["local", "mixed"])
def test_every_change_of_the_configuration_is_an_incident(measured: Measured, run: str) -> None:
    keys = RunKeys("simulated", run)
    expected = {keys.view(view): incident for view, incident in incidents(measured.histories[run]).items()}
    rows = {row.view: row for row in measured.rows("recorded incidents", run)}
    assert len(rows) > 3
    assert rows.keys() == expected.keys()
    for view, row in rows.items():
        plain = expected[view]
        assert row.old_names == plain.old_names
        assert (row.cause, row.members, row.lost, row.joined) == (plain.cause, plain.members, plain.lost, plain.joined)
        assert (row.began_us, row.installed_us) == (plain.began_us, plain.installed_us)
        assert row.duration_us == plain.installed_us - plain.began_us
        assert row.detection_us == (plain.detection[0] if plain.detection else None)
        assert {one.node_name: one.blackout_us for one in row.blackouts} == plain.blackouts
        assert row.blackout_us == max(plain.blackouts.values(), default=None)
        assert row.tail_messages == plain.tail_messages


def test_what_an_incident_was_detected_from_is_said(measured: Measured) -> None:
    rows = [row for run in ("local", "mixed") for row in measured.rows("recorded incidents", run)]
    said = {row.detected_from for row in rows if row.detected_from is not None}
    struck = {event.what for event in events_of(measured, Fault)}
    died = {f"{trace.node} {event.how}" for history in measured.histories.values() for trace in history.nodes
            for event in trace.events if isinstance(event, End)}  # fmt: skip
    assert said & struck
    assert said & died
    assert all(row.lost for row in rows if row.detected_from is not None)


def events_of(measured: Measured, kind: type[Fault]) -> list[Fault]:
    histories = measured.histories.values()
    return [event for history in histories for trace in history.nodes for event in trace.events if isinstance(event, kind)]


def test_the_blackout_of_a_group_is_the_longest_of_its_nodes(measured: Measured) -> None:
    rows = measured.rows("recorded incidents", "mixed")
    found = [(row, group) for row in rows for group in row.group_blackouts]
    assert found
    for row, group in found:
        assert group.group_name.startswith("g")
        assert group.blackout_us in {one.blackout_us for one in row.blackouts}


# -- two builds ------------------------------------------------------------------------------------------------------


def test_two_builds_are_compared_figure_by_figure(spark: SparkSession, measured: Measured) -> None:
    used = {"figures": "figures", "densities": "densities", "ring": "recorded ring", "incidents": "incidents"}
    tables = {name: spark.createDataFrame(measured.tables[kept], getattr(schemas, name.upper())) for name, kept in used.items()}
    compared = compare(*(of_build(tables, build) for build in ("1.0", "1.1")))
    rows = {(row.measure, row.service): row for row in compared.collect()}
    assert {(row.build_a, row.build_b) for row in rows.values() if None not in (row.a, row.b)} == {("1.0", "1.1")}
    agreed = Service.AGREED.value
    old, new = (next(row for row in measured.rows("figures", run) if row.service == agreed) for run in ("local", "mixed"))
    row = rows["delivered_per_s", agreed]
    assert (row.a, row.b) == pytest.approx((old.delivered_per_s, new.delivered_per_s))
    assert row.ratio == pytest.approx(row.b / row.a)
    assert (rows["p99_us", agreed].a, rows["p99_us", agreed].b) == pytest.approx((old.p99_us, new.p99_us))
    durations = [row.duration_us for row in measured.rows("incidents", "mixed")]
    assert rows["duration_us", None].b == median(durations)
