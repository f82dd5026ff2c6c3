"""Basic messages promise three things: they were sent, they are addressed to you, and they come at most once (design 4)."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from transis.audit.plans.finding import Found, broken, checked, found, name_nodes, name_processes, words
from transis.audit.plans.lay import Laid
from transis.audit.plans.runs import repeated, runs_of, spelled_out, stretches
from transis.audit.properties.no_creation import with_sender
from transis.types.ids import Service

NAME: Final = "basic"

SENDER: Final = ["run", "process"]


def check(laid: Laid) -> Found:
    delivered = laid.tables["deliveries"].where(F.col("service") == Service.BASIC.value)
    runs = runs_of("delivered", delivered)
    unsent = _unsent(laid, runs)
    amounts = [
        checked(delivered, NAME, "count"),
        checked(unsent.where("may_still_be_sent"), NAME, "0", "delivered * (stop - start)"),
    ]
    return found(amounts, [_twice(laid, runs), _from_nowhere(laid, runs, unsent.where("not may_still_be_sent"))])


def _twice(laid: Laid, runs: DataFrame) -> DataFrame:
    again = repeated(runs, ["run", "node", "process"])
    return broken(
        name_processes(name_nodes(again, laid.node_names, "node"), laid.process_names),
        NAME,
        words("{node_name} delivered the basic {process_name}:{counter} twice"),
        witness=[("node", "first_lseq"), ("node", "lseq")],
        messages=[("process", "counter")],
        nodes=["node"],
        position="counter",
    )


def _unsent(laid: Laid, runs: DataFrame) -> DataFrame:
    """Stretches of messages that were delivered and not sent in any configuration.

    Of the sends only those of processes that sent basic messages are looked at.
    """
    senders = F.broadcast(runs.select("process").distinct())
    sent = runs_of("sent", laid.tables["sends"].join(senders, "process", "left_semi"))
    wrong = stretches(runs.unionByName(sent), SENDER, ["delivered", "sent"]).where("delivered > 0 and sent = 0")
    processes = laid.process_names.select("process", F.col("node").alias("sender"))
    return with_sender(wrong.join(processes, "process"), laid)


def _from_nowhere(laid: Laid, runs: DataFrame, unsent: DataFrame) -> DataFrame:
    processes = laid.process_names.select("process", F.col("node").alias("sender"), "process_name")
    each = spelled_out(unsent, runs, SENDER).join(processes, "process")
    return broken(
        name_nodes(each, laid.node_names, "node", "sender"),
        NAME,
        words("{node_name} delivered the basic {process_name}:{counter}, but {sender_name} never sent it"),
        witness=[("node", "lseq")],
        messages=[("process", "counter")],
        nodes=["node", "sender"],
        position="counter",
    )
