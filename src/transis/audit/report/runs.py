"""What happened in a run: its views and faults, how fast it was, its ring, its incidents.

The tables of measures become rows of a report: plain mappings in, plain rows out, so that kept tables can be drawn again.
All rows given are read here, so reduce them first (`throughput` summed by run, node and bin). Percentiles come from histograms
and are as exact as their buckets are narrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from transis.audit.draw.spacetime import draw_inline
from transis.audit.draw.svg import clock, escaped, folded, tag, word_table, words
from transis.audit.report.charts import Chart, group_chart, latency_chart, ring_charts, throughput_chart
from transis.audit.report.content import (
    ChangeRow,
    ClockRow,
    Content,
    GroupLatencyRow,
    IncidentRow,
    LatencyRow,
    PointRow,
    RingRow,
    RunRow,
    ThroughputRow,
)
from transis.audit.report.pictures import LANES_MAX, ReportedFault, lane_of, picture_of_views, reported_once
from transis.types.ids import Service

# --- percentiles ------------------------------------------------------------------------------------------------------


def percentiles(bars: Iterable[LatencyRow], shares: Sequence[float]) -> list[float]:
    """For each share, the latency that this share of all deliveries did not exceed, as if each bucket were evenly filled."""
    ordered = sorted((bar.low_us, bar.high_us, bar.count) for bar in bars)
    total = sum(count for _, _, count in ordered)
    return [_at(ordered, share * total) for share in shares]


def _at(ordered: Sequence[tuple[float, float, int]], wanted: float) -> float:
    so_far = 0
    for low, high, count in ordered:
        if count and so_far + count >= wanted:
            return low + (high - low) * max(0.0, wanted - so_far) / count
        so_far += count
    return ordered[-1][1] if ordered else 0.0


# --- run section ------------------------------------------------------------------------------------------------------

RUNS_DRAWN: Final = 6
"""Runs that are drawn in full, those in trouble first."""
FAULTS_LISTED: Final = 300
INCIDENTS_LISTED: Final = 300
SHARES: Final = (0.5, 0.9, 0.99, 0.999)

T = TypeVar("T")


class RunSection(NamedTuple):
    """A section and its charts, by the ids of the elements that they are drawn into."""

    markup: str
    charts: dict[str, Chart]


def runs_with_rows(content: Content) -> set[str]:
    """Runs with more than verdicts."""
    tables = (content.stays, content.faults, content.latency, content.throughput, content.ring, content.incidents)
    return {one.run for table in tables for one in table}


class RowsOfRun:
    """The rows of one run, and when it began and ended."""

    def __init__(self, content: Content, run: str, start_us: int) -> None:
        def mine(rows: Iterable[T]) -> list[T]:
            return [one for one in rows if getattr(one, "run", None) == run]

        self.stays = mine(content.stays)
        self.reported_faults = reported_once(mine(content.faults))
        self.ends = mine(content.ends)
        self.latency = mine(content.latency)
        self.clocks = sorted(mine(content.clocks), key=lambda one: (one.node, one.at_us))
        self.groups = mine(content.group_latency)
        self.throughput = mine(content.throughput)
        self.ring = mine(content.ring)
        self.incidents = sorted(mine(content.incidents), key=lambda one: (one.start_us, one.cause, one.new))
        times = [stay.end_us for stay in self.stays] + [end.time_us for end in self.ends]
        self.span_us = start_us, max(times, default=start_us)

    def charts(self) -> dict[str, Chart]:
        """The charts by what they show, in the order of the page."""
        start_us = self.span_us[0]
        made = {
            "throughput": throughput_chart(self.throughput, self.incidents, start_us),
            "latency": latency_chart(self.latency),
            "groups": group_chart(self.groups, self.incidents, start_us),
            **{f"ring-{place}": chart for place, chart in enumerate(ring_charts(self.ring, self.incidents, start_us))},
        }
        return {what: chart for what, chart in made.items() if chart is not None}


def run_section(run: RunRow, found: RowsOfRun, place: int) -> RunSection:
    beside = {"latency": _latency_table(found.latency) + _clock_table(found.clocks)}
    charts = {f"chart-{place}-{what}": chart for what, chart in found.charts().items()}
    parts = (
        words("p", _facts(run, found), class_="note"),
        *_views(found),
        *(chart_markup(name, chart) + beside.get(name.rpartition("-")[2], "") for name, chart in charts.items()),
        _incidents(found.incidents, found.span_us[0]),
    )
    return RunSection(folded(words("h3", run.name, class_="inline"), *parts, is_open=place == 0, class_="run"), charts)


def chart_markup(name: str, chart: Chart) -> str:
    missing = f" {chart.left_out:,} more lines are not drawn." if chart.left_out else ""
    note = words("p", chart.note + missing, class_="note") if chart.note or missing else ""
    return words("h4", chart.title) + note + tag("div", id=name, class_="chart", role="img", aria_label=chart.title)


def _facts(run: RunRow, found: RowsOfRun) -> str:
    start_us, end_us = found.span_us
    facts = [
        f"cluster {run.cluster}" if run.cluster else "",
        f"{run.engine} engine" if run.engine else "",
        f"{run.mode} mode" if run.mode else "",
        f"{run.nodes:,} lives of nodes" if run.nodes else "",
        f"{clock(end_us - start_us)} long" if end_us > start_us else "",
        "came to rest" if run.closed else "still open or cut off",
        f"seed {run.seed}" if run.seed else "",
        f"builds {', '.join(run.builds)}" if run.builds else "",
    ]
    return " · ".join(filter(None, facts))


def _views(found: RowsOfRun) -> Iterator[str]:
    if not found.stays:
        return
    yield words("h4", "Views and faults, by node")
    yield words(
        "p",
        "Each colour is a view, hatched if it is transitional; dashed lines are faults, crosses crashes. Hover over any of them.",
        class_="note",
    )
    picture = picture_of_views(found.stays, found.reported_faults, found.ends, found.span_us)
    label = f"Views of {len(picture.lanes)} nodes over {clock(picture.end_us)}"
    yield tag("div", draw_inline(picture, label, "timeline"), class_="scroll", tabindex="0")
    hidden = len({lane_of(stay.node) for stay in found.stays}) - LANES_MAX
    if hidden > 0:
        yield words("p", f"{hidden:,} more nodes are not drawn.", class_="note")
    if found.reported_faults:
        yield _fault_list(found.reported_faults, found.span_us[0])


def _fault_list(faults: Sequence[ReportedFault], start_us: int) -> str:
    rows = ((clock(fault.time_us - start_us), fault.what, ", ".join(fault.nodes)) for fault in faults[:FAULTS_LISTED])
    more = len(faults) - FAULTS_LISTED
    rest = words("p", f"{more:,} more are not listed.", class_="note") if more > 0 else ""
    return folded(
        escaped(f"What was done ({len(faults):,})"), word_table(["#time", "fault", "seen by"], rows), rest, class_="apart"
    )


def _latency_table(rows: Sequence[LatencyRow]) -> str:
    """The density in numbers; the uncertainty is the worst of all pairs of clocks."""
    services = sorted({one.service for one in rows})
    if not services:
        return ""
    lines = []
    for service in services:
        bars = [one for one in rows if one.service == service]
        times = [_time(value) for value in percentiles(bars, (*SHARES, 1.0))]
        doubts = [one.uncertainty_us for one in bars if one.uncertainty_us is not None]
        doubt = f"± {_time(max(doubts))}" if doubts else "not known"
        lines.append((service, f"{sum(one.count for one in bars):,}", *times, doubt))
    headings = ["service", "#deliveries", *(f"#p{share * 100:g}" for share in SHARES), "#at most", "#clocks"]
    return word_table(headings, lines)


def _clock_table(clocks: Sequence[ClockRow]) -> str:
    """The last estimate for each node; latencies between nodes are only as good as these."""
    last = {one.node: one for one in clocks}
    rows = (
        (
            one.node,
            f"{one.offset_us / 1000:+,.3f} ms",
            "not known" if one.uncertainty_us is None else f"± {one.uncertainty_us / 1000:,.3f} ms",
            "" if one.drift_ppm is None else f"{one.drift_ppm:+.2f} ppm",
            one.reference,
        )
        for one in last.values()
    )
    headings = ["node", "#its clock is ahead by", "#uncertainty", "#drift", "of the clock of"]
    return folded(escaped(f"Clocks, as estimated ({len(last):,})"), word_table(headings, rows), class_="apart") if last else ""


def _incidents(incidents: Sequence[IncidentRow], start_us: int) -> str:
    if not incidents:
        return ""
    headings = [
        *("#time", "cause", "from", "to", "lost", "joined", "#detection", "#duration", "#blackout", "blackout by group"),
        "#in one component only",
    ]
    rows = (_incident(one, start_us) for one in incidents[:INCIDENTS_LISTED])
    more = len(incidents) - INCIDENTS_LISTED
    rest = words("p", f"{more:,} more are not listed.", class_="note") if more > 0 else ""
    return words("h4", f"Incidents: {len(incidents):,} changes of view") + word_table(headings, rows, class_="incidents") + rest


def _incident(one: IncidentRow, start_us: int) -> list[str]:
    groups = ", ".join(f"{group} {_time(blackout_us)}" for group, blackout_us in one.groups)
    return [
        clock(one.start_us - start_us),
        one.cause,
        *(", ".join(names) for names in (one.old, one.new, one.lost, one.joined)),
        *map(_time, (one.detection_us, one.duration_us, one.blackout_us)),
        groups,
        f"{one.one_sided:,}" if one.one_sided else "",
    ]


def _time(value_us: float | None) -> str:
    return "" if value_us is None else clock(round(value_us))


# --- measured ---------------------------------------------------------------------------------------------------------

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
    """Fields of `Content` by name, from the tables of `measures()`; a missing table gives no rows."""
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


def _throughput(rows: Rows, names: Names) -> Iterator[ThroughputRow]:
    """Summed over senders, services and sizes; a message for several groups counts in each of them."""
    sums: dict[tuple[str, str, int, int], tuple[int, int]] = {}
    for row in rows:
        key = (names[row["run"]], row["node_name"], row["bin_us"], row["width_us"])
        messages, size = sums.get(key, (0, 0))
        sums[key] = messages + row["messages"], size + (row["bytes"] or 0)
    for (run, node, start_us, width_us), (messages, size) in sums.items():
        yield ThroughputRow(run=run, node=node, start_us=start_us, width_us=width_us, messages=messages, bytes=size)


def _latency(rows: Rows, names: Names) -> Iterator[LatencyRow]:
    for row in rows:
        yield LatencyRow(
            run=names[row["run"]],
            service=service_name(row["service"]),
            low_us=row["from_us"],
            high_us=row["to_us"],
            count=row["messages"],
            sender=row["sender_name"],
            receiver=row["node_name"],
            uncertainty_us=row["uncertainty_us"],
        )


def _group_latency(rows: Rows, names: Names) -> Iterator[GroupLatencyRow]:
    for row in rows:
        if row["p99_us"] is not None:
            group = row["group_name"] or "no group"
            yield GroupLatencyRow(run=names[row["run"]], group=group, start_us=row["bin_us"], p99_us=row["p99_us"])


def _clocks(rows: Rows, names: Names) -> Iterator[ClockRow]:
    for row in rows:
        yield ClockRow(
            run=names[row["run"]],
            node=row["node_name"],
            reference=row["reference_name"],
            at_us=row["at_us"],
            offset_us=row["offset_us"],
            drift_ppm=row["drift_ppm"],
            uncertainty_us=row["uncertainty_us"],
        )


def _ring(rows: Rows, names: Names) -> Iterator[RingRow]:
    """A row for each measure that has a value; zeros count, for they are good news."""
    for row in rows:
        for column, what in RING_MEASURES.items():
            if row[column] is not None:
                run, node = names[row["run"]], row["node_name"]
                yield RingRow(run=run, node=node, start_us=row["bin_us"], what=what, value=float(row[column]))


def _incident_rows(rows: Rows, names: Names) -> Iterator[IncidentRow]:
    for row in rows:
        known = (one for one in row["group_blackouts"] or () if one["blackout_us"] is not None)
        groups = sorted((one["group_name"] or "no group", one["blackout_us"]) for one in known)
        yield IncidentRow(
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


def _figures(rows: Rows, names: Names) -> Iterator[PointRow]:
    """Without a load or a latency there is no point."""
    for row in rows:
        if row["offered_per_s"] is None or row["mean_us"] is None:
            continue
        yield PointRow(
            run=names[row["run"]],
            service=service_name(row["service"]),
            offered_per_s=row["offered_per_s"],
            mean_us=row["mean_us"],
            size=row["size"] or 0.0,
            delivered_per_s=row["delivered_per_s"] or 0.0,
        )


def _changes(rows: Rows, names: Names) -> Iterator[ChangeRow]:
    """Changes between two builds; they belong to no run."""
    for row in rows:
        service = "" if row["service"] is None else f", {service_name(row['service'])}"
        unit = "µs" if row["measure"].endswith("_us") else ""
        builds = {"before_build": row["build_a"] or "", "after_build": row["build_b"] or ""}
        yield ChangeRow(what=f"{row['measure']}{service}", unit=unit, before=row["a"], after=row["b"], **builds)
