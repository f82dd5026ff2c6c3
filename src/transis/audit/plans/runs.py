"""What became of messages, as set algebra on runs (process, first, count), without a row per message.

Runs of several kinds are swept in order of their counters: each opens at its first and closes behind its last, and what is open
in between is the same for all messages there. Where a run closes and the next of its kind opens nothing changes, so that
of a good trace hardly anything is left to sort. Runs are cut at blocks of counters: a process that sent all the messages of a
trace is many partitions, not one. Only the stretches that are wrong are ever spelled out, message by message.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from transis.audit.plans.lay import HistoryTables

BLOCK: Final = 1 << 16
"""Counters in a block: enough that few runs are cut, few enough that a block is sorted in memory."""


def runs_of(kind: str, rows: DataFrame) -> DataFrame:
    """Rows of one kind as runs; several kinds are swept as their union."""
    return rows.where("count > 0").select("run", "node", "process", "first", "count", "lseq", F.lit(kind).alias("kind"))


def stretches(runs: DataFrame, by: Sequence[str], kinds: Sequence[str]) -> DataFrame:
    """Stretches of counters [start, stop) and, in a column named after each kind, how many of its runs have them.

    `by` are the columns within which runs are compared, `process` among them.
    """
    changes = _bounds(runs, by).groupBy(*by, "block", "at").agg(*(_change(kind) for kind in kinds))
    changes = changes.where(reduce(or_, (F.col(kind) != 0 for kind in kinds)))
    in_order = Window.partitionBy(*by, "block").orderBy("at")
    swept = changes.select(
        *by,
        "block",
        F.col("at").alias("start"),
        F.lead("at").over(in_order).alias("stop"),
        *(F.sum(kind).over(in_order).alias(kind) for kind in kinds),
    )
    return swept.where("stop is not null")


def spelled_out(wrong: DataFrame, runs: DataFrame, by: Sequence[str]) -> DataFrame:
    """Every message of the wrong stretches once for each run that has it: by, node, counter, kind, lseq.

    Runs in other blocks are left out first: the list of bad blocks is short, however many stretches they have.
    """
    place = [*by, "block"]
    near = _pieces(runs).join(F.broadcast(wrong.select(*place).distinct()), place, "left_semi")
    limits = wrong.select(*place, F.col("start").alias("wrong_start"), F.col("stop").alias("wrong_stop"))
    both = near.join(limits, place).where("start < wrong_stop and wrong_start < stop")
    counters = F.expr("sequence(greatest(start, wrong_start), least(stop, wrong_stop) - 1)")
    return both.select(*dict.fromkeys((*by, "node")), "kind", "lseq", F.explode(counters).alias("counter"))


def repeated(runs: DataFrame, by: Sequence[str]) -> DataFrame:
    """Every message that several runs of one kind have, once for each run but the first: by, counter, first_lseq, lseq."""
    wrong = stretches(runs.withColumn("kind", F.lit("times")), by, ["times"]).where("times > 1")
    in_order = Window.partitionBy(*by, "counter").orderBy("lseq")
    all_of_them = spelled_out(wrong, runs, by).withColumn("first_lseq", F.first("lseq").over(in_order))
    return all_of_them.where("lseq <> first_lseq")


def _pieces(runs: DataFrame) -> DataFrame:
    """Runs cut at blocks, as [start, stop)."""
    blocks = F.expr(f"sequence(first div {BLOCK}, (first + count - 1) div {BLOCK})")
    return (
        runs.withColumn("block", F.explode(blocks))
        .withColumn("start", F.expr(f"greatest(first, block * {BLOCK})"))
        .withColumn("stop", F.expr(f"least(first + count, (block + 1) * {BLOCK})"))
    )


def _bounds(runs: DataFrame, by: Sequence[str]) -> DataFrame:
    opens = F.struct(F.col("start").alias("at"), F.lit(1).alias("step"))
    closes = F.struct(F.col("stop").alias("at"), F.lit(-1).alias("step"))
    bounds = _pieces(runs).select(*by, "block", "kind", F.explode(F.array(opens, closes)).alias("bound"))
    return bounds.select(*by, "block", "kind", "bound.at", "bound.step")


def _change(kind: str) -> Column:
    return F.sum(F.when(F.col("kind") == kind, F.col("step")).otherwise(0)).alias(kind)


# --- own messages -----------------------------------------------------------------------------------------------------

OWN: Final = ["run", "node", "process"]
KINDS: Final = ("submits", "sends", "refusals")

WRONG: Final = """
    submits = 0 and not gapped or sends > 1 or refusals > 1 or sends > 0 and refusals > 0
    or submits > 0 and sends = 0 and refusals = 0 and fate = 'due'
"""


def accounts(laid: HistoryTables) -> DataFrame:
    """Stretches [start, stop) of a process's counters, and how often they were submitted, sent and refused by its node. `gapped`
    belongs to the node's life, and so does `fate`: whether what was neither sent nor refused is void, pending or due."""
    fate = F.expr("""case when ended in ('failed', 'stopped') then 'void'
                          when gapped or ended <> '' or not closed then 'pending' else 'due' end""")
    lives = laid.lives.join(laid.runs.select("run", "closed"), "run").select("node", "gapped", fate.alias("fate"))
    return stretches(_own_runs(laid), OWN, KINDS).join(lives, "node")


def unaccounted(laid: HistoryTables, accounts: DataFrame) -> DataFrame:
    """run, node, process, counter, kind, lseq: every event about a message that was not submitted once, and then either sent or
    refused once."""
    return spelled_out(accounts.where(WRONG), _own_runs(laid), OWN)


def _own_runs(laid: HistoryTables) -> DataFrame:
    submits, sends, refusals = (runs_of(kind, laid.tables[kind]) for kind in KINDS)
    return submits.unionByName(sends).unionByName(refusals)


# --- basic messages ---------------------------------------------------------------------------------------------------

SENDER: Final = ["run", "process"]


def basics_repeated(laid: HistoryTables) -> DataFrame:
    """run, node, process, counter, first_lseq, lseq: basic messages that a node delivered again."""
    return repeated(_basics(laid), OWN)


def basics_unsent(laid: HistoryTables) -> DataFrame:
    """Stretches of basic messages that were delivered, and sent in no configuration. Of the sends only those of processes that
    basic messages came from are looked at."""
    runs = _basics(laid)
    senders = F.broadcast(runs.select("process").distinct())
    sent = runs_of("sent", laid.tables["sends"].join(senders, "process", "left_semi"))
    return stretches(runs.unionByName(sent), SENDER, ["delivered", "sent"]).where("delivered > 0 and sent = 0")


def basics_from_nowhere(laid: HistoryTables, unsent: DataFrame) -> DataFrame:
    """run, node, process, counter, lseq: their deliveries, one by one."""
    return spelled_out(unsent, _basics(laid), SENDER)


IN_STAY: Final = ["run", "node", "stay_no", "process"]


def basics_unarrived(laid: HistoryTables, owed: DataFrame) -> DataFrame:
    """Stretches of basic messages that a node has to deliver in a stay, or may have to, and did not."""
    swept = stretches(_owed_and_arrived(laid, owed), IN_STAY, ["due", "pending", "arrived"])
    return swept.where("due + pending > 0 and arrived = 0")


def basics_missing(laid: HistoryTables, owed: DataFrame, unarrived: DataFrame) -> DataFrame:
    """run, node, stay_no, process, counter, lseq (of the SEND): what is due of them, one by one."""
    return spelled_out(unarrived.where("due > 0"), _owed_and_arrived(laid, owed), IN_STAY).where("kind = 'due'")


def _owed_and_arrived(laid: HistoryTables, owed: DataFrame) -> DataFrame:
    columns = [*IN_STAY, "first", "count", "lseq"]
    arrived = laid.deliveries.where("service = 0").select(*columns, F.lit("arrived").alias("kind"))
    return owed.select(*columns, F.col("duty").alias("kind")).unionByName(arrived)


def _basics(laid: HistoryTables) -> DataFrame:
    return runs_of("delivered", laid.tables["deliveries"].where("service = 0"))
