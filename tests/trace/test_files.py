"""Durable files: whatever ends the process or the power, there is the old or the new, whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trace.disk import killed_at_every_step, power_cut_at_every_step
from transis.trace.files import locked, make_directory, publish, replace_durably

OLD, NEW = b"old" * 1000, b"new" * 2000


def replaced(directory: Path) -> None:
    replace_durably(directory / "file", NEW)


def published(directory: Path) -> None:
    aside = directory / "aside"
    (aside / "below").mkdir(parents=True)
    for name in ("one", "below/two"):
        (aside / name).write_bytes(NEW)
    publish(aside, directory / "made" / "too" / "target")


def with_an_old_file(directory: Path) -> None:
    directory.mkdir()
    (directory / "file").write_bytes(OLD)


def require_old_or_new(directory: Path) -> bool:
    """Whether it is the new."""
    content = (directory / "file").read_bytes()
    assert content in (OLD, NEW)
    return content == NEW


def require_all_or_nothing(directory: Path) -> bool:
    target = directory / "made" / "too" / "target"
    if not target.exists():
        return False
    assert {path.relative_to(target).as_posix(): path.read_bytes() for path in target.rglob("*") if path.is_file()} == {
        "one": NEW,
        "below/two": NEW,
    }
    return True


CASES = {"replaced": (replaced, require_old_or_new), "published": (published, require_all_or_nothing)}


@pytest.mark.parametrize("case", CASES)
def test_a_kill_leaves_the_old_or_the_new(tmp_path: Path, case: str) -> None:
    act, is_new = CASES[case]
    found = [is_new(directory) for directory in killed_at_every_step(act, with_an_old_file, tmp_path)]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (False, True)


@pytest.mark.parametrize("case", CASES)
def test_a_power_cut_leaves_the_old_or_the_new_and_the_new_when_it_is_over(tmp_path: Path, case: str) -> None:
    act, is_new = CASES[case]
    with_an_old_file(tmp_path / "disk")
    found = [is_new(cut) for cut in power_cut_at_every_step(lambda: act(tmp_path / "disk"), tmp_path / "disk", tmp_path / "cuts")]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (False, True)


def test_a_file_that_is_written_plainly_does_not_survive(tmp_path: Path) -> None:
    """So the disk of these tests forgets."""
    with_an_old_file(tmp_path / "disk")
    plain = tmp_path / "disk" / "plain"
    *_, last = power_cut_at_every_step(lambda: plain.write_bytes(NEW), tmp_path / "disk", tmp_path / "cuts")
    assert (plain.exists(), [path.name for path in last.iterdir()]) == (True, ["file"])


def test_a_lock_is_held_by_one_and_goes_with_it(tmp_path: Path) -> None:
    with locked(tmp_path / "lock"), pytest.raises(BlockingIOError), locked(tmp_path / "lock"):
        pass
    with locked(tmp_path / "lock"):
        pass


def test_a_file_where_a_directory_is_wanted_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OSError, match="file"):
            make_directory(path)
    make_directory(tmp_path / "a" / "b")
    make_directory(tmp_path / "a" / "b")
