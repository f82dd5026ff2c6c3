"""Spark's checkpoint beside a ledger, which a power cut can damage: Spark then refuses every start, for ever.

It may be thrown away at any time. It says which files were read, and the fold takes a file that it knows as nothing; what was
found is in the ledger. So a damaged one is made anew, and all files that are still there are read again.
"""

from __future__ import annotations

import re
import shutil
import zlib
from pathlib import Path
from typing import Any, Final

import msgspec

from transis.types.errors import PipelineError

LOGS: Final = ("offsets", "commits")
_SUMMED: Final = 512
_HEAD: Final = len(b"crc\0") + 4


def id_of(checkpoint: Path) -> str:
    """Of the query: a new checkpoint has another, and counts batches from 0 again."""
    try:
        metadata: dict[str, Any] = msgspec.json.decode((checkpoint / "metadata").read_bytes(), type=dict[str, Any])
        return str(metadata["id"])
    except (OSError, msgspec.MsgspecError, KeyError) as error:
        raise PipelineError(f"the ledger {checkpoint.parent} has lost Spark's checkpoint ({error})") from error


def has_committed(checkpoint: Path) -> bool:
    """Whether a batch was finished, and so kept in the ledger before."""
    return bool(_numbered(checkpoint / "commits"))


def discard_if_damaged(checkpoint: Path) -> bool:
    """True if it was."""
    try:
        if not checkpoint.exists() or _is_sound(checkpoint):
            return False
        aside = checkpoint.with_name(".damaged")
        shutil.rmtree(aside, ignore_errors=True)
        checkpoint.rename(aside)
    except OSError as error:
        raise PipelineError(f"Spark's checkpoint {checkpoint} cannot be read ({error.strerror or error})") from error
    shutil.rmtree(aside, ignore_errors=True)
    return True


def _is_sound(checkpoint: Path) -> bool:
    metadata, offsets = checkpoint / "metadata", sorted(_numbered(checkpoint / "offsets"))
    if metadata.exists() and not (_is_json(metadata.read_bytes()) and _agrees_with_its_sum(metadata)):
        return False
    if len(offsets) > 1 and offsets[-2] != offsets[-1] - 1:
        return False
    files = (path for log in LOGS for path in _numbered(checkpoint / log).values())
    return all(_is_whole(path) and _agrees_with_its_sum(path) for path in files)


def _numbered(log: Path) -> dict[int, Path]:
    return {int(path.name): path for path in log.glob("*") if path.name.isdigit()}


def _is_whole(path: Path) -> bool:
    """A version, then lines of JSON; a dash is for nothing."""
    version, *lines = path.read_bytes().split(b"\n")
    return bool(re.fullmatch(rb"v\d+", version) and lines) and all(line == b"-" or _is_json(line) for line in lines)


def _is_json(content: bytes) -> bool:
    try:
        msgspec.json.decode(content)
    except msgspec.DecodeError:
        return False
    return True


def _agrees_with_its_sum(path: Path) -> bool:
    """Java keeps sums of pieces beside every file, and reads none that differs."""
    sums = path.with_name(f".{path.name}.crc")
    if not sums.exists():
        return True
    content = path.read_bytes()
    pieces = (content[at : at + _SUMMED] for at in range(0, len(content), _SUMMED))
    return sums.read_bytes()[_HEAD:] == b"".join(zlib.crc32(piece).to_bytes(4, "big") for piece in pieces)
