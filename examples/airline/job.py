"""The airline's queries over its archive: what was sold together and apart, which flights are oversold, and who must be rebooked.

The package handles partitions: each message once, sides, and one history by a policy. What remains is the airline's own rule: a
request gets a seat if the flight has room in the history that its office had seen. Sides that met have told each other what they
sold before they sold anything else.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from examples.airline.script import FLIGHTS, Flight
from transis.spark.archive import MESSAGE_ID, SIDE, read_stream, spans
from transis.spark.lineage import Lineage, Policy
from transis.spark.once import configurations, messages
from transis.spark.sides import lineage_of, merged, only_one_side, with_keys

KEYS: Final = {name: f"$.{name}" for name in ("request", "flight", "passenger", "fare", "office")}
TOGETHER: Final = "together"


def flights_table(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(FLIGHTS, list(Flight._fields))


def sales(spark: SparkSession, archive: str, group: str, policy: Policy) -> DataFrame:
    """Every request once, in the merged history, with the side that saw it and whether it got a seat there."""
    stream = read_stream(spark, archive, [group])
    known = spans(stream)
    lineage = lineage_of(configurations(stream))
    once = messages(stream, known)
    history = merged(stream, known, once, lineage, policy)
    asked = with_keys(history, KEYS).where("request is not null")  # Without the reports that sides sent each other.
    rows = asked.join(F.broadcast(_side_names(spark, lineage)), ["parting", "side"], "left")
    seen_by = F.coalesce("seen_by", F.lit(TOGETHER)).alias("seen_by")
    named = rows.select("merged_position", *MESSAGE_ID, seen_by, *KEYS).withColumn("fare", F.col("fare").cast("int"))
    sold = with_seats(named, only_one_side(stream, known, once, lineage), flights_table(spark))
    return sold.drop(*MESSAGE_ID)


def _side_names(spark: SparkSession, lineage: Lineage) -> DataFrame:
    """Sides, named by their offices."""
    rows = [
        (parting.number, str(side.number), " ".join(sorted({node.split("/")[0] for node in side.nodes})))
        for parting in lineage.partings
        for side in parting.sides
    ]
    return spark.createDataFrame(rows, "parting int, side string, seen_by string")


def with_seats(rows: DataFrame, apart: DataFrame, flights: DataFrame) -> DataFrame:
    """A request comes after those before it in the history, except those of sides that its own side had not met again."""
    line = Window.partitionBy("flight").orderBy("merged_position")
    counted = rows.withColumn("stands", F.row_number().over(line)).join(_unseen(rows, apart), "merged_position", "left")
    rank = F.col("stands") - F.coalesce("unseen", F.lit(0))
    placed = counted.withColumn("rank", rank).join(F.broadcast(flights), "flight")
    return placed.withColumn("has_seat", F.col("rank") <= F.col("seats")).drop("rank", "stands", "unseen")


def _unseen(rows: DataFrame, apart: DataFrame) -> DataFrame:
    """The number of requests for the same flight before a request that were sold by a side its own had not met again."""
    one = rows.select(*MESSAGE_ID, "flight", "merged_position").join(apart.select(*MESSAGE_ID, *SIDE), list(MESSAGE_ID))
    sides = F.split("side", "[+]")
    mine = one.select("flight", "parting", "merged_position", sides.alias("sides"))
    others = one.select("flight", "parting", F.col("merged_position").alias("other"), sides.alias("other_sides"))
    before = (F.col("other") < F.col("merged_position")) & ~F.arrays_overlap("sides", "other_sides")
    found = mine.join(others, ["flight", "parting"]).where(before)
    return found.groupBy("merged_position").agg(F.countDistinct("other").alias("unseen"))


def sold_together(sold: DataFrame) -> DataFrame:
    shown = sold.where(F.col("seen_by") == TOGETHER).orderBy("merged_position")
    return shown.select("flight", "passenger", "fare", "office", _word("has_seat", "sold", "full").alias("answer"))


def sold_apart(sold: DataFrame) -> DataFrame:
    """Each side in its own order."""
    shown = sold.where(F.col("seen_by") != TOGETHER).orderBy("merged_position")
    return shown.select("seen_by", "flight", "passenger", "fare", _word("has_seat", "sold", "full").alias("answer"))


def oversold(sold: DataFrame) -> DataFrame:
    """Flights of which more seats were sold than they have."""
    counted = sold.where("has_seat").groupBy("flight", "route", "departs", "seats").agg(F.count("*").alias("sold"))
    return counted.withColumn("over", F.col("sold") - F.col("seats")).where("over > 0").orderBy("flight")


def proposals(sold: DataFrame, flights: DataFrame) -> DataFrame:
    """Passengers beyond the capacity of their flight in the merged history, each with the first free seat on the route."""
    line = Window.partitionBy("flight").orderBy("merged_position")
    standing = sold.where("has_seat").withColumn("stands", F.row_number().over(line))
    waiting = standing.where("stands > seats").withColumn(
        "turn", F.row_number().over(Window.partitionBy("route").orderBy("merged_position"))
    )
    free = _free_seats(sold, flights)
    why = F.format_string("number %d of %d on %s, sold by %s", "stands", "seats", "flight", "office")
    to = F.coalesce("free_flight", F.lit("none is free: refund"))
    found = waiting.join(F.broadcast(free), ["route", "turn"], "left").orderBy("merged_position")
    return found.select("passenger", F.col("flight").alias("from"), to.alias("to"), "free_departs", why.alias("why"))


def _free_seats(sold: DataFrame, flights: DataFrame) -> DataFrame:
    """A row for each seat that nobody has, counted along the flights of its route."""
    taken = sold.where("has_seat").groupBy("flight").agg(F.count("*").alias("taken"))
    left = flights.join(F.broadcast(taken), "flight", "left").withColumn("left", F.col("seats") - F.coalesce("taken", F.lit(0)))
    seats = left.where("left > 0").select("route", "flight", "departs", F.explode(F.sequence(F.lit(1), "left")).alias("seat"))
    turn = F.row_number().over(Window.partitionBy("route").orderBy("departs", "seat"))
    return seats.select("route", F.col("flight").alias("free_flight"), F.col("departs").alias("free_departs"), turn.alias("turn"))


def _word(flag: str, yes: str, no: str) -> Column:
    return F.when(F.col(flag), yes).otherwise(no)
