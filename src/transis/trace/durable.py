"""What a power cut must not take: content is durable before it has its name, and the name before anybody counts on it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

TEMPORARY: Final = ".new"
"""What is added to a name while its new content is written beside it."""


def replace_durably(path: Path, content: bytes) -> None:
    """A reader finds the old content or the new, whenever the power goes."""
    write_beside(path, content).replace(path)
    sync(path.parent)


def write_beside(path: Path, content: bytes) -> Path:
    """The new content, synced, under a name that no reader looks at."""
    new = beside(path)
    with new.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return new


def beside(path: Path) -> Path:
    return path.with_name(f".{path.name}{TEMPORARY}")


def sync(path: Path) -> None:
    """Make the content of a file durable; of a directory, the names that were made or changed in it."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
