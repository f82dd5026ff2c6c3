"""What a disk may look like when a process, or the power, goes in the middle of something.

Both are found by watching: a profile function sees every operation on files as it is called, and what `sync` was given. Nothing
is replaced. Of a power cut the worst is taken: directories have the names, and files the bytes, of when they were last synced.
"""

from __future__ import annotations

import builtins
import os
import signal
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any, Final

from transis.trace import files

Action = Callable[[], object]

OPERATIONS: Final = frozenset({builtins.open, os.open, os.fsync, os.mkdir, os.rename, os.replace, os.unlink, os.rmdir})


def killed_at_every_step(action: Callable[[Path], object], prepare: Callable[[Path], object], place: Path) -> Iterator[Path]:
    """Directories that were prepared, each with what `action` left in it when it was killed before one of its operations. The
    last is of an action that came to its end."""
    for step in count():
        directory = place / f"killed-{step}"
        prepare(directory)
        is_killed = _killed_before(step, lambda directory=directory: action(directory))  # type: ignore[misc]
        yield directory
        if not is_killed:
            return


def _killed_before(step: int, action: Action) -> bool:
    child = os.fork()
    if child == 0:
        left = iter(range(step))

        def watch(_frame: FrameType, event: str, called: Any) -> None:
            if event == "c_call" and called in OPERATIONS and next(left, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.setprofile(watch)
            action()
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or status == 0, "the action failed by itself"
    return os.WIFSIGNALED(status)


class Disk:
    """What is durable below a directory, by inodes; all that is there at first is."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._names: dict[object, dict[str, tuple[object, bool]]] = {}
        self._content: dict[object, bytes] = {}
        self._gone = count()
        for path in (root, *root.rglob("*")):
            self.synced(path)

    def synced(self, path: Path) -> None:
        inode = path.stat().st_ino
        if path.is_dir():
            self._names[inode] = {one.name: (one.inode(), one.is_dir()) for one in os.scandir(path)}
        else:
            self._content[inode] = path.read_bytes()

    def look(self) -> None:
        """Another file may get the inode of one that is gone."""
        there = {path.lstat().st_ino for path in (self._root, *self._root.rglob("*"))}
        for inode in {*self._names, *self._content} - there:
            if isinstance(inode, int):
                self._rename(inode, f"gone {next(self._gone)}")

    def _rename(self, old: object, new: object) -> None:
        for kept in (self._names, self._content):
            if old in kept:
                kept[new] = kept.pop(old)  # type: ignore[index, assignment]
        for names in self._names.values():
            names |= {name: (new, is_directory) for name, (inode, is_directory) in names.items() if inode == old}

    def restored(self, directory: Path) -> Path:
        """What is found there when the power is back."""
        self._restore(self._root.stat().st_ino, directory)
        return directory

    def _restore(self, inode: object, directory: Path) -> None:
        directory.mkdir()
        for name, (child, is_directory) in self._names.get(inode, {}).items():
            if is_directory:
                self._restore(child, directory / name)
            else:
                (directory / name).write_bytes(self._content.get(child, b""))


def power_cut_at_every_step(action: Action, root: Path, place: Path) -> list[Path]:
    """What is left of `root` when the power goes before each operation of `action`; the last is cut when it is over."""
    disk, cuts = Disk(root), list[Path]()

    def cut() -> None:
        sys.setprofile(None)
        disk.look()
        cuts.append(disk.restored(place / f"cut-{len(cuts)}"))
        sys.setprofile(watch)

    def watch(frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and called in OPERATIONS:
            cut()
        elif event == "return" and frame.f_code is files.sync.__code__:
            sys.setprofile(None)
            disk.synced(frame.f_locals["path"])
            sys.setprofile(watch)

    place.mkdir()
    sys.setprofile(watch)
    try:
        action()
        cut()
    finally:
        sys.setprofile(None)
    return cuts
