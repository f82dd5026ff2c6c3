"""EVS 1.1, 2.3, 2.4, 6.1 and 6.2: one order of all events, with no cycle of any length, also across partitions (plan E).

The key of an ordered message is its ring and place. If every node sees keys strictly grow, through configuration changes, and
each message has one key everywhere, then it is a topological numbering of all events: there is no cycle. The spine proves that
below the tail, here the tail is held against it. Where it fails, and only there, a grouped task builds the graph and searches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from transis.audit.guarantees.certificates import Vertex, graph_of, joined
from transis.audit.plans.finding import Found, checked, found
from transis.audit.plans.tables import VIOLATIONS
from transis.audit.plans.tail import OrderedHistory, ordered_total, reliable_total
from transis.audit.properties.places import claimed
from transis.spark.inputs import settled

TOTAL: Final = "total_order_6_1"
PARTIAL: Final = "partial_order_1_1"

GRAPH_MESSAGES_MAX: Final = 400_000
"""Deliveries of a run of which the whole graph is built; of a longer one, only what stands around the first doubt."""

AROUND: Final = 20_000
"""Positions behind the first doubt of a ring that are searched in a long run."""

ARROW: Final[pa.Schema] = to_arrow_schema(VIOLATIONS, timezone="UTC")


def check(sequence: OrderedHistory) -> Found:
    """Both properties: deliveries of an ordered message are one vertex (total) or one at each node (partial).

    The one property that looks at a result before it goes on: nearly always no run is doubtful, and then no graph is planned.
    """
    doubtful = settled(uncertified(sequence))
    events = doubtful.limit(0) if doubtful.isEmpty() else _events(sequence, doubtful)
    cycles = events.groupBy("run").applyInArrow(find_cycles, VIOLATIONS)
    confs = sequence.laid.confs
    sends = sequence.laid.sends.where("stay_no > 0")
    totals = [ordered_total(sequence, TOTAL), reliable_total(sequence, PARTIAL)]
    totals += [checked(confs, name) for name in (TOTAL, PARTIAL)]
    return found([*totals, checked(sends, PARTIAL, "count")], [cycles])


def uncertified(sequence: OrderedHistory) -> DataFrame:
    """Runs in which the key does not prove that there is one order."""
    doubts: list[DataFrame] = [
        _rings_shrink(sequence),
        sequence.laid.deliveries.where("service > 0 and stay_no = 0").select("run"),
        _transitional_elsewhere(sequence),
        _one_transitional_too_many(sequence),
        _keys_fall(sequence),
        _sent_below_what_it_saw(sequence),
        *(sequence.apart.doubts(sequence.origins, sequence.laid) if sequence.apart is not None else ()),
    ]
    runs = doubts[0]
    for doubt in doubts[1:]:
        runs = runs.unionByName(doubt)
    return runs.distinct()


def _rings_shrink(sequence: OrderedHistory) -> DataFrame:
    order = sequence.laid.view_names.selectExpr("view as ring", "view_order")
    life = Window.partitionBy("node").orderBy("stay_no")
    stays = sequence.laid.stays.join(F.broadcast(order), "ring").withColumn("order_before", F.lag("view_order").over(life))
    return stays.where("order_before >= view_order").select("run")


def _transitional_elsewhere(sequence: OrderedHistory) -> DataFrame:
    """A transitional configuration stands behind its ring's last regular place, the same at all its members."""
    stays = sequence.laid.stays.where("trans is not null").selectExpr(
        "run", "node", "stay_no", "ring", "trans", "cut - 1 as tpos"
    )
    last = sequence.tail.select("node", "stay_no", "tpos", "place")
    places = stays.join(last, ["node", "stay_no", "tpos"], "left").groupBy("run", "trans")
    several = places.agg(F.countDistinct("ring", F.coalesce("place", F.lit(-1))).alias("places"))
    return several.where("places > 1").select("run")


def _one_transitional_too_many(sequence: OrderedHistory) -> DataFrame:
    installed = sequence.laid.confs.where("view_kind = 1").groupBy("run").agg(F.count("*").alias("installed"))
    used = sequence.laid.stays.where("trans is not null").groupBy("run").agg(F.count("*").alias("used"))
    return installed.join(used, "run", "left").where("installed <> coalesce(used, 0)").select("run")


def _keys_fall(sequence: OrderedHistory) -> DataFrame:
    stay = Window.partitionBy("node", "stay_no").orderBy("tpos")
    claims = claimed(sequence).withColumn("place_before", F.lag("place").over(stay))
    return claims.where("place_before >= place or not (place <=> sent_place)").select("run")


def _sent_below_what_it_saw(sequence: OrderedHistory) -> DataFrame:
    seen = sequence.tail.selectExpr("node", "stay_no", "tpos + 1 as before", "place as seen_place")
    sent = sequence.sent.where("is_ordered").join(seen, ["node", "stay_no", "before"])
    return sent.where("place <= seen_place").select("run")


def _events(sequence: OrderedHistory, doubtful: DataFrame) -> DataFrame:
    """Installations, sends and deliveries of doubtful runs, a row a vertex."""
    laid = sequence.laid
    long = sequence.stays.groupBy("run").agg((F.sum("ordered") > GRAPH_MESSAGES_MAX).alias("is_long"))
    runs = F.broadcast(doubtful.join(long, "run"))
    confs = laid.confs.join(runs, "run").selectExpr(
        "run", "node", "lseq", "'install' as what", "view as process", "0L as counter", "view_name as label", "true as is_ordered"
    )
    short = runs.where("not is_long").select("run")
    sends = _single(laid.sends.where("service > 0").join(short, "run"), "send", sequence)
    deliveries = _single(laid.deliveries.where("service > 0").join(short, "run"), "deliver", sequence)
    around = F.broadcast(sequence.rings.select("ring", "good").join(runs, on=F.lit(True), how="left_semi"))
    near = sequence.tail.join(runs.where("is_long").select("run"), "run").join(around, "ring")
    near = near.where(f"tpos < good + {AROUND}").selectExpr(
        "run", "node", "lseq", "'deliver' as what", "process", "counter", "message as label", "true as is_ordered"
    )
    of_near = sequence.sent.join(runs.where("is_long").select("run"), "run")
    of_near = of_near.selectExpr("run", "node", "lseq", "'send' as what", "process", "counter", "message as label", "is_ordered")
    events = confs.unionByName(sends).unionByName(deliveries).unionByName(near).unionByName(of_near)
    return events.join(F.broadcast(laid.node_names.drop("run")), "node")


def _single(rows: DataFrame, what: str, sequence: OrderedHistory) -> DataFrame:
    names = sequence.laid.process_names.select("process", "process_name")
    single = rows.withColumn("counter", F.explode(F.expr("sequence(first, first + count - 1)")))
    named = single.join(F.broadcast(names), "process")
    return named.selectExpr(
        *("run", "node", "lseq", f"'{what}' as what", "process", "counter", "concat(process_name, ':', counter) as label"),
        "is_ordered",
    )


# -- the grouped task: Python, of runs that failed already -----------------------------------------------------------


def find_cycles(events: pa.Table) -> pa.Table:
    """The shortest cycle of one run, in both graphs."""
    order = [
        ("name", "ascending"),
        ("incarnation", "ascending"),
        ("boot", "ascending"),
        ("lseq", "ascending"),
        ("counter", "ascending"),
    ]
    rows = events.sort_by(order).to_pylist()
    found = [*_cycle(rows, TOTAL, "cannot be put into one total order"), *_cycle(rows, PARTIAL, "precede each other in a circle")]
    return pa.Table.from_pylist(found, schema=ARROW)


def _cycle(rows: list[dict[str, object]], name: str, what: str) -> Iterator[dict[str, object]]:
    lives: dict[object, list[tuple[Vertex, int]]] = {}
    labels: dict[object, object] = {}
    for row in rows:
        about = (row["process"], row["counter"])
        is_apart = row["what"] == "deliver" and (name == PARTIAL or not row["is_ordered"])
        apart = (row["node"],) if is_apart else ()
        vertex: Vertex = (str(row["what"]), about, *apart)
        lives.setdefault(row["node"], []).append((vertex, int(str(row["lseq"]))))
        labels[about] = row["label"]
        labels[row["node"]] = row["node_name"]
    sent = {vertex[1] for vertices in lives.values() for vertex, _ in vertices if vertex[0] == "send"}
    graph = graph_of(lives.items(), sent)
    steps = joined(graph.shortest_cycle())
    if not steps:
        return
    told: list[str] = []
    witness: dict[tuple[object, int], None] = {}
    messages: dict[tuple[object, object], None] = {}
    for source, target, life in steps:
        if life is None:
            told.append(f"{_words(source, labels)} before {_words(target, labels)} anywhere")
        else:
            told.append(f"{labels[life]} {_words(source, labels)} before it {_words(target, labels)}")
            witness |= {(life, graph.lseq[life, source]): None, (life, graph.lseq[life, target]): None}
        messages |= {vertex[1]: None for vertex in (source, target) if vertex[0] != "install"}
    yield {
        "run": rows[0]["run"],
        "ring": None,
        "property": name,
        "explanation": f"these {what}: {'; '.join(told)}",
        "nodes": list(dict.fromkeys(node for node, _ in witness)),
        "views": list(dict.fromkeys(vertex[1][0] for step in steps for vertex in step[:2] if vertex[0] == "install")),
        "messages": [{"process": process, "counter": counter} for process, counter in messages],
        "witness": [{"node": node, "lseq": lseq} for node, lseq in witness],
        "position": None,
    }


def _words(vertex: Vertex, labels: dict[object, object]) -> str:
    verb = {"install": "installed", "send": "sent", "deliver": "delivered"}[vertex[0]]
    return f"{verb} {labels[vertex[1]]}"
