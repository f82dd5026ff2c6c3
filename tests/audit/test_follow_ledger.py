"""The ledger of a follower: what changed is written once, a batch that comes again is known, and nobody else writes meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from tests.archive.written import files_of_at_most
from tests.audit.test_fold import A, B, at
from tests.trace.disk import killed_at_every_step
from transis.audit.follow.divergence import ONE_SEQUENCE, DigestFile, Trouble
from transis.audit.follow.ledger import OWED_MAX, FollowFacts, FollowLedger, opened
from transis.audit.guarantees.property import BROKEN, HELD
from transis.audit.plans.lake import LAKE, Lake
from transis.types.errors import PipelineError

LOST = r"has files but no lake\.json: an earlier version of transis made it, or its state is lost; give another --ledger, or move"


def add(ledger: FollowLedger, batch: int, *rows: DigestFile, query: str = "q") -> None:
    ledger.add(query, batch, ledger.fold.add(rows))


def written(directory: Path, kind: str) -> dict[int, list[dict[str, Any]]]:
    """Rows of a table by the change that brought them."""
    lake = Lake(directory, "ledger", "--ledger")
    batches = lake.state().tables.get(kind, [])
    return {batch: pq.read_table(lake.batch_path(kind, batch), partitioning=None).to_pylist() for batch in batches}


def test_verdicts_are_written_when_they_change(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        add(ledger, 0, at(A, 1, 2), at(B, 1, 2))
        add(ledger, 1, at(A, 1, 2, 3), at(B, 1, 2, 3))
        add(ledger, 2, at(A, 1, 2, 3, 4), at(B, 1, 2, 3, 5))
    verdicts = written(tmp_path, "verdicts")
    assert list(verdicts) == [1, 3]
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


def first_batch(directory: Path) -> None:
    with opened(directory) as ledger:
        add(ledger, 0, at(A, 1, 2), at(B, 1, 2))


def second_batch(directory: Path) -> None:
    """Spark gives it again if it does not know that it was kept."""
    with opened(directory) as ledger:
        if not ledger.knows("q", 1):
            add(ledger, 1, at(A, 1, 2, 3), at(B, 1, 2, 4))


def test_a_kill_at_any_step_loses_nothing_and_brings_nothing_twice(tmp_path: Path) -> None:
    for directory in killed_at_every_step(second_batch, first_batch, tmp_path):
        second_batch(directory)
        assert [len(rows) for rows in written(directory, "violations").values()] == [1]
        with opened(directory) as ledger:
            assert ledger.knows("q", 1)
            assert {one.verdict for one in ledger.fold.verdicts() if one.property == ONE_SEQUENCE} == {BROKEN}


def test_a_state_that_was_lost_is_told_and_not_taken_for_a_new_beginning(tmp_path: Path) -> None:
    """What was broken would be held."""
    second_batch(tmp_path)
    (tmp_path / LAKE).unlink()
    with pytest.raises(PipelineError, match=LOST), opened(tmp_path):
        pass


def test_a_ledger_of_an_earlier_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state.bin").touch()
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
    with (
        opened(tmp_path),
        pytest.raises(PipelineError, match="somebody else: wait for it, or give another --ledger"),
        opened(tmp_path),
    ):
        pass
    with opened(tmp_path):
        pass


def test_a_fold_that_is_none_is_told(tmp_path: Path) -> None:
    first_batch(tmp_path)
    lake = Lake(tmp_path, "ledger", "--ledger")
    with lake.change() as change:
        change.keep(msgspec.structs.replace(lake.facts(change.state, FollowFacts), fold=b"\x93what"))
    with pytest.raises(PipelineError, match=r"ledger .* is damaged .* move the whole directory away"), opened(tmp_path):
        pass


def test_a_disk_that_refuses_leaves_the_state_that_was_there(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        add(ledger, 0, at(A, 1, 2), at(B, 1, 2))
        with files_of_at_most(100), pytest.raises(PipelineError, match="cannot be written"):
            add(ledger, 1, at(A, 1, 2, 3), at(B, 1, 2, 4))
    with opened(tmp_path) as ledger:
        assert not ledger.knows("q", 1)
        assert ledger.fold.add([at(A, 1, 2, 3), at(B, 1, 2, 4)]) != []
