"""A lake: whatever ends a change, all of it is seen or nothing; one writes, and a directory of somebody else is refused."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.archive.written import files_of_at_most
from tests.trace.disk import killed_at_every_step, power_cut_at_every_step
from transis.audit.plans.lake import LAKE, Lake
from transis.types.errors import PipelineError

ROWS = 1000


def lake_in(directory: Path) -> Lake:
    return Lake(directory, "store", "--store")


def rows(first: int) -> pa.Table:
    return pa.table({"n": list(range(first, first + ROWS))})


def begin(directory: Path) -> None:
    with lake_in(directory).change() as change:
        change.add_rows("runs", rows(0))
        change.add_rows("verdicts", rows(0))
        change.keep({"seen": 1})


def go_on(directory: Path) -> None:
    """Of one table more, of another something else, and the facts."""
    with lake_in(directory).change() as change:
        change.add_rows("runs", rows(ROWS))
        change.drop("verdicts")
        change.add_rows("verdicts", rows(5))
        change.keep({"seen": 2})


def seen(directory: Path) -> dict[str, object]:
    """All that a reader sees."""
    lake = lake_in(directory)
    state = lake.state()
    tables = {
        name: [value for batch in batches for value in pq.read_table(lake.batch_path(name, batch))["n"].to_pylist()]
        for name, batches in state.tables.items()
    }
    return {**tables, "facts": lake.facts(state, dict)}


NOTHING: dict[str, object] = {"facts": {}}
BEFORE = {"runs": list(range(ROWS)), "verdicts": list(range(ROWS)), "facts": {"seen": 1}}
AFTER = {"runs": list(range(2 * ROWS)), "verdicts": list(range(5, 5 + ROWS)), "facts": {"seen": 2}}


def test_a_change_adds_and_replaces(tmp_path: Path) -> None:
    assert seen(tmp_path / "lake") == NOTHING
    begin(tmp_path / "lake")
    assert seen(tmp_path / "lake") == BEFORE
    go_on(tmp_path / "lake")
    assert seen(tmp_path / "lake") == AFTER
    assert lake_in(tmp_path / "lake").state().tables == {"runs": [1, 2], "verdicts": [2]}


def test_what_a_change_drops_stays_for_readers_until_the_next(tmp_path: Path) -> None:
    begin(tmp_path)
    go_on(tmp_path)
    assert (tmp_path / "verdicts" / "batch=1").exists()
    with lake_in(tmp_path).change():
        pass
    assert [path.name for path in (tmp_path / "verdicts").iterdir()] == ["batch=2"]


def test_a_change_of_nothing_leaves_the_state_as_it_is(tmp_path: Path) -> None:
    begin(tmp_path)
    before = lake_in(tmp_path).state()
    with lake_in(tmp_path).change() as change:
        change.drop("none")
        change.keep({"seen": 1})
    assert lake_in(tmp_path).state() == before


def test_an_error_inside_leaves_everything_as_it_was(tmp_path: Path) -> None:
    begin(tmp_path)
    with pytest.raises(ZeroDivisionError), lake_in(tmp_path).change() as change:
        change.add_rows("runs", rows(7))
        _ = 1 / 0
    assert seen(tmp_path) == BEFORE
    assert not (tmp_path / "_staging").exists()


def test_a_kill_at_any_step_leaves_all_of_a_change_or_nothing(tmp_path: Path) -> None:
    found = []
    for directory in killed_at_every_step(go_on, begin, tmp_path):
        found.append(seen(directory) == AFTER)
        assert found[-1] or seen(directory) == BEFORE
        go_on(directory)  # The next writer is not in doubt about anything, and removes what is left.
        assert lake_in(directory).state().tables["verdicts"] == [3 if found[-1] else 2]
        named = {lake_in(directory).batch_path("runs", batch) for batch in lake_in(directory).state().tables["runs"]}
        assert set((directory / "runs").iterdir()) == named
    assert found == sorted(found)
    assert (found[0], found[-1]) == (False, True)


def test_a_kill_at_any_step_of_the_first_change_leaves_a_lake_or_nothing(tmp_path: Path) -> None:
    for directory in killed_at_every_step(begin, Path.mkdir, tmp_path):
        assert seen(directory) in (NOTHING, BEFORE)
        begin(directory)


def test_a_power_cut_at_any_step_leaves_all_of_a_change_or_nothing(tmp_path: Path) -> None:
    begin(tmp_path / "disk")
    cuts = power_cut_at_every_step(lambda: go_on(tmp_path / "disk"), tmp_path / "disk", tmp_path / "cuts")
    found = [seen(cut) == AFTER for cut in cuts]
    assert all(is_after or seen(cut) == BEFORE for is_after, cut in zip(found, cuts, strict=True))
    assert found == sorted(found)
    assert (found[0], found[-1]) == (False, True)


def test_the_second_of_two_writers_is_told(tmp_path: Path) -> None:
    with lake_in(tmp_path).held(), pytest.raises(PipelineError, match=r"is being written by somebody else: wait for it, or give"):
        begin(tmp_path)
    begin(tmp_path)


def test_several_changes_may_be_made_without_anybody_between(tmp_path: Path) -> None:
    lake = lake_in(tmp_path)
    with lake.held():
        for number in (1, 2):
            with lake.change() as change:
                change.keep(number)
            with pytest.raises(PipelineError, match="by somebody else"):
                begin(tmp_path)
    assert lake.facts(lake.state(), int) == 2


def test_a_directory_of_an_earlier_version_is_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "_log").mkdir()
    sentence = (
        rf"^the store {tmp_path} has files but no lake\.json: an earlier version of transis made it, or its state is lost; "
        r"give another --store, or move the whole directory away to begin anew$"
    )
    for ask in (seen, begin):
        with pytest.raises(PipelineError, match=sentence):
            ask(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["_log"]


@pytest.mark.parametrize("content", [b"", b"{", b'{"tables": 3}'])
def test_a_damaged_state_is_told(tmp_path: Path, content: bytes) -> None:
    begin(tmp_path)
    (tmp_path / LAKE).write_bytes(content)
    with pytest.raises(PipelineError, match=r"^the lake\.json of the store .* is damaged .* give another --store"):
        begin(tmp_path)


def test_facts_of_another_type_are_told(tmp_path: Path) -> None:
    begin(tmp_path)
    with pytest.raises(PipelineError, match=r"lake\.json .* is damaged \(Expected `int`, got `object`\)"):
        lake_in(tmp_path).facts(lake_in(tmp_path).state(), int)


def test_a_disk_that_refuses_is_told_and_leaves_what_was_there(tmp_path: Path) -> None:
    begin(tmp_path)
    with files_of_at_most(100), pytest.raises(PipelineError, match="cannot be written"):
        go_on(tmp_path)
    assert seen(tmp_path) == BEFORE
    (tmp_path / "file").touch()
    with pytest.raises(PipelineError, match="cannot be written"):
        begin(tmp_path / "file")


def test_the_state_is_plain_json(tmp_path: Path) -> None:
    begin(tmp_path)
    told = {"change": 1, "tables": {"runs": [1], "verdicts": [1]}, "facts": {"seen": 1}}
    assert msgspec.json.decode((tmp_path / LAKE).read_bytes()) == told
