"""Where a local cluster keeps its files."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from transis.model.errors import ConfigError


class Workplace:
    """A directory of the user's, or a temporary one that goes away again, unless something in it should be looked at."""

    def __init__(self, wanted: Path | None) -> None:
        self._is_temporary = wanted is None
        if wanted is not None:
            _make(wanted)
        self.path = Path(tempfile.mkdtemp(prefix="transis-")) if wanted is None else wanted.resolve()

    def leave(self, *, keep: bool) -> None:
        if self._is_temporary and not keep:
            shutil.rmtree(self.path, ignore_errors=True)


def _make(wanted: Path) -> None:
    try:
        wanted.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError("--dir", str(wanted), f"the directory cannot be made ({error.strerror})") from error
