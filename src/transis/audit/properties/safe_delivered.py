"""EVS 7.1: a safe message that anybody delivers is delivered by every member of that configuration that does not fail.

With the F8 reading: the members of the regular configuration if anybody delivered it there, else the union of the
transitional ones in which it was delivered; each must deliver it in the regular configuration or in whatever
transitional one it installs itself.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from transis.audit.plans.finding import Found, broken, checked, found, words
from transis.audit.plans.tail import OrderedHistory, named, told
from transis.types.ids import Service

NAME: Final = "safe_7_1"

OWED: Final = ["run", "ring", "process", "counter", "message", "member", "node", "stay_no", "phase", "tpos", "lseq"]
"""A message that a member owes, and who delivered it where."""

SAFE: Final = f"service = {Service.SAFE.value}"


def check(sequence: OrderedHistory) -> Found:
    missing = _missing(sequence)
    left = F.expr("""case when not has_stay then concat('never installed ', obliged_ring)
                          when following is null then 'had not delivered it when the run ended'
                          else concat('went on to ', following_name, ' without it') end""")
    sentence = words("{node_name} delivered the safe {message} in {conf_name}, but its member {member_name} ", left)
    witness = [("node", "lseq"), ("member", "following_lseq")]
    rows = broken(
        missing.where("duty = 'due'"), NAME, sentence, witness, [("process", "counter")], ["node", "member"], ["conf"], "tpos"
    )
    regular = sequence.pairs.where(f"{SAFE} and tpos is not null").join(
        F.broadcast(sequence.rings.select("ring", "members")), "ring"
    )
    pending = checked(missing.where("duty = 'pending'"), NAME, "0", "1")
    return found([checked(regular, NAME, "count * size(members)"), pending, _short_of_good(sequence)], [rows])


def _missing(sequence: OrderedHistory) -> DataFrame:
    """Safe messages of the tail, and of the whole ring for members that never were in it, that a member does not have."""
    owed = _obligations(sequence).unionByName(_of_absent_members(sequence))
    has = sequence.tail.selectExpr("ring", "node as member", "process", "counter")
    missing = owed.join(has, ["ring", "member", "process", "counter"], "left_anti")
    return _with_member(missing, sequence)


def _deliverers(sequence: OrderedHistory) -> DataFrame:
    """Safe messages of the tail with who delivered them: the columns of an obligation, ranked by the order of stays."""
    ranks = F.broadcast(sequence.stays.select("node", "stay_no", "stay_rank", "trans_members"))
    return sequence.tail.where(SAFE).join(ranks, ["node", "stay_no"])


def _one_of(rows: DataFrame, *key: str) -> DataFrame:
    """Of those who delivered a message, the first."""
    first = Window.partitionBy(*key).orderBy("stay_rank", "tpos")
    return rows.withColumn("nth", F.row_number().over(first)).where("nth = 1")


def _obligations(sequence: OrderedHistory) -> DataFrame:
    key = ["ring", "process", "counter"]
    rows = _deliverers(sequence)
    regular = _one_of(rows.where("phase = 0"), *key)
    members = F.broadcast(sequence.rings.select("ring", F.explode("members").alias("member")))
    of_ring = regular.join(members, "ring").select(*OWED)
    only_there = rows.where("phase = 1 and trans_members is not null").join(regular.select(*key), key, "left_anti")
    of_transitional = only_there.withColumn("member", F.explode("trans_members"))
    return of_ring.unionByName(_one_of(of_transitional, *key, "member").select(*OWED))


def _of_absent_members(sequence: OrderedHistory) -> DataFrame:
    """Members without a stay owe the good part too; only those whose trace says that they went past it are asked for it."""
    absent = sequence.absent.where("duty = 'due'").select("ring", F.col("node").alias("member"), "bound")
    good = sequence.pairs.where(f"{SAFE} and tpos is not null").join(F.broadcast(absent), "ring").where("tpos + count <= bound")
    single = good.withColumn("counter", F.explode(F.expr("sequence(first, first + count - 1)")))
    canon = sequence.rings.selectExpr("ring", "canon_node as node", "canon_stay_no as stay_no")
    placed = named(single, sequence.laid).join(F.broadcast(canon), "ring")
    return placed.withColumns({"phase": F.lit(0).cast("tinyint"), "lseq": F.lit(None).cast("long")}).select(*OWED)


def _with_member(missing: DataFrame, sequence: OrderedHistory) -> DataFrame:
    """With the member's duty and name, and the deliverer's configuration."""
    stays = sequence.stays.selectExpr(
        "ring", "node as member", "true as has_stay", "duty as stay_duty", "following", "following_name", "following_lseq"
    )
    absent = sequence.absent.selectExpr("ring", "node as member", "duty as absent_duty")
    names = sequence.laid.node_names.selectExpr("node as member", "node_name as member_name")
    ring_names = sequence.rings.selectExpr("ring", "ring_name as obliged_ring")
    rows = missing.join(F.broadcast(stays), ["ring", "member"], "left").join(F.broadcast(absent), ["ring", "member"], "left")
    rows = rows.join(F.broadcast(names), "member", "left").join(F.broadcast(ring_names), "ring")
    judged = rows.withColumn("duty", F.coalesce("stay_duty", "absent_duty")).fillna({"has_stay": False})
    return told(judged, sequence.stays)


def _short_of_good(sequence: OrderedHistory) -> DataFrame:
    """Open stays, and absent members, that have not come as far as the good part: what is safe there is pending, one for all."""
    bounds = F.broadcast(sequence.rings.select("ring", "bound"))
    good = sequence.pairs.where(f"{SAFE} and tpos is not null").join(bounds, "ring").where("tpos + count <= bound")
    last = F.broadcast(good.groupBy("ring").agg(F.max("tpos").alias("last_safe")))
    short = sequence.stays.where("duty = 'pending'").join(last, "ring").where("n <= last_safe")
    absent = sequence.absent.where("duty = 'pending'").join(last, "ring")
    return checked(short.select("run").unionByName(absent.select("run")), NAME, "0", "1")
