"""EVS 6.3: no unexplained holes. Between two nodes of a ring, whoever delivers the later message delivers the earlier.

If p delivers m before m', and q delivers m' in c' (regular, or transitional), then q delivers m before m', unless m's
sender is no member of c'. Only rings whose stays differ are looked at, each distinct sequence once, from where the two part.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from transis.audit.plans.finding import Found, broken, checked, found, words
from transis.audit.plans.tail import OrderedHistory, ordered_total, told
from transis.audit.properties.causal import NEVER

NAME: Final = "no_holes_6_3"


def check(sequence: OrderedHistory) -> Found:
    holes = _holes(sequence)
    pending = checked(sequence.stays.where("not whole"), NAME, "0", "1")
    return found([ordered_total(sequence, NAME), pending], [_tell(holes, sequence)])


def _sequences(sequence: OrderedHistory) -> DataFrame:
    """Of stays that are alike, the first; of rings that forked only."""
    forked = F.broadcast(sequence.rings.where("forked").select("ring"))
    tails = (
        sequence.tail.join(forked, "ring")
        .groupBy("node", "stay_no")
        .agg(F.sum(F.xxhash64("tpos", "process", "counter").cast("decimal(38,0)")).alias("content"))
    )
    stays = sequence.stays.where("whole").join(forked, "ring").join(tails, ["node", "stay_no"], "left")
    alike = Window.partitionBy("ring", "cut", "trans", "n", "content").orderBy("stay_rank")
    return stays.withColumn("nth", F.row_number().over(alike)).where("nth = 1")


def _pairs(sequences: DataFrame) -> DataFrame:
    """A reference beside another stay; two that are both like the longest have no holes."""
    left = sequences.selectExpr(
        "ring", "node as ref", "stay_no as ref_stay_no", "agreed as ref_agreed", "agreed < n as ref_forked"
    )
    right = sequences.selectExpr(
        *("ring", "node", "stay_no", "cut", "trans_members", "agreed", "agreed < n as fork"),
    )
    pairs = left.join(right, "ring").where("(ref_forked or fork) and not (ref = node and ref_stay_no = stay_no)")
    return pairs.withColumn("parted", F.least("ref_agreed", "agreed"))


def _holes(sequence: OrderedHistory) -> DataFrame:
    """Every message of the reference beside the first that this stay delivered of those that follow it in the reference."""
    reference = sequence.tail.selectExpr("run", "node as ref", "stay_no as ref_stay_no", "tpos as ref_tpos", "process", "counter",
                                         "message", "sender", "lseq as ref_lseq")  # fmt: skip
    rows = reference.join(F.broadcast(_pairs(_sequences(sequence))), ["ref", "ref_stay_no"]).where("ref_tpos >= parted")
    once = sequence.tail.groupBy("node", "stay_no", "process", "counter").agg(
        F.min("tpos").alias("tpos"), F.min_by("lseq", "tpos").alias("lseq")
    )
    placed = rows.join(once, ["node", "stay_no", "process", "counter"], "left")
    following = Window.partitionBy("ref", "ref_stay_no", "node", "stay_no").orderBy(F.desc("ref_tpos"))
    following = following.rowsBetween(Window.unboundedPreceding, -1)
    later = F.when(F.col("tpos").isNotNull(), F.struct("tpos", "process", "counter", "message", "ref_lseq", "lseq"))
    bounds = placed.withColumn("any_bound", F.min(later).over(following)).withColumn(
        "regular_bound", F.min(F.when(F.expr("tpos < cut"), later)).over(following)
    )
    is_member = F.expr("trans_members is not null and array_contains(trans_members, sender)")
    bound = bounds.withColumn("bound", F.when(is_member, F.col("any_bound")).otherwise(F.col("regular_bound")))
    return bound.where(f"bound is not null and coalesce(tpos, {NEVER}) > bound.tpos")


def _tell(holes: DataFrame, sequence: OrderedHistory) -> DataFrame:
    in_trans = F.expr("int(bound.tpos >= cut)")
    named = told(holes.withColumn("phase", in_trans), sequence.stays)
    references = sequence.laid.node_names.selectExpr("node as ref", "node_name as ref_name")
    named = named.join(F.broadcast(references), "ref")
    how = F.when(F.col("tpos").isNull(), "not at all").otherwise("only after it")
    sentence = words(
        "{ref_name} delivered {message} before {bound.message}; ",
        "{node_name} delivered {bound.message} in {conf_name}, but {message} ",
        how,
    )
    witness = [("ref", "ref_lseq"), ("ref", "bound.ref_lseq"), ("node", "bound.lseq"), ("node", "lseq")]
    messages = [("process", "counter"), ("bound.process", "bound.counter")]
    return broken(named, NAME, sentence, witness, messages, ["ref", "node"], ["conf"], "bound.tpos")
