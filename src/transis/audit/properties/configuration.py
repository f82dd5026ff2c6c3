"""EVS 2.2: an event belongs to the configuration in force; a node is a member of every configuration it installs.

What an event claims (`conf`, `regular`) is held against the last CONF before it, and nothing follows an END.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from transis.audit.plans.finding import Found, broken, checked, found, name_nodes, name_processes, name_views, words
from transis.audit.plans.lay import Laid
from transis.types.ids import Service

NAME: Final = "configuration_2_2"

STAY: Final = ["node", "stay_no"]


def check(laid: Laid) -> Found:
    ordered = laid.deliveries.where(F.col("service") != Service.BASIC.value)
    placed, homeless = ordered.where("stay_no > 0"), ordered.where("stay_no = 0")
    sent = laid.sends.where("stay_no > 0")
    amounts = [
        checked(laid.confs, NAME),
        checked(placed, NAME, "count"),
        checked(sent, NAME, "count"),
        checked(laid.stays, NAME, "0", "int(not whole)"),
    ]
    parts = [_strangers(laid), _deliveries(laid, placed), _sends(laid, sent), _homeless(laid, homeless), _afterwards(laid)]
    return found(amounts, parts)


def _strangers(laid: Laid) -> DataFrame:
    return broken(
        laid.confs.where("not array_contains(members, node)"),
        NAME,
        words("{node_name} installed {view_name}, of which it is no member"),
        witness=[("node", "lseq")],
        nodes=["node"],
        views=["view"],
    )


def _deliveries(laid: Laid, placed: DataFrame) -> DataFrame:
    """Only claims that differ from the ring, as those in a transitional configuration do, are held against the stay."""
    doubtful = placed.where("regular <> ring or conf <> ring or phase = 1")
    stays = laid.stays.where("whole").select(*STAY, "node_name", "ring_name", "conf_lseq", "trans", "trans_name", "trans_lseq")
    wrong = doubtful.join(stays, STAY).where("regular <> ring or conf <> if(phase = 1, trans, ring)")
    named = name_processes(name_views(wrong, laid.view_names, "conf", "regular"), laid.process_names)
    in_force = F.expr("if(phase = 1, trans_name, ring_name)")
    return broken(
        named,
        NAME,
        words(
            "{node_name} claims to have delivered {process_name}:{first} in {conf_name} of {regular_name} while ",
            in_force,
            " was in force",
        ),
        witness=[("node", F.expr("if(phase = 1, trans_lseq, conf_lseq)")), ("node", "lseq")],
        nodes=["node"],
        views=["conf", "ring"],
        position="tpos",
    )


def _sends(laid: Laid, sent: DataFrame) -> DataFrame:
    stays = laid.stays.where("whole").select(*STAY, "node_name", "ring_name", "conf_lseq")
    wrong = sent.where("conf <> ring").join(stays, STAY)
    return broken(
        name_views(wrong, laid.view_names, "conf"),
        NAME,
        words("{node_name} claims to have sent in {conf_name} while {ring_name} was in force"),
        witness=[("node", "conf_lseq"), ("node", "lseq")],
        nodes=["node"],
        views=["conf", "ring"],
    )


def _homeless(laid: Laid, homeless: DataFrame) -> DataFrame:
    return broken(
        name_nodes(homeless, laid.node_names, "node"),
        NAME,
        words("{node_name} delivered a message before it installed any configuration"),
        witness=[("node", "lseq")],
        nodes=["node"],
    )


def _afterwards(laid: Laid) -> DataFrame:
    late = laid.tables["afterwards"].groupBy("node").agg(F.count("*").alias("late"), F.min("lseq").alias("first_late"))
    return broken(
        laid.lives.join(late, "node"),
        NAME,
        words("{node_name} has {late} events after its end"),
        witness=[("node", "end_lseq"), ("node", "first_late")],
        nodes=["node"],
    )
