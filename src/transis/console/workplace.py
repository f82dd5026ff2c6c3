"""Where a local cluster keeps its files."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

from transis.types.errors import ConfigError

LOCK: Final = "transis.lock"


class Workplace:
    """A directory of the user's, or a temporary one that goes away again, unless something in it should be looked at."""

    def __init__(self, wanted: Path | None) -> None:
        self._is_temporary = wanted is None
        if wanted is not None:
            self._lock = _taken(wanted)
        self.path = Path(tempfile.mkdtemp(prefix="transis-")) if wanted is None else wanted.resolve()

    def leave(self, *, keep: bool) -> None:
        if self._is_temporary and not keep:
            shutil.rmtree(self.path, ignore_errors=True)


def _taken(wanted: Path) -> int:
    """Made, and kept from others as long as this process lives: a second cluster there would take the first for its own."""
    try:
        wanted.mkdir(parents=True, exist_ok=True)
        lock = os.open(wanted / LOCK, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ConfigError("--dir", str(wanted), "another cluster runs there: stop it, or choose another directory") from error
    except OSError as error:
        raise ConfigError("--dir", str(wanted), f"cannot be used ({error.strerror})") from error
    return lock
