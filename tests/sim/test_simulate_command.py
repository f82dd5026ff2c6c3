"""`transis simulate`: exit codes, what is printed, and what a machine reads."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.cli.running import environment
from tests.cli.test_panels import printed
from tests.daemon.running import PATIENCE_S
from transis import __version__
from transis.audit.guarantees import HARNESS_MEANINGS, NODE_PROPERTIES
from transis.cli.main import app
from transis.sim.cluster import show_view
from transis.sim.coverage import Coverage
from transis.sim.defects import defects_of
from transis.sim.run import RunOutcome, simulate
from transis.sim.words import STORY_LINES, coverage_tables, story_table
from transis.trace.events import Conf
from transis.trace.reader import read_trace
from transis.trace.segment import digest
from transis.types.config import ENGINES
from transis.types.views import View

RUNNER = CliRunner()
SMALL = ["simulate", "--nodes", "2", "--jobs", "1"]


def parsed(*arguments: str) -> dict[str, Any]:
    outcome = RUNNER.invoke(app, [*SMALL, "--json", *arguments])
    assert outcome.exit_code == 0, outcome.output
    found = json.loads(outcome.stdout)
    assert isinstance(found, dict)
    return found


def test_version_is_one_line() -> None:
    outcome = RUNNER.invoke(app, ["--version"])
    assert outcome.exit_code == 0
    assert outcome.stdout == f"transis {__version__}\n"


@pytest.mark.parametrize("command", ["simulate", "demo"])
def test_help_has_an_example(command: str) -> None:
    outcome = RUNNER.invoke(app, [command, "--help"])
    assert outcome.exit_code == 0
    assert f"transis {command} --" in outcome.stdout


@pytest.mark.parametrize(
    ("arguments", "named", "allowed"),
    [
        (["--seeds", "5:2"], "--seeds", "A must be less than B"),
        (["--seeds", "3:3"], "--seeds", "A must be less than B"),
        (["--seeds", "ten"], "--seeds", "must be A:B"),
        (["--seed", "-1"], "--seed", "must be 0 to"),
        (["--seed", "1", "--seeds", "1:2"], "--seeds", "not both"),
        (["--order", "toto"], "--order", "give --engine lansis too"),
        (["--mode", "transis"], "--mode", "give --engine lansis too"),
        (["--engine", "lansis", "--order", "dice"], "--order", "must be one of all-ack, toto"),
        (["--engine", "lansis", "--broken", "floor_before_minimum"], "--broken", "a defect of totem; lansis has"),
        (["--engine", "lansis", "--broken", "toto_at_least"], "--broken", "give --order toto too"),
        (["--engine", "lansis", "--broken", "transis_step_unsaid"], "--broken", "give --mode transis too"),
        (["--engine", "paxos"], "--engine", "must be one of totem, lansis"),
        (["--judge", "nobody"], "--judge", "must be one of promised, evs"),
        (["--nodes", "0"], "--nodes", "must be 1 to"),
        (["--jobs", "0"], "--jobs", "at least 1"),
        (["--broken", "everything"], "--broken", "must be one of"),
        (["--show", "run.png"], "--show", ".html or .svg"),
        (["--show", "nowhere/at/all/run.svg"], "--show", "there is no directory"),
    ],
)
def test_a_wrong_argument_is_named_with_what_is_allowed(arguments: list[str], named: str, allowed: str) -> None:
    outcome = RUNNER.invoke(app, ["simulate", *arguments], env={"COLUMNS": "200"})
    assert outcome.exit_code == 2
    assert named in outcome.stderr
    assert allowed in outcome.stderr
    assert "Traceback" not in outcome.output


def test_a_directory_for_a_drawing_is_refused_before_the_run(tmp_path: Path) -> None:
    place = tmp_path / "run.html"
    place.mkdir()
    outcome = RUNNER.invoke(app, [*SMALL, "--show", str(place)], env={"COLUMNS": "200"})
    assert (outcome.exit_code, outcome.stdout) == (2, "")
    assert "it is a directory" in outcome.stderr


@pytest.mark.parametrize("traced", [False, True])
def test_ctrl_c_gives_what_there_is_and_no_tracebacks_of_workers(tmp_path: Path, traced: bool) -> None:
    """As a terminal does it: the signal goes to all processes of the command."""
    command = [sys.executable, "-m", "transis", "simulate", "--nodes", "2", "--jobs", "2", "--seeds", "0:1000000"]
    command += ["--trace", str(tmp_path / "traces")] if traced else []
    terminal, theirs = pty.openpty()
    pipe = subprocess.PIPE
    env = environment(TERM="xterm")
    running = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=theirs, env=env, start_new_session=True)
    os.close(theirs)
    try:
        until(terminal, rb"[1-9]\d*/1000000")
        os.killpg(running.pid, signal.SIGINT)
        said = until(terminal, rb"transis simulate: interrupted: this is what \d+ of 1,000,000 seeds showed")
        out, _ = running.communicate(timeout=PATIENCE_S)
    finally:
        running.kill()
        running.communicate()
        os.close(terminal)
    assert running.returncode == 130
    assert b"Traceback" not in said
    assert b"Every guarantee that was exercised held" in out


def until(terminal: int, pattern: bytes) -> bytes:
    """What is drawn there up to a pattern."""
    seen = b""
    while not re.search(pattern, seen):
        assert select.select([terminal], [], [], PATIENCE_S)[0], seen
        seen += os.read(terminal, 65_536)
    return seen


def test_lansis_is_simulated_as_the_ring_is() -> None:
    found = parsed("--engine", "lansis", "--order", "toto", "--no-partitions", "--seed", "6")
    assert found["violations"] == 0
    assert found["deliveries"] > 0
    assert (found["engine"], found["order"], found["mode"], found["partitions"]) == ("lansis", "toto", "evs", False)
    assert found["not_promised"] == ["places", "one_sequence"]
    assert any(pair.startswith("Operational x alive") for pair in found["coverage"]["events"])


def test_who_asks_for_evs_has_the_total_order_looked_at_across_partitions() -> None:
    asked = ("--engine", "lansis", "--order", "toto", "--seed", "6")
    assert "total_order_6_1" in parsed(*asked)["not_promised"]
    found = parsed(*asked, "--judge", "evs")
    assert found["judge"] == "evs"
    assert found["properties"]["total_order_6_1"]["checked"] > 0
    assert found["not_promised"] == ["places", "one_sequence"]


def test_json_has_what_a_machine_needs_and_nothing_else_is_printed() -> None:
    found = parsed("--seeds", "0:3")
    assert found["runs"] == 3
    assert found["violations"] == 0
    assert found["engine"] == "totem"
    assert found["seeds"] == {"first": 0, "last": 2, "count": 3}
    assert found["deliveries"] > 0
    assert found["views"] > 0
    assert found["virtual_s"] > 0
    assert found["wall_s"] > 0
    assert found["failing"] == []
    assert all(isinstance(count, int) for count in found["faults"].values())
    assert set(found["coverage"]["never_reached"]) >= {"events", "faults", "traps"}


def test_json_names_every_guarantee_exactly_once() -> None:
    found = parsed("--seed", "1")
    judged = list(found["properties"])
    named = [*judged, *found["not_exercised"], *found["not_promised"]]
    assert sorted(named) == sorted([*NODE_PROPERTIES, *HARNESS_MEANINGS])
    for verdict in found["properties"].values():
        assert verdict["verdict"] in ("held", "pending")
        assert verdict["checked"] > 0
        assert verdict["violations"] == 0


def test_a_single_run_ends_in_one_view_that_all_its_members_installed() -> None:
    (view,) = parsed("--nodes", "9", "--seed", "1")["final_views"]
    assert view["installed_by"] == len(view["members"]) > 1


def test_a_sweep_adds_up_its_runs() -> None:
    together = parsed("--seeds", "0:2")
    apart = [parsed("--seed", seed) for seed in ("0", "1")]
    for key in ("deliveries", "views", "turns"):
        assert together[key] == sum(one[key] for one in apart)
    checks = [one["properties"]["no_creation"]["checked"] for one in apart if "no_creation" in one["properties"]]
    assert together["properties"]["no_creation"]["checked"] == sum(checks)


def test_a_single_run_tells_its_verdict_then_its_story_and_its_plan_if_asked() -> None:
    outcome = RUNNER.invoke(app, [*SMALL, "--seed", "2", "--plan"])
    assert outcome.exit_code == 0, outcome.output
    in_order = (
        "Seed 2: totem, 2 nodes",
        "runs a minute",
        "Every guarantee that was exercised held.",
        "What happened",
        "total_order_6_1",
        "Faults drawn",
        "Never reached",
        "Plan of seed 2",
        "Event budget",
        "Liveness budget",
    )
    places = [outcome.stdout.index(words) for words in in_order]
    assert places == sorted(places)
    assert "Plan of seed 2" not in RUNNER.invoke(app, [*SMALL, "--seed", "2"]).stdout


def test_the_story_has_faults_and_views_in_the_order_of_time() -> None:
    outcome = simulate(2, nodes=2)
    told = printed(story_table(outcome))
    rows = [line.split() for line in told.splitlines()[1:]]
    shown = [float(row[0]) * {"µs": 1, "ms": 1e3, "s": 1e6}[row[1]] for row in rows if row[0][0].isdigit()]
    assert shown == sorted(shown)
    assert {what.split()[0] for _, what in outcome.log if not what.startswith("on ")} <= set(told.split())
    views = [event.view for trace in outcome.history.nodes for event in trace.events if isinstance(event, Conf)]
    assert all(f"{show_view(view)}" in told for view in views if view.id.is_regular)


def test_a_long_story_keeps_its_beginning_and_its_end() -> None:
    outcome = simulate(7)
    told = printed(story_table(outcome)).splitlines()
    assert sum(line.strip() != "" for line in told) <= STORY_LINES + 2
    assert any(re.search(r"… \d+ more lines", line) for line in told)
    assert show_view(max(parsed_views(outcome), key=lambda view: view.id.seq)) in told[-1]


def parsed_views(outcome: RunOutcome) -> list[View]:
    events = (event for trace in outcome.history.nodes for event in trace.events)
    return [event.view for event in events if isinstance(event, Conf) and event.view.id.is_regular]


def test_defects_are_listed_with_a_sentence_each() -> None:
    for engine in ENGINES:
        outcome = RUNNER.invoke(app, ["simulate", "--engine", engine, "--broken", "list"], env={"COLUMNS": "300"})
        assert outcome.exit_code == 0
        assert all(re.search(rf"^{name} +\w", outcome.stdout, re.MULTILINE) for name in defects_of(engine))


def test_of_several_runs_the_first_that_failed_is_drawn(tmp_path: Path) -> None:
    command = ["simulate", "--nodes", "3", "--jobs", "1", "--seeds", "0:4", "--broken", "rotations_not_told_apart"]
    outcome = RUNNER.invoke(app, [*command, "--show", str(tmp_path / "run.html")])
    assert outcome.exit_code == 1, outcome.output
    seed = re.search(r"--seed (\d+)", outcome.stdout)
    assert seed is not None
    assert f"Drawn: {tmp_path / 'run.html'}, seed {seed[1]}\n" in outcome.stdout
    assert f"seed {seed[1]}" in (tmp_path / "run.html").read_text()
    outcome = RUNNER.invoke(app, [*SMALL, "--seeds", "0:2", "--show", str(tmp_path / "none.html")])
    assert f"Nothing failed, so {tmp_path / 'none.html'} was not drawn" in outcome.stdout
    assert not (tmp_path / "none.html").exists()


def test_a_broken_engine_is_caught_explained_and_replayable() -> None:
    command = ["simulate", "--nodes", "3", "--jobs", "1", "--seeds", "0:4", "--broken", "rotations_not_told_apart"]
    outcome = RUNNER.invoke(app, command)
    assert outcome.exit_code == 1, outcome.output
    replay = next(line for line in outcome.stdout.splitlines() if line.startswith("replay: "))
    again = RUNNER.invoke(app, replay.removeprefix("replay: transis ").split())
    assert again.exit_code == 1
    assert replay in again.stdout


def test_traces_are_written_and_read_back(tmp_path: Path) -> None:
    parsed("--seeds", "0:2", "--trace", str(tmp_path / "traces"))
    parsed("--seed", "0", "--trace", str(tmp_path / "again"))
    first, second = read_trace(tmp_path / "traces" / "seed-0"), read_trace(tmp_path / "again" / "seed-0")
    assert first.findings == []
    assert digest(first.history) == digest(second.history)
    assert (tmp_path / "traces" / "seed-1").is_dir()


def test_traces_do_not_mix_with_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "something").write_text("else")
    outcome = RUNNER.invoke(app, [*SMALL, "--trace", str(tmp_path)], env={"COLUMNS": "200"})
    assert outcome.exit_code == 2
    assert "new or empty" in outcome.stderr


@pytest.mark.parametrize("name", ["run.html", "run.svg"])
def test_show_draws_the_run(tmp_path: Path, name: str) -> None:
    outcome = RUNNER.invoke(app, [*SMALL, "--seed", "1", "--show", str(tmp_path / name)])
    assert outcome.exit_code == 0, outcome.output
    assert "<svg" in (tmp_path / name).read_text()
    assert f"Drawn: {tmp_path / name}\n" in outcome.stdout


def test_traps_are_named_so_that_their_numbers_are_no_counts() -> None:
    coverage = Coverage()
    coverage.traps.update({"10 more to recover than a window": 3, "a sender waited for the window": 2})
    told = printed(coverage_tables(coverage, runs=2))
    assert "Traps whose trigger fired: a sender waited for the window: 2; trap 10, more to recover than a window: 3" in told
    missing = told.partition("Never reached, of traps: ")[2]
    assert missing.startswith("trap 1/28, a message was half sent")
    assert "×" not in missing


def test_runs_without_partitions_are_summed_up_with_what_parts_them_all_the_same() -> None:
    outcome = RUNNER.invoke(app, [*SMALL, "--engine", "lansis", "--order", "toto", "--no-partitions", "--seeds", "0:2"])
    assert "parted without a partition: 0, died ahead of the others: 0" in outcome.stdout
