"""Where Spark runs, how it is set for an input of a given size, what spark-submit takes, and work spread over executors.

The zip is for the executors; beside it lies the small program that starts the audit. It holds Python only: msgspec, numpy and
pyarrow are compiled, so every Python of the cluster needs them installed. Work is numbered pieces; what each of them returns is
collected here.
"""

from __future__ import annotations

import os
import re
import socket
import stat
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import transis
from transis.types.errors import ConfigError, PipelineError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


# --- masters ----------------------------------------------------------------------------------------------------------

LOCAL: Final = "local[*]"
ALLOWED: Final = (
    "must be local, local[N], local[*] or spark://HOST:PORT; for other clusters use transis package-job and spark-submit"
)
PATIENCE_S: Final = 5.0
"""For a master to accept a connection."""

_LOCAL: Final = re.compile(r"local(?:\[(\*|\d{1,4})\])?")
_CLUSTER: Final = re.compile(r"spark://(?P<hosts>[^\s/,]+:\d{1,5}(?:,[^\s/,]+:\d{1,5})*)")


class Master(NamedTuple):
    url: str
    cores: int | None
    """How many cores this machine gives; None on a cluster, which decides for itself."""
    our_address: str
    """Where the workers find the driver, and where it listens."""

    @property
    def is_local(self) -> bool:
        return self.cores is not None


def read_master(text: str) -> Master:
    """Raises ConfigError if it is not a master, PipelineError if nobody answers there: Spark itself would try for a minute."""
    if local := _LOCAL.fullmatch(text):
        cores = usable_cores() if local[1] == "*" else int(local[1] or 1)
        if cores > 0:
            return Master(text, cores, "127.0.0.1")
    elif cluster := _CLUSTER.fullmatch(text):
        return Master(text, None, _our_address(cluster["hosts"].split(",")))
    raise ConfigError("master", text, ALLOWED)


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _our_address(masters: list[str]) -> str:
    """The address by which this machine reaches the first master that answers."""
    reason = ""
    for master in masters:
        host, _, port = master.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), PATIENCE_S) as connection:
                return str(connection.getsockname()[0])
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
    raise PipelineError(f"no Spark master answers at {', '.join(masters)} ({reason}): is it running, and is the address right?")


# --- sizing -----------------------------------------------------------------------------------------------------------

MIB: Final = 1 << 20
GIB: Final = 1 << 30

SMALL: Final = 64 * MIB
"""Bytes of input below which a job is mostly Java warming up."""
TINY: Final = 4 * MIB
"""Below it a second task costs more than it does."""
BYTES_PER_PARTITION: Final = 32 * MIB
"""Of input, for one task of a shuffle: small enough to be sorted in memory, and many more would only cost."""
PARTITIONS_PER_CORE: Final = 4
"""At least so many in a large job, so that a slow one does not keep the others waiting."""
CORES_OF_A_CLUSTER: Final = 4
"""What is assumed where Spark will not say before it has started."""

QUICKLY_PLANNED: Final = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.buffer.pageSize": "1m",
}
"""Of many joins and windows over little data, most time went into compiling classes that ran once: 266 s of a processor with,
109 s without. Without constraints of constraints, planning takes an eighth less again. Every sort and every
sum begins with a page of memory, a large one by default, which must be cleared and collected: that took a tenth."""
COMPILED_QUICKLY: Final = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=256m", "-XX:+UseSerialGC")
"""They took half the time of a processor on such a plan: the better compiler never earns what it costs. The quick one is given so
little room by default that it throws away what it compiled and compiles it again."""
UNTRACED: Final = {
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.dataFrameQueryContext.enabled": "false",
}
"""Otherwise every column and every table asks where in a program it was made, for the text of an error."""

HEAP_MIN: Final = GIB
HEAP_MAX: Final = 5 * GIB
"""Java takes a GiB or so beside its heap and the Python workers half a GiB each: together they stay under 8 GiB."""
HEAP_TINY: Final = 2 * GIB


def settings_for(size: int, cores: int | None) -> dict[str, str]:
    """Settings that a session can have wherever it runs; `cores` are those of a local master, None is a cluster."""
    chosen = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(shuffle_partitions(size, cores)),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
        **UNTRACED,
    }
    return chosen | QUICKLY_PLANNED if size < SMALL else chosen


def options_for(size: int) -> list[str]:
    """Options of the driver's Java and of executors'. Without UsePerfData nothing is left in the system's temporary directory."""
    return [*(COMPILED_QUICKLY if size < SMALL else ()), "-XX:-UsePerfData"]


def shuffle_partitions(size: int, cores: int | None) -> int:
    """One for a tiny input, as many as there are cores for a small one; for a large one as its size asks for, at least a few for
    each core."""
    if size < SMALL:
        return 1 if size < TINY else cores or CORES_OF_A_CLUSTER
    return max((cores or CORES_OF_A_CLUSTER) * PARTITIONS_PER_CORE, -(-size // BYTES_PER_PARTITION))


def heap(size: int, memory: int | None = None) -> int:
    """A third of the machine's memory, within bounds."""
    third = (machine_memory() if memory is None else memory) // 3
    return max(HEAP_MIN, min(third, HEAP_TINY if size < TINY else HEAP_MAX))


def machine_memory() -> int:
    """Bytes that this process may use: the machine's, or what its container is allowed."""
    installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        allowed = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return installed
    return min(installed, int(allowed)) if allowed.isdigit() else installed


# --- packaging --------------------------------------------------------------------------------------------------------

ARCHIVE: Final = "transis-job.zip"
ENTRY: Final = "audit_job.py"
EARLIEST: Final = (1980, 1, 1, 0, 0, 0)
"""The time of every file in the zip: the same package makes the same bytes."""

PROGRAM: Final = '''"""Audits traces on a Spark cluster: spark-submit --py-files transis-job.zip audit_job.py DIR ..."""

import sys

from transis.audit.job import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
'''


def write_job(directory: Path) -> tuple[Path, Path]:
    """Writes the zip and the program into a directory, which is made if need be; both paths."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        archive = write_archive(directory / ARCHIVE)
        entry = directory / ENTRY
        entry.write_text(PROGRAM, encoding="utf-8")
    except OSError as error:
        raise PipelineError(f"{directory} cannot be written: {error.strerror or error}") from error
    return archive, entry


def write_archive(path: Path) -> Path:
    """All source files of the package, in order."""
    root = Path(transis.__file__).parent
    files = sorted(file for file in root.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            entry = zipfile.ZipInfo(file.relative_to(root.parent).as_posix(), EARLIEST)
            entry.external_attr = (stat.S_IFREG | 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, file.read_bytes())
    return path


# --- spread -----------------------------------------------------------------------------------------------------------

Work = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]
"""Runs on an executor: numbers of pieces come in, one in a batch; rows go out."""


class Executors:
    """The executors of a session, for rooms that need nothing else of Spark."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @property
    def cores(self) -> int:
        """How many tasks run at a time, as far as Spark knows by now: executors of a cluster may still be starting."""
        return self._spark.sparkContext.defaultParallelism

    def run(self, work: Work, pieces: int, columns: str) -> pa.Table:
        """One task for every piece, numbered from 0; the rows of all. Several threads may ask at once: what one of them leaves
        idle, tasks of the others use."""
        return self._spark.range(0, pieces, 1, pieces).mapInArrow(work, columns).toArrow()
