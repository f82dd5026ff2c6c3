"""The past in short: rows of messages that are proven, coalesced into few, so that every property judges them as before.

1. Ring by ring, below a position P that everybody has delivered in the regular configuration, deliveries are the same everywhere.
   Runs of one process with counters that go on become one, and move to the place of the first of them; so do their SENDs. That is
   another order, but one that everybody has, and nothing is asked of it but what it proves already.
2. Between two *cuts* only: no run is moved across a group view, a leave or a word of life of any node, for recipients change
   there; nor are runs put together that went to others, or another way, at any node (`sign`).
3. Numbers stay within bounds: positions are the same range, and so are places, since each message has its own place before, too.
4. What nobody has proven yet stays as it is: the run at P and all above it, transitional configurations, stays with gaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from transis.pipeline.audit.group_recipients import CHANGES, in_spans
from transis.pipeline.audit.lay import STRETCH, Laid, Settle, in_their_stays
from transis.pipeline.audit.moments import latest
from transis.pipeline.audit.spine import CHUNK, INDEX_BITS, place
from transis.pipeline.handings import Handings, handings_of, short_events
from transis.pipeline.schemas import EVENTS, KINDS, LARGE

STAY: Final = ["node", "stay_no"]


@dataclass(frozen=True)
class Shortened:
    rows: DataFrame
    """All rows of the large kinds up to the cuts, coalesced where that is right: columns of EVENTS."""
    rings: DataFrame
    """run, ring, below: rings of which something was coalesced, and below which position."""


def shortened(laid: Laid, rings: DataFrame, cuts: DataFrame, settle: Settle) -> Shortened:
    """`rings` as the audit bounded them; `cuts` has run, node, upto: the last segment of a life that becomes past.

    Runs that are not in `cuts` are left out.
    """
    ends = F.broadcast(cuts.select("node", "upto"))
    covered = {kind: laid.tables[kind].join(ends, "node").where("segment <= upto").drop("upto") for kind in LARGE}
    deliveries = in_their_stays(covered["deliveries"], laid.stretches)
    sends = in_their_stays(covered["sends"], laid.stretches)
    handings = handings_of(laid, covered["client_deliveries"], cuts, settle)
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
    return Shortened(_as_events(rows), below.where("below > 0"))


def _as_events(rows: dict[str, DataFrame]) -> DataFrame:
    return reduce(DataFrame.unionByName, [_wide(kind, table) for kind, table in rows.items()])


def _wide(kind: str, rows: DataFrame) -> DataFrame:
    missing = {field.name: F.lit(None).cast(field.dataType) for field in EVENTS.fields if field.name not in KINDS[kind]}
    return rows.select(*KINDS[kind]).withColumns({**missing, "kind": F.lit(kind)}).select(*EVENTS.names)


# -- how far -----------------------------------------------------------------------------------------------------------


def limits(laid: Laid, rings: DataFrame, cuts: DataFrame, deliveries: DataFrame, handings: Handings) -> DataFrame:
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


def in_region(deliveries: DataFrame, below: DataFrame, handings: Handings) -> DataFrame:
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
    """Islands of rows that have no place in an order, each at its first event; what several of them may have is forgotten."""
    blocks = rows.withColumn("block", F.expr(f"first div {CHUNK}"))
    key = [*by, "block"]
    headed = with_heads(blocks, key, "lseq")
    total = F.sum("count").over(Window.partitionBy(*key, "head")).cast("int")
    whole = headed.withColumn("count", total).where("lseq = head")
    return whole.withColumns({name: F.lit(None).cast(rows.schema[name].dataType) for name in forgotten}).select(*rows.columns)


def cut_positions(laid: Laid, deliveries: DataFrame, region: DataFrame, handings: Handings) -> DataFrame:
    """ring, position: where something stands at any node that runs must not be moved across. The last run that a node handed
    over is one, too: by it everybody sees how far handing has come."""
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
    """Rows of heads, as their islands are."""
    index = F.col("new_place").bitwiseAND(F.lit((1 << INDEX_BITS) - 1))
    values: dict[str, Column] = {
        "count": F.col("new_count").cast("int"),
        "place_seq": F.shiftright("new_place", INDEX_BITS),
        "place_index": index.cast("int"),
    }
    values |= {"tpos": F.col("new_tpos"), "size": F.col("new_size")} if "tpos" in rows.columns else {}
    return rows.withColumns(values)


# -- rows --------------------------------------------------------------------------------------------------------------


def short_deliveries(region: DataFrame, heads: DataFrame, handings: Handings) -> DataFrame:
    """The rows of the region with `is_head`; heads are as their islands are. Basic ones are islands of their own node."""
    moved = heads.select("ring", "tpos", "is_head", "new_count", "new_size", "new_tpos", "new_place")
    ordered = region.where("service > 0").join(moved, ["ring", "tpos"])
    replaced = _replaced(ordered).select(*KINDS["deliveries"], "is_head")
    return replaced.unionByName(_basics(region.where("service = 0"), handings))


def _basics(rows: DataFrame, handings: Handings) -> DataFrame:
    """Those that wait, or may, stay as they are, for they will be spoken of by their counters; and so does the last run that was
    handed over."""
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
