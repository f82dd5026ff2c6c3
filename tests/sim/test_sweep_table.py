"""The table of a sweep: what was added is there, once and whole; what is missing is run; nobody else writes meanwhile."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from tests.sim.sweeping import BUILD, RING, written_down
from tests.sim.test_sweep_task import files_of_at_most
from tests.trace.disk import killed_at_every_step
from transis.sim.spark_sweep import OUTCOMES, SweepTable
from transis.sim.sweep import CRASHED, TIMED_OUT, SeedResult, SeedRow
from transis.types.errors import PipelineError

SEEDS = range(10)


@pytest.fixture
def table(tmp_path: Path) -> SweepTable:
    return SweepTable(tmp_path / "sweeps", BUILD, RING)


def add(table: SweepTable, *rows: SeedRow, traces_max: int = 100) -> None:
    with table.written_here():
        table.add(rows, traces_max)


def seeds_of(table: SweepTable) -> list[int]:
    return [row.seed for row in table.rows(SEEDS)]


def test_rows_come_back_in_order_of_seeds_from_waves_in_any_order(table: SweepTable) -> None:
    add(table, written_down(7), written_down(3))
    add(table, written_down(1), written_down(5, TIMED_OUT), written_down(4), written_down(12))
    assert list(table.rows(SEEDS)) == [
        written_down(1),
        written_down(3),
        written_down(4),
        written_down(5, TIMED_OUT),
        written_down(7),
    ]
    assert table.pending(SEEDS, 60) == [0, 2, 6, 8, 9]


def test_every_field_has_a_column() -> None:
    own = [name for name in SeedRow.__struct_fields__ if name not in ("ran", "traces")]
    assert OUTCOMES.names == [*own, *(name for name in SeedResult.__struct_fields__ if name not in own)]


def test_a_seed_that_is_there_twice_counts_once(table: SweepTable) -> None:
    add(table, written_down(3, deliveries=1))
    add(table, written_down(3, deliveries=2))
    add(table, written_down(3, CRASHED))
    assert list(table.rows(SEEDS)) == [written_down(3, deliveries=2)]


def test_a_seed_that_timed_out_is_run_again_with_more_time_only(table: SweepTable) -> None:
    add(table, written_down(3, TIMED_OUT, timeout_s=60), written_down(4))
    assert table.pending(range(3, 5), 60) == []
    assert table.pending(range(3, 5), 59) == []
    assert table.pending(range(3, 5), 61) == [3]


def test_a_seed_whose_process_ended_is_run_again(table: SweepTable) -> None:
    add(table, written_down(3, CRASHED), written_down(4))
    assert table.pending(range(3, 5), 60) == [3]


def test_another_build_and_another_configuration_have_rows_of_their_own(table: SweepTable) -> None:
    add(table, written_down(3))
    for other in (SweepTable(table.directory, "2-abc", RING), SweepTable(table.directory, BUILD, "--engine lansis")):
        assert other.pending(range(3, 4), 60) == [3]
        add(other, msgspec.structs.replace(written_down(3), build=other.build, configuration=other.configuration, replay="other"))
        assert [row.replay for row in other.rows(SEEDS)] == ["other"]
    assert list(table.rows(SEEDS)) == [written_down(3)]


def test_traces_of_failed_seeds_are_kept_up_to_a_number(table: SweepTable) -> None:
    add(table, *(written_down(seed, traces={"a.trace": b"%d" % seed}) for seed in (6, 2, 4)), traces_max=2)
    kept = {path.relative_to(table.failed).as_posix(): path.read_bytes() for path in table.failed.rglob("*.trace")}
    assert kept == {"seed-2/a.trace": b"2", "seed-4/a.trace": b"4"}
    assert seeds_of(table) == [2, 4, 6]


def test_a_kill_at_any_step_leaves_whole_waves_and_whole_traces(tmp_path: Path) -> None:
    def add_in(directory: Path, seed: int) -> None:
        add(SweepTable(directory, BUILD, RING), written_down(seed, traces={"a.trace": b"whole", "b.trace": b"whole"}))

    found = []
    for directory in killed_at_every_step(lambda place: add_in(place, 2), lambda place: add_in(place, 1), tmp_path):
        table = SweepTable(directory, BUILD, RING)
        found.append(seeds_of(table))
        traces = [table.failed / f"seed-{seed}" / f"{name}.trace" for seed in found[-1] for name in "ab"]
        assert {trace.read_bytes() for trace in traces} == {b"whole"}
        add_in(directory, 2)
        assert seeds_of(table) == [1, 2]
        assert len(list(table.failed.rglob("*.trace"))) == 4
    assert found == sorted(found)
    assert (found[0], found[-1]) == ([1], [1, 2])


def test_two_sweeps_do_not_write_one_table(table: SweepTable) -> None:
    with (
        table.written_here(),
        pytest.raises(PipelineError, match="somebody else: wait for it, or give another --table"),
    ):
        add(SweepTable(table.directory, BUILD, "--engine lansis"), written_down(1))
    add(table, written_down(1))


def test_a_disk_that_refuses_leaves_nothing_half(table: SweepTable) -> None:
    add(table, written_down(1))
    with files_of_at_most(100), pytest.raises(PipelineError, match="cannot be written"):
        add(table, written_down(2))
    assert seeds_of(table) == [1]
    assert len(list((table.directory / "outcomes").iterdir())) == 1


def test_a_damaged_wave_is_named_and_run_again_when_it_is_removed(table: SweepTable) -> None:
    add(table, written_down(1))
    add(table, written_down(2))
    (file,) = (table.directory / "outcomes" / "batch=1").iterdir()
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(PipelineError, match=r"batch=1 is no part of a sweep, or damaged: remove it, and its seeds are run again"):
        table.pending(SEEDS, 60)
    shutil.rmtree(file.parent)
    assert table.pending(range(1, 3), 60) == [1]
    add(table, written_down(1))
    assert seeds_of(table) == [1, 2]


def test_the_table_is_plain_parquet(table: SweepTable) -> None:
    add(table, written_down(1), written_down(2, TIMED_OUT))
    read = pq.read_table(table.directory / "outcomes").to_pydict()
    assert read["deliveries"] == [1, None]
    assert read["verdicts"][0] == [{"property": "safe_7_1", "verdict": "held", "checked": 7, "violations": 0}]
    assert read["fault_states"] == [[("crash\tGather", 2)], None]
