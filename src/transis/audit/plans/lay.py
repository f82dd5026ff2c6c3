"""Events laid out for the audit: lives, stays and rings, and every row in the stay where it stands.

1. A *life* is one trace of one node. A *stay* is its time in one regular configuration and the transitional one after it,
   numbered from 1; stay 0 is before any. A *ring* is a regular configuration with everybody's stay in it.
2. Rows belong to the stay in which they stand, not to the one they claim; claims are judged (configuration_2_2).
3. Positions (`tpos`) are the recorder's count of ordered messages in a stay, which goes on over what was dropped.
4. After a gap a stay is not whole: what is missing in it is pending, never broken.
5. What stood at a moment of a life is found by sorting rows and marks together, once: a join by ranges would compare every row
   with every mark of its life.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from transis.trace.tables import KINDS

# --- tables -----------------------------------------------------------------------------------------------------------


class Tables:
    """`tables["deliveries"]` has the columns of KINDS["deliveries"], nothing else."""

    def __init__(self, events: DataFrame, keep: Callable[[DataFrame], DataFrame] | None = None) -> None:
        """With `keep` each kind is kept when it is first asked for: right for little data, which is read many times."""
        self.events = events
        self._keep = keep
        self._kept: dict[str, DataFrame] = {}
        self._lock = Lock()

    def __getitem__(self, kind: str) -> DataFrame:
        if self._keep is None:
            return self._read(kind)
        with self._lock:
            if kind not in self._kept:
                self._kept[kind] = self._keep(self._read(kind))
            return self._kept[kind]

    def names(self, kind: str) -> DataFrame:
        """Names repeat in every segment; here each is once."""
        return self[kind].distinct() if kind != "addresses" else self[kind].dropDuplicates(["run", "address"])

    def _read(self, kind: str) -> DataFrame:
        return self.events.where(F.col("kind") == kind).select(*KINDS[kind])


# --- lay --------------------------------------------------------------------------------------------------------------

STRETCH = ["node", "segment", "conf_no"]

CAUSAL_APART = "engine <> 'totem'"
"""On the ring causal messages share the order of all (trace.events.is_ordered)."""


Settle = Callable[[DataFrame], DataFrame]
"""Keeps a table, so that tables made of it do not compute it again."""


def as_it_is(table: DataFrame) -> DataFrame:
    return table


@dataclass(frozen=True)
class HistoryTables:
    """What every property reads. Small: runs, lives, confs, stays and the names; the rest is as large as the trace."""

    tables: Tables
    runs: DataFrame
    """run, closed, mode, engine: one row a run."""
    lives: DataFrame
    """run, node, node_name, name, incarnation, boot, end_lseq, end_us, ended, gapped, confs, last_view, last_lseq, last_us: one
    row a trace."""
    confs: DataFrame
    """CONF events with node_name, view_name, stay_no, blind (something is missing before it), conf_rank (from 1)."""
    stays: DataFrame
    """run, node, node_name, stay_no, ring, ring_name, members, conf_lseq, conf_us, trans, trans_name, trans_members, trans_lseq,
    following, following_name, following_lseq, whole, cut (ordered messages of the regular part), n (of all), duty, stay_rank
    (1 for the first stay of the ring in order of node ids): one row a stay."""
    stretches: DataFrame
    """node, segment, conf_no, stay_no, phase, ring: where any event stands, by the stretch of its segment."""
    gaps: DataFrame
    """run, node, segment, conf_no, lseq: where something is missing, recorded or not."""
    deliveries: DataFrame
    """DELIVER rows with stay_no, phase (0 regular, 1 transitional) and ring, null where there is none; and is_ordered: whether a
    message of this service is in the total order of its engine."""
    sends: DataFrame
    """SEND rows with the same, `sender` and `before` resolved."""
    node_names: DataFrame
    """run, node, node_name (a/1), name, incarnation, boot."""
    process_names: DataFrame
    """run, process, node, number, process_name (a/1#0)."""
    view_names: DataFrame
    """run, view, view_name (R12@a/1), view_kind, view_seq, view_order (a struct that orders rings)."""
    causal_apart: bool = False
    """Is there a run whose causal messages are not in the total order?"""


def lay_out(tables: Tables, settle: Settle = as_it_is) -> HistoryTables:
    """Everything that the properties share. `settle` is done to every small table, before others are made of it."""
    node_names = settle(named_nodes(tables))
    view_names = settle(named_views(tables, node_names))
    process_names = settle(named_processes(tables, node_names))
    segments = settle(tables["segments"].where("trouble is null"))
    gaps = settle(all_gaps(tables, segments))
    confs = settle(ranked_confs(tables, gaps, node_names, view_names))
    runs = settle(run_facts(segments, confs, process_names))
    lives = settle(life_facts(tables, segments, gaps, confs, node_names))
    stretches = settle(stretch_stays(segments, confs))
    stays = settle(stay_facts(confs, gaps, lives, runs, stay_extents(tables, stretches)))
    causal_apart = not runs.where(CAUSAL_APART).isEmpty()
    deliveries, sends = placed_messages(tables, stretches, runs, causal_apart)
    names = (node_names, process_names, view_names)
    return HistoryTables(tables, runs, lives, confs, stays, stretches, gaps, deliveries, sends, *names, causal_apart)


# -- names -----------------------------------------------------------------------------------------------------------


def named_nodes(tables: Tables) -> DataFrame:
    name = F.concat_ws("/", "name", F.col("incarnation").cast("string"))
    return tables.names("nodes").withColumn("node_name", name)


def named_processes(tables: Tables, node_names: DataFrame) -> DataFrame:
    processes = tables.names("process_names").join(node_names.select("node", "node_name"), "node")
    return processes.withColumn("process_name", F.concat("node_name", F.lit("#"), "number")).drop("node_name")


def named_views(tables: Tables, node_names: DataFrame) -> DataFrame:
    """A view's name, and a struct that orders views as rings are ordered: by sequence, then by representative."""
    rep = node_names.select(F.col("node").alias("view_rep"), "node_name", "name", "incarnation", "boot")
    kind = F.when(F.col("view_kind") == 0, "R").otherwise("T")
    name = F.concat(kind, F.col("view_seq"), F.lit("@"), F.col("node_name"))
    order = F.struct("view_seq", "name", "incarnation", "boot")
    named = tables.names("view_names").join(rep, "view_rep")
    return named.select("run", "view", name.alias("view_name"), "view_kind", "view_seq", order.alias("view_order"))


# -- small tables ----------------------------------------------------------------------------------------------------


def run_facts(segments: DataFrame, confs: DataFrame, process_names: DataFrame) -> DataFrame:
    """A run is closed when the last segment of every life says that it reached quiescence, and no such life is missing."""
    lasts = segments.groupBy("run", "node").agg(F.max_by(F.coalesce("closed", F.lit(False)), "segment").alias("closed"))
    missing = lost_lives(segments, confs, process_names).select("run", F.lit(False).alias("closed"))
    modes = segments.groupBy("run").agg(F.min("mode").alias("mode"), F.min("engine").alias("engine"))
    return lasts.drop("node").unionByName(missing).groupBy("run").agg(F.min("closed").alias("closed")).join(modes, "run")


def lost_lives(segments: DataFrame, confs: DataFrame, process_names: DataFrame) -> DataFrame:
    """run, node: members whose messages others know, and of whom there is no trace. They did exist: only their files are not
    here, so nobody can say what they did not do."""
    members = confs.select("run", F.explode("members").alias("node")).distinct()
    speaking = members.join(process_names.select("node").distinct(), "node", "left_semi")
    return speaking.join(segments.select("node").distinct(), "node", "left_anti")


def all_gaps(tables: Tables, segments: DataFrame) -> DataFrame:
    """Recorded gaps, and gaps between segments: a missing file, or events that no file has."""
    life = Window.partitionBy("node").orderBy("segment")
    expected = F.lag("last_lseq", 1, 0).over(life) + 1
    number = F.lag("segment", 1, 0).over(life) + 1
    between = segments.withColumn("expected", expected).withColumn("number_expected", number)
    missing = between.where("first_lseq <> expected or segment <> number_expected")
    unrecorded = missing.select("run", "node", "segment", F.lit(0).alias("conf_no"), F.col("expected").alias("lseq"))
    return tables["gaps"].select("run", "node", "segment", "conf_no", "lseq").unionByName(unrecorded)


def ranked_confs(tables: Tables, gaps: DataFrame, node_names: DataFrame, view_names: DataFrame) -> DataFrame:
    """CONF events with their stay and whether something is missing before them."""
    marks = (
        tables["confs"].withColumn("is_gap", F.lit(0)).unionByName(gaps.withColumn("is_gap", F.lit(1)), allowMissingColumns=True)
    )
    life = Window.partitionBy("node").orderBy("lseq", F.desc("is_gap"))
    so_far = marks.withColumn("gaps", F.sum("is_gap").over(life)).where("is_gap = 0")
    confs = (
        so_far.withColumn("conf_rank", F.row_number().over(Window.partitionBy("node").orderBy("lseq")))
        .withColumn("stay_no", F.sum(F.expr("int(view_kind = 0)")).over(Window.partitionBy("node").orderBy("lseq")))
        .withColumn("blind", F.col("gaps") > F.lag("gaps", 1, 0).over(Window.partitionBy("node").orderBy("lseq")))
    )
    named = confs.join(node_names.select("node", "node_name"), "node").join(view_names.select("view", "view_name"), "view")
    return named.drop("is_gap", "gaps")


def life_facts(tables: Tables, segments: DataFrame, gaps: DataFrame, confs: DataFrame, node_names: DataFrame) -> DataFrame:
    lives = segments.select("run", "node").distinct().join(node_names.drop("run"), "node")
    ends = (
        tables["ends"]
        .groupBy("node")
        .agg(
            F.min("lseq").alias("end_lseq"), F.min_by("time_us", "lseq").alias("end_us"), F.min_by("what", "lseq").alias("ended")
        )
    )
    gapped = gaps.select("node").distinct().withColumn("gapped", F.lit(True))
    last = confs.groupBy("node").agg(
        F.count("*").alias("confs"),
        *(F.max_by(name, "lseq").alias(f"last_{name}") for name in ("view", "time_us")),
        F.max("lseq").alias("last_lseq"),
    )
    found = lives.join(ends, "node", "left").join(gapped, "node", "left").join(last, "node", "left")
    filled = found.fillna({"gapped": False, "confs": 0, "ended": ""})
    return filled.withColumnRenamed("last_time_us", "last_us")


def stretch_stays(segments: DataFrame, confs: DataFrame) -> DataFrame:
    """Which stay and phase a stretch of a segment is in: (segment, conf_no) is in force from its CONF on, (segment, 0) goes on
    with what was in force at the end of the segment before."""
    of_stay = Window.partitionBy("node").orderBy("lseq").rowsBetween(Window.unboundedPreceding, 0)
    regular = F.last(F.when(F.col("view_kind") == 0, F.col("view")), ignorenulls=True).over(of_stay)
    opened = confs.select(*STRETCH, "stay_no", F.col("view_kind").alias("phase"), regular.alias("ring"))
    latest = opened.groupBy("node", "segment").agg(F.max_by(F.struct("stay_no", "phase", "ring"), "conf_no").alias("latest"))
    earlier = Window.partitionBy("node").orderBy("segment").rowsBetween(Window.unboundedPreceding, -1)
    carried = segments.select("node", "segment").join(latest, ["node", "segment"], "left")
    carried = carried.select(
        "node", "segment", F.lit(0).alias("conf_no"), F.last("latest", ignorenulls=True).over(earlier).alias("at")
    )
    starts = carried.select(*STRETCH, F.coalesce("at.stay_no", F.lit(0)).alias("stay_no"), "at.phase", "at.ring")
    return opened.unionByName(starts)


def stay_extents(tables: Tables, stretches: DataFrame) -> DataFrame:
    """How far the order reaches in each stay: in its regular part, and in all of it."""
    placed = tables["extents"].join(F.broadcast(stretches), STRETCH)
    return placed.groupBy("node", "stay_no").agg(
        F.max(F.when(F.col("phase") == 0, F.col("end_tpos"))).alias("cut"),
        F.max("end_tpos").alias("n"),
        F.sum("ordered").alias("ordered"),
    )


def stay_facts(confs: DataFrame, gaps: DataFrame, lives: DataFrame, runs: DataFrame, extents: DataFrame) -> DataFrame:
    regular = confs.where("view_kind = 0").select(
        "run", "node", "node_name", "stay_no", F.col("view").alias("ring"), F.col("view_name").alias("ring_name"), "members",
        F.col("lseq").alias("conf_lseq"), F.col("time_us").alias("conf_us"), "blind",
    )  # fmt: skip
    life = Window.partitionBy("node").orderBy("stay_no")
    following = {"following": "ring", "following_name": "ring_name", "following_lseq": "conf_lseq"}
    regular = regular.withColumns({new: F.lead(old).over(life) for new, old in following.items()})
    firsts = confs.where("view_kind = 1").groupBy("node", "stay_no").agg(
        F.min_by("view", "lseq").alias("trans"), F.min_by("view_name", "lseq").alias("trans_name"),
        F.min_by("members", "lseq").alias("trans_members"), F.min("lseq").alias("trans_lseq"),
    )  # fmt: skip
    stays = regular.join(firsts, ["node", "stay_no"], "left").join(extents, ["node", "stay_no"], "left")
    stays = stays.fillna({"n": 0, "ordered": 0}).withColumn("cut", F.coalesce("cut", F.lit(0)))
    stays = stays.join(_gapped_stays(confs, gaps), ["node", "stay_no"], "left")
    stays = stays.join(lives.select("node", "ended", "name", "incarnation", "boot"), "node").join(
        runs.select("run", "closed"), "run"
    )
    whole = ~F.col("blind") & F.col("has_gap").isNull()
    ranked = Window.partitionBy("ring").orderBy("name", "incarnation", "boot", "stay_no")
    return (
        stays.withColumn("whole", whole)
        .withColumn("duty", duty())
        .withColumn("stay_rank", F.row_number().over(ranked))
        .drop("blind", "has_gap", "ended", "closed", "name", "incarnation", "boot")
    )


def duty() -> Column:
    """What becomes of "this must exist in this stay" when it does not."""
    return F.expr("""case when not whole or ended = 'unknown' then 'pending'
                          when following is not null then 'due'
                          when ended <> '' then 'void'
                          when closed then 'due' else 'pending' end""")


def _gapped_stays(confs: DataFrame, gaps: DataFrame) -> DataFrame:
    """Stays in which something is missing: a gap belongs to the last regular configuration before it."""
    marks = gaps.select("node", "lseq", F.lit(1).alias("is_gap")).unionByName(
        confs.where("view_kind = 0").select("node", "lseq", F.lit(0).alias("is_gap"))
    )
    life = Window.partitionBy("node").orderBy("lseq", F.desc("is_gap"))
    placed = marks.withColumn("stay_no", F.sum(1 - F.col("is_gap")).over(life))
    return placed.where("is_gap = 1").select("node", "stay_no", F.lit(True).alias("has_gap")).distinct()


# -- large tables ----------------------------------------------------------------------------------------------------


def placed_messages(tables: Tables, stretches: DataFrame, runs: DataFrame, causal_apart: bool) -> tuple[DataFrame, DataFrame]:
    """Deliveries and sends, as `HistoryTables` has them."""
    deliveries = in_their_stays(tables["deliveries"], stretches)
    sends = with_before(in_their_stays(tables["sends"], stretches), tables, stretches).withColumn("sender", F.col("node"))
    return with_order(deliveries, runs, causal_apart), with_order(sends, runs, causal_apart)


def in_their_stays(rows: DataFrame, stretches: DataFrame) -> DataFrame:
    """Rows with the stay, phase and ring in force where they stand; linear, because a stretch is found by its number."""
    return rows.join(F.broadcast(stretches), STRETCH, "left").fillna({"stay_no": 0})


def with_order(rows: DataFrame, runs: DataFrame, causal_apart: bool) -> DataFrame:
    """Rows with `is_ordered`; engines are looked up only where they differ in it."""
    if not causal_apart:
        return rows.withColumn("is_ordered", F.expr("service > 0"))
    apart = F.broadcast(runs.select("run", F.expr(CAUSAL_APART).alias("causal_apart")))
    return rows.join(apart, "run").withColumn("is_ordered", F.expr("service > int(causal_apart)")).drop("causal_apart")


def with_before(sends: DataFrame, tables: Tables, stretches: DataFrame) -> DataFrame:
    """`before` where the segment did not say: what earlier segments delivered in the same stay."""
    placed = tables["extents"].join(F.broadcast(stretches), STRETCH)
    ends = placed.groupBy("node", "stay_no", "segment").agg(F.max("end_tpos").alias("end_tpos"))
    carry = ends.select("node", "stay_no", (F.col("segment")).alias("from_segment"), "end_tpos")
    open_sends = sends.where("before is null").select("node", "stay_no", "segment").distinct()
    carried = (
        open_sends.join(carry, ["node", "stay_no"])
        .where("from_segment < segment")
        .groupBy("node", "stay_no", "segment")
        .agg(F.max("end_tpos").alias("carried"))
    )
    found = sends.join(F.broadcast(carried), ["node", "stay_no", "segment"], "left")
    return found.withColumn("before", F.coalesce("before", "carried", F.lit(0))).drop("carried")


# -- who is not there ------------------------------------------------------------------------------------------------


def absent_members(laid: HistoryTables, rings: DataFrame) -> DataFrame:
    """run, ring, bound, node, duty: a member's trace must have gone past the ring, or be complete, before it is due."""
    members = rings.select("run", "ring", "bound", F.explode("members").alias("node"))
    missing = members.join(laid.stays.select("ring", "node"), ["ring", "node"], "left_anti")
    order = laid.view_names.select(F.col("view").alias("ring"), F.col("view_order").alias("ring_order"))
    latest = laid.stays.select("node", "ring").join(order, "ring").groupBy("node").agg(F.max("ring_order").alias("latest"))
    lives = laid.lives.select("node", "ended", "gapped")
    judged = missing.join(order, "ring").join(latest, "node", "left").join(lives, "node", "left")
    return judged.join(laid.runs.select("run", "closed"), "run").withColumn("duty", _never_came())


def _never_came() -> Column:
    return F.expr("""case when gapped is null or gapped or ended = 'unknown' then 'pending'
                          when coalesce(latest > ring_order, false) or ended <> '' or closed then 'due'
                          else 'pending' end""")


# --- moments ----------------------------------------------------------------------------------------------------------


def latest(rows: DataFrame, marks: DataFrame, keys: Sequence[str], found: str) -> DataFrame:
    """`found`: the columns of the last mark at or before a row's `lseq`, with equal keys, as a struct; null if there is none."""
    said = F.struct(*(name for name in marks.columns if name not in keys))
    return _beside(rows, marks.select(*keys, "lseq", said.alias(found)), keys, found, F.asc("lseq"), F.asc("is_row"))


def next_lseq(rows: DataFrame, marks: DataFrame, keys: Sequence[str], found: str) -> DataFrame:
    """`found`: the `lseq` of the first mark behind a row, with equal keys; null if there is none."""
    return _beside(rows, marks.select(*keys, "lseq", F.col("lseq").alias(found)), keys, found, F.desc("lseq"), F.desc("is_row"))


def _beside(rows: DataFrame, marks: DataFrame, keys: Sequence[str], found: str, *order: Column) -> DataFrame:
    both = rows.withColumn("is_row", F.lit(True)).unionByName(marks.withColumn("is_row", F.lit(False)), allowMissingColumns=True)
    so_far = Window.partitionBy(*keys).orderBy(*order).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return both.withColumn(found, F.last(found, ignorenulls=True).over(so_far)).where("is_row").drop("is_row")
