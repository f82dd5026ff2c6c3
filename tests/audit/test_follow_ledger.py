"""The ledger of a follower: what changed is written once, a batch that comes again is known, and nobody else writes meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.archive.written import files_of_at_most
from tests.audit.test_fold import A, B, at
from transis.audit.follow.divergence import ONE_SEQUENCE, Told, Trouble
from transis.audit.follow.ledger import OWED_MAX, FollowLedger, opened
from transis.audit.guarantees.property import BROKEN, HELD
from transis.types.errors import PipelineError

LOST = r"has lost its state\.bin.*move the whole directory away"


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


def committed(directory: Path, batch: int) -> None:
    """As Spark does behind a batch."""
    (directory / "checkpoint" / "commits").mkdir(parents=True, exist_ok=True)
    (directory / "checkpoint" / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def test_a_state_that_was_lost_is_told_and_not_taken_for_a_new_beginning(tmp_path: Path) -> None:
    """What was broken would be held."""
    with opened(tmp_path / "kept") as ledger:
        add(ledger, 0, at(A, 1, 2), at(B, 2, 1))
    committed(tmp_path / "kept", 0)
    (tmp_path / "kept" / "state.bin").unlink()
    with (
        pytest.raises(PipelineError, match=LOST),
        opened(tmp_path / "kept"),
    ):
        pass


def test_it_is_told_also_where_sparks_checkpoint_was_removed_with_it(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        add(ledger, 0, at(A, 1, 2), at(B, 1, 2))
        add(ledger, 1, at(A, 1, 2, 3), at(B, 1, 2, 4))
    (tmp_path / "state.bin").unlink()
    with pytest.raises(PipelineError, match=LOST), opened(tmp_path):
        pass


def test_files_that_could_not_be_read_are_kept_with_those_that_are_owed(tmp_path: Path) -> None:
    bad, refused = Trouble("/d/x.digests", "x.digests: no header"), Trouble("/d/y.digests", "y.digests: Input/output error", True)
    with opened(tmp_path) as ledger:
        ledger.add("q", 0, [], [bad, refused], [refused.path])
    with opened(tmp_path) as ledger:
        assert (ledger.kept.unreadable, ledger.kept.owed) == (2, [refused.path])
        ledger.add("q", 1, [], [], [str(number) for number in range(OWED_MAX + 1)])
        assert ledger.kept.unreadable == 2
        assert (len(ledger.kept.owed), ledger.kept.owed[0]) == (OWED_MAX, "1")
    ((one, two),) = written(tmp_path, "unreadable").values()
    assert (one["path"], two["why"]) == (bad.path, refused.why)


def test_two_followers_do_not_write_one_ledger(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(PipelineError, match="written by another follower"), opened(tmp_path):
        pass
    with opened(tmp_path):
        pass


def test_a_damaged_state_is_told(tmp_path: Path) -> None:
    (tmp_path / "state.bin").write_bytes(b"\x93what")
    with (
        pytest.raises(PipelineError, match=r"state\.bin of the ledger .* is damaged .* move the whole directory away"),
        opened(tmp_path),
    ):
        pass


def test_a_disk_that_refuses_leaves_the_state_that_was_there(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        add(ledger, 0, at(A, 1, 2), at(B, 1, 2))
        with files_of_at_most(100), pytest.raises(PipelineError, match="cannot be written"):
            add(ledger, 1, at(A, 1, 2, 3), at(B, 1, 2, 4))
    with opened(tmp_path) as ledger:
        assert not ledger.knows("q", 1)
        assert ledger.fold.add([at(A, 1, 2, 3), at(B, 1, 2, 4)]) != []
