"""What a follower has found, in a lake: verdicts that changed, violations, unreadable files, and the fold behind them.

    DIR/lake.json                    the last batch and the fold behind it, among others (FollowFacts)
    DIR/verdicts/batch=N/*.parquet   verdicts that changed in change N
    DIR/violations/batch=N/...       violations that were found in it
    DIR/unreadable/batch=N/...       files that could not be read, or not to their end
    DIR/checkpoint/                  Spark's own: which files were read
    DIR/evidence/N-PROPERTY-CONF/    what the flight recorders had of a violation

1. A batch of Spark is one change. After a kill Spark may give the last batch again; batches up to the one in the facts are known.
   So nothing is there twice and nothing is missing.
2. A file whose read failed, though Spark counts it as read, is owed: it is remembered until it was read or is gone.
3. Spark's checkpoint may be thrown away at any time. A power cut can damage it, and then Spark would refuse every start; so a
   damaged one is made anew. All files that are still there are read again, and the fold ignores those that it knows.
"""

from __future__ import annotations

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

from transis.audit.follow.divergence import Divergence, FollowVerdict, Trouble
from transis.audit.follow.fold import Fold
from transis.audit.plans.lake import Lake
from transis.trace.files import rename
from transis.types.errors import PipelineError

# --- checkpoint -------------------------------------------------------------------------------------------------------

LOGS: Final = ("offsets", "commits")
_SUMMED: Final = 512
_HEAD: Final = len(b"crc\0") + 4


def id_of(checkpoint: Path) -> str:
    """The id of the query: a new checkpoint has a new one, and counts batches from 0 again."""
    try:
        metadata: dict[str, Any] = msgspec.json.decode((checkpoint / "metadata").read_bytes(), type=dict[str, Any])
        return str(metadata["id"])
    except (OSError, msgspec.MsgspecError, KeyError) as error:
        raise PipelineError(f"the ledger {checkpoint.parent} has lost Spark's checkpoint ({error})") from error


def discard_if_damaged(checkpoint: Path) -> bool:
    """True if the checkpoint was damaged; it is then removed."""
    try:
        if not checkpoint.exists() or _is_sound(checkpoint):
            return False
        aside = checkpoint.with_name(".damaged")
        shutil.rmtree(aside, ignore_errors=True)
        rename(checkpoint, aside)
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
    """Whether a file is a version, then lines of JSON; a dash stands for nothing."""
    version, *lines = path.read_bytes().split(b"\n")
    return bool(re.fullmatch(rb"v\d+", version) and lines) and all(line == b"-" or _is_json(line) for line in lines)


def _is_json(content: bytes) -> bool:
    try:
        msgspec.json.decode(content)
    except msgspec.DecodeError:
        return False
    return True


def _agrees_with_its_sum(path: Path) -> bool:
    """Java keeps checksums of pieces beside every file, and refuses to read a file that differs from them."""
    sums = path.with_name(f".{path.name}.crc")
    if not sums.exists():
        return True
    content = path.read_bytes()
    pieces = (content[at : at + _SUMMED] for at in range(0, len(content), _SUMMED))
    return sums.read_bytes()[_HEAD:] == b"".join(zlib.crc32(piece).to_bytes(4, "big") for piece in pieces)


# --- ledger -----------------------------------------------------------------------------------------------------------

ALL_AGAIN_S: Final = 3600
"""How often all verdicts are written, changed or not, so that silence means that nobody follows."""
RECENT_S: Final = 3600.0
RECENT_MAX: Final = 100
OWED_MAX: Final = 4096
"""Files that are tried again; if there are more, the oldest are given up. That they were not read was reported."""

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


class FollowFacts(msgspec.Struct):
    """What the lake keeps beside the tables."""

    query: str = ""
    """Spark's query, which counts batches from 0 again if its checkpoint is removed."""
    batch: int = -1
    told: dict[str, str] = {}
    """The last verdict written for each cluster and property."""
    told_all_s: float = 0.0
    recent: list[tuple[float, Divergence]] = []
    """Violations, and when they were found; evidence of new ones may not be kept yet."""
    fold: bytes = msgspec.msgpack.encode([])
    looked_s: float = 0.0
    """When something new was last looked at."""
    unreadable: int = 0
    """Files that could not be read, or not to their end."""
    owed: list[str] = []
    """Paths of files that are tried again."""


class FollowLedger:
    """Opened by `opened`; one writer at a time."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self.kept = lake.facts(lake.state(), FollowFacts)
        try:
            self.fold = Fold.restored(self.kept.fold)
        except (msgspec.MsgspecError, ValueError) as error:
            raise lake.damaged(error) from error

    @property
    def checkpoint(self) -> Path:
        return self._lake.path / "checkpoint"

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
        """Keep what a batch brought: violations, verdicts that changed, files that could not be read, and where to go on."""
        now_s, verdicts = time.time(), self.fold.verdicts()
        changed = [one for one in verdicts if self.kept.told.get(_key(one)) != one.verdict]
        told_all_s = self.kept.told_all_s
        if now_s - told_all_s > ALL_AGAIN_S:
            changed, told_all_s = verdicts, now_s
        told = self.kept.told | {_key(one): one.verdict for one in verdicts}
        recent = [*self._recent(now_s), *((now_s, one) for one in divergences)]
        figures = (self.fold.state(), now_s, self.kept.unreadable + len(troubles), list(owed[-OWED_MAX:]))
        after = FollowFacts(query, batch, told, told_all_s, recent, *figures)
        with self._lake.change() as change:
            when = {"entry": change.number, "time": int(now_s * 1_000_000)}
            tables = {
                "violations": ([when | _plain(one) for one in divergences], VIOLATIONS),
                "verdicts": ([when | one._asdict() for one in changed], VERDICTS),
                "unreadable": ([when | {"path": one.path, "why": one.why} for one in troubles], UNREADABLE),
            }
            for table, (rows, schema) in tables.items():
                if rows:
                    change.add_rows(table, pa.Table.from_pylist(rows, schema))
            change.keep(after)
        self.kept = after
        return verdicts

    def recent(self) -> list[Divergence]:
        return [divergence for _, divergence in self._recent(time.time())]

    def _recent(self, now_s: float) -> list[tuple[float, Divergence]]:
        return [(found_s, one) for found_s, one in self.kept.recent[-RECENT_MAX:] if now_s - found_s < RECENT_S]


@contextmanager
def opened(directory: Path) -> Iterator[FollowLedger]:
    """The ledger, made if it is not there. A second follower gets a PipelineError at once."""
    lake = Lake(directory, "ledger", "--ledger")
    with lake.held():
        yield FollowLedger(lake)


def _key(one: FollowVerdict) -> str:
    return f"{one.cluster}\t{one.property}"


def _plain(one: Divergence) -> dict[str, Any]:
    kept = {name: value for name, value in one._asdict().items() if name in VIOLATIONS.names}
    return kept | {"conf": str(one.conf), "sides": [list(side) for side in one.sides]}
