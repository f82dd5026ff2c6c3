"""How long `transis audit` takes, and how much memory, for traces of several sizes; and whether both grow with the size alone.

    python -m bench.audit [--deliveries 1000000 10000000 50000000 100000000] [--repeat 5] [--directory DIR] [--json]

Each audit is a process of its own, as a user would start it. Memory is the highest sum over its whole tree of processes, sampled
five times a second; shared memory counts once for each process. Processor time is of the whole tree, too, and depends less on
what else the machine does. Every guarantee must hold. Traces are generated (bench.traces) and kept if a directory is named. The
growth of a size is how much more time it takes than the size before it, beside how much larger it is.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory, TemporaryFile
from time import perf_counter
from typing import Any, Final, NamedTuple

from bench.trace_plan import Shape
from bench.traces import Written, write_trace
from transis.audit.guarantees.property import HELD

LOOK_S: Final = 0.2
GIB: Final = 1 << 30
PAGE: Final = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


class Trace(NamedTuple):
    """A generated trace on disk."""

    directory: Path
    deliveries: int
    events: int
    bytes: int


class Watched(NamedTuple):
    """A command that has ended."""

    code: int
    output: str
    seconds: float
    cpu_s: float
    peak_bytes: int


class Usage(NamedTuple):
    """Memory and processor time of one process, up to now."""

    bytes: int
    ticks: int


@contextmanager
def workplace(directory: Path | None) -> Iterator[Path]:
    """Where traces go: the named directory, or a temporary one."""
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        yield directory
        return
    with TemporaryDirectory(prefix="transis-bench-") as temporary:
        yield Path(temporary)


def generated(place: Path, deliveries: int) -> Trace:
    """The trace of this size; one that is there already is used again. The note about it is written last: a trace without one
    is not whole, and made anew."""
    directory, note = place / f"trace-{deliveries}", place / f"trace-{deliveries}.json"
    if not note.exists():
        shutil.rmtree(directory, ignore_errors=True)
        written = write_trace(directory, Shape(deliveries), os.cpu_count() or 1)
        note.write_text(json.dumps(written._asdict()))
    written = Written(**json.loads(note.read_text()))
    return Trace(directory, *written, sum(path.stat().st_size for path in directory.iterdir()))


def watch(command: Sequence[str]) -> Watched:
    """Run a command to its end, and watch the memory and the processor time of all that it starts."""
    started, peak = perf_counter(), 0
    ticks: dict[int, int] = {}
    with TemporaryFile("w+") as output:
        child = subprocess.Popen(command, stdout=output)
        while child.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                child.wait(LOOK_S)
            now = tree_usage(child.pid)
            peak = max(peak, sum(one.bytes for one in now.values()))
            ticks |= {process: one.ticks for process, one in now.items()}
        seconds = perf_counter() - started
        output.seek(0)
        return Watched(child.returncode, output.read(), seconds, sum(ticks.values()) / TICKS_PER_S, peak)


def tree_usage(root: int) -> dict[int, Usage]:
    """A process and everything below it; those that end meanwhile are left out."""
    stats = {int(entry.name): stat for entry in Path("/proc").iterdir() if entry.name.isdigit() and (stat := _stat(entry))}
    children: dict[int, list[int]] = {}
    for process, stat in stats.items():
        children.setdefault(int(stat[1]), []).append(process)
    found: dict[int, Usage] = {}
    waiting = [root] if root in stats else []
    while waiting:
        process = waiting.pop()
        stat = stats[process]
        found[process] = Usage(int(stat[21]) * PAGE, int(stat[11]) + int(stat[12]))
        waiting += children.get(process, [])
    return found


def _stat(entry: Path) -> list[str]:
    """The kernel's figures of a process, from its state on: the name before it may contain blanks."""
    try:
        return (entry / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def require_held(watched: Watched) -> dict[str, Any]:
    """The audit's result, in which every guarantee is held; anything else is no measurement."""
    if watched.code != 0:
        raise SystemExit(f"the audit ended with {watched.code}: {watched.output[-2000:]}")
    found: dict[str, Any] = json.loads(watched.output)
    wrong = {name: one["verdict"] for name, one in found["properties"].items() if one["verdict"] != HELD}
    if wrong or found["not_exercised"]:
        raise SystemExit(f"not held: {wrong}, not exercised: {found['not_exercised']}")
    return found


def measure(trace: Trace, repeat: int) -> dict[str, Any]:
    """The figures of one size."""
    command = [sys.executable, "-m", "transis", "audit", str(trace.directory), "--json"]
    runs = [watch(command) for _ in range(repeat)]
    found = [require_held(run) for run in runs]
    seconds = median(run.seconds for run in runs)
    return {
        "deliveries": trace.deliveries,
        "events": trace.events,
        "mib": round(trace.bytes / (1 << 20), 1),
        "properties": len(found[0]["properties"]),
        "audit_s": round(seconds, 1),
        "audits_s": [round(run.seconds, 1) for run in runs],
        "cpu_s": round(median(run.cpu_s for run in runs), 1),
        "deliveries_per_s": round(trace.deliveries / seconds),
        "peak_gib": round(max(run.peak_bytes for run in runs) / GIB, 2),
        "steps_s": median_steps(found),
    }


def median_steps(found: Sequence[dict[str, Any]]) -> dict[str, float]:
    """How long each step of the audit took, by its own word."""
    taken: dict[str, list[float]] = {}
    for one in found:
        for step in one.get("steps", ()):
            taken.setdefault(step["step"], []).append(step["seconds"])
    return {step: round(median(seconds), 1) for step, seconds in taken.items()}


def with_growth(figures: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Beside each size: how much larger and how much slower than the one before."""
    grown = [dict(one) for one in figures]
    for before, one in zip(figures, grown[1:], strict=False):
        one["times_larger"] = round(one["deliveries"] / before["deliveries"], 2)
        one["times_slower"] = round(one["audit_s"] / before["audit_s"], 2)
        one["times_cpu"] = round(one["cpu_s"] / before["cpu_s"], 2)
    return grown


def show(figures: Sequence[dict[str, Any]]) -> None:
    columns = [
        "deliveries",
        "events",
        "mib",
        "properties",
        "audit_s",
        "cpu_s",
        "deliveries_per_s",
        "peak_gib",
        "times_larger",
        "times_slower",
        "times_cpu",
    ]
    print("".join(f"{name:>18}" for name in columns))
    for one in figures:
        print("".join(f"{one.get(name, ''):>18}" for name in columns))
    for one in figures:
        for step, seconds in one["steps_s"].items():
            print(f"{one['deliveries']:>18}  {step:50}{seconds:>10} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deliveries", type=int, nargs="+", default=[1_000_000, 10_000_000, 50_000_000, 100_000_000])
    parser.add_argument("--repeat", type=int, default=5, help="audits of each size; the median is told")
    parser.add_argument("--directory", type=Path, help="keep the traces here, and use those that are here")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    figures: list[dict[str, Any]] = []
    with workplace(given.directory) as place:
        for deliveries in given.deliveries:
            started = perf_counter()
            trace = generated(place, deliveries)
            generate_s = round(perf_counter() - started, 1)
            figures.append({**measure(trace, given.repeat), "generate_s": generate_s})
            print(
                f"{deliveries} deliveries: {figures[-1]['audits_s']} s, {figures[-1]['cpu_s']} s of processors", file=sys.stderr
            )
    if given.json:
        print(json.dumps(with_growth(figures)))
    else:
        show(with_growth(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
