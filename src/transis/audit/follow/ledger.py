"""What it has folded, on the lake.

The ledger of a follower: what it has folded so far, every verdict that changed, every violation, in one local directory.

    DIR/checkpoint/                  Spark's own: which files were read
    DIR/state.bin                    the last batch and the fold behind it
    DIR/verdicts/N.parquet           verdicts that changed in entry N
    DIR/violations/N.parquet         violations that were found in entry N
    DIR/unreadable/N.parquet         files that could not be read, or not to their end
    DIR/evidence/N-PROPERTY-CONF/    what the flight recorders had of a violation
    DIR/_lock                        held by the follower that writes

Spark may give the last batch again after a kill. A batch up to the one in state.bin is known; any other one is folded, and its
files are written under the number that follows, whether they are there or not. So nothing is twice and nothing is missing.
A file whose read failed, though Spark counts it as read, is owed: the ledger remembers it until it was read or is gone.

Spark's checkpoint beside a ledger, which a power cut can damage: Spark then refuses every start, for ever.

It may be thrown away at any time. It says which files were read, and the fold takes a file that it knows as nothing; what was
found is in the ledger. So a damaged one is made anew, and all files that are still there are read again.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from transis.audit.follow.divergence import Divergence, FollowVerdict, Trouble
from transis.audit.follow.fold import Fold
from transis.trace.files import replace_durably
from transis.types.errors import PipelineError

# --- checkpoint -------------------------------------------------------------------------------------------------------

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


# --- ledger -----------------------------------------------------------------------------------------------------------

ALL_AGAIN_S: Final = 3600
"""So often all verdicts are written, changed or not: silence then means that nobody follows."""
RECENT_S: Final = 3600.0
RECENT_MAX: Final = 100
OWED_MAX: Final = 4096
"""Files that are tried again; of more than that the oldest are given up. That they were not read was told."""

FIRST: Final = f"{1:08}"
BEGIN_ANEW: Final = (
    "what it had found broken would be forgotten, so give another --ledger, or move the whole directory away to begin anew"
)

_WHEN: Final = ("time", pa.timestamp("us", "UTC"))
VERDICTS: Final = pa.schema(
    [
        ("entry", pa.int64()),
        _WHEN,
        *((name, pa.string()) for name in ("cluster", "property", "verdict")),
        *((name, pa.int64()) for name in ("checked", "violations", "pending")),
    ]
)
VIOLATIONS: Final = pa.schema(
    [
        ("entry", pa.int64()),
        _WHEN,
        *((name, pa.string()) for name in ("cluster", "property", "conf")),
        *((name, pa.int64()) for name in ("equal_at", "differs_at")),
        ("sides", pa.list_(pa.list_(pa.string()))),
        ("explanation", pa.string()),
    ]
)
UNREADABLE: Final = pa.schema([("entry", pa.int64()), _WHEN, ("path", pa.string()), ("why", pa.string())])


class Kept(msgspec.Struct):
    """What state.bin holds."""

    query: str = ""
    """Of Spark: its batches count from 0 again if its checkpoint is removed."""
    batch: int = -1
    entry: int = 0
    told: dict[str, str] = {}
    """The last word about each cluster and property."""
    told_all_s: float = 0.0
    recent: list[tuple[float, Divergence]] = []
    """Violations, and when they were found: of those that are new, evidence may not be kept yet."""
    fold: bytes = msgspec.msgpack.encode([])
    looked_s: float = 0.0
    """When something new was last looked at."""
    unreadable: int = 0
    """Files that could not be read, or not to their end."""
    owed: list[str] = []
    """Paths of files that are tried again."""


class FollowLedger:
    """Opened by `opened`; one writer at a time."""

    def __init__(self, directory: Path, kept: Kept) -> None:
        self.directory = directory
        self.kept = kept
        self.fold = Fold.restored(kept.fold)

    @property
    def checkpoint(self) -> Path:
        return self.directory / "checkpoint"

    def knows(self, query: str, batch: int) -> bool:
        return query == self.kept.query and batch <= self.kept.batch

    def add(
        self,
        query: str,
        batch: int,
        divergences: Sequence[Divergence],
        troubles: Sequence[Trouble] = (),
        owed: Sequence[str] = (),
    ) -> list[FollowVerdict]:
        """Keep what a batch brought: violations, verdicts that changed, troubles that are new, then the state that says that they
        are kept."""
        now_s, entry = time.time(), self.kept.entry + 1
        when = {"entry": entry, "time": int(now_s * 1_000_000)}
        verdicts = self.fold.verdicts()
        changed = [one for one in verdicts if self.kept.told.get(_key(one)) != one.verdict]
        told_all_s = self.kept.told_all_s
        if now_s - told_all_s > ALL_AGAIN_S:
            changed, told_all_s = verdicts, now_s
        told = self.kept.told | {_key(one): one.verdict for one in verdicts}
        with told_of_disk(self.directory):
            self._write("violations", entry, [when | _plain(one) for one in divergences], VIOLATIONS)
            self._write("verdicts", entry, [when | one._asdict() for one in changed], VERDICTS)
            self._write("unreadable", entry, [when | {"path": one.path, "why": one.why} for one in troubles], UNREADABLE)
            last = entry if changed or divergences or troubles else self.kept.entry
            recent = [*self._recent(now_s), *((now_s, one) for one in divergences)]
            unreadable = self.kept.unreadable + len(troubles)
            figures = (self.fold.state(), now_s, unreadable, list(owed[-OWED_MAX:]))
            self.kept = Kept(query, batch, last, told, told_all_s, recent, *figures)
            replace_durably(self.directory / "state.bin", msgspec.msgpack.encode(self.kept))
        return verdicts

    def recent(self) -> list[Divergence]:
        return [divergence for _, divergence in self._recent(time.time())]

    def _recent(self, now_s: float) -> list[tuple[float, Divergence]]:
        return [(found_s, one) for found_s, one in self.kept.recent[-RECENT_MAX:] if now_s - found_s < RECENT_S]

    def _write(self, kind: str, entry: int, rows: list[dict[str, Any]], schema: pa.Schema) -> None:
        if not rows:
            return
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist(rows, schema), sink, compression="zstd")
        (self.directory / kind).mkdir(exist_ok=True)
        replace_durably(self.directory / kind / f"{entry:08}.parquet", sink.getvalue().to_pybytes())


@contextmanager
def opened(directory: Path) -> Iterator[FollowLedger]:
    """Made if it is not there. A second follower gets a PipelineError at once."""
    with told_of_disk(directory):
        directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(directory / "_lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _hold(lock, directory)
        yield FollowLedger(directory, _read(directory))
    finally:
        os.close(lock)


def _hold(lock: int, directory: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise PipelineError(f"{directory} is being written by another follower: wait for it, or give another --ledger") from error


def _read(directory: Path) -> Kept:
    try:
        kept = msgspec.msgpack.decode((directory / "state.bin").read_bytes(), type=Kept)
        Fold.restored(kept.fold)
    except FileNotFoundError as error:
        if _had_state(directory):
            raise PipelineError(f"the ledger {directory} has lost its state.bin: {BEGIN_ANEW}") from error
        return Kept()
    except (OSError, msgspec.MsgspecError, ValueError) as error:
        raise PipelineError(f"the state.bin of the ledger {directory} is damaged ({error}): {BEGIN_ANEW}") from error
    return kept


def _had_state(directory: Path) -> bool:
    """Who was killed in the very first batch left an entry, and Spark no commit; everything else comes behind a state."""
    later = any(path.stem > FIRST for kind in ("verdicts", "violations") for path in (directory / kind).glob("*.parquet"))
    return later or has_committed(directory / "checkpoint")


@contextmanager
def told_of_disk(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PipelineError(f"the ledger {directory} cannot be written ({error.strerror or error})") from error


def _key(one: FollowVerdict) -> str:
    return f"{one.cluster}\t{one.property}"


def _plain(one: Divergence) -> dict[str, Any]:
    kept = {name: value for name, value in one._asdict().items() if name in VIOLATIONS.names}
    return kept | {"conf": str(one.conf), "sides": [list(side) for side in one.sides]}
