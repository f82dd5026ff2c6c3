"""Content for reports, made from simulated runs with plain Python: what Spark would have found and measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from itertools import pairwise
from math import floor, log2
from random import Random
from typing import Any

from tests.guarantees.mutants import MUTANTS
from transis.audit.guarantees import check
from transis.audit.guarantees.property import Report
from transis.audit.report.content import (
    AroundRow,
    ClockRow,
    Computed,
    Content,
    EndRow,
    FaultRow,
    IncidentRow,
    LatencyRow,
    PointRow,
    RingRow,
    RunRow,
    StayRow,
    ThroughputRow,
    VerdictRow,
    ViolationRow,
)
from transis.sim.run import simulate
from transis.sim.words import event_words
from transis.trace.events import Conf, Delivery, Event, History, NoteEvent, Sent, Submit
from transis.trace.events import End as Ended
from transis.trace.events import Fault as Struck
from transis.types.ids import MessageId, NodeId, ProcessId

BIN_US = 50_000
NEAR = 6
"""Events on each side of a witness."""

KINDS = {Sent: "send", Delivery: "deliver", Conf: "view", Ended: "end", Struck: "fault", NoteEvent: "note", Submit: "submit"}

COMPUTED = Computed(
    transis="0.3.0",
    python="3.11.7",
    pyspark="4.3.0",
    java="17.0.15",
    master="spark://10.1.2.3:7077",
    files=4,
    bytes=123_456,
    digest="5f2c9e0d1b7a4433",
    steps=(("reading 4 segments", 3.2), ("auditing", 11.7), ("measuring", 4.1)),
)


def wounded(history: History, name: str) -> History:
    """The history with the wound of that name."""
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    found = mutant(history, Random(1))
    assert found is not None, f"{name} finds no place in this history"
    return found


def content_of_seed(seed: int = 5, wounds: Sequence[str] = ()) -> Content:
    history = simulate(seed).history
    for wound in wounds:
        history = wounded(history, wound)
    return content_of_history(f"seed {seed}", history)


def content_of_history(name: str, history: History) -> Content:
    report = check(history)
    return Content(
        runs=(_run(name, history),),
        verdicts=tuple(_verdicts(name, report)),
        violations=tuple(_violations(name, report)),
        around=tuple(_around(name, history, report)),
        stays=tuple(_stays(name, history)),
        faults=tuple(_faults(name, history)),
        ends=tuple(_ends(name, history)),
        latency=tuple(_latency(name, history)),
        throughput=tuple(_throughput(name, history)),
        ring=tuple(_ring(name, history)),
        incidents=tuple(_incidents(name, history)),
        clocks=(
            ClockRow(run=name, node="b/1", reference="a/1", at_us=0, offset_us=-634_264.5, drift_ppm=12.5, uncertainty_us=140.0),
        ),
        computed=COMPUTED,
    )


def many_runs(count: int, broken: Sequence[int] = (3, 41), pending: Sequence[int] = (7,)) -> Content:
    """One run drawn in full and many of which there are only verdicts."""
    first = content_of_seed(5)
    names = [first.runs[0].name, *(f"run {number:03}" for number in range(1, count))]
    verdicts = []
    for number, name in enumerate(names):
        for row in first.verdicts:
            one = replace(row, run=name)
            if number in broken and row.property == "total_order_6_1":
                one = replace(one, verdict="broken", violations=2)
            if number in pending and row.property == "self_delivery_3":
                one = replace(one, verdict="pending", pending=5)
            verdicts.append(one)
    points = [
        PointRow(
            run=name,
            service=service,
            offered_per_s=100.0 * (n + 1),
            mean_us=900.0 + n * n * shift,
            size=1024.0,
            delivered_per_s=90.0 * n,
        )
        for n, name in enumerate(names[:12])
        for service, shift in (("agreed", 8.0), ("safe", 21.0))
    ]
    runs = tuple(replace(first.runs[0], name=name) for name in names)
    return replace(first, runs=runs, verdicts=tuple(verdicts), figures=tuple(points))


def two_runs() -> Content:
    """Two runs of which everything is known; the second is broken, so it is told first."""
    first, second = content_of_seed(5), content_of_seed(5, ("duplicate_delivery",))
    renamed = replace(second, **{field.name: _renamed(getattr(second, field.name), "second") for field in fields(second)})
    return replace(first, **{field.name: _joined(first, renamed, field.name) for field in fields(first)})


def _renamed(value: Any, run: str) -> Any:
    """Rows of one run as rows of another."""
    if not isinstance(value, tuple):
        return value
    return tuple(replace(row, **({"name": run} if isinstance(row, RunRow) else {"run": run})) for row in value)


def _joined(left: Content, right: Content, name: str) -> Any:
    value = getattr(left, name)
    return value + getattr(right, name) if isinstance(value, tuple) else value


def _run(name: str, history: History) -> RunRow:
    events = sum(len(trace.events) for trace in history.nodes)
    return RunRow(
        name=name, cluster="simulated", closed=history.closed, mode=history.promises, engine="totem", builds=("0.3.0",),
        seed=name.removeprefix("seed "), nodes=len(history.nodes), files=len(history.nodes), bytes=40 * events, events=events,
    )  # fmt: skip


def _verdicts(name: str, report: Report) -> Iterator[VerdictRow]:
    for one in report.verdicts.values():
        yield VerdictRow(
            run=name, property=one.property, verdict=one.verdict, checked=one.checked, violations=one.count, pending=one.pending,
            inputs="5f2c9e0d1b7a4433",
        )  # fmt: skip


def _violations(name: str, report: Report) -> Iterator[ViolationRow]:
    for verdict in report.verdicts.values():
        for rank, one in enumerate(verdict.violations, start=1):
            witness = tuple((str(node), lseq) for node, lseq in one.witness)
            yield ViolationRow(
                run=name, property=one.property, explanation=one.explanation, witness=witness, rank=rank, total=verdict.count,
                messages=tuple(map(str, one.messages)), nodes=tuple(sorted({node for node, _ in witness})),
            )  # fmt: skip


def _around(name: str, history: History, report: Report) -> Iterator[AroundRow]:
    """Events near each witness, of its node by number and of the others by time."""
    for verdict in report.verdicts.values():
        for rank, violation in enumerate(verdict.violations, start=1):
            for node, event in _near(history, violation.witness):
                yield AroundRow(
                    run=name, property=verdict.property, rank=rank, node=str(node), lseq=event.lseq, time_us=event.time_us,
                    kind=KINDS.get(type(event), "other"), label=event_words(node, event), about=_about(node, event),
                )  # fmt: skip


def _near(history: History, witness: Sequence[tuple[NodeId, int]]) -> Iterator[tuple[NodeId, Event]]:
    times = [event.time_us for trace in history.nodes for event in trace.events if (trace.node, event.lseq) in set(witness)]
    for trace in history.nodes:
        own = [lseq for node, lseq in witness if node == trace.node]
        for event in trace.events:
            if isinstance(event, NoteEvent):
                continue
            by_number = any(abs(event.lseq - lseq) <= NEAR for lseq in own)
            by_time = any(abs(event.time_us - time_us) <= 4_000 for time_us in times)
            if by_number or by_time:
                yield trace.node, event


def _about(node: NodeId, event: Event) -> str:
    if isinstance(event, Conf):
        return str(event.view.id)
    if isinstance(event, Delivery):
        return str(MessageId(event.process, event.first))
    return str(MessageId(ProcessId(node, event.process), event.first)) if isinstance(event, Sent | Submit) else ""


def _faults(name: str, history: History) -> Iterator[FaultRow]:
    for trace in history.nodes:
        for event in trace.events:
            if isinstance(event, Struck):
                yield FaultRow(run=name, node=str(trace.node), time_us=event.time_us, what=event.what)


def _ends(name: str, history: History) -> Iterator[EndRow]:
    for trace in history.nodes:
        for event in trace.events:
            if isinstance(event, Ended):
                yield EndRow(run=name, node=str(trace.node), time_us=event.time_us, how=event.how)


def _last_us(history: History) -> int:
    return max(event.time_us for trace in history.nodes for event in trace.events)


def _stays(name: str, history: History) -> Iterator[StayRow]:
    for trace in history.nodes:
        confs = [event for event in trace.events if isinstance(event, Conf)]
        last = trace.events[-1]
        over_us = last.time_us if isinstance(last, Ended) else _last_us(history)
        for conf, end_us in zip(confs, [*(one.time_us for one in confs[1:]), over_us], strict=True):
            view = conf.view
            kind = "regular" if view.id.is_regular else "transitional"
            yield StayRow(
                run=name, node=str(trace.node), start_us=conf.time_us, end_us=end_us, view=str(view.id), kind=kind,
                members=tuple(map(str, view.nodes)), cause=str(view.cause),
            )  # fmt: skip


def _latency(name: str, history: History) -> Iterator[LatencyRow]:
    """By the simulator's own time, which is the same everywhere."""
    sent = {
        MessageId(ProcessId(trace.node, event.process), event.first + i): event.time_us
        for trace in history.nodes
        for event in trace.events
        if isinstance(event, Sent)
        for i in range(event.count)
    }
    buckets: Counter[tuple[str, str, str, int]] = Counter()
    for trace in history.nodes:
        for event in trace.events:
            start_us = sent.get(MessageId(event.process, event.first)) if isinstance(event, Delivery) else None
            if isinstance(event, Delivery) and start_us is not None:
                bucket = floor(log2(max(1, event.time_us - start_us)) * 8)
                buckets[event.service.name.lower(), str(event.process.node), str(trace.node), bucket] += event.count
    for (service, sender, receiver, bucket), count in sorted(buckets.items()):
        yield LatencyRow(
            run=name, service=service, sender=sender, receiver=receiver, count=count, uncertainty_us=140.0,
            low_us=2 ** (bucket / 8), high_us=2 ** ((bucket + 1) / 8),
        )  # fmt: skip


def _throughput(name: str, history: History) -> Iterator[ThroughputRow]:
    for trace in history.nodes:
        counts: Counter[int] = Counter()
        for event in trace.events:
            if isinstance(event, Delivery):
                counts[event.time_us // BIN_US] += event.count
        for place in range(_last_us(history) // BIN_US + 1):
            yield ThroughputRow(run=name, node=str(trace.node), start_us=place * BIN_US, width_us=BIN_US, messages=counts[place])


def _ring(name: str, history: History) -> Iterator[RingRow]:
    for trace in history.nodes:
        counts = Counter((event.what, event.time_us // BIN_US) for event in trace.events if isinstance(event, NoteEvent))
        for (what, place), count in sorted(counts.items()):
            yield RingRow(run=name, node=str(trace.node), start_us=place * BIN_US, what=what, value=float(count))


def _incidents(name: str, history: History) -> Iterator[IncidentRow]:
    """Regular views after the first, each once."""
    seen = set()
    for trace in history.nodes:
        confs = [event for event in trace.events if isinstance(event, Conf)]
        for before, conf in pairwise(confs):
            view = conf.view
            if view.id.is_regular and view.id not in seen:
                seen.add(view.id)
                old, new = set(before.view.nodes), set(view.nodes)
                yield IncidentRow(
                    run=name, start_us=before.time_us, cause=str(view.cause),
                    old=(str(before.view.regular),), new=(str(view.id),),
                    lost=tuple(map(str, sorted(old - new))), joined=tuple(map(str, sorted(new - old))),
                    duration_us=conf.time_us - before.time_us, blackout_us=12_345, groups=(("orders", 9_000),), one_sided=3,
                )  # fmt: skip
