"""The state directory: one process at a time, one name for ever, and a key that is old or new after any crash."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from transis.net.state import KEYS, StateDirectory, new_boot_id
from transis.trace.files import write_beside
from transis.types.errors import ConfigError, IdentityError, InternalError
from transis.types.ids import NodeId


def reopened(path: Path) -> dict[str, int]:
    state = StateDirectory(path, "ann")
    state.close()
    return dict(state.stored)


def test_what_was_written_is_there_at_the_next_opening(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "new" / "ann", "ann")
    assert state.stored == {}
    state.write("incarnation", 7)
    state.write("ring_seq", 0)
    state.write("incarnation", 8)
    state.close()
    assert reopened(tmp_path / "new" / "ann") == {"incarnation": 8, "ring_seq": 0}


def test_a_second_user_is_refused_with_the_remedy(tmp_path: Path) -> None:
    first = StateDirectory(tmp_path, "ann")
    with pytest.raises(IdentityError, match=r"another process uses the state directory .* a name of its own"):
        StateDirectory(tmp_path, "ann")
    first.close()
    assert reopened(tmp_path) == {}


def test_a_directory_belongs_to_one_name(tmp_path: Path) -> None:
    StateDirectory(tmp_path, "ann").close()
    with pytest.raises(IdentityError, match="belongs to 'ann', not to 'bob'"):
        StateDirectory(tmp_path, "bob")
    assert reopened(tmp_path) == {}


def test_a_death_between_writing_and_renaming_leaves_the_old_value(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path, "ann")
    state.write("incarnation", 3)
    state.close()
    beside = write_beside(tmp_path / "incarnation", b"4\n")
    assert beside.exists()
    assert reopened(tmp_path) == {"incarnation": 3}
    assert not beside.exists()


def test_a_value_is_never_changed_in_place(tmp_path: Path) -> None:
    """A crash in the middle of changing a file in place leaves neither the old value nor the new one."""
    state = StateDirectory(tmp_path, "ann")
    state.write("ring_seq", 3)
    (tmp_path / "kept").hardlink_to(tmp_path / "ring_seq")
    state.write("ring_seq", 4)
    state.close()
    assert (tmp_path / "kept").read_text(encoding="utf-8") == "3\n"


@pytest.mark.parametrize("content", [b"", b"-1\n", b"1.5", b"\xff\xfe", b"9" * 40, "٣".encode()])
def test_a_damaged_key_is_refused_and_the_lock_released(tmp_path: Path, content: bytes) -> None:
    StateDirectory(tmp_path, "ann").close()
    (tmp_path / "ring_seq").write_bytes(content)
    with pytest.raises(IdentityError, match="ring_seq holds no number"):
        StateDirectory(tmp_path, "ann")
    (tmp_path / "ring_seq").unlink()
    assert reopened(tmp_path) == {}


def test_a_life_knows_the_one_before_it(tmp_path: Path) -> None:
    first, second = NodeId("ann", 1, (1 << 64) - 1), NodeId("ann", 2, 5)
    for before, life in ((None, first), (first, second), (second, second)):
        state = StateDirectory(tmp_path, "ann")
        assert state.previous == before
        state.begin(life)
        state.close()


def test_in_a_copy_nobody_knows_whether_the_life_that_it_names_is_over(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "ann", "ann")
    state.begin(NodeId("ann", 1, 5))
    shutil.copytree(tmp_path / "ann", tmp_path / "copy")
    copy = StateDirectory(tmp_path / "copy", "ann")
    assert copy.previous is None
    copy.close()
    state.close()
    (tmp_path / "ann" / "life").write_bytes(b"\xff{")
    assert reopened(tmp_path / "ann") == {}


def test_misuse_is_our_bug(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path, "ann")
    with pytest.raises(InternalError, match="not a key"):
        state.write("../lock", 1)
    state.close()
    with pytest.raises(InternalError, match="closed"):
        state.write(KEYS[0], 1)


def test_a_place_that_is_no_directory_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ConfigError, match="state directory"):
        StateDirectory(tmp_path / "file" / "ann", "ann")


def test_boot_ids_differ() -> None:
    assert len({new_boot_id() for _ in range(100)}) == 100


WRITER = """
import sys
from pathlib import Path
from transis.net.state import StateDirectory
state = StateDirectory(Path(sys.argv[1]), "ann")
for number in range(1, 1 << 30):
    state.write("ring_seq", number)
    print(number, flush=True)
"""


def test_a_killed_process_lost_nothing_that_it_was_told_is_durable(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        told = [int(writer.stdout.readline()) for _ in range(20)]
        with pytest.raises(IdentityError, match="another process"):
            StateDirectory(tmp_path, "ann")
        writer.kill()
        told += [int(line) for line in writer.stdout.read().split()]
    assert told[-1] <= reopened(tmp_path)["ring_seq"] <= told[-1] + 1
