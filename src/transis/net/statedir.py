"""The state directory of a node: who it is, durable, and used by one process at a time.

1. A lock (flock) is held as long as the directory is open; it goes with the process, however that ends.
2. A key is replaced whole: written beside, synced, renamed, and the directory synced. After a crash at any point the key has
   the old value or the new one, and what lies beside is swept away at the next opening.
3. The directory belongs to one name: its incarnations are that name's.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from io import TextIOWrapper
from pathlib import Path
from typing import Final

from transis.trace.durable import TEMPORARY, replace_durably
from transis.types.errors import ConfigError, IdentityError, InternalError

KEYS: Final = ("incarnation", "ring_seq")
VALUE_BYTES_MAX: Final = 32


class StateDirectory:
    """Open it once per life of a node; `write` may be called from another thread, one call at a time."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self._closed = False
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(path)
        except OSError as error:
            raise ConfigError("state directory", str(path), f"cannot be used: {error.strerror}") from error
        try:
            self._sweep()
            self._belong_to(name)
            self.stored: Mapping[str, int] = {key: self._read(key) for key in KEYS if (path / key).exists()}
        except BaseException:
            self.close()
            raise

    def write(self, key: str, value: int) -> None:
        """Returns when the value is durable."""
        if key not in KEYS:
            raise InternalError(f"{key} is not a key of a state directory")
        if self._closed:
            raise InternalError("a write into a state directory that was closed")
        replace_durably(self.path / key, f"{value}\n".encode())

    def close(self) -> None:
        self._closed = True
        self._lock.close()

    def _sweep(self) -> None:
        for left_over in sorted(self.path.glob(f"*{TEMPORARY}")):
            left_over.unlink()

    def _belong_to(self, name: str) -> None:
        owner = self.path / "name"
        if not owner.exists():
            replace_durably(owner, name.encode())
        elif (found := owner.read_text(encoding="utf-8", errors="replace")) != name:
            raise IdentityError(f"the state directory {self.path} belongs to {found!r}, not to {name!r}: give each its own")

    def _read(self, key: str) -> int:
        with (self.path / key).open("rb") as file:
            content = file.read(VALUE_BYTES_MAX + 1)
        text = content.strip()
        if len(content) > VALUE_BYTES_MAX or not text.isdigit():
            raise IdentityError(
                f"{self.path / key} holds no number, so it was damaged: restore the directory or start with a new name"
            )
        return int(text)


def new_boot_id() -> int:
    """64 random bits: two lives never have the same, even when they run from copies of one directory."""
    return int.from_bytes(os.urandom(8))


def _locked(path: Path) -> TextIOWrapper:
    lock = (path / "lock").open("a", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise IdentityError(
            f"another process uses the state directory {path}: stop it, or give this node a directory and a name of its own"
        ) from None
    return lock
