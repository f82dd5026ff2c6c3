"""Journals: whatever is cut off or damaged, what is read is the whole frames before it, and a disk that refuses took nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.archive.written import files_of_at_most, of_an_earlier_release, tables
from tests.house.sources import ROOT
from transis.archive.journal import (
    HEADER_MAX,
    MAGIC,
    MARK_BYTES,
    UNMARKED,
    Journal,
    JournalHeader,
    JournalReader,
    UnreadableJournal,
    frame,
)
from transis.archive.rows import LATER, RARE
from transis.trace.segment import FRAME
from transis.types.errors import ArchiveError

HEADER = JournalHeader("blue", "g", "ann", 1, 1)
HEAD_BYTES = MARK_BYTES + FRAME.size


def written(path: Path, made: list[pa.Table]) -> list[int]:
    """The sizes of the journal before the first frame and after each."""
    journal = Journal(path, HEADER)
    sizes = [journal.size]
    for table in made:
        journal.append(table)
        sizes.append(journal.size)
    assert journal.seal() == path
    assert path.stat().st_size == sizes[-1] + HEAD_BYTES + 1
    return sizes


def read(path: Path) -> list[pa.Table]:
    return list(JournalReader(path))


def written_before(path: Path, made: list[pa.Table]) -> None:
    """A journal of format 1, whose frames have no marks."""
    header = msgspec.structs.asdict(HEADER) | {"format": 1}
    del header["mark"]
    bodies = [(b"H", msgspec.msgpack.encode(header)), *((b"A", stream_of(table)) for table in made), (b"E", b"")]
    path.write_bytes(MAGIC + b"".join(frame(UNMARKED, 0, kind, body) for kind, body in bodies))


def stream_of(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def damage_of(path: Path) -> int:
    reader = JournalReader(path)
    assert len(list(reader)) == len(read(path))
    return reader.damaged_bytes


@pytest.mark.parametrize("attributed", [False, True])
def test_what_was_appended_is_read(tmp_path: Path, attributed: bool) -> None:
    made = tables(3, attributed=attributed)
    written(tmp_path / "one", made)
    assert read(tmp_path / "one") == made


def test_a_journal_of_an_earlier_release_lacks_columns_and_is_read(tmp_path: Path) -> None:
    """The second table lacks what is null in every message, too, as releases have always left it out."""
    made = tables(2)
    before = [of_an_earlier_release(table) for table in made]
    rare = [name for name, _ in RARE if name not in LATER]
    written_before(tmp_path / "one", [before[0], before[1].drop_columns(rare), before[1].drop_columns([*rare, "value"])])
    first, second = read(tmp_path / "one")
    assert [of_an_earlier_release(one) for one in (first, second)] == before
    assert {one[name].null_count for one in (first, second) for name in LATER} == {first.num_rows, second.num_rows}
    assert damage_of(tmp_path / "one") > 0, "what lacks a column that there always was is no table of an archive"


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
    heads = {size + step for size in sizes[:-1] for step in range(HEAD_BYTES + 1)}
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


LIKE_FRAMES = {
    "no Arrow": frame(UNMARKED, 0, b"A", b"\xff\xff\xff\xffjunk"),
    "rows": frame(UNMARKED, 0, b"A", stream_of(tables(1)[0])),
    "the end": frame(UNMARKED, 0, b"E", b""),
}


@pytest.mark.parametrize("value", LIKE_FRAMES.values(), ids=LIKE_FRAMES)
def test_what_a_message_holds_is_never_taken_for_a_frame(tmp_path: Path, value: bytes) -> None:
    """Neither behind a cut nor behind damage."""
    first, second = tables(2, value=value)
    sizes = written(tmp_path / "whole", [first, second])
    content = bytearray((tmp_path / "whole").read_bytes())
    (tmp_path / "cut").write_bytes(content[: sizes[2] - 1])
    assert (read(tmp_path / "cut"), damage_of(tmp_path / "cut")) == ([first], 0)
    content[sizes[0] + HEAD_BYTES + 9] ^= 0x41
    (tmp_path / "wrong").write_bytes(content)
    assert (read(tmp_path / "wrong"), damage_of(tmp_path / "wrong")) == ([second], sizes[1] - sizes[0])


def test_a_copy_of_a_journal_in_its_own_messages_is_not_taken_for_frames(tmp_path: Path) -> None:
    """Somebody sends the files of a host through a group, those of its archiver among them."""
    journal = Journal(tmp_path / "own", HEADER)
    first, later = tables(2)
    journal.append(first)
    [holding] = tables(1, value=journal.path.read_bytes())
    before = journal.size
    journal.append(holding)
    journal.append(later)
    journal.seal()
    content = bytearray(journal.path.read_bytes())
    content[before + HEAD_BYTES + 9] ^= 0x41
    journal.path.write_bytes(content)
    assert read(journal.path) == [first, later]


PIECES = st.one_of(st.binary(max_size=60), st.sampled_from([*LIKE_FRAMES.values(), MAGIC]))


@given(st.lists(st.lists(PIECES, max_size=4).map(b"".join), min_size=1, max_size=3), st.floats(0, 1), st.booleans())
def test_of_any_messages_and_any_cut_what_is_read_is_the_first_of_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, values: list[bytes], where: float, holds_itself: bool
) -> None:
    path = tmp_path_factory.mktemp("cut") / "one"
    journal = Journal(path, HEADER)
    made: list[pa.Table] = []
    for number, value in enumerate(values):
        content = value + path.read_bytes() if holds_itself else value
        made.append(tables(number + 1, messages=2, value=content)[number])
        journal.append(made[number])
    journal.seal()
    whole = path.read_bytes()
    path.write_bytes(whole[: round(where * len(whole))])
    found = read(path)
    assert found == made[: len(found)]
    assert damage_of(path) == 0


# --- damage in front ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, len(MAGIC) - 1, len(MAGIC), len(MAGIC) + 5, len(MAGIC) + FRAME.size, 80])
def test_a_wrong_byte_in_front_costs_no_rows(tmp_path: Path, at: int) -> None:
    """In the magic, in the length and the checksum of the header, and in what it says."""
    made = tables(2)
    sizes = written(tmp_path / "one", made)
    assert at < sizes[0]
    content = bytearray((tmp_path / "one").read_bytes())
    content[at] ^= 0x41
    (tmp_path / "one").write_bytes(content)
    assert read(tmp_path / "one") == made
    assert 0 < damage_of(tmp_path / "one") <= sizes[0]


def test_a_beginning_of_zeros_is_damage_if_rows_can_have_been_behind_it(tmp_path: Path) -> None:
    """What is not longer than a header is what a power cut leaves of a journal that nothing was written to."""
    written(tmp_path / "one", tables(2))
    content = (tmp_path / "one").read_bytes()
    (tmp_path / "one").write_bytes(bytes(4096) + content[4096:])
    assert (read(tmp_path / "one"), damage_of(tmp_path / "one")) == ([], len(content))
    for length in (0, 1, 150, HEADER_MAX):
        (tmp_path / "begun").write_bytes(bytes(length))
        assert (read(tmp_path / "begun"), damage_of(tmp_path / "begun")) == ([], 0)


def test_no_message_is_so_far_in_front_that_it_could_be_taken_for_the_first_frame(tmp_path: Path) -> None:
    [table] = tables(1, value=b"a value of a message")
    written(tmp_path / "one", [table])
    assert (tmp_path / "one").read_bytes().index(b"a value of a message") > HEADER_MAX + HEAD_BYTES


def test_names_as_long_as_they_may_be_fit_into_the_header(tmp_path: Path) -> None:
    Journal(tmp_path / "one", JournalHeader("c" * 64, "g" * 128, "a" * 64, 1 << 60, 1 << 60)).seal()
    assert read(tmp_path / "one") == []


SYNCED = """
import os, sys
from pathlib import Path
from transis.archive.journal import Journal, JournalHeader
def told(event, arguments):
    if event == "open" and str(arguments[0]) == sys.argv[1]:
        print("directory")
def fdatasync(file):
    print(os.fstat(file).st_size)
sys.addaudithook(told)
print(Journal(Path(sys.argv[1], "one"), JournalHeader("blue", "g", "ann", 1, 1), fdatasync).size)
"""
"""Tells what is there of a new journal when it is synced, and when its directory is."""


def test_the_header_is_durable_before_the_name_is(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SYNCED, str(tmp_path)]
    done = subprocess.run(command, env={"PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True, check=True)
    synced, then, size = done.stdout.split()
    assert (synced, then) == (size, "directory")


# --- formats -----------------------------------------------------------------------------------------------------------------


def test_a_journal_of_the_format_before_is_read(tmp_path: Path) -> None:
    made = tables(3)
    written_before(tmp_path / "one", made)
    assert (read(tmp_path / "one"), damage_of(tmp_path / "one")) == (made, 0)


@pytest.mark.parametrize("value", LIKE_FRAMES.values(), ids=LIKE_FRAMES)
def test_of_the_format_before_nothing_is_searched_for_and_what_is_not_whole_is_damage(tmp_path: Path, value: bytes) -> None:
    """It cannot be told from what messages hold."""
    made = tables(2, value=value)
    written_before(tmp_path / "one", made)
    content = (tmp_path / "one").read_bytes()
    (tmp_path / "one").write_bytes(content[:-100])
    assert read(tmp_path / "one") == made[:1]
    assert damage_of(tmp_path / "one") > 0


def test_a_frame_that_is_whole_and_holds_no_rows_is_damage(tmp_path: Path) -> None:
    strange = pa.table({"a": [1]})
    for body in (b"\xff\xff\xff\xffjunk", stream_of(strange), stream_of(tables(1)[0])[:-300]):
        written_before(tmp_path / "one", [])
        end = frame(UNMARKED, 0, b"E", b"")
        content = (tmp_path / "one").read_bytes().removesuffix(end)
        (tmp_path / "one").write_bytes(content + frame(UNMARKED, 0, b"A", body) + end)
        assert (read(tmp_path / "one"), damage_of(tmp_path / "one")) == ([], FRAME.size + 1 + len(body))


def test_a_journal_of_another_format_is_named(tmp_path: Path) -> None:
    Journal(tmp_path / "later", msgspec.structs.replace(HEADER, format=4)).seal()
    with pytest.raises(
        ArchiveError, match="later is a journal of format 4, this release reads 1 to 3: start an archiver of the release"
    ):
        read(tmp_path / "later")


def test_a_journal_of_which_a_sync_failed_never_says_again_that_it_is_safe(tmp_path: Path) -> None:
    """The kernel does: it tells of lost writes once."""
    answers = iter([None, None, OSError(5, "Input/output error")])

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


def test_what_never_was_a_journal_is_damage(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"PAR1 and so on, for a while")
    assert (read(tmp_path / "other"), damage_of(tmp_path / "other")) == ([], 27)


def test_a_journal_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableJournal, match=r"gone cannot be read \(No such file or directory\)"):
        read(tmp_path / "gone")


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
