"""Plans A and B of the audit in Spark and in DuckDB, over the same Parquet files: what a cluster's engine costs on one machine.

    python -m bench.duckdb_plans [--deliveries 10000000] [--repeat 5] [--directory DIR] [--json]

The plans bring all ordered deliveries into one sequence per ring, match it with what was sent, and find the first position of
each ring at which anything is wrong (audit/spine.py). Both engines must find the same. The times are without the start of Spark,
without reading the traces into the store, and without the small tables of lives and stays.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final, NamedTuple

import duckdb

from bench.audit import generated, workplace
from transis.audit.plans.lay import HistoryTables, Tables, lay_out
from transis.audit.plans.spine import INDEX_BITS, matched, ordered, proven_ends, ranked_sends, spine
from transis.audit.plans.store import EventStore
from transis.spark.inputs import checkpointed
from transis.spark.session import spark_session

KINDS: Final = ("confs", "deliveries", "extents", "segments", "sends")

STRETCHES: Final = """
    create temp table stretches as
    with opened as (
        select node, segment, conf_no, view_kind as phase,
               count(*) filter (view_kind = 0) over life as stay_no,
               last_value(case when view_kind = 0 then view end ignore nulls) over life as ring
        from confs
        window life as (partition by node order by lseq rows between unbounded preceding and current row)
    )
    select * from opened
    union all
    select segments.node, segments.segment, 0, arg_max(phase, (opened.segment, conf_no)),
           coalesce(arg_max(stay_no, (opened.segment, conf_no)), 0), arg_max(ring, (opened.segment, conf_no))
    from segments left join opened on opened.node = segments.node and opened.segment < segments.segment
    group by segments.node, segments.segment
"""
"""Which stay, phase and ring each stretch of a segment is in (audit/lay.py)."""

PAIRS: Final = f"""
    create or replace temp table pairs as
    with ordered as (
        select run, ring, tpos, process, first, count, service, sender, (place_seq << {INDEX_BITS}) + place_index as place,
               hash(process, first, count, service, place_seq, place_index) as same
        from deliveries join stretches using (node, segment, conf_no)
        where service > 0 and stay_no > 0
    ), spine as (
        select run, ring, tpos, max(process) as process, max(first) as first, max(count) as count, max(service) as service,
               max(place) as place, min(same) = max(same) as agreed
        from ordered group by run, ring, tpos
    ), ends as (
        select node, stay_no, segment, max(end_tpos) as end_tpos
        from extents join stretches using (node, segment, conf_no) group by node, stay_no, segment
    ), laid as (
        select sends.*, ring, stay_no, phase, (place_seq << {INDEX_BITS}) + place_index as place,
               coalesce(sum(case when service > 0 then count end) over (
                   partition by node, stay_no order by lseq rows between unbounded preceding and 1 preceding), 0) as rank
        from sends join stretches using (node, segment, conf_no)
    ), carried as (
        select later.node, later.stay_no, later.segment, max(ends.end_tpos) as end_tpos
        from (select distinct node, stay_no, segment from laid where before is null) as later
        join ends on ends.node = later.node and ends.stay_no = later.stay_no and ends.segment < later.segment
        group by later.node, later.stay_no, later.segment
    ), once as (
        select run, ring, process, first, count(*) as times, max(count) as sent_count, max(service) as sent_service,
               max(place) as sent_place, max(node) as sent_node, max(stay_no) as sent_stay_no, max(phase) as sent_phase,
               max(coalesce(before, end_tpos, 0)) as before, min(rank) as rank
        from laid left join carried using (node, stay_no, segment)
        where stay_no > 0 and service > 0 group by run, ring, process, first
    )
    select coalesce(spine.run, once.run) as run, ring, process, first, spine.* exclude (run, ring, process, first),
           once.* exclude (run, ring, process, first)
    from spine full join once using (ring, process, first)
"""
"""The spine beside what was sent (spine.spine, spine.matched)."""

ENDS: Final = """
    with rows as (
        select *, lag(tpos + count) over ring_order as end_before, lag(place + count - 1) over ring_order as place_before,
               lag(first + count) over process_order as used
        from pairs where tpos is not null
        window ring_order as (partition by ring order by tpos), process_order as (partition by ring, process order by tpos)
    ), own as (
        select ring, tpos, row_number() over sent_order as nth, lag(tpos) over sent_order as tpos_before
        from pairs where times is not null
        window sent_order as (partition by sent_node, sent_stay_no order by rank)
    ), wrong as (
        select ring, tpos from rows
        where not coalesce(agreed and times = 1 and sent_count = count and sent_service = service and sent_place = place
                           and sent_phase = 0 and before <= tpos, false)
           or tpos <> coalesce(end_before, 0) or place <= place_before or first < used
        union all
        select ring, tpos from own where tpos is not null and nth > 1 and not coalesce(tpos_before < tpos, false)
    )
    select ring, min(tpos) from wrong group by ring
"""
"""The first position of each ring at which something is wrong (spine.proven_ends)."""


class Answer(NamedTuple):
    """What both engines must find."""

    positions: int
    ends: dict[int, int]


def kept_tables(store: Path) -> duckdb.DuckDBPyConnection:
    """DuckDB over the files of a store, with as many threads as Spark has."""
    connection = duckdb.connect()
    connection.execute(f"set threads to {os.cpu_count() or 1}")
    for kind in KINDS:
        files = str(store / "events" / "batch=*" / f"kind={kind}" / "*.parquet").replace("'", "''")
        connection.execute(f"create view {kind} as select * from read_parquet('{files}', hive_partitioning = false)")
    connection.execute(STRETCHES)
    return connection


def by_duckdb(connection: duckdb.DuckDBPyConnection) -> Answer:
    connection.execute(PAIRS)
    counted = connection.execute("select count(*) from pairs where tpos is not null").fetchone()
    assert counted is not None
    return Answer(counted[0], dict(connection.execute(ENDS).fetchall()))


def by_spark(laid: HistoryTables) -> Answer:
    """As the audit does it: the matched spine is kept, then asked."""
    pairs = checkpointed(matched(spine(ordered(laid)), ranked_sends(laid)))
    ends = {row.ring: row.good for row in proven_ends(pairs).collect()}
    return Answer(pairs.where("tpos is not null").count(), ends)


def timed(plan: Callable[[], Answer], repeat: int) -> tuple[list[float], Answer]:
    """Once to warm up, then as often as told."""
    answer, seconds = plan(), []
    for _ in range(repeat):
        started = perf_counter()
        answer = plan()
        seconds.append(perf_counter() - started)
    return seconds, answer


def compare(trace: Path, size: int, store_path: Path, repeat: int) -> dict[str, Any]:
    with spark_session(size=size) as spark, EventStore(spark, store_path) as store:
        store.add([trace])
        laid = lay_out(Tables(store.events()), checkpointed)
        spark_s, of_spark = timed(lambda: by_spark(laid), repeat)
    connection = kept_tables(store_path)
    duckdb_s, of_duckdb = timed(lambda: by_duckdb(connection), repeat)
    if of_spark != of_duckdb:
        raise SystemExit(f"they differ: Spark {of_spark}, DuckDB {of_duckdb}")
    return {
        "positions": of_spark.positions,
        "rings_with_an_end": len(of_spark.ends),
        "spark_s": round(median(spark_s), 2),
        "duckdb_s": round(median(duckdb_s), 2),
        "spark_to_duckdb": round(median(spark_s) / median(duckdb_s), 2),
        "sparks_s": [round(one, 2) for one in spark_s],
        "duckdbs_s": [round(one, 2) for one in duckdb_s],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deliveries", type=int, default=10_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--directory", type=Path, help="keep the trace and the store here, and use those that are here")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with workplace(given.directory) as place:
        trace = generated(place, given.deliveries)
        store = place / f"store-{given.deliveries}"
        figures = {"deliveries": trace.deliveries, **compare(trace.directory, trace.bytes, store, given.repeat)}
    if given.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:20} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
