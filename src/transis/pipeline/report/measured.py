"""Tables of measure/schemas.py as rows of a report: plain mappings in, plain rows out, so that kept tables can be drawn again.

Hand over tables that were made small first (`throughput` summed by run, node and bin): all rows given are looked at here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from transis.pipeline.report.content import Change, Clock, GroupLatency, Incident, Latency, Point, Ring, Throughput
from transis.types.ids import Service

Rows = Iterable[Mapping[str, Any]]
Names = Mapping[int, str]
"""The names of runs by their keys."""

RING_MEASURES: Final = {
    "rotation_us": "rotation of the token, µs",
    "backlog": "messages waiting to be sent",
    "retransmitted": "messages sent again",
    "tokens_retransmitted": "tokens sent again",
    "tokens_lost": "tokens lost",
    "state_changes": "changes of state",
}


def measured(tables: Mapping[str, Rows], names: Names) -> dict[str, tuple[Any, ...]]:
    """Fields of `Content` by name, from tables by the names of `measures()`; a table that is not there gives no rows."""
    made = {
        "throughput": _throughput,
        "latency": _latency,
        "group_latency": _group_latency,
        "clocks": _clocks,
        "ring": _ring,
        "incidents": _incident_rows,
        "figures": _figures,
        "changes": _changes,
    }
    source = {"clocks": "offsets", "changes": "compared"}
    return {field: tuple(rows(tables.get(source.get(field, field), ()), names)) for field, rows in made.items()}


def service_name(service: int) -> str:
    return Service(service).name.lower()


def _throughput(rows: Rows, names: Names) -> Iterator[Throughput]:
    """Summed over senders, services and sizes; a message for several groups counts in each of them."""
    sums: dict[tuple[str, str, int, int], tuple[int, int]] = {}
    for row in rows:
        key = (names[row["run"]], row["node_name"], row["bin_us"], row["width_us"])
        messages, size = sums.get(key, (0, 0))
        sums[key] = messages + row["messages"], size + (row["bytes"] or 0)
    for (run, node, start_us, width_us), (messages, size) in sums.items():
        yield Throughput(run=run, node=node, start_us=start_us, width_us=width_us, messages=messages, bytes=size)


def _latency(rows: Rows, names: Names) -> Iterator[Latency]:
    for row in rows:
        yield Latency(
            run=names[row["run"]],
            service=service_name(row["service"]),
            low_us=row["from_us"],
            high_us=row["to_us"],
            count=row["messages"],
            sender=row["sender_name"],
            receiver=row["node_name"],
            uncertainty_us=row["uncertainty_us"],
        )


def _group_latency(rows: Rows, names: Names) -> Iterator[GroupLatency]:
    for row in rows:
        if row["p99_us"] is not None:
            group = row["group_name"] or "no group"
            yield GroupLatency(run=names[row["run"]], group=group, start_us=row["bin_us"], p99_us=row["p99_us"])


def _clocks(rows: Rows, names: Names) -> Iterator[Clock]:
    for row in rows:
        yield Clock(
            run=names[row["run"]],
            node=row["node_name"],
            reference=row["reference_name"],
            at_us=row["at_us"],
            offset_us=row["offset_us"],
            drift_ppm=row["drift_ppm"],
            uncertainty_us=row["uncertainty_us"],
        )


def _ring(rows: Rows, names: Names) -> Iterator[Ring]:
    """A row for each measure that has a value; zeros are told too, for they are good news."""
    for row in rows:
        for column, what in RING_MEASURES.items():
            if row[column] is not None:
                run, node = names[row["run"]], row["node_name"]
                yield Ring(run=run, node=node, start_us=row["bin_us"], what=what, value=float(row[column]))


def _incident_rows(rows: Rows, names: Names) -> Iterator[Incident]:
    for row in rows:
        known = (one for one in row["group_blackouts"] or () if one["blackout_us"] is not None)
        groups = sorted((one["group_name"] or "no group", one["blackout_us"]) for one in known)
        yield Incident(
            run=names[row["run"]],
            start_us=row["began_us"] if row["began_us"] is not None else row["installed_us"],
            cause=row["cause"] or "",
            old=tuple(row["old_names"] or ()),
            new=(row["view_name"],),
            lost=tuple(row["lost"] or ()),
            joined=tuple(row["joined"] or ()),
            detection_us=row["detection_us"],
            duration_us=row["duration_us"],
            blackout_us=row["blackout_us"],
            groups=tuple(groups),
            one_sided=row["tail_messages"] or 0,
        )


def _figures(rows: Rows, names: Names) -> Iterator[Point]:
    """Without a load or a latency there is no point."""
    for row in rows:
        if row["offered_per_s"] is None or row["mean_us"] is None:
            continue
        yield Point(
            run=names[row["run"]],
            service=service_name(row["service"]),
            offered_per_s=row["offered_per_s"],
            mean_us=row["mean_us"],
            size=row["size"] or 0.0,
            delivered_per_s=row["delivered_per_s"] or 0.0,
        )


def _changes(rows: Rows, names: Names) -> Iterator[Change]:
    """Of two builds; they are not of a run."""
    for row in rows:
        service = "" if row["service"] is None else f", {service_name(row['service'])}"
        unit = "µs" if row["measure"].endswith("_us") else ""
        builds = {"before_build": row["build_a"] or "", "after_build": row["build_b"] or ""}
        yield Change(what=f"{row['measure']}{service}", unit=unit, before=row["a"], after=row["b"], **builds)
