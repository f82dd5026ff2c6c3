"""Circles in the order of events (EVS 1.1, 2.3, 2.4, 6.1 and 6.2), also across partitions.

The key of an ordered message is its ring and place. If every node sees keys strictly grow, through configuration changes, and
each message has one key everywhere, then it is a topological numbering of all events: there is no cycle. The spine proves that
below the tail, here the tail is held against it. Where it fails, and only there, a grouped task builds the graph and searches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, BooleanType

from transis.audit.guarantees.certificates import Vertex, graph_of, joined
from transis.audit.plans.lay import Settle
from transis.audit.plans.spine import OrderedHistory
from transis.spark.inputs import LONG, LONGS, TEXT, columns

DOUBTS: Final = """
    select run from (  -- rings shrink
        select s.run, v.view_order, lag(v.view_order) over (partition by s.node order by s.stay_no) as order_before
        from {stays} s join {view_names} v on s.ring = v.view
    ) where order_before >= view_order
    union all  -- something was delivered outside of any ring
    select run from {deliveries} where service > 0 and stay_no = 0
    union all  -- a transitional configuration stands behind its ring's last regular place, the same at all its members
    select s.run from {stays} s
    left join {tail} t on s.node = t.node and s.stay_no = t.stay_no and s.cut - 1 = t.tpos
    where s.trans is not null
    group by s.run, s.trans having count(distinct s.ring, coalesce(t.place, -1)) > 1
    union all  -- there is one transitional configuration too many
    select run from (
        select run, 1 as installed, 0 as used from {confs} where view_kind = 1
        union all
        select run, 0, 1 from {stays} where trans is not null
    ) group by run having sum(installed) <> sum(used)
    union all  -- keys fall, or are not those that were sent
    select run from (
        select *, lag(place) over (partition by node, stay_no order by tpos) as place_before from {claims}
    ) where place_before >= place or not place <=> sent_place
    union all  -- something was sent below what its sender had seen
    select e.run from {sent} e join {tail} t on e.node = t.node and e.stay_no = t.stay_no and e.before - 1 = t.tpos
    where e.is_ordered and e.place <= t.place
"""
"""Runs in which the key does not prove that there is one order."""

GRAPH_MESSAGES_MAX: Final = 400_000
"""Deliveries of a run of which the whole graph is built; of a longer one, only what stands around the first doubt."""

AROUND: Final = 20_000
"""Positions behind the first doubt of a ring that are searched in a long run."""

EVENTS: Final = """
    with run as (
        select run, sum(ordered) > {graph_messages_max} as is_long from {stays} left semi join {doubtful} using (run) group by run
    ), event as (
        select c.run, c.node, c.lseq, 'install' as what, view as process, 0L as counter, view_name as label, true as is_ordered
        from {confs} c
        union all
        select e.run, e.node, e.lseq, 'send', e.process, counter, concat(p.process_name, ':', counter), e.is_ordered
        from {sends} e join run r on e.run = r.run join {process_names} p on e.process = p.process
        lateral view explode(sequence(e.first, e.first + e.count - 1)) as counter
        where e.service > 0 and not r.is_long
        union all
        select d.run, d.node, d.lseq, 'deliver', d.process, counter, concat(p.process_name, ':', counter), d.is_ordered
        from {deliveries} d join run r on d.run = r.run join {process_names} p on d.process = p.process
        lateral view explode(sequence(d.first, d.first + d.count - 1)) as counter
        where d.service > 0 and not r.is_long
        union all
        select t.run, t.node, t.lseq, 'deliver', t.process, t.counter, t.message, true
        from {tail} t join run r on t.run = r.run join {rings} g on t.ring = g.ring
        where r.is_long and t.tpos < g.good + {around}
        union all
        select e.run, e.node, e.lseq, 'send', e.process, e.counter, e.message, e.is_ordered
        from {sent} e join run r on e.run = r.run where r.is_long
    )
    select /*+ broadcast(r) */ e.*, n.name, n.incarnation, n.boot, n.node_name
    from event e join run r on e.run = r.run join {node_names} n on e.node = n.node
"""
"""Installations, sends and deliveries of doubtful runs, a row a vertex."""

CYCLES: Final = columns(
    run=LONG, merged=BooleanType(), steps=TEXT, nodes=LONGS, views=LONGS, messages=ArrayType(LONGS), witness=ArrayType(LONGS)
)
"""The shortest cycle of a run, with deliveries of one message merged or apart, step by step in words."""

ARROW: Final[pa.Schema] = to_arrow_schema(CYCLES, timezone="UTC")


def cycles(ordered: OrderedHistory, query: Callable[..., DataFrame], settle: Settle) -> DataFrame:
    """The one table for which a result is looked at before going on: nearly always no run is doubtful, and then no graph is
    planned."""
    doubts = [query(DOUBTS)]
    if ordered.apart is not None:
        doubts += ordered.apart.doubts(ordered.origins, ordered.laid)
    doubtful = settle(reduce(DataFrame.unionByName, doubts).distinct())
    if doubtful.isEmpty():
        return doubtful.sparkSession.createDataFrame([], CYCLES)
    events = query(EVENTS, doubtful=doubtful, graph_messages_max=GRAPH_MESSAGES_MAX, around=AROUND)
    return settle(events.groupBy("run").applyInArrow(find_cycles, CYCLES))


# -- the grouped task: Python, of runs that failed already -----------------------------------------------------------


def find_cycles(events: pa.Table) -> pa.Table:
    """The shortest cycle of one run, in both graphs."""
    order = ("name", "incarnation", "boot", "lseq", "counter")
    rows = events.sort_by([(name, "ascending") for name in order]).to_pylist()
    found = [*_cycle(rows, merged=True), *_cycle(rows, merged=False)]
    return pa.Table.from_pylist(found, schema=ARROW)


def _cycle(rows: list[dict[str, Any]], merged: bool) -> Iterator[dict[str, Any]]:
    lives: dict[object, list[tuple[Vertex, int]]] = {}
    labels: dict[object, object] = {}
    for row in rows:
        about = (row["process"], row["counter"])
        is_apart = row["what"] == "deliver" and not (merged and row["is_ordered"])
        apart = (row["node"],) if is_apart else ()
        vertex: Vertex = (row["what"], about, *apart)
        lives.setdefault(row["node"], []).append((vertex, row["lseq"]))
        labels[about] = row["label"]
        labels[row["node"]] = row["node_name"]
    sent = {vertex[1] for vertices in lives.values() for vertex, _ in vertices if vertex[0] == "send"}
    graph = graph_of(lives.items(), sent)
    steps = joined(graph.shortest_cycle())
    if not steps:
        return
    sentences: list[str] = []
    witness: dict[tuple[object, int], None] = {}
    messages: dict[tuple[object, object], None] = {}
    for source, target, life in steps:
        if life is None:
            sentences.append(f"{_words(source, labels)} before {_words(target, labels)} anywhere")
        else:
            sentences.append(f"{labels[life]} {_words(source, labels)} before it {_words(target, labels)}")
            witness |= {(life, graph.lseq[life, source]): None, (life, graph.lseq[life, target]): None}
        messages |= {vertex[1]: None for vertex in (source, target) if vertex[0] != "install"}
    yield {
        "run": rows[0]["run"],
        "merged": merged,
        "steps": "; ".join(sentences),
        "nodes": list(dict.fromkeys(node for node, _ in witness)),
        "views": list(dict.fromkeys(vertex[1][0] for step in steps for vertex in step[:2] if vertex[0] == "install")),
        "messages": [list(message) for message in messages],
        "witness": [list(event) for event in witness],
    }


def _words(vertex: Vertex, labels: dict[object, object]) -> str:
    verb = {"install": "installed", "send": "sent", "deliver": "delivered"}[vertex[0]]
    return f"{verb} {labels[vertex[1]]}"
