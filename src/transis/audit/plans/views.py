"""The tables that the SQL of properties reads, by the names that it has for them.

Each is laid out once, when the first property asks for it. Their columns are told where they come from: Laid (lay.py),
OrderedHistory (tail.py), Clients (clients.py), accounts (runs.py). Tables of events have the name of their kind (tables.KINDS),
unless one of that name has more columns. What is made here, in SQL as well, are names for sentences, and who may still send.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from threading import RLock
from typing import Any, Final

from pyspark.sql import DataFrame

from transis.audit.guarantees.property import fields_of
from transis.audit.plans.clients import Clients
from transis.audit.plans.lay import Laid, Settle
from transis.audit.plans.runs import accounts, unaccounted
from transis.audit.plans.tables import KINDS
from transis.audit.plans.tail import OrderedHistory

Made = Callable[[], DataFrame]


class Views(Mapping[str, DataFrame]):
    """Properties that are judged at the same time share them."""

    def __init__(self, made: Mapping[str, Made]) -> None:
        self._made = dict(made)
        self._known: dict[str, DataFrame] = {}
        self._lock = RLock()

    def __getitem__(self, name: str) -> DataFrame:
        with self._lock:
            if name not in self._known:
                self._known[name] = self._made[name]()
            return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)

    def query(self, sql: str) -> DataFrame:
        """Of the views that it names in braces."""
        tables: dict[str, Any] = {name: self[name] for name in fields_of(sql)}
        found: DataFrame = next(iter(tables.values())).sparkSession.sql(sql, **tables)
        return found

    def queries(self, sql: str) -> list[DataFrame]:
        """Several, with semicolons between them."""
        return [self.query(one) for one in sql.split(";")]

    def add(self, source: object, *names: str, **renamed: str) -> None:
        """Tables that are attributes."""
        both = {name: name for name in names} | renamed
        self._made |= {name: partial(getattr, source, attribute) for name, attribute in both.items()}

    def add_made(self, **made: Made) -> None:
        self._made |= made

    def add_queries(self, queries: Mapping[str, str]) -> None:
        self._made |= {name: partial(self.query, sql) for name, sql in queries.items()}


NODE_MAPS: Final = """
    select run, map_from_entries(collect_list(struct(node, node_name))) as node_names from {node_names} group by run
"""
"""To name an array of nodes: a row a run."""

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


def views_of(laid: Laid, settle: Settle) -> Views:
    """For properties of views."""
    views = Views({kind: partial(laid.tables.__getitem__, kind) for kind in KINDS})
    views.add(laid, "runs", "lives", "confs", "stays", "gaps", "deliveries", "sends")
    views.add(laid, "node_names", "process_names", "view_names")
    views.add_queries({"node_maps": NODE_MAPS, "senders": SENDERS, "phases": PHASES})
    views.add_made(accounts=lambda: settle(accounts(laid)), unaccounted=lambda: settle(unaccounted(laid, views["accounts"])))
    return views


def views_of_order(ordered: OrderedHistory, settle: Settle) -> Views:
    """For properties of the order: `stays` tell more."""
    views = views_of(ordered.laid, settle)
    views.add(ordered, "pairs", "rings", "stays", "tail", "everything", "stretches", "sent", "absent", "origins")
    return views


def views_of_clients(clients: Clients, settle: Settle) -> Views:
    """For properties of groups."""
    views = views_of(clients.laid, settle)
    views.add(clients, "people", "changes", "seats", "handed", "got", client_lives="lives")
    return views
