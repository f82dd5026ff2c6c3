"""One time for all nodes of a run, estimated from its messages, as one line per window that later steps look up.

1. A node has two clocks: it records by one (`time_us`), and stamps what it sends by another (`origin_us`), which leaves out its
   pauses. Its own SENDs show both, so every origin can be put into the recording clock of its sender: the `skews`.
2. Recording clocks are compared pair by pair, and every node gets its way to the reference: the `clocks`.
3. Windows are counted from 0 of each clock and are equally wide in a run, so that an equi-join finds the line.

How one clock runs against another comes from the messages that went both ways, in plain Python over a few rows a run:

4. A message cannot arrive before it left. So the least difference "arrived minus left" of one direction bounds the offset of two
   clocks from above, that of the other from below; the middle is the estimate, and half of the distance is its uncertainty.
5. Clocks drift apart evenly, or nearly: an estimate stands at the middle of the moments of its two messages, and what the clocks
   may have drifted between these is part of its uncertainty.
6. Between estimates the curve is straight. Beyond them it goes on with the slope from the first to the last, ever less certain.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from statistics import median
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from transis.audit.plans.lay import Tables
from transis.spark.inputs import INT, LONG, REAL, TEXT, columns

# --- curves -----------------------------------------------------------------------------------------------------------

DRIFT_UNKNOWN: Final = 1000e-6
"""The most that two clocks are assumed to drift apart when a single estimate cannot tell: each by 500 ppm, far more than quartz
does. Worse clocks, such as some of the simulator's, can then be further off than is stated."""

CERTAIN_ENOUGH: Final = 2.0
"""Estimates this much less certain than the usual one are left out: messages waited then, and would bend the curve."""

LINES_MAX: Final = 1024
"""Windows of one curve: many times what a run has, but a single stamp from nowhere does not make millions of them."""


class Least(NamedTuple):
    """The least difference of one direction, and when its message was at the left node, by that node's clock."""

    difference_us: float
    at_us: float


class PairWindow(NamedTuple):
    """What two nodes saw of each other in a window of time: the fastest message there, and the fastest back."""

    window: int
    there: Least | None
    back: Least | None


class Knot(NamedTuple):
    """At `at_us` of a node's clock the other's shows `shift_us` more, give or take the uncertainty."""

    at_us: float
    shift_us: float
    uncertainty_us: float


class CurveLine(NamedTuple):
    """A curve within one window."""

    window: int
    at_us: int
    shift_us: float
    slope: float
    uncertainty_us: float


class Span(NamedTuple):
    """What a node's clock showed in the run, first and last."""

    first_us: int
    last_us: int


class Curve:
    """The shift over time, straight between knots."""

    def __init__(self, knots: Iterable[Knot]) -> None:
        self.knots = sorted(knots)
        self._times = [knot.at_us for knot in self.knots]
        first, last = self.knots[0], self.knots[-1]
        span = last.at_us - first.at_us
        self.slope = (last.shift_us - first.shift_us) / span if span else 0.0
        self._slope_error = (first.uncertainty_us + last.uncertainty_us) / span if span else DRIFT_UNKNOWN

    def at(self, time_us: float) -> Knot:
        after = bisect(self._times, time_us)
        if after in (0, len(self.knots)):
            return self._beyond(time_us, self.knots[-1 if after else 0])
        left, right = self.knots[after - 1], self.knots[after]
        part = (time_us - left.at_us) / (right.at_us - left.at_us)
        return Knot(time_us, *(one + part * (other - one) for one, other in zip(left[1:], right[1:], strict=True)))

    def _beyond(self, time_us: float, end: Knot) -> Knot:
        away = time_us - end.at_us
        return Knot(time_us, end.shift_us + self.slope * away, end.uncertainty_us + self._slope_error * abs(away))

    def seen_from_there(self) -> Curve:
        """The same curve by the other clock: what one is ahead, the other is behind."""
        return Curve(Knot(at_us + shift_us, -shift_us, uncertainty_us) for at_us, shift_us, uncertainty_us in self.knots)


# -- pairs -----------------------------------------------------------------------------------------------------------


class RoundTrip(NamedTuple):
    """A message each way."""

    there: Least
    back: Least

    @property
    def at_us(self) -> float:
        return (self.there.at_us + self.back.at_us) / 2

    @property
    def shift_us(self) -> float:
        return (self.there.difference_us - self.back.difference_us) / 2

    @property
    def apart_us(self) -> float:
        """The time between the two messages; negative if the one back was the first."""
        return self.there.at_us - self.back.at_us

    def uncertainty_us(self, drift: float) -> float:
        """How long the two were on their way, on average, if the right clock has this drift: the shift cannot be wrong by
        more."""
        return abs((self.there.difference_us + self.back.difference_us) / 2 - drift * self.apart_us / 2)


def curve_of(windows: Iterable[PairWindow]) -> Curve | None:
    """The right clock by the left one's; None if no message went one of the two ways."""
    meetings = list(_meetings(windows))
    if not meetings:
        return None
    drift, error = _drift(meetings[0], meetings[-1])
    knots = [Knot(one.at_us, one.shift_us, one.uncertainty_us(drift) + error * abs(one.apart_us) / 2) for one in meetings]
    usual = median(knot.uncertainty_us for knot in knots)
    return Curve(knot for knot in knots if knot.uncertainty_us <= CERTAIN_ENOUGH * usual)


def skew_of(samples: Iterable[tuple[float, float]]) -> Curve:
    """A node's recording clock by its stamping one, from moments (stamp, shift). The two run evenly except in pauses of the node:
    where the shift bends there was a pause, at a moment that nobody knows, and the bend is the uncertainty."""
    knots = [Knot(at_us, shift_us, 0.0) for at_us, shift_us in sorted(dict(samples).items())]
    inner = range(1, len(knots) - 1)
    bends = [2 * abs(knots[i].shift_us - Curve((knots[i - 1], knots[i + 1])).at(knots[i].at_us).shift_us) for i in inner]
    around = [bends[0], *bends, bends[-1]] if bends else [0.0] * len(knots)
    return Curve(knot._replace(uncertainty_us=bend) for knot, bend in zip(knots, around, strict=True))


def _drift(first: RoundTrip, last: RoundTrip) -> tuple[float, float]:
    """What the right clock gains on the left, and how wrong that may be."""
    span = last.at_us - first.at_us
    free = span - (abs(first.apart_us) + abs(last.apart_us)) / 2
    if free <= 0:
        return 0.0, DRIFT_UNKNOWN
    drift = (last.shift_us - first.shift_us) / span
    return drift, (first.uncertainty_us(drift) + last.uncertainty_us(drift)) / free


def _meetings(windows: Iterable[PairWindow]) -> Iterable[RoundTrip]:
    """Windows in which messages went both ways; a window with messages one way only is joined with the next."""
    there: Least | None = None
    back: Least | None = None
    for window in sorted(windows, key=lambda one: one.window):
        there, back = _lesser(there, window.there), _lesser(back, window.back)
        if there is not None and back is not None:
            yield RoundTrip(there, back)
            there = back = None


def _lesser(one: Least | None, other: Least | None) -> Least | None:
    return min((least for least in (one, other) if least is not None), default=None)


# -- one time for all ------------------------------------------------------------------------------------------------

Pair = tuple[int, int]


class ClockPath(NamedTuple):
    """The path from a node's clock to that of its reference: over the nodes between, one curve each."""

    reference: int
    curves: tuple[Curve, ...]

    def at(self, time_us: float) -> Knot:
        now, uncertainty = time_us, 0.0
        for curve in self.curves:
            step = curve.at(now)
            now += step.shift_us
            uncertainty += step.uncertainty_us
        return Knot(time_us, now - time_us, uncertainty)


def ways(pairs: dict[Pair, Curve]) -> dict[int, ClockPath]:
    """The most certain path of every node to the reference of its component, the node that most others can be compared with."""
    towards: dict[int, dict[int, Curve]] = {}
    for (left, right), curve in pairs.items():
        towards.setdefault(left, {})[right] = curve
        towards.setdefault(right, {})[left] = curve.seen_from_there()
    found: dict[int, ClockPath] = {}
    for reference in sorted(towards, key=lambda node: (-len(towards[node]), node)):
        if reference not in found:
            found |= _ways_to(reference, towards)
    return found


def _ways_to(reference: int, towards: dict[int, dict[int, Curve]]) -> dict[int, ClockPath]:
    """The shortest ways, where the length of a curve is its usual uncertainty."""
    found: dict[int, ClockPath] = {}
    serial = count()
    open_ways: list[tuple[float, int, int, ClockPath]] = [(0.0, next(serial), reference, ClockPath(reference, ()))]
    while open_ways:
        length, _, node, way = heappop(open_ways)
        if node in found:
            continue
        found[node] = way
        for neighbour in sorted(towards[node].keys() - found.keys()):
            curve = towards[neighbour][node]
            further = length + median(knot.uncertainty_us for knot in curve.knots)
            heappush(open_ways, (further, next(serial), neighbour, ClockPath(reference, (curve, *way.curves))))
    return found


def lines(curve: Curve | ClockPath, span: Span, width_us: int) -> Iterable[CurveLine]:
    """The curve as a line a window, from one before the span to one behind it: a lookup then needs no search."""
    last = span.last_us // width_us + 1
    for window in range(max(span.first_us // width_us - 1, last - LINES_MAX + 1), last + 1):
        begin, end = curve.at(window * width_us), curve.at((window + 1) * width_us)
        slope = (end.shift_us - begin.shift_us) / width_us
        yield CurveLine(window, window * width_us, begin.shift_us, slope, max(begin.uncertainty_us, end.uncertainty_us))


# --- tables -----------------------------------------------------------------------------------------------------------

LINES: Final = columns(
    run=LONG, node=LONG, reference=LONG, hops=INT, window=LONG, at_us=LONG, shift_us=REAL, slope=REAL, uncertainty_us=REAL
)
"""In a window of a node's clock, add `shift_us + slope * (t - at_us)` to a time t of it: then it is one of the reference node's
recording clock, which was compared over `hops` pairs of nodes."""

OFFSETS: Final = columns(
    run=LONG,
    node=LONG,
    node_name=TEXT,
    reference=LONG,
    reference_name=TEXT,
    hops=INT,
    at_us=LONG,
    offset_us=REAL,
    drift_ppm=REAL,
    uncertainty_us=REAL,
)
"""How far a node's clock is ahead of the reference's when it shows `at_us`."""

# --- clocks -----------------------------------------------------------------------------------------------------------

WINDOWS_MAX: Final = 64
WINDOWS_MIN: Final = 4
RUNS_A_WINDOW: Final = 250
"""About how many runs of messages a node delivers in a window: a short trace has few windows, so that many traces stay small."""

Keep = Callable[[str, DataFrame], DataFrame]
"""Returns the same rows, kept somewhere, so that they are not computed again."""


def not_kept(name: str, rows: DataFrame) -> DataFrame:
    return rows


@dataclass(frozen=True)
class Clocks:
    """The lines between clocks: all three are small."""

    spans: DataFrame
    """run, node, first_us, last_us (of the recording clock), first_origin_us, last_origin_us, width_us."""
    skews: DataFrame
    """LINES from the stamping to the recording clock of a node."""
    clocks: DataFrame
    """LINES from the recording clock of a node to that of its reference."""


def compare_clocks(tables: Tables, keep: Keep = not_kept) -> Clocks:
    known = keep("spans", spans(tables))
    skew = keep("skews", skews(tables, known))
    return Clocks(known, skew, keep("clocks", clocks(tables, known, skew)))


# -- spans -----------------------------------------------------------------------------------------------------------


def spans(tables: Tables) -> DataFrame:
    """What each node's clocks showed, and how wide the windows of its run are."""
    seen = (
        tables["deliveries"]
        .groupBy("run", "node", "sender")
        .agg(F.count("*").alias("rows"), *_first_and_last("time_us", ""), *_first_and_last("origin_us", "_origin"))
    )
    confs = tables["confs"].groupBy("run", "node").agg(F.lit(0).alias("rows"), *_first_and_last("time_us", ""))
    shown = seen.select("run", "node", "rows", "first_us", "last_us").unionByName(confs)
    recorded = shown.groupBy("run", "node").agg(F.sum("rows").alias("rows"), *_merged(""))
    stamped = seen.groupBy("run", F.col("sender").alias("node")).agg(*_merged("_origin"))
    return recorded.join(stamped, ["run", "node"], "full").join(_widths(recorded), "run")


def _first_and_last(time: str, of: str) -> Iterable[Column]:
    return F.min(time).alias(f"first{of}_us"), F.max(time).alias(f"last{of}_us")


def _merged(of: str) -> Iterable[Column]:
    return F.min(f"first{of}_us").alias(f"first{of}_us"), F.max(f"last{of}_us").alias(f"last{of}_us")


def _widths(recorded: DataFrame) -> DataFrame:
    longest = recorded.groupBy("run").agg(F.max(F.expr("last_us - first_us")).alias("span"), F.max("rows").alias("rows"))
    windows = F.greatest(F.lit(WINDOWS_MIN), F.least(F.lit(WINDOWS_MAX), F.expr(f"rows div {RUNS_A_WINDOW}")))
    return longest.select("run", (F.floor(F.col("span") / windows) + 1).alias("width_us"))


def widths(spans: DataFrame) -> DataFrame:
    return spans.select("run", "width_us").distinct()


# -- the two clocks of a node ----------------------------------------------------------------------------------------


def skews(tables: Tables, spans: DataFrame) -> DataFrame:
    """The first and the last SEND of each window, and the stamps that their messages carry."""
    sends = tables["sends"].join(F.broadcast(widths(spans)), "run")
    sample = F.struct("process", "first", "time_us")
    samples = sends.groupBy("run", "node", _window("time_us").alias("window")).agg(
        F.array(F.min_by(sample, "lseq"), F.max_by(sample, "lseq")).alias("sent")
    )
    samples = samples.withColumn("sent", F.explode(F.array_distinct("sent")))
    samples = samples.select(
        "run", F.col("node").alias("sender"), "sent.process", "sent.first", F.col("sent.time_us").alias("sent")
    )
    stamped = tables["deliveries"].select("process", "first", "origin_us").join(F.broadcast(samples), ["process", "first"])
    knots = stamped.groupBy("run", F.col("sender").alias("node"), "sent").agg(F.min("origin_us").alias("origin_us"))
    facts = spans.select("run", "node", "first_origin_us", "last_origin_us", "width_us")
    return _by_run(knots.join(F.broadcast(facts), ["run", "node"]), _skew_lines)


def _skew_lines(table: pa.Table) -> pa.Table:
    """The skews of one run."""
    nodes: dict[int, list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        nodes.setdefault(row["node"], []).append(row)
    found = []
    for node, rows in nodes.items():
        fact = rows[0]
        curve = skew_of((row["origin_us"], row["sent"] - row["origin_us"]) for row in rows)
        for line in lines(curve, Span(fact["first_origin_us"], fact["last_origin_us"]), fact["width_us"]):
            found.append({"run": fact["run"], "node": node, "reference": node, "hops": 0, **line._asdict()})
    return _lines(found)


def with_origins(deliveries: DataFrame, spans: DataFrame, skews: DataFrame) -> DataFrame:
    """Deliveries with `width_us`, and `origin_us` by the recording clock of the sender, with its uncertainty."""
    rows = deliveries.join(F.broadcast(widths(spans)), "run")
    return in_time_of(rows, skews, "sender", "origin_us", "origin_us").drop("origin_us_reference")


# -- pairs of nodes --------------------------------------------------------------------------------------------------


def clocks(tables: Tables, spans: DataFrame, skews: DataFrame) -> DataFrame:
    """Every node's lines to its reference; a node that heard nobody, or that nobody heard, has none."""
    left = spans.select("run", F.col("node").alias("left"), *_renamed("left"), "width_us")
    right = spans.select("run", F.col("node").alias("right"), *_renamed("right"))
    pairs = least_differences(tables, spans, skews).join(F.broadcast(left), ["run", "left"])
    return _by_run(pairs.join(F.broadcast(right), ["run", "right"]), _clock_lines)


def _renamed(side: str) -> Iterable[Column]:
    return F.col("first_us").alias(f"{side}_first_us"), F.col("last_us").alias(f"{side}_last_us")


def least_differences(tables: Tables, spans: DataFrame, skews: DataFrame) -> DataFrame:
    """The fastest message of each direction, in windows of the left node's clock; left is the one with the lower key."""
    columns = tables["deliveries"].where("sender <> node").select("run", "node", "sender", "time_us", "origin_us")
    there = F.col("sender") < F.col("node")
    at_least = F.expr("time_us - origin_us + coalesce(origin_us_uncertainty, 0)")
    rows = (
        with_origins(columns, spans, skews)
        .withColumn("at_us", F.when(there, F.col("origin_us")).otherwise(F.col("time_us")))
        .withColumn("there", F.when(there, at_least))
        .withColumn("back", F.when(~there, at_least))
    )
    pair = (F.least("node", "sender").alias("left"), F.greatest("node", "sender").alias("right"))
    return rows.groupBy("run", *pair, _window("at_us").alias("window")).agg(
        F.min("there").alias("there_us"), F.min_by("at_us", "there").alias("there_at_us"),
        F.min("back").alias("back_us"), F.min_by("at_us", "back").alias("back_at_us"),
    )  # fmt: skip


def _clock_lines(table: pa.Table) -> pa.Table:
    """The clocks of one run."""
    windows: dict[tuple[int, int], list[PairWindow]] = {}
    nodes: dict[int, Span] = {}
    rows = table.to_pylist()
    for row in rows:
        there, back = (_least(row[f"{way}_us"], row[f"{way}_at_us"]) for way in ("there", "back"))
        windows.setdefault((row["left"], row["right"]), []).append(PairWindow(row["window"], there, back))
        nodes |= {row[side]: Span(row[f"{side}_first_us"], row[f"{side}_last_us"]) for side in ("left", "right")}
    curves = {pair: curve_of(found) for pair, found in windows.items()}
    found = []
    for node, way in ways({pair: curve for pair, curve in curves.items() if curve is not None}).items():
        more = {"run": rows[0]["run"], "node": node, "reference": way.reference, "hops": len(way.curves)}
        found += [more | line._asdict() for line in lines(way, nodes[node], rows[0]["width_us"])]
    return _lines(found)


def _least(difference_us: int | None, at_us: int | None) -> Least | None:
    return None if difference_us is None or at_us is None else Least(difference_us, at_us)


def _by_run(rows: DataFrame, task: Callable[[pa.Table], pa.Table]) -> DataFrame:
    """LINES, computed by a Python task for each run, over a few rows of every node."""
    return rows.groupBy("run").applyInArrow(task, LINES)


def _lines(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=to_arrow_schema(LINES, timezone="UTC"))


# -- one time ------------------------------------------------------------------------------------------------------


def in_time_of(rows: DataFrame, lines: DataFrame, node: str, time: str, into: str) -> DataFrame:
    """Rows with `into`, a node's time by another clock, and which clock and how uncertain; they must have their run's `width_us`.

    Where there is no line, the time stays as it is, and the other two are null.
    """
    line = F.struct("at_us", "shift_us", "slope", "uncertainty_us", "reference").alias("_line")
    found = lines.select(F.col("node").alias(node), F.col("window").alias("_window"), line)
    placed = rows.withColumn("_window", _window(time)).join(F.broadcast(found), [node, "_window"], "left")
    shift = F.col("_line.shift_us") + F.col("_line.slope") * (F.col(time) - F.col("_line.at_us"))
    converted = F.col(time) + F.coalesce(F.round(shift), F.lit(0.0)).cast("long")
    more = {f"{into}_uncertainty": F.col("_line.uncertainty_us"), f"{into}_reference": F.col("_line.reference")}
    return placed.withColumns({into: converted, **more}).drop("_line", "_window")


def in_reference_time(rows: DataFrame, known: Clocks, time: str, into: str) -> DataFrame:
    """Events of nodes in the time of their run: `into`, and `into`_uncertainty."""
    converted = in_time_of(rows.join(F.broadcast(widths(known.spans)), "run"), known.clocks, "node", time, into)
    return converted.drop("width_us", f"{into}_reference")


def _window(time: str) -> Column:
    return F.floor(F.col(time) / F.col("width_us")).cast("long")


def offsets(known: Clocks, node_names: DataFrame) -> DataFrame:
    """The estimates as a table to read."""
    names = node_names.select("node", "node_name")
    references = names.select(F.col("node").alias("reference"), F.col("node_name").alias("reference_name"))
    rows = known.clocks.join(names, "node").join(references, "reference")
    rows = rows.withColumns({"offset_us": -F.col("shift_us"), "drift_ppm": F.col("slope") * -1e6})
    return rows.select(*OFFSETS.names)
