"""EVS 4, virtual synchrony: nodes that go together from one configuration to the next delivered the same set in it.

Checked per configuration, the regular and the transitional one apart (traces 6). Below the tail they are equal, so only the
tail is compared.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from transis.audit.plans.finding import Found, broken, checked, found, words
from transis.audit.plans.tail import OrderedHistory

NAME: Final = "failure_atomicity_4"


def check(sequence: OrderedHistory) -> Found:
    pairs = _pairs(_steps(sequence.stays))
    whole = pairs.where("whole and other_whole")
    extra = _only_one(sequence, whole)
    sentence = words(
        "{node_name} and {other_name} went together from {here_name} to {there_name}, but in {here_name} ",
        "only {has_name} delivered {message}, {lacks_name} did not",
    )
    witness = [("has", "lseq"), ("lacks", "departure")]
    rows = broken(extra, NAME, sentence, witness, [("process", "counter")], ["has", "lacks"], ["here", "there"], "tpos")
    return found([checked(whole, NAME), checked(pairs.where("not (whole and other_whole)"), NAME, "0", "1")], [rows])


def _steps(stays: DataFrame) -> DataFrame:
    """Who went where: regular to transitional, and from there (or at once) to the next regular one."""
    stay = ["run", "ring", "node", "node_name", "stay_no", "stay_rank", "whole"]
    out = stays.where("trans is not null").selectExpr(
        *stay, "0 as phase", "ring as here", "ring_name as here_name", "trans as there", "trans_name as there_name",
        "trans_lseq as departure",
    )  # fmt: skip
    on = stays.where("following is not null").selectExpr(
        *stay, "int(trans is not null) as phase", "coalesce(trans, ring) as here", "coalesce(trans_name, ring_name) as here_name",
        "following as there", "following_name as there_name", "following_lseq as departure",
    )  # fmt: skip
    return out.unionByName(on)


def _pairs(steps: DataFrame) -> DataFrame:
    """Everybody beside the first who took the same step."""
    step = Window.partitionBy("ring", "here", "there").orderBy("stay_rank")
    names = {"other": "node", "other_name": "node_name", "other_stay_no": "stay_no", "other_whole": "whole"}
    firsts = {new: F.first(old).over(step) for new, old in (names | {"other_departure": "departure"}).items()}
    return steps.withColumns(firsts).withColumn("nth", F.row_number().over(step)).where("nth > 1")


def _only_one(sequence: OrderedHistory, pairs: DataFrame) -> DataFrame:
    """Messages of one of the two, in each direction."""
    common = ["run", "ring", "phase", "node_name", "other_name", "here", "here_name", "there", "there_name"]
    first = pairs.selectExpr(
        *common, "other as has", "other_name as has_name", "other_stay_no as has_stay_no", "node as lacks",
        "node_name as lacks_name", "stay_no as lacks_stay_no", "departure",
    )  # fmt: skip
    second = pairs.selectExpr(
        *common, "node as has", "node_name as has_name", "stay_no as has_stay_no", "other as lacks",
        "other_name as lacks_name", "other_stay_no as lacks_stay_no", "other_departure as departure",
    )  # fmt: skip
    both = first.unionByName(second)
    mine = sequence.everything.selectExpr(
        "node as has", "stay_no as has_stay_no", "int(phase) as phase", "process", "counter", "message", "tpos", "lseq"
    )
    other = sequence.everything.selectExpr(
        "node as lacks", "stay_no as lacks_stay_no", "int(phase) as phase", "process", "counter"
    )
    had = mine.join(F.broadcast(both), ["has", "has_stay_no", "phase"])
    return had.join(other, ["lacks", "lacks_stay_no", "phase", "process", "counter"], "left_anti")
