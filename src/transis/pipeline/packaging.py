"""The package as files that `spark-submit` takes: a zip for the executors and the small program that starts the audit.

Only Python is inside. msgspec, numpy and pyarrow are compiled, so every Python of the cluster needs them installed.
"""

from __future__ import annotations

import stat
import zipfile
from pathlib import Path
from typing import Final

import transis
from transis.types.errors import PipelineError

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
