"""What a report shows: rows of plain values, so that it can be kept, sent and drawn again without Spark.

1. Names are those for people (`a/1`, `R12@a/1`, `a/1#0:7`), never keys; `run` is the name of a row of `runs`.
2. Times are microseconds from any beginning that all rows of a run share; on the page each run begins at 0.
3. Rows may come in any order: the page sorts them. Columns that are not declared here are left out.
4. `content_of` makes content from tables of any kind, `to_json` keeps it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from transis.types.errors import PipelineError


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """What was audited together: the traces of one run of one cluster."""

    name: str
    cluster: str = ""
    closed: bool = False
    """Whether the run came to rest, so that nothing is still to come."""
    mode: str = ""
    engine: str = ""
    builds: tuple[str, ...] = ()
    """Versions of the nodes; more than one if they differ."""
    seed: str = ""
    """The seed of a simulated run."""
    nodes: int = 0
    files: int = 0
    bytes: int = 0
    events: int = 0


@dataclass(frozen=True, kw_only=True)
class VerdictRow:
    run: str
    property: str
    verdict: str
    """One of the words of audit/guarantees/property.py."""
    checked: int = 0
    violations: int = 0
    pending: int = 0
    inputs: str = ""
    """Digest of the inputs that it was made from."""


@dataclass(frozen=True, kw_only=True)
class ViolationRow:
    run: str
    property: str
    explanation: str
    nodes: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    views: tuple[str, ...] = ()
    witness: tuple[tuple[str, int], ...] = ()
    """The events that show it, as (node, lseq)."""
    rank: int = 1
    """Its place among those kept of its run and property: the shortest is 1."""
    total: int = 1
    """How many there are of its run and property, kept or not."""


@dataclass(frozen=True, kw_only=True)
class ReasonRow:
    """Why the evidence for a verdict is incomplete, though nothing is wrong with it."""

    run: str
    property: str
    explanation: str


@dataclass(frozen=True, kw_only=True)
class AroundRow:
    """An event near a witness of the violation (run, property, rank), or the witness itself."""

    run: str
    property: str
    rank: int
    node: str
    lseq: int
    time_us: int
    kind: str
    """The event in one word: send, deliver, view, end, fault, ..."""
    label: str
    """The event in a sentence without its subject: `delivered a/1#0:7 (safe) in R12@a/1`."""
    about: str = ""
    """The view, or the first message of a run: a send and its deliveries have the same value and are linked by it."""


@dataclass(frozen=True, kw_only=True)
class StayRow:
    """A node's time in one view; `end_us` is where the next view, the node's end or the end of the trace comes."""

    run: str
    node: str
    start_us: int
    end_us: int
    view: str
    kind: str
    """regular or transitional."""
    members: tuple[str, ...] = ()
    cause: str = ""


@dataclass(frozen=True, kw_only=True)
class FaultRow:
    run: str
    node: str
    time_us: int
    what: str


@dataclass(frozen=True, kw_only=True)
class EndRow:
    """The end of a node's life: stopped, failed or unknown."""

    run: str
    node: str
    time_us: int
    how: str


@dataclass(frozen=True, kw_only=True)
class LatencyRow:
    """A bar of a histogram, from origination to delivery: `count` deliveries took from `low_us` up to `high_us`."""

    run: str
    service: str
    low_us: float
    high_us: float
    count: int
    sender: str = ""
    receiver: str = ""
    uncertainty_us: float | None = None
    """How far the estimate of the two clocks may be off."""


@dataclass(frozen=True, kw_only=True)
class ClockRow:
    """How far a node's clock is ahead of the reference's when it shows `at_us`, as estimated from the traffic."""

    run: str
    node: str
    reference: str
    at_us: int
    offset_us: float
    drift_ppm: float | None = None
    uncertainty_us: float | None = None


@dataclass(frozen=True, kw_only=True)
class GroupLatencyRow:
    run: str
    group: str
    start_us: int
    p99_us: float


@dataclass(frozen=True, kw_only=True)
class ThroughputRow:
    """What a node delivered from `start_us` on for `width_us`."""

    run: str
    node: str
    start_us: int
    width_us: int
    messages: int
    bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class RingRow:
    """What a node noted of its ring (rotations, retransmissions, backlog) around `start_us`."""

    run: str
    node: str
    start_us: int
    what: str
    value: float


@dataclass(frozen=True, kw_only=True)
class IncidentRow:
    """A change of view. Unknown lengths of time are None."""

    run: str
    start_us: int
    cause: str
    old: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()
    detection_us: int | None = None
    """The time from what happened to the first transitional view."""
    duration_us: int | None = None
    blackout_us: int | None = None
    """The longest time in which a node delivered nothing."""
    groups: tuple[tuple[str, int], ...] = ()
    """(group, its blackout)."""
    one_sided: int = 0
    """Messages delivered in one component only."""


@dataclass(frozen=True, kw_only=True)
class PointRow:
    """A point of the figures that show latency against load, and load against message size: one per run and service."""

    run: str
    service: str
    offered_per_s: float
    mean_us: float
    size: float = 0.0
    """The average bytes of a message."""
    delivered_per_s: float = 0.0
    """Messages that one node delivered in a second."""


@dataclass(frozen=True, kw_only=True)
class ChangeRow:
    """One measure of two builds; None where a build has nothing to measure."""

    what: str
    unit: str
    before_build: str
    before: float | None
    after_build: str
    after: float | None


@dataclass(frozen=True, kw_only=True)
class Computed:
    """How it was computed. Nothing of the machine, its user or its network belongs here."""

    transis: str = ""
    python: str = ""
    pyspark: str = ""
    java: str = ""
    master: str = ""
    """As given; the page shows only its kind."""
    files: int = 0
    bytes: int = 0
    digest: str = ""
    """A digest of the digests of all inputs."""
    steps: tuple[tuple[str, float], ...] = ()
    """(what was done, seconds)."""


@dataclass(frozen=True, kw_only=True)
class Content:
    """Everything of one report."""

    title: str = "Audit of a Transis cluster"
    runs: tuple[RunRow, ...] = ()
    verdicts: tuple[VerdictRow, ...] = ()
    violations: tuple[ViolationRow, ...] = ()
    reasons: tuple[ReasonRow, ...] = ()
    around: tuple[AroundRow, ...] = ()
    stays: tuple[StayRow, ...] = ()
    faults: tuple[FaultRow, ...] = ()
    ends: tuple[EndRow, ...] = ()
    latency: tuple[LatencyRow, ...] = ()
    clocks: tuple[ClockRow, ...] = ()
    group_latency: tuple[GroupLatencyRow, ...] = ()
    throughput: tuple[ThroughputRow, ...] = ()
    ring: tuple[RingRow, ...] = ()
    incidents: tuple[IncidentRow, ...] = ()
    figures: tuple[PointRow, ...] = ()
    changes: tuple[ChangeRow, ...] = ()
    computed: Computed = Computed()


def content_of(
    tables: Mapping[str, Iterable[Mapping[str, Any]]], computed: Computed | None = None, title: str | None = None
) -> Content:
    """Content out of rows as mappings (`pyarrow.Table.to_pylist()`, `Row.asDict(True)`), under the names of the fields above."""
    given: dict[str, object] = {name: list(rows) for name, rows in tables.items()}
    try:
        content = msgspec.convert(given, Content, strict=False)
    except msgspec.ValidationError as error:
        raise PipelineError(
            f"the tables are not those of this version's report: {error}; audit again with this version of transis"
        ) from error
    return replace(content, computed=computed or content.computed, title=title or content.title)


def to_json(content: Content) -> bytes:
    return msgspec.json.encode(content)


def from_json(text: bytes) -> Content:
    try:
        return msgspec.json.decode(text, type=Content)
    except msgspec.DecodeError as error:
        raise PipelineError(f"this is not the content of a report: {error}") from error
