"""Messages to members only: every run held against those who must get it. Half of `group_members_only`, see group_members.py.

1. A run is handed over right behind its delivery: no barrier and no handing of a later run may stand between. What is not handed
   over by then went to nobody.
2. A basic run may wait instead, until the views of its configuration stand, or be lost.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from transis.audit.plans.clients import (
    KEY,
    Clients,
    addressed_runs,
    barriers,
    before_gaps,
    heard_of,
    in_spans,
    numbered_events,
    recipients,
)
from transis.audit.plans.finding import Found, Pair, broken, checked, found, words
from transis.audit.plans.lay import latest

NAME: Final = "group_members_only"


def check(crowd: Clients) -> Found:
    keep = crowd.keep
    marks = keep(barriers(crowd))
    events, runs = keep(numbered_events(crowd, marks)), keep(addressed_runs(crowd, marks))
    waited = keep(_waiting_runs(in_spans(_waited(crowd), marks), _claimed_basics(crowd, runs, events), runs))
    expected = keep(recipients(crowd, runs.select(*KEY).unionByName(waited.select(*KEY))))
    handings = _handings(crowd, runs, events).join(expected, KEY, "left")
    doubts = keep(_doubts(crowd, handings, marks, events))
    handed = before_gaps(crowd, crowd.got.where("run_lseq is not null"))
    looked_at = [checked(handed, NAME, "count"), checked(doubts, NAME, "0", "if(event is null and fate = 'open', count, 0)")]
    wrong = [_unexpected(crowd, doubts), _missed(crowd, doubts), _late(doubts)]
    return found(looked_at, [*wrong, *_wrong_waiting(crowd, waited.join(expected, KEY, "left"))])


# -- runs and who got them -------------------------------------------------------------------------------------------


def _handings(crowd: Clients, runs: DataFrame, events: DataFrame) -> DataFrame:
    """Addressed runs beside the handings that claim them, either without the other too."""
    entry = F.transform("processes", lambda process: F.struct(process.alias("process"), F.col("groups").alias("groups")))
    claims = crowd.handed.groupBy("node", "lseq", "run_lseq").agg(F.sort_array(F.flatten(F.collect_list(entry))).alias("claim"))
    placed = claims.join(events, ["node", "lseq"]).select(
        *("node", "run_lseq", F.col("lseq").alias("event"), F.col("run").alias("event_run"), "claim"),
        *(F.col("span").alias("event_span"), "reached"),
    )
    both = runs.withColumnRenamed("lseq", "run_lseq").join(placed, ["node", "run_lseq"], "full_outer")
    return both.withColumn("run", F.coalesce("run", "event_run")).withColumn("is_fresh", _is_fresh()).drop("event_run")


def _is_fresh() -> Column:
    """Handed over right behind its delivery."""
    return F.expr("event is not null and address is not null and run_lseq < event and greatest(event_span, reached) < run_lseq")


def _doubts(crowd: Clients, handings: DataFrame, marks: DataFrame, events: DataFrame) -> DataFrame:
    """Runs that did not go, at once, to exactly those who must get them.

    `fate` of a run that went to nobody: `missed` if something stands behind it by which it must have been handed over, `open`
    while that may still happen, `void` if the node died, or dropped events, before it could.
    """
    ends = (
        marks.unionByName(events.select("node", F.col("reach").alias("lseq")))
        .groupBy("node")
        .agg(F.max("lseq").alias("judged_to"))
    )
    lives = crowd.lives.select("node", "node_name", "closed", "ended", "gapped").join(ends, "node", "left")
    fate = F.expr("""case when run_lseq < judged_to then 'missed' when ended <> '' or gapped then 'void'
                          when closed then 'missed' else 'open' end""")
    right = F.expr("coalesce(is_fresh and claim = expected, false) or (event is null and fate = 'void')")
    to_nobody = F.expr("event is null and fate = 'missed' and (is_basic or expected is null)")
    return handings.join(F.broadcast(lives), "node").withColumn("fate", fate).where(~right & ~to_nobody)


def _unexpected(crowd: Clients, doubts: DataFrame) -> DataFrame:
    """A process got a run that is not for it, or through other groups."""
    suspect = doubts.where("is_fresh").withColumn("got", F.explode("claim"))
    wrong = suspect.where(F.expr("not coalesce(array_contains(expected, got), false)"))
    return _misdirected(crowd, wrong, [("node", "run_lseq"), ("node", "event")], "event")


def _late(doubts: DataFrame) -> DataFrame:
    explanation = words("{node_name} handed a run over that it had not just delivered")
    wrong = doubts.where("event is not null and not is_fresh")
    return broken(wrong, NAME, explanation, [("node", "event")], nodes=["node"], position="event")


def _missed(crowd: Clients, doubts: DataFrame) -> DataFrame:
    """Basic runs may get lost on the way to a process; others not, if it is there or comes to word again."""
    due = doubts.where("not is_basic and expected is not null and (is_fresh or event is null and fate = 'missed')")
    got = F.coalesce(F.transform("claim", lambda one: one.process), F.array().cast("array<bigint>"))
    missing = F.explode(F.array_except(F.transform("expected", lambda one: one.process), got))
    there = due.withColumn("process", missing).join(heard_of(crowd), "process").where("met <= run_lseq and run_lseq < heard")
    explanation = words("{process_name} did not get ", _run_in_words(), ", which was for it")
    return broken(_named(crowd, there), NAME, explanation, [("node", "run_lseq")], nodes=["node"], position="run_lseq")


def _misdirected(crowd: Clients, wrong: DataFrame, witness: list[Pair], position: str) -> DataFrame:
    """`got` is who got it and through which groups."""
    right = F.get(F.filter("expected", lambda one: one.process == F.col("got.process")), F.lit(0))["groups"]
    instead = F.when(right.isNull(), "not addressed").otherwise(words("in ", F.size(right), " of its groups"))
    named = _named(crowd, wrong.withColumn("process", F.col("got.process")))
    explanation = words("{process_name} got ", _run_in_words(), " through ", F.size("got.groups"), " groups, but is ", instead)
    return broken(named, NAME, explanation, witness, nodes=["node"], position=position)


def _named(crowd: Clients, rows: DataFrame) -> DataFrame:
    senders = crowd.people.select(F.col("process").alias("sender"), F.col("process_name").alias("sender_name"))
    return rows.join(crowd.people.select("process", "process_name"), "process").join(senders, "sender", "left")


def _run_in_words() -> Column:
    last = F.when(F.col("count") > 1, words(" to ", F.expr("first + count - 1"))).otherwise(F.lit(""))
    return words("{sender_name}:{first}", last)


# -- basic runs that waited ------------------------------------------------------------------------------------------


def _waited(crowd: Clients) -> DataFrame:
    """What is said to have waited, an entry a row, with the last regular configuration before it."""
    single = crowd.laid.tables["client_deliveries"].select("run", "node", "lseq", F.posexplode("waited").alias("at", "one"))
    entries = before_gaps(crowd, single.select("run", "node", "lseq", "at", "one.*"))
    regular = crowd.laid.confs.where("view_kind = 0").select("node", "lseq")
    return latest(entries, regular, ["node"], "since").withColumn("since", F.coalesce("since.lseq", F.lit(0)))


def _claimed_basics(crowd: Clients, runs: DataFrame, events: DataFrame) -> DataFrame:
    """When basic runs were handed over at once; they wait no more."""
    handings = _handings(crowd, runs.where("is_basic"), events).where("is_fresh")
    return handings.select("node", "run_lseq", "event").distinct()


def _waiting_runs(waited: DataFrame, claimed: DataFrame, runs: DataFrame) -> DataFrame:
    """Entries beside the basic run of the same configuration that they name; `address` is null if none waits."""
    basics = runs.where("is_basic").select(
        *("node", "sender", "first", F.col("lseq").alias("run_lseq"), F.col("count").alias("run_count"), "address")
    )
    candidates = waited.join(basics, ["node", "sender", "first"], "left").join(claimed, ["node", "run_lseq"], "left")
    waits = F.expr("run_lseq < lseq and run_lseq > since and run_count = count and coalesce(event, lseq + 1) > lseq")
    address = F.when(waits, F.col("address"))
    newest = Window.partitionBy("node", "lseq", "at").orderBy(F.desc_nulls_last("run_lseq"))
    numbered = candidates.withColumn("address", address).withColumn("nth", F.row_number().over(newest))
    return numbered.where("nth = 1").drop("nth", "event", "run_count")


def _wrong_waiting(crowd: Clients, waited: DataFrame) -> list[DataFrame]:
    names = crowd.lives.select("node", "node_name")
    senders = crowd.people.select(F.col("process").alias("sender"), F.col("process_name").alias("sender_name"))
    nowhere = waited.where("address is null").join(names, "node").join(senders, "sender", "left")
    explanation = words("{node_name} handed over {sender_name}:{first}, which was not waiting")
    unknown = broken(nowhere, NAME, explanation, [("node", "lseq")], nodes=["node"], position="lseq")
    entry = F.struct(F.col("process"), F.col("groups"))
    single = waited.where("address is not null").withColumn("process", F.explode("processes")).withColumn("got", entry)
    wrong = single.where(F.expr("not coalesce(array_contains(expected, got), false)")).drop("process")
    return [unknown, _misdirected(crowd, wrong, [("node", "run_lseq"), ("node", "lseq")], "lseq")]
