"""Journals: whatever is cut off or damaged, what is read is the whole frames before it, and a disk that refuses took nothing."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from tests.archive.written import files_of_at_most, tables
from transis.archive.journal import END, FRAME, MAGIC, Journal, JournalHeader, JournalReader
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
    assert path.stat().st_size == sizes[-1] + len(END)
    return sizes


def read(path: Path) -> list[pa.Table]:
    return list(JournalReader(path))


def damage_of(path: Path) -> int:
    reader = JournalReader(path)
    assert len(list(reader)) == len(read(path))
    return reader.damaged_bytes


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
        assert damage_of(tmp_path / "cut") == 0, "a crash leaves such a one"


def test_of_a_journal_with_a_wrong_byte_all_other_frames_are_read_and_it_is_damaged(tmp_path: Path) -> None:
    """In the lengths and checksums of frames, and at many places between."""
    made = tables(3)
    sizes = written(tmp_path / "whole", made)
    assert damage_of(tmp_path / "whole") == 0
    content = bytearray((tmp_path / "whole").read_bytes())
    heads = {size + step for size in sizes[:-1] for step in range(FRAME.size + 1)}
    for at in sorted(heads | set(range(sizes[0], sizes[-1], 53))):
        content[at] ^= 0x41
        (tmp_path / "wrong").write_bytes(content)
        content[at] ^= 0x41
        hit = sum(size <= at for size in sizes[1:])
        assert read(tmp_path / "wrong") == made[:hit] + made[hit + 1 :], at
        assert damage_of(tmp_path / "wrong") == sizes[hit + 1] - sizes[hit], at


def test_the_last_frame_of_a_journal_that_was_not_sealed_may_be_anything(tmp_path: Path) -> None:
    """As a power cut leaves it: zeros, or another file's bytes, where rows were not synced yet."""
    made = tables(3)
    sizes = written(tmp_path / "whole", made)
    content = (tmp_path / "whole").read_bytes()
    for rest in (bytes(500), bytes([0x41]) * 500, content[sizes[1] + 1 : sizes[2]]):
        (tmp_path / "torn").write_bytes(content[: sizes[2]] + rest)
        assert (read(tmp_path / "torn"), damage_of(tmp_path / "torn")) == (made[:2], 0)


def test_what_a_message_holds_is_not_taken_for_rows_when_its_own_frame_is_damaged(tmp_path: Path) -> None:
    """Somebody sends journals as messages."""
    sizes = written(tmp_path / "inner", tables(1))
    inner = (tmp_path / "inner").read_bytes()[sizes[0] : sizes[1]]
    [outer] = tables(1, value=inner)
    _, other = tables(2)
    sizes = written(tmp_path / "outer", [outer, other])
    content = bytearray((tmp_path / "outer").read_bytes())
    assert bytes(content).count(inner) == 5
    content[sizes[0] + FRAME.size + 9] ^= 0x41
    (tmp_path / "outer").write_bytes(content)
    assert read(tmp_path / "outer") == [other]


def test_a_journal_of_another_format_is_named(tmp_path: Path) -> None:
    Journal(tmp_path / "later", msgspec.structs.replace(HEADER, format=2)).seal()
    with pytest.raises(
        ArchiveError, match="later is a journal of format 2, this release reads 1: start an archiver of the release"
    ):
        read(tmp_path / "later")


def test_a_journal_of_which_a_sync_failed_never_says_again_that_it_is_safe(tmp_path: Path) -> None:
    """The kernel does: it tells of lost writes once."""
    answers = iter([None, OSError(5, "Input/output error")])

    def fdatasync(_: int) -> None:
        if answer := next(answers, None):
            raise answer

    journal = Journal(tmp_path / "one", HEADER, fdatasync)
    journal.append(tables(1)[0])
    journal.sync()
    for again in (journal.sync, journal.sync, journal.seal):
        with pytest.raises(OSError, match=r"Input/output error|failed before"):
            again()
    assert read(tmp_path / "one") == tables(1), "what is there is read all the same"


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
