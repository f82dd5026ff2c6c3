"""The tables that the SQL of properties reads, by the names that it has for them.

Each is laid out once, when the first property asks for it. Their columns are described where they come from: HistoryTables
(lay.py), OrderedHistory (spine.py), ClientTables and Recipients (clients.py), accounts (runs.py). Tables of events
have the name of their kind (tables.KINDS), unless one of that name has more columns. This file itself
adds, in SQL, the names for sentences, and who may still send.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from threading import RLock
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from transis.audit.guarantees import PROPERTIES
from transis.audit.guarantees.property import Reads, fields_of, statements
from transis.audit.plans.clients import ClientTables, Recipients
from transis.audit.plans.cycles import cycles
from transis.audit.plans.lay import HistoryTables, Settle, absent_members
from transis.audit.plans.runs import (
    accounts,
    basics_from_nowhere,
    basics_missing,
    basics_repeated,
    basics_unarrived,
    basics_unsent,
    unaccounted,
)
from transis.audit.plans.spine import OrderedHistory, no_apart
from transis.trace.tables import KINDS

Made = Callable[[], DataFrame]

SMALL: Final = frozenset({
    "runs", "lives", "stays", "rings", "absent", "phases", "senders", "people", "client_lives", "mixed",
    "node_names", "process_names", "view_names", "group_view_names", "node_maps", "process_maps",
})  # fmt: skip
"""Tables that every task can have whole: a join carries them there, and neither side is sorted for it."""


class Views(Mapping[str, DataFrame]):
    """Properties that are judged at the same time share them; whoever needs one that is just being made waits for it."""

    def __init__(self, spark: SparkSession, made: Mapping[str, Made]) -> None:
        self._spark = spark
        self._made = dict(made)
        self._known: dict[str, DataFrame] = {}
        self._locks: defaultdict[str, RLock] = defaultdict(RLock)

    def __getitem__(self, name: str) -> DataFrame:
        with self._locks[name]:
            if name not in self._known:
                table = self._made[name]()
                self._known[name] = F.broadcast(table) if name in SMALL else table
            return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)

    def query(self, sql: str, **more: DataFrame | int) -> DataFrame:
        """Of the views that it names in braces."""
        named: dict[str, Any] = {name: more[name] if name in more else self[name] for name in fields_of(sql)}
        return self._spark.sql(sql, **named)

    def queries(self, sql: str) -> list[DataFrame]:
        """Several, with semicolons between them."""
        return [self.query(one) for one in statements(sql)]

    def add(self, source: object, *names: str, **renamed: str) -> None:
        """Tables that are attributes."""
        both = {name: name for name in names} | renamed
        self._made |= {name: partial(getattr, source, attribute) for name, attribute in both.items()}

    def add_shared(self, reads: Reads, settle: Settle) -> None:
        """What several queries of a property read."""
        of_all = [one.shared for one in PROPERTIES.values() if one.reads is reads]
        self._made |= {name: partial(self._settled, sql, settle) for shared in of_all for name, sql in shared.items()}

    def _settled(self, sql: str, settle: Settle) -> DataFrame:
        return settle(self.query(sql))

    def add_made(self, **made: Made) -> None:
        self._made |= made

    def add_queries(self, queries: Mapping[str, str]) -> None:
        self._made |= {name: partial(self.query, sql) for name, sql in queries.items()}


NODE_MAPS: Final = """
    select run, map_from_entries(collect_list(struct(node, node_name))) as node_names from {node_names} group by run
"""
"""To name an array of nodes: a row a run."""

PROCESS_MAPS: Final = """
    select run, map_from_entries(collect_list(struct(process, process_name))) as process_names from {people} group by run
"""
"""The same for an array of processes."""

SENDERS: Final = """
    select n.run, n.node as sender, n.node_name as sender_name,
           case when l.gapped is null then not r.closed
                when l.gapped or l.ended = 'unknown' then true
                else not (r.closed or l.ended <> '') end as may_still_be_sent
    from {node_names} n join {runs} r on n.run = r.run left join {lives} l on n.node = l.node
"""
"""Whether the trace of a node is too incomplete to say that it did not send: a row a node that anybody names."""

PHASES: Final = """
    select node, stay_no, 0 as phase, node_name, ring_name, ring as conf, ring_name as conf_name from {stays}
    union all
    select node, stay_no, 1, node_name, ring_name, coalesce(trans, ring), coalesce(trans_name, ring_name) from {stays}
"""
"""The configurations of a stay with their names: `conf` is the regular one in phase 0, the transitional one in phase 1."""


CLAIMS: Final = """
    with sent as (  -- the place that a message got when it was sent in the ring
        select ring, process, counter, sent_place from (
            select sent_ring as ring, process, counter, sent_place,
                   row_number() over (partition by sent_ring, process, counter order by sent_lseq) as nth
            from {origins} where sent_is_ordered
        ) where nth = 1
    )
    select t.*, f.node_name, f.ring_name, f.conf, f.conf_name, e.sent_place,
           concat(shiftright(t.place, 20), '.', t.place & 1048575) as place_name,
           coalesce(e.sent_place,
                    first(t.place) over (partition by t.ring, t.process, t.counter order by s.stay_rank, t.tpos)) as right_place
    from {tail} t join {stays} s on t.node = s.node and t.stay_no = s.stay_no
    join {phases} f on t.node = f.node and t.stay_no = f.stay_no and t.phase = f.phase
    left join sent e on t.ring = e.ring and t.process = e.process and t.counter = e.counter
"""
"""The tail, with the place that a message has elsewhere: where it was sent, or else at the first stay that has it."""

BASICS: Final = """
    select b.*, s.may_still_be_sent
    from {basics_swept} b join {process_names} p on b.process = p.process join {senders} s on p.node = s.sender
"""

WAYS: Final = """
    select *, coalesce(trans, following) as way, coalesce(trans_name, following_name) as way_name from {stays}
"""
"""Stays, with where a life went from the regular configuration: null while it is there."""

OWED: Final = """
    with company as (
        select s.node as sender, s.stay_no as sender_stay_no, r.node, r.stay_no,
               case when r.duty = 'void' or (s.node = r.node and s.stay_no = r.stay_no) then r.duty
                    when not s.whole or l.ended = 'unknown' then 'pending'
                    when s.way is null and l.ended <> '' then 'void'
                    when s.way <=> r.way then r.duty
                    when (s.way is null or r.way is null) and not u.closed then 'pending'
                    else 'void' end as duty
        from {ways} s join {ways} r on s.ring = r.ring join {lives} l on s.node = l.node join {runs} u on s.run = u.run
    )
    select /*+ broadcast(c) */ e.run, e.ring, c.node, c.stay_no, e.process, e.first, e.count, e.lseq, c.duty
    from {sends} e join company c on e.node = c.sender and e.stay_no = c.sender_stay_no
    where e.service = 0 and c.duty <> 'void'
"""
"""A row for each SEND of basic messages and each stay to which they have to come, or may have to: those of the same ring whose
lives stay there, or leave it, together with the sender."""


def views_of(laid: HistoryTables, settle: Settle) -> Views:
    """For properties of views."""
    views = Views(laid.runs.sparkSession, {kind: partial(laid.tables.__getitem__, kind) for kind in KINDS})
    views.add_shared(Reads.VIEWS, settle)
    views.add(laid, "runs", "lives", "confs", "stays", "gaps", "deliveries", "sends")
    views.add(laid, "node_names", "process_names", "view_names")
    views.add_queries({"node_maps": NODE_MAPS, "senders": SENDERS, "phases": PHASES, "basics_unsent": BASICS})
    views.add_queries({"ways": WAYS, "basics_owed": OWED})
    views.add_made(
        absent=lambda: absent_members(laid, rings_of(laid)),
        accounts=lambda: settle(accounts(laid)),
        unaccounted=lambda: settle(unaccounted(laid, views["accounts"])),
        basics_repeated=lambda: basics_repeated(laid),
        basics_swept=lambda: settle(basics_unsent(laid)),
        basics_from_nowhere=lambda: basics_from_nowhere(laid, views["basics_unsent"].where("not may_still_be_sent")),
        basics_unarrived=lambda: settle(basics_unarrived(laid, views["basics_owed"])),
        basics_missing=lambda: basics_missing(laid, views["basics_owed"], views["basics_unarrived"]),
    )
    return views


def rings_of(laid: HistoryTables) -> DataFrame:
    """Rings with the members that their first stay names; of the order of each nothing is known here."""
    rings = laid.stays.groupBy("run", "ring").agg(F.min_by("members", "stay_rank").alias("members"))
    return rings.withColumn("bound", F.lit(0).cast("long"))


def views_of_order(ordered: OrderedHistory, settle: Settle) -> Views:
    """For properties of the order: `stays` tell more."""
    views = views_of(ordered.laid, settle)
    views.add_shared(Reads.ORDER, settle)
    views.add(ordered, "pairs", "rings", "stays", "tail", "everything", "stretches", "sent", "absent", "origins")
    views.add_queries({"claims_of_tail": CLAIMS})
    views.add_made(claims=lambda: settle(views["claims_of_tail"]), cycles=lambda: cycles(ordered, views.query, settle))
    apart = ordered.apart or no_apart(ordered.tail)
    views.add(apart, "short", apart="rows", mixed="rings")
    return views


def views_of_replicas(laid: HistoryTables, settle: Settle) -> Views:
    """For properties of replicas, which read the steps of their directories and the names of their lives."""
    views = views_of(laid, settle)
    views.add_shared(Reads.REPLICAS, settle)
    return views


def views_of_clients(clients: ClientTables, settle: Settle) -> Views:
    """For properties of groups."""
    views = views_of(clients.laid, settle)
    views.add_shared(Reads.GROUPS, settle)
    views.add(clients, "people", "changes", "seats", "handed", "got", client_lives="lives")
    views.add(Recipients(clients), "heard", "doubtful_runs", "waited_runs")
    views.add_made(group_view_names=lambda: clients.laid.tables.names("group_view_names"))
    views.add_made(process_maps=lambda: settle(views.query(PROCESS_MAPS)))
    return views
