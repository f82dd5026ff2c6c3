"""`python -m transis.daemon.convert SEGMENT DIRECTORY`: one segment to Parquet, in a process beside the daemon.

The tables are written aside and moved in place when all are there, `segments` last, so that a reader never meets half a table and
the daemon knows by that one whether a segment was converted.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from transis.net.evidence import CONVERTED
from transis.trace.columns import convert
from transis.trace.files import rename
from transis.types.errors import TransisError


def convert_aside(segment: Path, directory: Path) -> None:
    aside = directory / f".converting-{segment.stem}"
    shutil.rmtree(aside, ignore_errors=True)  # What a conversion left behind that was killed.
    try:
        written = convert(segment, aside)
        for table in sorted(written, key=lambda name: (name == CONVERTED, name)):
            rename(written[table], directory / written[table].name)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def main(arguments: list[str]) -> int:
    try:
        convert_aside(Path(arguments[0]), Path(arguments[1]))
    except (TransisError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
