"""Journals: whatever is cut off or damaged, what is read is the whole frames before it, and a disk that refuses took nothing."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.archive.written import files_of_at_most, tables
from transis.archive.journal import MAGIC, Journal, JournalHeader, read_journal
from transis.model.errors import ArchiveError

HEADER = JournalHeader("blue", "g", "ann", 1, 1)


def written(path: Path, made: list[pa.Table]) -> list[int]:
    """The sizes of the journal before the first frame and after each."""
    journal = Journal(path, HEADER)
    sizes = [journal.size]
    for table in made:
        journal.append(table)
        sizes.append(journal.size)
    assert journal.seal() == path
    assert path.stat().st_size == sizes[-1]
    return sizes


def read(path: Path) -> list[pa.Table]:
    return list(read_journal(path))


def test_what_was_appended_is_read(tmp_path: Path) -> None:
    made = tables(3)
    written(tmp_path / "one", made)
    assert read(tmp_path / "one") == made


def test_a_journal_that_is_cut_anywhere_is_read_up_to_its_last_whole_frame(tmp_path: Path) -> None:
    """At every byte around the ends of frames, and at many between."""
    made = tables(3)
    sizes = written(tmp_path / "whole", made)
    content = (tmp_path / "whole").read_bytes()
    near = {size + step for size in sizes for step in range(-12, 13)} | set(range(len(MAGIC) + 40))
    for cut in sorted((near | set(range(0, len(content), 97))) & set(range(len(content)))):
        (tmp_path / "cut").write_bytes(content[:cut])
        assert read(tmp_path / "cut") == made[: sum(size <= cut for size in sizes[1:])], cut


def test_a_byte_that_is_wrong_ends_it_before_its_frame(tmp_path: Path) -> None:
    made = tables(3)
    sizes = written(tmp_path / "whole", made)
    content = bytearray((tmp_path / "whole").read_bytes())
    for at in range(sizes[0], len(content), 53):
        content[at] ^= 0x41
        (tmp_path / "wrong").write_bytes(content)
        content[at] ^= 0x41
        assert read(tmp_path / "wrong") == made[: sum(size <= at for size in sizes[1:])], at


def test_what_never_was_a_journal_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"PAR1 and so on")
    with pytest.raises(ArchiveError, match="no journal of an archive: move it away"):
        read(tmp_path / "other")


def test_a_journal_is_never_written_over(tmp_path: Path) -> None:
    written(tmp_path / "one", tables(1))
    with pytest.raises(FileExistsError):
        Journal(tmp_path / "one", HEADER)


def test_of_a_frame_that_the_disk_refuses_nothing_is_there_and_the_next_one_may_fit(tmp_path: Path) -> None:
    first, large, small = tables(1)[0], tables(1, messages=5000)[0], tables(1)[0]
    journal = Journal(tmp_path / "one", HEADER)
    journal.append(first)
    with files_of_at_most(journal.size + 20_000):
        with pytest.raises(OSError, match="too large"):
            journal.append(large)
        assert read(tmp_path / "one") == [first]
        journal.append(small)
    journal.seal()
    assert read(tmp_path / "one") == [first, small]


def test_a_journal_that_cannot_begin_is_not_there(tmp_path: Path) -> None:
    with files_of_at_most(10), pytest.raises(OSError, match="too large"):
        Journal(tmp_path / "one", HEADER)
    assert not (tmp_path / "one").exists()
