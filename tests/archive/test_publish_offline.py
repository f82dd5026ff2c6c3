"""Publishing without an archiver: what is left of those that do not run, and of nobody else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.archive.events import NODES
from tests.archive.written import rows_in, tables
from transis.archive.directory import ArchiveDirectory, FileNumber
from transis.archive.journal import Journal, JournalHeader
from transis.archive.publish import PublishOutcome, publish_directory
from transis.types.errors import ArchiveError


def left_by(directory: Path, archiver: str, journals: int) -> ArchiveDirectory:
    """Its lock is held still."""
    place = ArchiveDirectory(directory, "g", archiver)
    place.open("blue", NODES[0])
    for life in range(1, journals + 1):
        journal = Journal(place.journal(FileNumber(life, 1)), JournalHeader("blue", "g", archiver, life, 1))
        journal.append(tables(1, life=life, archiver=archiver)[0])
        journal.release()
    return place


def test_what_is_left_is_published_unless_its_archiver_runs(tmp_path: Path) -> None:
    runs, ended, also = left_by(tmp_path, "ann", 1), left_by(tmp_path, "bob", 2), left_by(tmp_path, "bob-2", 1)
    ended.close()
    also.close()
    found = {one.archiver: one for one in publish_directory(tmp_path)}
    assert {name: (one.group, one.journals, one.files, one.is_fine) for name, one in found.items()} == {
        "ann": ("g", 1, 0, True),
        "bob": ("g", 2, 2, True),
        "bob-2": ("g", 1, 1, True),
    }
    assert found["ann"].left is None
    assert found["bob"].size == sum(path.stat().st_size for path in ended.published())
    assert rows_in(ended) == [(life, row) for life in (1, 2) for row in range(1, 9)]
    assert (len(runs.journals()), ended.journals(), runs.published()) == (1, [], [])
    ended.open("blue", NODES[0])
    runs.close()
    assert [(one.archiver, one.files) for one in publish_directory(tmp_path)] == [("ann", 1)], "the lock was given back"
    assert publish_directory(tmp_path) == []


def test_what_cannot_be_published_is_told(tmp_path: Path) -> None:
    place = left_by(tmp_path, "ann", 2)
    place.close()
    first, second = place.journals()
    first.write_bytes(bytes(5000))
    later = Journal(place.journal(FileNumber(3, 1)), JournalHeader("blue", "g", "ann", 3, 1, format=4))
    later.seal()
    [found] = publish_directory(tmp_path)
    assert (found.files, found.damaged, found.is_fine) == (1, [place.damaged(first)], False)
    assert [f"{later.path} is a journal of format 4" in error for error in found.refused] == [True]
    assert place.journals() == [later.path]
    assert found.as_json() == {
        "group": "g",
        "archiver": "ann",
        "runs": False,
        "journals": 3,
        "files": 1,
        "bytes": place.published_as(second).stat().st_size,
        "damaged": [str(place.damaged(first))],
        "refused": found.refused,
    }


def test_what_is_no_archive_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="holds no archive: give a directory that `transis archive --to` has written to"):
        publish_directory(tmp_path)
    (tmp_path / "archive.json").write_text('{"format": 2, "cluster": "blue"}')
    with pytest.raises(ArchiveError, match="an archive of format 2"):
        publish_directory(tmp_path)


def test_one_that_runs_is_fine() -> None:
    assert PublishOutcome("g", "ann", 1, None).is_fine
