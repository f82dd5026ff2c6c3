"""`transis bench`, small: it gives figures with their circumstances, loses nothing, and leaves nothing behind. Never how fast."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from transis.console.bench_lan import BenchLan, why_no_lan
from transis.console.bench_speaker import Samples
from transis.model.errors import UsageError

COMMAND = (sys.executable, "-m", "transis", "bench")
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
PATIENCE_S = 120.0


def run(*arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [*COMMAND, *arguments, "--json"], capture_output=True, text=True, env=ENVIRONMENT, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


@pytest.mark.parametrize("more", [("--size", "64"), ("--path", "session", "--size", "1000"), ("--sealed", "--transport", "mesh")])
def test_throughput_counts_everything_and_loses_nothing(more: tuple[str, ...]) -> None:
    figures = run("throughput", "--nodes", "2", "--seconds", "0.3", *more)
    assert figures["lost"] == 0
    assert figures["msgs_per_s_min"] > 0
    assert figures["msgs_per_s_min"] <= figures["msgs_per_s"] <= figures["msgs_per_s_max"]
    assert 0 < figures["latency_ms"]["p50"] <= figures["latency_ms"]["p99"]
    assert figures["sealed"] is ("--sealed" in more)
    assert figures["tracing"] is False
    assert len(figures["rss_mb_end"]) == 2


def test_throughput_at_a_rate_sends_no_more_than_that() -> None:
    figures = run("throughput", "--nodes", "2", "--seconds", "0.5", "--rate", "200")
    assert figures["lost"] == 0
    assert 0 < figures["msgs_per_s"] <= 600


@pytest.mark.skipif(bool(why_no_lan()), reason=why_no_lan() or "there can be one")
def test_throughput_on_a_lan_of_namespaces_cleans_up() -> None:
    before = Path("/run/netns").exists() and sorted(os.listdir("/run/netns"))
    assert run("throughput", "--nodes", "2", "--seconds", "0.3", "--lan")["network"] == "namespaces"
    after = sorted(os.listdir("/run/netns"))
    assert [name for name in after if name.startswith("transis-bench-") and name not in (before or [])] == []


@pytest.mark.skipif(bool(why_no_lan()), reason=why_no_lan() or "there can be one")
def test_a_lan_that_cannot_be_built_leaves_nothing() -> None:
    with pytest.raises(UsageError, match="--lan"), BenchLan(["a" * 300]):
        pass
    assert not [name for name in os.listdir("/run/netns") if name.startswith(f"transis-bench-{os.getpid()}-")]


def test_failover_splits_each_kill() -> None:
    figures = run("failover", "--nodes", "3", "--kills", "2")
    for load in ("idle", "loaded"):
        found = figures[load]
        assert found["kills"] == 2
        parts = [found[f"{phase}_ms"]["max"] for phase in ("detection", "consensus", "commit", "recovery")]
        assert all(part >= 0 for part in parts)
        assert 0 < found["total_ms"]["median"] <= found["total_ms"]["max"] <= sum(parts) + 0.5


def test_idle_tells_costs_and_the_time_to_one_view() -> None:
    figures = run("idle", "--nodes", "2", "--seconds", "0.2")
    assert figures["rss_mb"] > 1
    assert 0 < figures["ready_s"] <= figures["first_common_view_s"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("throughput", "--nodes", "1"),
        ("throughput", "--service", "fast"),
        ("throughput", "--path", "pigeon"),
        ("throughput", "--seconds", "0"),
        ("failover", "--kills", "0"),
        ("failover", "--profile", "x"),
        ("idle", "--nodes", "1000"),
    ],
)
def test_a_wrong_option_is_named(arguments: tuple[str, ...]) -> None:
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, env=ENVIRONMENT, timeout=60, check=False)
    assert done.returncode == 2
    assert arguments[1] in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_ends_all_processes() -> None:
    command = [*COMMAND, "throughput", "--nodes", "2", "--seconds", "60"]
    pipe = subprocess.PIPE
    bench = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=ENVIRONMENT, start_new_session=True)
    try:
        assert bench.stderr is not None
        said = iter(bench.stderr.readline, "")
        assert any("warming up" in line for line in said)
        os.killpg(bench.pid, signal.SIGINT)
        _, rest = bench.communicate(timeout=PATIENCE_S)
        assert "interrupted" in rest
        assert bench.returncode == 130
        with pytest.raises(ProcessLookupError):
            os.killpg(bench.pid, 0)
    finally:
        bench.kill()
        bench.communicate()


def test_percentiles_count_messages_not_batches() -> None:
    samples = Samples()
    samples.add(1000, 98)
    samples.add(9000, 1)
    samples.add(5000, 1)
    assert samples.milliseconds(0.5, 0.98, 0.99, 1.0) == [1.0, 1.0, 5.0, 9.0]
    assert Samples().milliseconds(0.5) == [0.0]
