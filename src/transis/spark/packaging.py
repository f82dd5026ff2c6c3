"""What spark-submit takes, and work spread over executors.

The zip is for the executors; beside it lies the small program that starts the audit. It holds Python only: msgspec, numpy and
pyarrow are compiled, so every Python of the cluster needs them installed. Work is numbered pieces; what each of them returns is
collected here.
"""

from __future__ import annotations

import stat
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import transis
from transis.types.errors import PipelineError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

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
