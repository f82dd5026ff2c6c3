"""Every SUBMIT is sent or refused, exactly once, and nothing else is: nobody's message is lost in a queue.

Counters are dense from 1 in every process. For a node that ended the rest is void: it took its queue with it.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from transis.audit.plans.finding import Found, broken, checked, found, name_nodes, name_processes, several, words
from transis.audit.plans.lay import Laid
from transis.audit.plans.runs import repeated, runs_of, spelled_out, stretches

NAME: Final = "every_submit_accounted"

KINDS: Final = ("submits", "sends", "refusals")
PROCESS: Final = ["run", "node", "process"]

LOST: Final = "submits > 0 and sends = 0 and refusals = 0"
"""Accepted, and then nothing: broken, void or pending by the end of its node's life."""


def check(laid: Laid) -> Found:
    runs = _runs(laid)
    judged = _judged(laid, runs)
    amounts = checked(judged, NAME, "if(submits > 0, stop - start, 0)", f"if({LOST} and fate = 'pending', stop - start, 0)")
    parts = [
        _not_dense(laid),
        _refused_twice(laid),
        _never_together(laid, runs, judged),
        _unaccounted(laid, runs, judged.where(f"{LOST} and fate = 'due'")),
    ]
    return found([amounts], parts)


def _runs(laid: Laid) -> DataFrame:
    submits, sends, refusals = (runs_of(kind, laid.tables[kind]) for kind in KINDS)
    return submits.unionByName(sends).unionByName(refusals)


def _judged(laid: Laid, runs: DataFrame) -> DataFrame:
    """Stretches of messages with what their node's life says of those that are missing (`fate`)."""
    fate = F.expr("""case when ended in ('failed', 'stopped') then 'void'
                          when gapped or ended <> '' or not closed then 'pending' else 'due' end""")
    lives = laid.lives.join(laid.runs.select("run", "closed"), "run").select("node", "gapped", fate.alias("fate"))
    return stretches(runs, PROCESS, KINDS).join(lives, "node")


def _not_dense(laid: Laid) -> DataFrame:
    whole = laid.lives.where("not gapped").select("node")
    wrong = _submits_in_order(laid).where("first <> expected").join(whole, "node")
    return broken(
        name_processes(wrong, laid.process_names),
        NAME,
        words("{process_name} was given counter {first} where {expected} was next"),
        witness=[("node", "lseq")],
        nodes=["node"],
        position="first",
    )


def _submits_in_order(laid: Laid) -> DataFrame:
    """SUBMIT rows with the counter that was next. Looked at segment by segment: a busy process has as many partitions."""
    segment = [*PROCESS, "segment"]
    submits = laid.tables["submits"].withColumn("next", F.col("first") + F.col("count"))
    lasts = submits.groupBy(*segment).agg(F.max_by("next", "lseq").alias("last"))
    carried = lasts.select(*segment, F.lag("last", 1, 1).over(Window.partitionBy(*PROCESS).orderBy("segment")).alias("carried"))
    before = F.lag("next").over(Window.partitionBy(*segment).orderBy("lseq"))
    return submits.withColumn("before", before).join(carried, segment).withColumn("expected", F.coalesce("before", "carried"))


def _refused_twice(laid: Laid) -> DataFrame:
    again = repeated(runs_of("refusals", laid.tables["refusals"]), PROCESS)
    return broken(
        name_processes(name_nodes(again, laid.node_names, "node"), laid.process_names),
        NAME,
        words("{node_name} refused {process_name}:{counter} twice"),
        witness=[("node", "first_lseq"), ("node", "lseq")],
        messages=[("process", "counter")],
        nodes=["node"],
        position="counter",
    )


def _never_together(laid: Laid, runs: DataFrame, judged: DataFrame) -> DataFrame:
    """What a message cannot have been; with a gap it may have been submitted there."""
    wrong = judged.where("sends > 0 and refusals > 0 or submits = 0 and not gapped and (sends > 0 or refusals > 0)")
    messages = spelled_out(wrong, runs, PROCESS).groupBy(*PROCESS, "counter").agg(*(_first_event(kind) for kind in KINDS))
    complaints = F.expr("""array_compact(array(
        if(sends is not null and refusals is not null, 'both sent and refused', null),
        if(submits is null and not gapped and sends is not null, 'sent but never submitted', null),
        if(submits is null and not gapped and refusals is not null, 'refused but never submitted', null)))""")
    told = messages.join(laid.lives.select("node", "gapped"), "node").withColumn("what", F.explode(complaints))
    return broken(
        name_processes(told, laid.process_names),
        NAME,
        words("{process_name}:{counter} was {what}"),
        witness=[("node", "sends"), ("node", "refusals")],
        messages=[("process", "counter")],
        nodes=["node"],
        position="counter",
    )


def _first_event(kind: str) -> Column:
    return F.min(F.when(F.col("kind") == kind, F.col("lseq"))).alias(kind)


def _unaccounted(laid: Laid, runs: DataFrame, lost: DataFrame) -> DataFrame:
    """One violation a life, with all the messages that it forgot."""
    messages = spelled_out(lost, runs, PROCESS).groupBy(*PROCESS, "counter").agg(F.max("lseq").alias("lseq"))
    named = messages.join(laid.process_names.select("process", "number", "process_name"), "process")
    each = F.struct("counter", "number", "process", "process_name", "lseq")
    of_life = named.groupBy("run", "node").agg(F.array_sort(F.collect_list(each)).alias("forgotten"))
    names = F.transform("forgotten", lambda one: F.concat(one["process_name"], F.lit(":"), one["counter"]))
    return broken(
        name_nodes(of_life, laid.node_names, "node"),
        NAME,
        words("{node_name} neither sent nor refused ", several(names), ", which it had accepted"),
        witness=[("node", F.expr("forgotten[0].lseq"))],
        messages=F.transform("forgotten", lambda one: F.struct(one["process"].alias("process"), one["counter"].alias("counter"))),
        nodes=["node"],
        position=F.expr("forgotten[0].counter"),
    )
