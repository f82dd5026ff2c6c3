"""Replicas on simulated nodes: seeds break no promise, meet what they are for, repeat themselves, and catch what is broken."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from transis.audit.guarantees import HARNESS_MEANINGS, PROPERTIES, REPLICA_MEANINGS
from transis.cli.main import app
from transis.prsl.actions import Action, ActionId, Kind, Lane
from transis.prsl.core import Config
from transis.prsl.log import Kept, Marks, Placed
from transis.sim.faults import parse
from transis.sim.plan import Scenario, parse_plan, plan_text
from transis.sim.replicas.defects import REPLICA_DEFECTS
from transis.sim.replicas.directory import Directory
from transis.sim.run import describe, draw_run, simulate
from transis.sim.sweep import sweep
from transis.trace.events import ReplicaStep
from transis.trace.reader import read_trace

RUNNER = CliRunner()
SCENARIOS = {engine: Scenario(engine, replicas="corel") for engine in ("totem", "lansis")}
MANY, AT_ONCE = 2_000, 100

CAUGHT = (
    ("ack_before_sync", 1, "stable_is_everywhere"),
    ("green_before_sync", 0, "delivered_is_synced"),
    ("minimum", 7, "replicas_run"),
    ("own_in_the_log_at_once", 2, "replicated_order"),
    ("reds_by_id", 5, "replicated_causal"),
)
"""Defects, each with a seed that catches it, and what it breaks there."""


@pytest.mark.parametrize("engine", SCENARIOS)
def test_the_first_seeds_break_no_promise_and_order_much(engine: str) -> None:
    summary = sweep(range(12), scenario=SCENARIOS[engine])
    assert summary.violations == 0, summary.failing
    met = summary.coverage.replicas
    assert met["delivered to run"] > 12 * 50 and met["state PRIMARY"] > 12 * 5
    wanted = {
        "bulk message",
        "snapshot sent",
        "session lost",
        "disk hangs",
        "directory lost",
        "power cut",
        "replica started again",
    }
    assert {what for what in wanted if not met[what]} == set()


@pytest.mark.parametrize("engine", SCENARIOS)
def test_the_first_seeds_of_the_ordering_engine_break_no_promise(engine: str) -> None:
    summary = sweep(range(6), scenario=Scenario(engine, replicas="engine"))
    assert summary.violations == 0, summary.failing
    assert summary.coverage.replicas["delivered to run"] > 6 * 50


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, MANY, AT_ONCE))
@pytest.mark.parametrize("engine", SCENARIOS)
def test_many_seeds_break_no_promise(engine: str, first: int) -> None:
    summary = sweep(range(first, first + AT_ONCE), scenario=SCENARIOS[engine])
    assert summary.violations == 0, summary.failing


DIGEST = "from transis.sim.run import simulate\nfrom transis.sim.plan import Scenario\n" + (
    "print(simulate(5, scenario=Scenario(replicas='corel')).digest())"
)


def test_a_seed_is_the_same_run_in_every_process() -> None:
    here = simulate(5, scenario=SCENARIOS["totem"]).digest()
    for hash_seed in ("1", "2"):
        command = [sys.executable, "-c", DIGEST]
        run = subprocess.run(command, env={"PYTHONHASHSEED": hash_seed}, capture_output=True, text=True, check=True)
        assert run.stdout.strip() == here


def test_a_plan_with_replicas_reads_back_and_is_the_same_run() -> None:
    plan = draw_run(5, None, False, SCENARIOS["totem"])
    assert plan.has_replicas and plan.scenario == SCENARIOS["totem"]
    again = parse_plan(plan_text(plan))
    assert again == plan
    outcome = simulate(5, again)
    assert outcome.digest() == simulate(5, scenario=SCENARIOS["totem"]).digest()
    assert outcome.replay == "transis simulate --engine totem --layer prsl --ordering corel --seed 5"


@pytest.mark.parametrize("line", ["kill a after=3", "kill a", "drop a", "hang a", "free a", "wipe a", "replica a snapshot"])
def test_faults_of_replicas_are_lines_that_read_back(line: str) -> None:
    assert str(parse(line)) == line


def test_what_a_replica_cannot_do_is_named() -> None:
    with pytest.raises(ValueError, match="'dance' is nothing that a replica does; known are post, snapshot"):
        parse("replica a dance")


@pytest.mark.parametrize(("defect", "seed", "broken"), CAUGHT, ids=[defect for defect, _, _ in CAUGHT])
def test_a_broken_replica_is_caught_by_what_it_breaks(defect: str, seed: int, broken: str) -> None:
    outcome = simulate(seed, broken=defect, scenario=SCENARIOS["totem"])
    assert outcome.report.broken == (broken,), describe(outcome)
    sound = simulate(seed, scenario=SCENARIOS["totem"])
    assert sound.report.broken == (), describe(sound)


# --- the directory ----------------------------------------------------------------------------------------------------


def action(number: int) -> Action:
    return Action(ActionId(1, Lane.MESSAGES, number), Kind.DATA, number, (), (3,), b"abc")


def test_of_what_was_not_synced_a_crash_keeps_any_beginning() -> None:
    """Cut at every byte: whole transactions are there, a torn one is not, and nothing else is."""
    for kept in range(400):
        directory = Directory("a", Config("a", bytes(16), ("a",)))
        directory.open()
        directory.write(1, (Kept(action(1)), Placed(0, (action(1).id,))))
        directory.sync(1)
        for ticket in (2, 3):
            directory.write(ticket, (Kept(action(ticket)), Placed(ticket - 1, (action(ticket).id,)), Marks(green=ticket)))
        length = [len(write.content) for write in directory.unsynced]
        directory.crash(kept)
        stored = directory.open()
        whole = 1 + sum(kept >= end for end in (length[0], sum(length)))
        assert [one.number for one in stored.order] == list(range(1, whole + 1))
        assert stored.marks.green == (whole if whole > 1 else 0)
        assert directory.torn == (kept < sum(length) and kept not in (0, length[0]))
        assert directory.life == 2


# --- the command ------------------------------------------------------------------------------------------------------


def test_a_machine_reads_every_guarantee_and_what_was_met() -> None:
    outcome = RUNNER.invoke(app, ["simulate", "--layer", "prsl", "--jobs", "1", "--json", "--seeds", "4:6"])
    assert outcome.exit_code == 0, outcome.output
    found = json.loads(outcome.stdout)
    assert (found["layer"], found["ordering"]) == ("prsl", "corel")
    named = [*found["properties"], *found["not_exercised"], *found["not_promised"]]
    assert sorted(named) == sorted([*PROPERTIES, *HARNESS_MEANINGS, *REPLICA_MEANINGS])
    assert found["coverage"]["replicas"]["state PRIMARY"] > 0
    assert "replicas" in found["coverage"]["never_reached"]


def test_a_single_run_is_told() -> None:
    outcome = RUNNER.invoke(app, ["simulate", "--layer", "prsl", "--seed", "7", "--plan"])
    assert outcome.exit_code == 0, outcome.output
    for words in (
        "replica a: primary",
        "Colours held",
        "replicas.count",
        "Every guarantee that was exercised held",
    ):
        assert words in outcome.stdout


def test_defects_of_replicas_are_listed_with_their_layer_only() -> None:
    with_replicas = RUNNER.invoke(app, ["simulate", "--layer", "prsl", "--broken", "list"]).stdout
    without = RUNNER.invoke(app, ["simulate", "--broken", "list"]).stdout
    for defect in REPLICA_DEFECTS:
        assert defect in with_replicas and f"\n{defect} " not in without


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--broken", "minimum"], "this defect is one of replicas, so give --layer prsl too"),
        (["--layer", "prsl", "--groups"], "replicas are the client processes of their runs, so leave --groups out"),
        (["--layer", "prsl", "--engine", "lansis", "--order", "toto"], "replicas need views that promise evs"),
        (["--layer", "cake"], "nodes, groups, prsl"),
        (["--layer", "prsl", "--ordering", "raft"], "corel"),
    ],
)
def test_options_that_make_no_sense_are_named(options: list[str], why: str) -> None:
    outcome = RUNNER.invoke(app, ["simulate", *options], env={"COLUMNS": "300"})
    assert outcome.exit_code == 2
    assert why in " ".join(outcome.stderr.split())


# --- traces -------------------------------------------------------------------------------------------------------------


def test_each_life_of_a_directory_has_a_trace_that_reads_back(tmp_path: Path) -> None:
    outcome = RUNNER.invoke(app, ["simulate", "--layer", "prsl", "--seed", "5", "--json", "--trace", str(tmp_path)])
    assert outcome.exit_code == 0, outcome.output
    reading = read_trace(tmp_path / "seed-5")
    assert reading.findings == []
    history = simulate(5, scenario=SCENARIOS["totem"]).history
    assert reading.history == history
    lives = [trace for trace in history.nodes if isinstance(trace.events[0], ReplicaStep)]
    assert len({trace.node for trace in lives}) == len(lives) > 2
    steps = Counter(step.what for trace in lives for step in trace.events if isinstance(step, ReplicaStep))
    assert steps["opened"] == len(lives)
    assert {"posted", "accepted", "ordered", "synced", "stable", "primary", "taken", "rest"} <= set(steps)
