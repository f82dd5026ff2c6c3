"""EVS 1.4, first half: every message is sent once, by one process, in a regular configuration.

That one process sends it is part of its id; the second half, delivered at most once, is another property.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from transis.audit.plans.finding import Found, broken, checked, found, name_nodes, name_processes, words
from transis.audit.plans.lay import Laid
from transis.audit.plans.spine import repeated, runs_of

NAME: Final = "sent_once_1_4"


def check(laid: Laid) -> Found:
    return found([checked(laid.sends, NAME, "count")], [_outside(laid), _transitional(laid), _twice(laid)])


def _outside(laid: Laid) -> DataFrame:
    return broken(
        name_nodes(laid.sends.where("stay_no = 0"), laid.node_names, "node"),
        NAME,
        words("{node_name} sent messages before it installed any configuration"),
        witness=[("node", "lseq")],
        nodes=["node"],
    )


def _transitional(laid: Laid) -> DataFrame:
    stays = laid.stays.select("node", "stay_no", "node_name", "trans", "trans_name", "trans_lseq")
    return broken(
        laid.sends.where("stay_no > 0 and phase = 1").join(stays, ["node", "stay_no"]),
        NAME,
        words("{node_name} sent messages while the transitional configuration {trans_name} was in force"),
        witness=[("node", "trans_lseq"), ("node", "lseq")],
        nodes=["node"],
        views=["trans"],
    )


def _twice(laid: Laid) -> DataFrame:
    again = repeated(runs_of("sends", laid.tables["sends"]), ["run", "node", "process"])
    return broken(
        name_processes(name_nodes(again, laid.node_names, "node"), laid.process_names),
        NAME,
        words("{node_name} sent {process_name}:{counter} twice"),
        witness=[("node", "first_lseq"), ("node", "lseq")],
        messages=[("process", "counter")],
        nodes=["node"],
        position=F.col("counter"),
    )
