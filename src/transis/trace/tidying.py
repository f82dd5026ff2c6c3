"""What a flight recorder (flight.py) leaves on its disk is bounded: what is too old or too much is deleted, the oldest first.

1. It is for a thread beside the node, which shares the node's interpreter. A day has 8,640 sealed files: to ask the system for
   each of them every few seconds would cost the node as much as all recording. Only the directory is read every time.
2. A file that is not being written never changes again, and what is developed appears whole: each is asked for once.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from transis.trace.film import FILM_BYTES, FILMS
from transis.trace.segment import DIGESTS

KEPT: Final = "kept"
"""Where films around changes of the view are developed to."""
MB: Final = 1 << 20


class FlightLimits(NamedTuple):
    """How much is kept, and when; docs/watching.md says what each is good for."""

    seal_s: int = 10
    minutes: int = 5
    films_mb: int = 64
    kept_mb: int = 256
    digests_hours: int = 24
    before_s: int = 30
    after_s: int = 10
    free_mb: int = 256


class Tidied(NamedTuple):
    """What a look at the directory found and left."""

    bytes: int
    kept: int
    free_bytes: int


class _Found(NamedTuple):
    written_s: float
    size: int


class Tidier:
    """Of one node's directory; `tidy` is called now and then."""

    def __init__(self, directory: Path, name: str, limits: FlightLimits) -> None:
        self._directory = directory
        self._begins = f"{FILMS.prefix}{quote(name, safe='')}-"
        self._limits = limits
        self._known: dict[str, _Found] = {}

    def tidy(self, current: frozenset[str], now_s: float) -> Tidied:
        """Delete what is too old or too much of this node, never a file that is being written (`current`)."""
        mine = [name for name in _names(self._directory) if name.startswith(self._begins) and name not in current]
        films = [name for name in mine if name.endswith(FILMS.suffix)]
        digests = [name for name in mine if name.endswith(DIGESTS.suffix)]
        kept = [f"{KEPT}/{name}" for name in _names(self._directory / KEPT) if name[:1].isdigit()]
        self._look_at([*films, *digests, *kept])
        limits = self._limits
        self._keep_newest(films, limits.films_mb * MB - FILM_BYTES, now_s - limits.minutes * 60)
        self._keep_newest(digests, limits.kept_mb * MB, now_s - limits.digests_hours * 3600)
        self._keep_newest(kept, limits.kept_mb * MB, 0)
        total = sum(found.size for found in self._known.values()) + sum(_found(self._directory / name).size for name in current)
        left = sum(name in self._known for name in kept)
        return Tidied(total, left, shutil.disk_usage(self._directory).free)

    def _look_at(self, names: Iterable[str]) -> None:
        """Know these and no others."""
        known = self._known
        self._known = {name: known.get(name) or _found(self._directory / name) for name in names}

    def _keep_newest(self, names: Iterable[str], bytes_max: int, since_s: float) -> None:
        stays = 0
        for (written_s, size), name in sorted(((self._known[name], name) for name in names), reverse=True):
            if written_s >= since_s and stays + size <= bytes_max:
                stays += size
            elif _delete(self._directory / name):
                del self._known[name]


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _found(path: Path) -> _Found:
    """Zeros for what has gone meanwhile. A directory has the size of its files."""
    try:
        stat = path.stat()
        size = sum(file.stat().st_size for file in path.iterdir()) if path.is_dir() else stat.st_size
    except OSError:
        return _Found(0.0, 0)
    return _Found(stat.st_mtime, size)


def _delete(path: Path) -> bool:
    try:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    except OSError:
        return False
    return True
