"""`transis bench`, small: it gives figures with their circumstances, loses nothing, and leaves nothing behind. Never how fast."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from transis.bench.engines import PANELS, EnginesRequest, draw_engines, fields_of, short
from transis.bench.flood import KINDS
from transis.bench.machines import BenchLan, why_no_lan
from transis.bench.workers import Loss, Samples
from transis.cli.main import app
from transis.types.errors import UsageError
from transis.wire.envelope import Arrival

COMMAND = (sys.executable, "-m", "transis", "bench")
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
PATIENCE_S = 120.0
CIRCUMSTANCES = ("nodes", "loss_percent", "senders", "load", "service")


def run(*arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [*COMMAND, *arguments, "--json"], capture_output=True, text=True, env=ENVIRONMENT, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


@pytest.mark.parametrize("more", [("--size", "64"), ("--path", "session", "--size", "1000"), ("--sealed", "--transport", "mesh")])
def test_throughput_counts_everything_and_loses_nothing(more: tuple[str, ...], engine: str) -> None:
    figures = run("throughput", "--nodes", "2", "--seconds", "0.3", "--engine", engine, *more)
    assert figures["engine"] == engine
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


def test_a_flood_of_each_kind_is_measured_and_ends_nobody(engine: str) -> None:
    figures = run("flood", "--nodes", "2", "--sessions", "2", "--seconds", "0.2", "--engine", engine)
    assert tuple(figures["kinds"]) == KINDS
    for kind, found in figures["kinds"].items():
        assert (found["frames_per_s"] > 0) is (kind != "nothing")
        assert found["work_ms"] > 0
        assert found["other_waited_ms"] > 0
        assert found["ended"] == []


def test_replicas_order_and_sync_beside_the_disk(engine: str) -> None:
    figures = run("replicate", "--replicas", "2", "--size", "64", "--seconds", "2", "--no-peers", "--engine", engine)
    found = figures["sizes"]["64"]
    for load in ("full", "paced"):
        assert found[load]["msgs_per_s"] > 0
        assert 0 < found[load]["p50_ms"] <= found[load]["p99_ms"]
    assert found["full"]["written_per_byte"] >= 2  # Each of the two writes everything.
    assert found["disk"]["msgs_per_s"] > 0
    assert found["peers"] == []


def test_failover_splits_each_kill(engine: str) -> None:
    figures = run("failover", "--nodes", "3", "--kills", "2", "--engine", engine)
    for load in ("idle", "loaded"):
        found = figures[load]
        assert found["kills"] == 2
        parts = [found[f"{phase}_ms"]["max"] for phase in ("detection", "consensus", "commit", "recovery")]
        assert all(part >= 0 for part in parts)
        assert 0 < found["total_ms"]["median"] <= found["total_ms"]["max"] <= sum(parts) + 0.5
        assert found["merge_ms"]["median"] > 0


def test_idle_tells_costs_and_the_time_to_one_view(engine: str) -> None:
    figures = run("idle", "--nodes", "2", "--seconds", "0.2", "--engine", engine)
    assert figures["rss_mb"] > 1
    assert 0 < figures["ready_s"] <= figures["first_common_view_s"]


def test_engines_are_measured_side_by_side_with_and_without_loss() -> None:
    figures = run("engines", "--nodes", "2", "--loss", "0,5", "--seconds", "0.1", "--kills", "1")
    rounds = figures["rounds"]
    assert len(rounds) == len({tuple(str(one[name]) for name in CIRCUMSTANCES) for one in rounds}) == 2 * 8
    for one in rounds:
        for name in ("totem", "lansis"):
            assert "failed" not in one[name], one[name]
            assert 0 < one[name]["p50_ms"] <= one[name]["p99_ms"]
    assert {one["loss_percent"] for one in rounds} == {0, 5}
    assert all(sum(one[name]["retransmitted"] for one in rounds if one["loss_percent"]) > 0 for name in ("totem", "lansis"))
    assert {name: found["kills"] for name, found in figures["changes"].items()} == {"totem": 1, "lansis": 1}


def test_the_picture_has_a_bar_for_each_figure_and_none_for_what_failed() -> None:
    def outcome(value: float) -> dict[str, float]:
        return {"msgs_per_s": value, "p50_ms": value, "p99_ms": value}

    fields = [(4, 0.0), (8, 0.0), (4, 5.0)]
    circumstances = [
        (field, senders, load, service)
        for field in fields
        for senders in ("one", "all")
        for load in ("low", "full")
        for service in ("agreed", "safe")
    ]
    rounds: list[dict[str, Any]] = [
        {"nodes": nodes, "loss_percent": loss, "senders": senders, "load": load, "service": service}
        | {"totem": outcome(7.0), "lansis": {"failed": "why"} if nodes == 8 else outcome(9.0)}
        for (nodes, loss), senders, load, service in circumstances
    ]
    machine = {"cores": 2, "system": "Linux"}
    drawn = draw_engines({"rounds": rounds, "size": 64, "seconds": 1.0, "network": "loopback", "machine": machine})
    ElementTree.fromstring(drawn)
    along_nodes = sum(panel.along == "nodes" for panel in PANELS)
    assert drawn.count("<title>totem: 7</title>") == 2 * len(PANELS)
    assert drawn.count("<title>lansis: 9</title>") == 2 * len(PANELS) - along_nodes
    assert "5 % loss" in drawn
    assert "under loss, all of 4 nodes send" in drawn


def test_figures_over_bars_are_no_wider_than_bars() -> None:
    assert [short(value) for value in (0.4321, 27.6, 512, 9_876, 868_400, 1_586_000)] == [
        "0.432",
        "27.6",
        "512",
        "10k",
        "868k",
        "1.59M",
    ]


def test_fields_are_all_sizes_without_loss_and_the_smallest_with_each() -> None:
    wanted = EnginesRequest((4, 8, 16), (0.0, 1.0, 5.0), 64, 1.0, 0, ("totem", "lansis"))
    assert fields_of(wanted) == [(4, 0.0), (8, 0.0), (16, 0.0), (4, 1.0), (4, 5.0)]


def test_loss_is_as_much_as_asked_for_and_the_same_for_a_seed() -> None:
    def received(permille: int, seed: int) -> list[Arrival]:
        loss = Loss(permille, seed)
        kept = [datagram for _ in range(50) for datagram in loss.kept([bytes([number]) for number in range(200)])]
        assert loss.lost == 10_000 - len(kept)
        return kept

    assert len(received(0, 1)) == 10_000
    assert len(received(1000, 1)) == 0
    assert 9_400 < len(received(50, 1)) < 9_600
    assert received(50, 1) == received(50, 1) != received(50, 2)


@pytest.mark.parametrize(
    "arguments",
    [
        ("engines", "--nodes", "4,x"),
        ("engines", "--loss", "90"),
        ("engines", "--kills", "1000"),
        ("engines", "--nodes", "4.5"),
        ("engines", "--out", "picture.png"),
        ("idle", "--engine", "paxos"),
        ("failover", "--engine", "paxos"),
        ("throughput", "--engine", "paxos"),
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


def test_a_picture_that_cannot_be_written_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    place = tmp_path / "directory.svg"
    place.mkdir()
    outcome = CliRunner().invoke(app, ["bench", "engines", "--out", str(place)], env={"COLUMNS": "200"})
    assert outcome.exit_code == 2
    assert "it is a directory" in outcome.stderr
    assert "starting" not in outcome.stderr


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
