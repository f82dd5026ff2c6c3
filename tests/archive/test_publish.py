"""A journal becomes Parquet once, whenever whoever publishes it is killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.archive.events import NODES
from tests.archive.written import rows_in, tables
from tests.house.sources import ROOT
from transis.archive.directory import ArchiveDirectory, FileNumber
from transis.archive.journal import Journal, JournalHeader
from transis.archive.publish import publish, recover
from transis.archive.rows import STREAM, RowPosition
from transis.types.errors import ArchiveError

KILLED = """
import os, sys
from pathlib import Path
from transis.archive.directory import ArchiveDirectory
from transis.archive.publish import publish
place = ArchiveDirectory(Path(sys.argv[1]), "g", "ann")
left = [int(sys.argv[2])]
def killed_at(event, arguments):
    if event in ("open", "os.rename", "os.remove") and str(arguments[0]).startswith(sys.argv[1]):
        left[0] -= 1
        if left[0] < 0:
            os._exit(9)
(journal,) = place.journals()
sys.addaudithook(killed_at)
publish(place, journal)
"""
"""Publishes, and is killed right before the file operation of this number."""


@pytest.fixture
def place(tmp_path: Path) -> ArchiveDirectory:
    made = ArchiveDirectory(tmp_path / "to", "g", "ann")
    made.open("blue", NODES[0])
    return made


def journal_of(place: ArchiveDirectory, number: FileNumber, made: list[pa.Table]) -> Path:
    journal = Journal(place.journal(number), JournalHeader("blue", "g", "ann", *number))
    for table in made:
        journal.append(table)
    return journal.seal()


def test_a_published_file_has_the_rows_in_their_order_and_the_journal_is_gone(place: ArchiveDirectory) -> None:
    made = tables(4)
    path, size, damaged = publish(place, journal_of(place, FileNumber(1, 1), made))
    assert path is not None
    assert (size, damaged) == (path.stat().st_size, None)
    found = pq.read_table(path)
    assert found.to_pylist() == pa.concat_tables(made).to_pylist()
    assert place.journals() == []
    assert list(place.stream.glob(".*")) == []
    plain = [field.type if not pa.types.is_dictionary(field.type) else pa.string() for field in STREAM]
    assert [field.type for field in found.schema] == plain


def test_many_small_frames_share_a_row_group_and_its_dictionary(place: ArchiveDirectory) -> None:
    path = publish(place, journal_of(place, FileNumber(1, 1), tables(20, messages=100))).path
    assert path is not None
    metadata = pq.ParquetFile(path).metadata
    assert metadata.num_row_groups == 1
    of_process = next(
        column for column in map(metadata.row_group(0).column, range(len(STREAM))) if column.path_in_schema == "process"
    )
    assert of_process.has_dictionary_page
    assert of_process.total_compressed_size < 1000


def test_a_journal_without_rows_leaves_no_file(place: ArchiveDirectory) -> None:
    assert publish(place, journal_of(place, FileNumber(1, 1), [])) == (None, 0, None)
    assert (place.journals(), place.published()) == ([], [])


def damage(journal: Path, made: list[pa.Table], which: int) -> None:
    """A byte in that frame of a journal that held these."""
    content = bytearray(journal.read_bytes())
    value = made[which]["value"][-1].as_py()
    content[content.index(value)] ^= 1
    journal.write_bytes(content)


def test_a_damaged_journal_is_published_without_the_frame_and_kept(place: ArchiveDirectory) -> None:
    """What is missing shows in the numbers of rows."""
    made = tables(3)
    journal = journal_of(place, FileNumber(1, 1), made)
    damage(journal, made, 1)
    content = journal.read_bytes()
    path, _, damaged = publish(place, journal)
    assert path is not None
    assert damaged is not None
    assert (place.journals(), damaged.read_bytes()) == ([], content)
    assert rows_in(place) == [(1, row) for row in (*range(1, 9), *range(14, 19))]
    assert recover(place).damaged == [damaged], "every start tells of it, until it is moved away"


@pytest.mark.parametrize("damaged", [None, 1])
def test_whoever_is_killed_while_publishing_every_row_is_there_once(tmp_path: Path, damaged: int | None) -> None:
    """Before each of its file operations, until it comes through."""
    made = tables(3)
    expected = [(1, row) for which, table in enumerate(made) if which != damaged for row in table["row"].to_pylist()]
    for step in range(20):
        place = ArchiveDirectory(tmp_path / str(step), "g", "ann")
        place.open("blue", NODES[0])
        journal = journal_of(place, FileNumber(1, 1), made)
        if damaged is not None:
            damage(journal, made, damaged)
        command = [sys.executable, "-c", KILLED, str(place.directory), str(step)]
        code = subprocess.run(command, env={"PYTHONPATH": str(ROOT / "src")}, check=False).returncode
        assert len(recover(place).damaged) == (damaged is not None), step
        assert rows_in(place) == expected, step
        assert (place.journals(), place.half_published()) == ([], []), step
        place.close()
        if code == 0:
            assert step >= 4, "it was killed at each of several steps before"
            return
        assert code == 9, code
    raise AssertionError("it never came through")


def test_recovering_tells_where_the_last_life_stood(place: ArchiveDirectory) -> None:
    assert recover(place) == (None, [], [])
    journal_of(place, FileNumber(9, 1), tables(1, life=9))
    journal_of(place, FileNumber(10, 1), tables(3, life=10))
    assert place.next_life() == 11
    assert recover(place) == (RowPosition(4, "ann/1/0000000000000007", 4, 4), [], [])
    assert rows_in(place)[-1] == (10, 18)
    assert place.next_life() == 11


def test_a_journal_that_cannot_be_read_does_not_keep_others_back(place: ArchiveDirectory) -> None:
    """Of the first one the magic is damaged, of the second one everything; the third one is no file."""
    first, second = (journal_of(place, FileNumber(1, number), [table]) for number, table in enumerate(tables(2), 1))
    first.write_bytes(b"X" + first.read_bytes()[1:])
    second.write_bytes(bytes(len(second.read_bytes())))
    unreadable = place.journal(FileNumber(1, 3))
    unreadable.mkdir()
    journal_of(place, FileNumber(2, 1), tables(1, life=2))
    last, damaged, unread = recover(place)
    assert last is not None
    assert damaged == [place.damaged(first), place.damaged(second)]
    assert [str(error) for error in unread] == [f"{unreadable} cannot be read (Is a directory)"]
    assert rows_in(place) == [(1, row) for row in range(1, 9)] + [(2, row) for row in range(1, 9)]
    assert place.journals() == [unreadable], "the next start tries again"


def test_a_journal_of_another_format_is_refused_when_all_others_are_published(place: ArchiveDirectory) -> None:
    Journal(place.journal(FileNumber(1, 1)), JournalHeader("blue", "g", "ann", 1, 1, format=4)).seal()
    journal_of(place, FileNumber(2, 1), tables(1, life=2))
    with pytest.raises(ArchiveError, match="is a journal of format 4"):
        recover(place)
    assert rows_in(place) == [(2, row) for row in range(1, 9)]
    assert place.journals() == [place.journal(FileNumber(1, 1))]


def test_pages_have_checksums(place: ArchiveDirectory) -> None:
    """A byte of a value that is wrong is seen by whoever asks for it, and by recovery."""
    path = publish(place, journal_of(place, FileNumber(1, 1), tables(1))).path
    assert path is not None
    column = next(one for one in columns_of(path) if one.path_in_schema == "place_seq")
    content = bytearray(path.read_bytes())
    content[column.data_page_offset + column.total_compressed_size - 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(OSError, match=r"(?i)crc"):
        pq.read_table(path, page_checksum_verification=True)
    with pytest.raises(ArchiveError, match=f"{path.name} cannot be read.*move it away"):
        recover(place)


def columns_of(path: Path) -> list[pq.ColumnChunkMetaData]:
    with pq.ParquetFile(path) as file:
        group = file.metadata.row_group(0)
        return [group.column(number) for number in range(group.num_columns)]


def test_a_published_file_that_is_damaged_is_named(place: ArchiveDirectory) -> None:
    path = publish(place, journal_of(place, FileNumber(1, 1), tables(1))).path
    assert path is not None
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ArchiveError, match=f"{path.name} cannot be read.*move it away"):
        recover(place)
