"""What a store remembers of earlier audits: verdicts of runs that did not change, and the proven past of runs that grow.

**Verdicts.** A run is known by a digest of the digests of all its segments, open ones among them, and of what stands beside
them, because that is evidence, too. A late file, one more batch of an open one, a file that nobody can read, another run in the
same directory or another version of this package makes another digest, and the run is judged anew.

**The past.**

1. A run that is still open and in which nothing is broken has a past: the rows of its large kinds in all segments sealed so far,
   coalesced where they are proven. The next audit judges it together with the later segments.
2. A past is thrown away, and the run judged whole from its raw rows, when one of its segments changed or came late, when
   somebody else turns out to have been in a ring that was compacted, when another version of this package made it, and when
   anything is broken: violations are always described from the raw events.

**How rows are compacted**, so that every property judges them as before:

1. Ring by ring, below a position P that everybody has delivered in the regular configuration, deliveries are the same
   everywhere. Runs of one process with counters that go on become one, and move to the place of the first of them; so do their
   SENDs. That is another order, but everybody has it, and properties ask nothing of it but what it proves already.
2. Only between two *cuts*: no run is moved across a group view, a leave, or a connection of any node, because recipients change
   there; nor are runs put together that went to others, or another way, at any node (`sign`).
3. Numbers stay within bounds: positions are the same range, and so are places, since each message has its own place before,
   too.
4. What nobody has proven yet stays as it is: the run at P and all above it, transitional configurations, stays with gaps.
5. Between two barriers of a node, one event hands clients what many did before. An event hands runs over right behind their
   delivery with no barrier between, so the one that takes their place stands right behind the last of its runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from transis import __version__
from transis.audit.plans.clients import CHANGES, handed_runs, in_spans
from transis.audit.plans.evidence import files_of_runs, folder
from transis.audit.plans.judge import Verdicts
from transis.audit.plans.lay import STRETCH, HistoryTables, Settle, Tables, in_their_stays, latest, placed_messages
from transis.audit.plans.spine import CHUNK, INDEX_BITS, place
from transis.audit.plans.store import EventStore, above
from transis.spark.inputs import EVENTS, INT, LONG, TEXT, checkpointed, columns
from transis.trace.tables import KINDS

LARGE: Final = ("submits", "refusals", "sends", "deliveries", "client_deliveries")
"""Kinds that grow with every message; the others grow with events of nodes and groups."""

# --- handings ---------------------------------------------------------------------------------------------------------

BLOCK: Final = 1 << 16
"""How many events of a node are merged into one that hands over their runs: its array should not become long."""

HANDED: Final = EVENTS["handed"].dataType
WAITED: Final = EVENTS["waited"].dataType


@dataclass(frozen=True)
class PastDeliveries:
    handed: DataFrame
    """run, node, lseq, groups, processes, run_lseq: a row per run and entry of a CDELIVER that becomes past."""
    marks: DataFrame
    """node, lseq: barriers that become past."""
    ways: DataFrame
    """node, run_lseq, way: a hash of who got a run through which groups."""
    waited: DataFrame
    """node, process, first, named: basic runs that are recorded as having waited."""
    settled: DataFrame
    """node, reach, settled_lseq: the last run that was handed over, and the last event by which it is known what became of the
    runs before it. One row a node with clients."""
    pieces: DataFrame
    """node, in_pieces: nodes that did not hand over each run at once, or may not have."""


def past_deliveries(laid: HistoryTables, events: DataFrame, cuts: DataFrame, settle: Settle) -> PastDeliveries:
    """`events` are CDELIVERs that become past, `cuts` as in shortened.py."""
    tables, ends = laid.tables, F.broadcast(cuts.select("node", "upto"))
    places = [tables[kind].select("node", "segment", "lseq") for kind in (*CHANGES, "confs")]
    marks = settle(reduce(DataFrame.unionByName, places).join(ends, "node").where("segment <= upto").select("node", "lseq"))
    handed = handed_runs(events)
    entry = F.array_sort(F.collect_list(F.struct("groups", "processes")))
    ways = handed.groupBy("node", "run_lseq").agg(F.xxhash64(entry).alias("way"), F.countDistinct("lseq").alias("events"))
    ways = settle(ways)
    waited = events.select("node", F.explode("waited").alias("one"))
    waited = waited.select("node", F.col("one.sender").alias("process"), "one.first", F.lit(True).alias("named")).distinct()
    crowd = reduce(DataFrame.unionByName, [tables[kind].select("node") for kind in (*CHANGES, "client_deliveries")]).distinct()
    crowd = settle(crowd.join(ends, "node").select("node"))
    gapped = laid.lives.where("gapped").select("node").join(crowd, "node")
    pieces = ways.where("events > 1").select("node").unionByName(gapped).distinct().withColumn("in_pieces", F.lit(True))
    return PastDeliveries(handed, marks, ways.drop("events"), waited, settle(_settled(crowd, marks, ways)), pieces)


def _settled(crowd: DataFrame, marks: DataFrame, ways: DataFrame) -> DataFrame:
    reached = ways.groupBy("node").agg(F.max("run_lseq").alias("reach"))
    barred = marks.groupBy("node").agg(F.max("lseq").alias("barred"))
    known = crowd.join(reached, "node", "left").join(barred, "node", "left")
    return known.select("node", "reach", F.coalesce(F.greatest("reach", "barred"), F.lit(0)).alias("settled_lseq"))


def short_events(events: DataFrame, short: DataFrame, handings: PastDeliveries) -> DataFrame:
    """CDELIVERs that hand over what is left. `short` has the deliveries that may be coalesced, and which of them are heads."""
    runs = short.select("node", F.col("lseq").alias("run_lseq"), "is_head", "segment", "conf_no", "time_us")
    placed = handings.handed.join(runs, ["node", "run_lseq"], "left")
    together = _together(placed.where("is_head"), handings.marks).withColumn("waited", F.array().cast(WAITED))
    columns = KINDS["client_deliveries"]
    both = together.select(*columns).unionByName(_others(events, placed.where("is_head is null")).select(*columns))
    key = ["run", "node", "lseq"]
    lists = [F.flatten(F.collect_list(name)).alias(name) for name in ("handed", "waited")]
    origin = [F.min(name).alias(name) for name in ("segment", "conf_no", "time_us")]
    return both.groupBy(*key).agg(*origin, *lists).select(*columns)


def _together(handed: DataFrame, marks: DataFrame) -> DataFrame:
    """One event for all heads between two barriers."""
    placed = in_spans(handed.drop("lseq").withColumn("lseq", F.col("run_lseq")), marks)
    key = ["run", "node", "span", "block"]
    last = F.struct("run_lseq", "segment", "conf_no", "time_us")
    entries = (
        placed.withColumn("block", F.expr(f"run_lseq div {BLOCK}"))
        .groupBy(*key, "groups", "processes")
        .agg(F.sort_array(F.collect_set("run_lseq")).alias("runs"), F.max(last).alias("last"))
    )
    entry = F.struct("groups", "processes", "runs")
    events = entries.groupBy(*key).agg(F.collect_list(entry).cast(HANDED).alias("handed"), F.max("last").alias("last"))
    return events.select("run", "node", "last.*", "handed").withColumn("lseq", F.col("run_lseq") + 1)


def _others(events: DataFrame, handed: DataFrame) -> DataFrame:
    """Events with what they hand over that stays as it is, and what had waited; those that are empty now are gone."""
    entries = handed.groupBy("node", "lseq", "groups", "processes").agg(F.sort_array(F.collect_set("run_lseq")).alias("runs"))
    entry = F.struct("groups", "processes", "runs")
    left = entries.groupBy("node", "lseq").agg(F.collect_list(entry).cast(HANDED).alias("left"))
    found = events.drop("handed").join(left, ["node", "lseq"], "left").where("left is not null or size(waited) > 0")
    return found.withColumn("handed", F.coalesce("left", F.array().cast(HANDED))).drop("left")


# --- shortened --------------------------------------------------------------------------------------------------------

STAY: Final = ["node", "stay_no"]


@dataclass(frozen=True)
class Compacted:
    rows: DataFrame
    """All rows of the large kinds up to the cuts, coalesced where that is right: columns of EVENTS."""
    rings: DataFrame
    """run, ring, below: rings of which something was coalesced, and below which position."""


def compacted(laid: HistoryTables, rings: DataFrame, cuts: DataFrame, settle: Settle) -> Compacted:
    """`rings` as the audit bounded them; `cuts` has run, node, upto: the last segment of a life that becomes past.

    Runs that are not in `cuts` are left out.
    """
    ends = F.broadcast(cuts.select("node", "upto"))
    covered = {kind: laid.tables[kind].join(ends, "node").where("segment <= upto").drop("upto") for kind in LARGE}
    deliveries = in_their_stays(covered["deliveries"], laid.stretches)
    sends = in_their_stays(covered["sends"], laid.stretches)
    handings = past_deliveries(laid, covered["client_deliveries"], cuts, settle)
    canon = settle(proven_rows(deliveries, limits(laid, rings, cuts, deliveries, handings)))
    below = settle(canon.groupBy("run", "ring").agg(F.max("below").alias("below")))
    region = settle(in_region(deliveries, below, handings))
    heads = settle(island_heads(canon, cut_positions(laid, deliveries, region, handings), region))
    short = settle(short_deliveries(region, heads, handings))
    rows = {
        "deliveries": _outside(deliveries, region).unionByName(short.where("is_head").select(*KINDS["deliveries"])),
        "sends": short_sends(sends, heads),
        "submits": coalesced(covered["submits"], ["run", "node", "process"], forgotten=("service", "address")),
        "refusals": coalesced(covered["refusals"], ["run", "node", "process", "why"]),
        "client_deliveries": short_events(covered["client_deliveries"], short, handings),
    }
    return Compacted(_as_events(rows), below.where("below > 0"))


def _as_events(rows: dict[str, DataFrame]) -> DataFrame:
    return reduce(DataFrame.unionByName, [_wide(kind, table) for kind, table in rows.items()])


def _wide(kind: str, rows: DataFrame) -> DataFrame:
    missing = {field.name: F.lit(None).cast(field.dataType) for field in EVENTS.fields if field.name not in KINDS[kind]}
    return rows.select(*KINDS[kind]).withColumns({**missing, "kind": F.lit(kind)}).select(*EVENTS.names)


# -- how far -----------------------------------------------------------------------------------------------------------


def limits(laid: HistoryTables, rings: DataFrame, cuts: DataFrame, deliveries: DataFrame, handings: PastDeliveries) -> DataFrame:
    """run, ring, limit, canon_node, canon_stay_no: below the limit everybody has the same, in the regular configuration, in
    segments that become past, and whoever must get it has got it."""
    ends = F.broadcast(cuts.select("node", "upto"))
    extents = laid.tables["extents"].join(ends, "node").where("segment <= upto").join(F.broadcast(laid.stretches), STRETCH)
    reached = extents.where("phase = 0").groupBy(*STAY).agg(F.max("end_tpos").alias("reached"))
    stays = laid.stays.join(reached, STAY, "left").join(handings.pieces, "node", "left")
    known = F.expr("if(whole and not coalesce(in_pieces, false), coalesce(reached, 0), 0)")
    of_ring = stays.groupBy("ring").agg(F.min(known).alias("reached"))
    waiting = deliveries.where("service > 0 and address is not null and phase = 0").join(F.broadcast(handings.settled), "node")
    unsettled = waiting.where("lseq > settled_lseq").groupBy("ring").agg(F.min("tpos").alias("unsettled"))
    found = rings.join(cuts.select("run").distinct(), "run", "left_semi").join(of_ring, "ring").join(unsettled, "ring", "left")
    limit = F.least("bound", "reached", "unsettled").alias("limit")
    return found.select("run", "ring", limit, "canon_node", "canon_stay_no")


def proven_rows(deliveries: DataFrame, limits: DataFrame) -> DataFrame:
    """The sequence of each ring below P, as its longest stay has it; `below` is P, which is where a run begins."""
    rows = deliveries.where("service > 0 and phase = 0").join(F.broadcast(limits), ["run", "ring"])
    of_canon = rows.where("node = canon_node and stay_no = canon_stay_no and tpos + count <= limit")
    below = F.max("tpos").over(Window.partitionBy("ring"))
    found = of_canon.withColumn("below", below).where("tpos < below").withColumn("place", place())
    return found.select("run", "ring", "tpos", "process", "first", "count", "service", "place", "size", "below")


def in_region(deliveries: DataFrame, below: DataFrame, handings: PastDeliveries) -> DataFrame:
    """Deliveries that may be coalesced: ordered ones below P, and basic ones before the run at P; with the way they went."""
    placed = deliveries.where("phase = 0 and stay_no > 0").join(F.broadcast(below.select("ring", "below")), "ring")
    at_p = placed.where("service > 0 and tpos = below").select(*STAY, F.col("lseq").alias("p_lseq"))
    rows = placed.join(F.broadcast(at_p), STAY).where("lseq < p_lseq").drop("below", "p_lseq")
    return rows.join(handings.ways.withColumnRenamed("run_lseq", "lseq"), ["node", "lseq"], "left")


def _outside(deliveries: DataFrame, region: DataFrame) -> DataFrame:
    others = deliveries.join(region.select("node", "lseq"), ["node", "lseq"], "left_anti")
    return others.select(*KINDS["deliveries"])


# -- islands -----------------------------------------------------------------------------------------------------------


def with_heads(rows: DataFrame, by: Sequence[str], order: str) -> DataFrame:
    """`head`: of each row, the first of the island that it is in. Counters of an island go on without a gap."""
    in_order = Window.partitionBy(*by).orderBy(order)
    goes_on = F.coalesce(F.lag(F.col("first") + F.col("count")).over(in_order) == F.col("first"), F.lit(False))
    marked = rows.withColumn("goes_on", goes_on)
    start = F.last(F.when(~F.col("goes_on"), F.col(order)), ignorenulls=True)
    return marked.withColumn("head", start.over(in_order)).drop("goes_on")


def coalesced(rows: DataFrame, by: Sequence[str], forgotten: Sequence[str] = ()) -> DataFrame:
    """Islands of rows that have no place in an order, each at its first event; columns in which rows may differ are emptied."""
    blocks = rows.withColumn("block", F.expr(f"first div {CHUNK}"))
    key = [*by, "block"]
    headed = with_heads(blocks, key, "lseq")
    total = F.sum("count").over(Window.partitionBy(*key, "head")).cast("int")
    whole = headed.withColumn("count", total).where("lseq = head")
    return whole.withColumns({name: F.lit(None).cast(rows.schema[name].dataType) for name in forgotten}).select(*rows.columns)


def cut_positions(laid: HistoryTables, deliveries: DataFrame, region: DataFrame, handings: PastDeliveries) -> DataFrame:
    """ring, position: where something stands at any node that runs must not be moved across. The last run that a node handed over
    is one, too: it shows how far the node has come."""
    tables = laid.tables
    marks = reduce(DataFrame.unionByName, [tables[kind].select("run", *STRETCH, "lseq") for kind in CHANGES])
    placed = in_their_stays(marks, laid.stretches)
    inside = placed.join(F.broadcast(region.select(*STAY).distinct()), STAY, "left_semi")
    there = F.broadcast(inside.select(*STAY).distinct())
    rows = deliveries.where("service > 0 and phase = 0").join(there, STAY, "left_semi")
    ends = rows.select(*STAY, "lseq", F.expr("tpos + count").alias("end"))
    positions = latest(inside, ends, STAY, "before").select("ring", F.coalesce("before.end", F.lit(0)).alias("position"))
    last = F.broadcast(handings.settled.select("node", F.col("reach").alias("lseq")))
    handed_last = region.where("service > 0").join(last, ["node", "lseq"])
    return positions.unionByName(handed_last.select("ring", F.col("tpos").alias("position"))).distinct()


def island_heads(canon: DataFrame, cuts: DataFrame, region: DataFrame) -> DataFrame:
    """The proven rows, each with the head of its island; the heads also with what the island is together: new_tpos, new_place,
    new_count, new_size."""
    way = F.xxhash64("node", "address", "way")
    signs = region.where("service > 0").groupBy("ring", "tpos").agg(F.bit_xor(way).alias("sign"))
    marks = cuts.select("ring", F.col("position").alias("lseq"))
    signed = canon.join(signs, ["ring", "tpos"]).withColumn("lseq", F.col("tpos"))
    placed = latest(signed, marks, ["ring"], "cut").withColumn("cut", F.coalesce("cut.lseq", F.lit(-1))).drop("lseq")
    chunked = placed.withColumn("chunk", F.expr(f"tpos div {CHUNK}"))
    headed = with_heads(chunked, ["ring", "cut", "chunk", "process", "service", "sign"], "tpos")
    island = Window.partitionBy("ring", "process", "head")
    summed = headed.withColumns({"new_count": F.sum("count").over(island), "new_size": F.sum("size").over(island)})
    return _moved(summed)


def _moved(rows: DataFrame) -> DataFrame:
    """Islands one after the other, from where the first of them stands between two cuts."""
    group = Window.partitionBy("ring", "cut", "chunk")
    is_head = F.col("tpos") == F.col("head")
    earlier = group.orderBy("tpos").rowsBetween(Window.unboundedPreceding, -1)
    offset = F.coalesce(F.sum(F.when(is_head, F.col("new_count"))).over(earlier), F.lit(0))
    moved = rows.withColumns(
        {"offset": offset, "start": F.min("tpos").over(group), "start_place": F.min("place").over(group), "is_head": is_head}
    )
    return moved.select(
        *("run", "ring", "process", "first", "tpos", "is_head", "new_count", "new_size"),
        F.expr("start + offset").alias("new_tpos"),
        F.expr("start_place + offset").alias("new_place"),
    )


def _replaced(rows: DataFrame) -> DataFrame:
    """Rows of heads, with the values of their islands."""
    index = F.col("new_place").bitwiseAND(F.lit((1 << INDEX_BITS) - 1))
    values: dict[str, Column] = {
        "count": F.col("new_count").cast("int"),
        "place_seq": F.shiftright("new_place", INDEX_BITS),
        "place_index": index.cast("int"),
    }
    values |= {"tpos": F.col("new_tpos"), "size": F.col("new_size")} if "tpos" in rows.columns else {}
    return rows.withColumns(values)


# -- rows --------------------------------------------------------------------------------------------------------------


def short_deliveries(region: DataFrame, heads: DataFrame, handings: PastDeliveries) -> DataFrame:
    """The rows of the region with `is_head`; heads are as their islands are. Basic ones are islands of their own node."""
    moved = heads.select("ring", "tpos", "is_head", "new_count", "new_size", "new_tpos", "new_place")
    ordered = region.where("service > 0").join(moved, ["ring", "tpos"])
    replaced = _replaced(ordered).select(*KINDS["deliveries"], "is_head")
    return replaced.unionByName(_basics(region.where("service = 0"), handings))


def _basics(rows: DataFrame, handings: PastDeliveries) -> DataFrame:
    """Those that wait, or may wait, stay as they are, because later events name them by their counters; and so does the last run
    that was handed over."""
    known = rows.join(handings.waited, ["node", "process", "first"], "left").join(
        F.broadcast(handings.settled.select("node", "reach")), "node", "left"
    )
    alone = F.expr("if(named or lseq <=> reach or (address is not null and way is null), lseq, 0)")
    blocks = in_spans(known, handings.marks).withColumns({"alone": alone, "block": F.expr(f"first div {CHUNK}")})
    key = ["node", "stay_no", "span", "process", "address", "way", "alone", "block"]
    headed = with_heads(blocks, key, "lseq")
    island = Window.partitionBy(*key, "head")
    whole = headed.withColumns({"count": F.sum("count").over(island).cast("int"), "size": F.sum("size").over(island)})
    return whole.withColumn("is_head", F.expr("lseq = head")).select(*KINDS["deliveries"], "is_head")


def short_sends(sends: DataFrame, heads: DataFrame) -> DataFrame:
    """SENDs as the deliveries that they belong to; basic ones as islands of their own."""
    moved = heads.select("ring", "process", "first", "is_head", "new_count", "new_size", "new_place")
    ordered = sends.where("service > 0").join(moved, ["ring", "process", "first"], "left")
    kept = ordered.where("is_head is null")
    replaced = _replaced(ordered.where("is_head")).withColumn("before", F.lit(0).cast("long"))
    basic = coalesced(sends.where("service = 0"), ["run", "node", "stay_no", "phase", "process", "address"])
    columns = KINDS["sends"]
    return kept.select(*columns).unionByName(replaced.select(*columns)).unionByName(basic.select(*columns))


# --- past -------------------------------------------------------------------------------------------------------------

PAST: Final = "past"
CUTS: Final = "past_cuts"
RINGS: Final = "past_rings"

PAST_CUTS: Final = columns(run=LONG, node=LONG, upto=INT, inputs=TEXT, made_by=TEXT)
"""A life of which the segments up to this one are past; the digest of their digests, and the version that made it."""
PAST_RINGS: Final = columns(run=LONG, ring=LONG, below=LONG)
"""A ring of which something was coalesced, below this position."""
TABLES: Final = {PAST: EVENTS, CUTS: PAST_CUTS, RINGS: PAST_RINGS}


class ProvenPast:
    """What a store has of the past of its runs, as far as it is still valid."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._is_kept = set(TABLES) <= set(store.tables())
        self.runs = self._valid() if self._is_kept else []
        """Runs that have a past."""

    def _valid(self) -> list[int]:
        cuts, events = self._store.table(CUTS), self._store.events()
        now = cut_digests(events.where("kind = 'segments'"), cuts.select("run", "node", "upto"))
        both = cuts.join(now.withColumnRenamed("inputs", "inputs_now"), ["run", "node"], "left")
        changed = both.where((F.col("made_by") != __version__) | ~F.col("inputs").eqNullSafe(F.col("inputs_now"))).select("run")
        confs = events.where("kind = 'confs'").select("run", "node", "segment", F.col("view").alias("ring"))
        entered = above(confs, cuts.select("node", "upto")).join(self._store.table(RINGS), ["run", "ring"]).select("run")
        found = cuts.select("run").distinct().join(changed.unionByName(entered).distinct(), "run", "left_anti")
        return sorted(row.run for row in found.collect())

    def events(self) -> DataFrame:
        """All events; runs with a past have it in place of the rows that it was made of."""
        if not self.runs:
            return self._store.events()
        ours = F.col("run").isin(self.runs)
        is_large = F.col("kind").isin(*LARGE)
        newer = self._store.events_above(self._store.table(CUTS).where(ours).select("node", "upto"))
        small = self._store.events().where(~is_large)
        return small.unionByName(newer.where(is_large)).unionByName(self._store.table(PAST).where(ours))

    def relapsed(self, judged: Verdicts) -> list[int]:
        """Runs with a past in which something is broken now."""
        if not self.runs:
            return []
        broken = judged.verdicts.where("violations > 0").select("run").distinct().collect()
        return sorted({row.run for row in broken} & set(self.runs))

    def next(self, laid: HistoryTables, judged: Verdicts, unchanged: Iterable[int]) -> dict[str, DataFrame]:
        """The tables of the past after an audit, by name, if there is any. `unchanged` runs keep theirs."""
        kept = F.col("run").isin(sorted(set(unchanged) & set(self.runs)))
        before = {name: self._store.table(name).where(kept) for name in TABLES} if self._is_kept else {}
        cuts = checkpointed(healthy_cuts(self._store.inputs(), laid, judged))
        if cuts.isEmpty():
            return before
        assert judged.rings is not None, "what is shortened was judged as a whole"
        made = compacted(laid, judged.rings, cuts.select("run", "node", "upto"), checkpointed)
        fresh = {PAST: made.rows.to(EVENTS), CUTS: cuts, RINGS: made.rings.to(PAST_RINGS)}
        return {name: rows.unionByName(before[name]) if before else rows for name, rows in fresh.items()}


def healthy_cuts(inputs: DataFrame, laid: HistoryTables, judged: Verdicts) -> DataFrame:
    """Lives of runs that are open and good, up to the last segment that is kept. A run that came to rest will not grow."""
    good = judged.verdicts.groupBy("run").agg(F.sum("violations").alias("violations")).where("violations = 0")
    runs = laid.runs.where("not closed").join(good, "run", "left_semi").select("run")
    kept = inputs.where("batch is not null").join(runs, "run", "left_semi")
    cuts = kept.groupBy("run", "node").agg(F.max("segment").alias("upto"))
    made = cut_digests(laid.tables["segments"], cuts).join(cuts, ["run", "node"])
    return made.withColumn("made_by", F.lit(__version__)).to(PAST_CUTS)


def cut_digests(segments: DataFrame, cuts: DataFrame) -> DataFrame:
    """run, node, inputs: one digest of all the segments of a life that are past."""
    contents = F.sort_array(F.collect_list(F.concat_ws(" ", "segment", "content_digest", "trouble")))
    past = segments.join(F.broadcast(cuts), ["run", "node"]).where("segment <= upto")
    return past.groupBy("run", "node").agg(F.sha2(F.concat_ws(",", contents), 256).alias("inputs"))


def over_raw_rows(laid: HistoryTables, tables: Tables) -> HistoryTables:
    """The same lives and stays over other rows of messages: measures want every single one."""
    deliveries, sends = placed_messages(tables, laid.stretches, laid.runs, laid.causal_apart)
    return replace(laid, tables=tables, deliveries=deliveries, sends=sends)


# --- judged -----------------------------------------------------------------------------------------------------------

TABLE: Final = "judged"
JUDGED: Final = columns(run=LONG, inputs=TEXT, made_by=TEXT)
"""Lineage: which inputs the verdicts of a run were made from, and by which version."""


def inputs_of_runs(segments: DataFrame) -> DataFrame:
    """run, inputs: one row a run."""
    placed = segments.where("run is not null").select("run", folder().alias("folder")).distinct()
    beside = placed.groupBy("folder").agg(F.bit_xor("run").alias("beside"))
    files = files_of_runs(segments).withColumn("folder", folder()).join(beside, "folder", "left")
    digests = F.sort_array(F.collect_list(F.concat_ws(" ", "node", "segment", "content_digest", "trouble", "beside")))
    runs = files.groupBy("run").agg(F.sha2(F.concat_ws(",", digests), 256).alias("inputs"))
    return runs.select("run", "inputs", F.lit(__version__).alias("made_by")).to(JUDGED)


class VerdictCache:
    """What a store has of earlier audits, and which runs are unchanged since."""

    def __init__(self, store: EventStore, tables: Tables, results: Iterable[str], forgotten: bool = False) -> None:
        """If `forgotten`, everything must be judged again."""
        self._store = store
        self._segments = tables["segments"]
        self.now = {row.run: row.asDict() for row in inputs_of_runs(self._segments).collect()}
        wanted = {TABLE, *results}
        known = store.table(TABLE).collect() if wanted <= set(store.tables()) and not forgotten else []
        self.unchanged = sorted(row.run for row in known if self.now.get(row.run) == row.asDict())
        self.changed = sorted(set(self.now) - set(self.unchanged))
        self.is_all = bool(self.unchanged) and not self.changed
        """True if nothing must be judged."""

    def of(self, runs: list[int], events: DataFrame) -> DataFrame:
        """Events of some runs, and the files beside them that nobody can read."""
        return events.where(F.col("run").isin(runs) | (F.col("run").isNull() & F.col("file").isin(self._strays(runs))))

    def _strays(self, runs: list[int]) -> list[str]:
        """Files without a run that count for these runs."""
        files = files_of_runs(self._segments).where(F.col("run").isin(runs) & F.col("node").isNull())
        return [row.file for row in files.select("file").distinct().collect()]

    def completed(self, fresh: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
        """Fresh results beside those of unchanged runs."""
        if not self.unchanged:
            return dict(fresh)
        kept = {name: self._store.table(name).where(F.col("run").isin(self.unchanged)) for name in fresh}
        return {name: kept[name].unionByName(rows, allowMissingColumns=True) for name, rows in fresh.items()}

    def table(self, spark: SparkSession) -> DataFrame:
        rows: list[dict[str, Any]] = [self.now[run] for run in sorted(self.now)]
        return spark.createDataFrame([(row["run"], row["inputs"], row["made_by"]) for row in rows], JUDGED)
