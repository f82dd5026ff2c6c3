"""Sealed files of digests as a stream of Spark: one row per file, with its header, and its events as bytes that the driver reads.

1. Files appear under their names when they are whole, and each is read once. A late file is read when it arrives, because copies
   arrive in any order.
2. A file that cannot be read is a row that says why and whether it is worth another try, never a failed query; a file that was
   deleted since gives no row.
3. Listing happens beside the driver, decoding in tasks, because it grows with the cluster: all see the same directories.
4. Spark keeps how far a follower has read, so this is small: for every life, the numbers of its files, as in
   {"life-ann-1-00000000000000a7": "1-8640 8642"}. Spark's own source of files remembers the name of every file that it has ever
   read, and writes all of them anew every few batches.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from transis.audit.follow.divergence import DigestFile, Trouble
from transis.trace.reader import ACCEPTED, parse_segment, unknown_version
from transis.trace.segment import DIGESTS, Header, decode_rows, encode_rows
from transis.types.errors import TraceError

# --- reading ----------------------------------------------------------------------------------------------------------

GAPS_MAX: Final = 16_384
"""Numbers of one life that never came, because their files were deleted first. Beyond this many the oldest are given up."""
LIVES_MAX: Final = 4096
"""Beyond this many, lives without files are forgotten."""

Offset = dict[str, str]
Range = tuple[int, int]

_NAME: Final = re.compile(rf"(?P<life>{re.escape(DIGESTS.prefix)}.+)-(?P<number>\d{{6,18}}){re.escape(DIGESTS.suffix)}")


class Sealed(NamedTuple):
    """A sealed file, by its name."""

    life: str
    number: int


def sealed_of(name: str) -> Sealed | None:
    """None if no node gives such a name."""
    match = _NAME.fullmatch(name)
    return None if match is None else Sealed(match["life"], int(match["number"]))


class Progress:
    """An offset that can be asked and added to."""

    def __init__(self, offset: Offset) -> None:
        self._ranges = {life: _ranges_of(text) for life, text in offset.items()}

    def has(self, file: Sealed) -> bool:
        ranges = self._ranges.get(file.life, [])
        at = bisect_right(ranges, file.number, key=itemgetter(0))
        return at > 0 and file.number <= ranges[at - 1][1]

    def add(self, files: Iterable[Sealed]) -> None:
        numbers: dict[str, list[int]] = {}
        for file in files:
            numbers.setdefault(file.life, []).append(file.number)
        for life, found in numbers.items():
            joined = _joined([*self._ranges.get(life, ()), *((number, number) for number in found)])
            excess = max(0, len(joined) - 1 - GAPS_MAX)
            self._ranges[life] = [(joined[0][0], joined[excess][1]), *joined[excess + 1 :]]

    def forget_all_but(self, lives: set[str]) -> None:
        if len(self._ranges) > LIVES_MAX:
            self._ranges = {life: ranges for life, ranges in self._ranges.items() if life in lives}

    def offset(self) -> Offset:
        return {life: " ".join(map(_text_of, ranges)) for life, ranges in sorted(self._ranges.items())}


def _joined(ranges: list[Range]) -> list[Range]:
    found: list[Range] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found


def _ranges_of(text: str) -> list[Range]:
    found = (part.partition("-") for part in text.split())
    return [(int(first), int(last or first)) for first, _, last in found]


def _text_of(one: Range) -> str:
    first, last = one
    return str(first) if first == last else f"{first}-{last}"


# --- source -----------------------------------------------------------------------------------------------------------

FILES_AT_A_TIME: Final = 5000
"""Each has some kilobytes: a day of four nodes is read within minutes, whatever `--every` is."""
FILES_OF_A_TASK: Final = 250
FORMAT: Final = "transis_digests"
COLUMNS: Final = "path string, modified_us long, header binary, events binary, trouble string, may_pass boolean"
CUT_OFF: Final = "it has no seal, so its end is missing: copy it under another name and rename it when it is whole"
_BATCH: Final = pa.schema(
    [
        ("path", pa.string()),
        ("modified_us", pa.int64()),
        ("header", pa.binary()),
        ("events", pa.binary()),
        ("trouble", pa.string()),
        ("may_pass", pa.bool_()),
    ]
)


def sealed(spark: SparkSession, directories: Sequence[str], at_a_time: int = FILES_AT_A_TIME) -> DataFrame:
    """A stream of the files below these directories."""
    spark.dataSource.register(Digests)
    reader = spark.readStream.format(FORMAT).option("at_a_time", str(at_a_time))
    return reader.option("directories", msgspec.json.encode(list(directories)).decode()).load()


class Digests(DataSource):
    """Makes the stream known to Spark."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return COLUMNS

    def streamReader(self, schema: StructType) -> DigestReader:
        directories = msgspec.json.decode(self.options["directories"], type=list[str])
        return DigestReader(directories, int(self.options["at_a_time"]))


@dataclass
class Files(InputPartition):
    """What a task reads."""

    paths: list[str]


class DigestReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, directories: Sequence[str], at_a_time: int) -> None:
        self._directories = directories
        self._at_a_time = at_a_time
        self._only: dict[Sealed, str] | None = None

    def initialOffset(self) -> Offset:
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxFiles(self._at_a_time)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what is there now, and nothing that comes later."""
        self._only = self._list()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Take the oldest files first, so that nodes are read side by side and not one after the other."""
        found, progress = self._list() if self._only is None else self._only, Progress(start)
        new = sorted((_modified_us(path), file) for file, path in found.items() if not progress.has(file))
        if not new:
            return start
        most = limit.max_files if isinstance(limit, ReadMaxFiles) else len(new)
        progress.add(file for _, file in new[:most])
        progress.forget_all_but({file.life for file in found})
        return progress.offset()

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        before, after = Progress(start), Progress(end)
        paths = [path for file, path in sorted(self._list().items()) if after.has(file) and not before.has(file)]
        return [Files(paths[at : at + FILES_OF_A_TASK]) for at in range(0, len(paths), FILES_OF_A_TASK)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Files)
        rows = [row for path in partition.paths if (row := row_of(path)) is not None]
        yield pa.RecordBatch.from_pylist(rows, _BATCH)

    def _list(self) -> dict[Sealed, str]:
        """A file that is below two directories is listed once. `unlisted` says what cannot be listed."""
        found: dict[Sealed, str] = {}
        for directory in self._directories:
            for place, _, names in os.walk(directory, followlinks=True):
                found |= {file: os.path.join(place, name) for name in names if (file := sealed_of(name)) is not None}
        return found


def unlisted(directories: Sequence[str]) -> list[str]:
    """These directories, and those below them, whose files cannot be seen, each with the reason; not if it was deleted just
    now."""
    found: list[str] = []

    def note(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError) or error.filename in directories:
            found.append(f"{error.filename} cannot be listed ({error.strerror or error}): digests there are not followed")

    for directory in directories:
        for _ in os.walk(directory, onerror=note, followlinks=True):
            pass
    return found


def _modified_us(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns // 1000
    except OSError:
        return 0


def row_of(path: str) -> dict[str, Any] | None:
    row: dict[str, Any] = dict.fromkeys(_BATCH.names) | {"path": path, "modified_us": _modified_us(path), "may_pass": False}
    name = os.path.basename(path)
    try:
        with open(path, "rb") as file:
            segment = parse_segment(name, memoryview(file.read()))
        if segment.header.schema not in ACCEPTED:
            raise TraceError(f"{name}: {unknown_version(segment.header)}")
    except FileNotFoundError:
        return None
    except OSError as error:
        return row | {"trouble": f"{name}: {error.strerror or error}", "may_pass": True}
    except TraceError as error:
        return row | {"trouble": str(error)}
    row |= {"header": msgspec.msgpack.encode(segment.header), "events": encode_rows(segment.events)}
    return row if segment.footer is not None else row | {"trouble": f"{name}: {CUT_OFF}"}


def read_back(rows: Sequence[Any]) -> tuple[list[DigestFile], list[Trouble]]:
    """What the tasks found, in order of names, so that a life's files are mostly in order."""
    files, troubles = list[DigestFile](), list[Trouble]()
    for row in sorted(rows, key=lambda row: row["path"]):
        if row["trouble"] is not None:
            troubles.append(Trouble(row["path"], row["trouble"], row["may_pass"]))
        if row["header"] is None:
            continue
        header = msgspec.msgpack.decode(row["header"], type=Header)
        files.append(DigestFile(header.cluster, header.mode, header.node, row["modified_us"], decode_rows(row["events"])))
    return files, troubles
