"""The ledger of a follower: what changed is written once, a batch that comes again is known, and nobody else writes meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.archive.written import files_of_at_most
from tests.pipeline.test_fold import A, B, at
from transis.model.errors import PipelineError
from transis.model.guarantees import BROKEN, HELD
from transis.pipeline.follow.ledger import FollowLedger, opened
from transis.pipeline.follow.telling import ONE_SEQUENCE, Told


def add(ledger: FollowLedger, batch: int, *rows: Told, query: str = "q") -> None:
    ledger.add(query, batch, ledger.fold.add(rows))


def written(directory: Path, kind: str) -> dict[str, list[dict[str, Any]]]:
    return {file.name: pq.read_table(file).to_pylist() for file in sorted((directory / kind).glob("*"))}


def test_verdicts_are_written_when_they_change(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        add(ledger, 0, at(A, 1, 2), at(B, 1, 2))
        add(ledger, 1, at(A, 1, 2, 3), at(B, 1, 2, 3))
        add(ledger, 2, at(A, 1, 2, 3, 4), at(B, 1, 2, 3, 5))
    verdicts = written(tmp_path, "verdicts")
    assert list(verdicts) == ["00000001.parquet", "00000002.parquet"]
    words = [[one["verdict"] for one in rows if one["property"] == ONE_SEQUENCE] for rows in verdicts.values()]
    assert words == [[HELD], [BROKEN]]
    ((violation,),) = written(tmp_path, "violations").values()
    assert (violation["property"], violation["conf"], violation["equal_at"]) == (ONE_SEQUENCE, "R4@a/1", 3)
    assert violation["sides"] == [["a/1"], ["b/1"]]


def test_what_was_kept_is_there_after_a_restart(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        add(ledger, 0, at(A, 1, 2), at(B, 1, 2))
    with opened(tmp_path) as ledger:
        assert ledger.knows("q", 0)
        assert not ledger.knows("q", 1)
        assert not ledger.knows("another", 0)
        add(ledger, 1, at(A, 1, 2, 3), at(B, 1, 2, 4))
    assert [len(rows) for rows in written(tmp_path, "violations").values()] == [1]


def test_a_batch_whose_state_was_not_kept_is_written_over(tmp_path: Path) -> None:
    """Killed between the files of a batch and the state: Spark gives it again."""
    rows = at(A, 1, 2), at(B, 2, 1)
    with opened(tmp_path) as ledger:
        add(ledger, 0, *rows)
    once = {kind: written(tmp_path, kind) for kind in ("verdicts", "violations")}
    (tmp_path / "state.bin").unlink()
    with opened(tmp_path) as ledger:
        add(ledger, 0, *rows)
    again = {kind: written(tmp_path, kind) for kind in ("verdicts", "violations")}
    assert [list(files) for files in again.values()] == [list(files) for files in once.values()]
    assert timeless(again) == timeless(once)


def timeless(kinds: dict[str, dict[str, list[dict[str, Any]]]]) -> list[dict[str, Any]]:
    rows = (row for files in kinds.values() for rows in files.values() for row in rows)
    return [{name: value for name, value in row.items() if name != "time"} for row in rows]


def test_two_followers_do_not_write_one_ledger(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(PipelineError, match="written by another follower"), opened(tmp_path):
        pass
    with opened(tmp_path):
        pass


def test_a_damaged_state_is_told(tmp_path: Path) -> None:
    (tmp_path / "state.bin").write_bytes(b"\x93what")
    with pytest.raises(PipelineError, match=r"state\.bin is damaged .* give another --ledger"), opened(tmp_path):
        pass


def test_a_disk_that_refuses_leaves_the_state_that_was_there(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        add(ledger, 0, at(A, 1, 2), at(B, 1, 2))
        with files_of_at_most(100), pytest.raises(PipelineError, match="cannot be written"):
            add(ledger, 1, at(A, 1, 2, 3), at(B, 1, 2, 4))
    with opened(tmp_path) as ledger:
        assert not ledger.knows("q", 1)
        assert ledger.fold.add([at(A, 1, 2, 3), at(B, 1, 2, 4)]) != []
