"""Which code ran a seed: the version, and a digest of the rooms that a simulated run consists of.

Workers compute it where a seed runs, so that one with another version of this package is noticed rather than believed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from transis import __version__

ROOMS: Final = ("types", "wire", "engine", "totem", "lansis", "groups", "node", "sessions", "trace", "sim", "audit/guarantees")
DIGITS: Final = 12


@cache
def build_id() -> str:
    """The same whether the package lies in a directory or, as on a cluster, in a zip."""
    digest = sha256()
    for room in ROOMS:
        for name, source in _sources(files("transis") / room, room):
            digest.update(f"{name} {len(source)}\n".encode())
            digest.update(source)
    return f"{__version__}-{digest.hexdigest()[:DIGITS]}"


def _sources(directory: Traversable, path: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(directory.iterdir(), key=lambda one: one.name):
        inside = f"{path}/{entry.name}"
        if entry.is_dir():
            yield from _sources(entry, inside)
        elif entry.name.endswith(".py"):
            yield inside, entry.read_bytes()
