"""Small programs that start Spark themselves, each in a process, a directory and an environment of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.cli.running import environment
from transis.spark.java import ensure_java
from transis.spark.session import archive_of

PATIENCE_S = 240


def program_environment(directory: Path, **more: str) -> dict[str, str]:
    """Temporary files and the cache are in the directory, so that a test can see what is left of them. If there is an archive of
    Java's classes, it is in the cache: each start takes half the time of a processor."""
    for name in ("tmp", "cache", "cache/transis"):
        (directory / name).mkdir(exist_ok=True)
    archive = archive_of(ensure_java())
    lent = directory / "cache" / "transis" / archive.name
    if archive.is_file() and not lent.is_symlink():
        lent.symlink_to(archive)
    kept = {name: value for name, value in environment().items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return kept | {"TMPDIR": str(directory / "tmp"), "XDG_CACHE_HOME": str(directory / "cache")} | more


def start_program(source: str, directory: Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    (directory / "cwd").mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", source],
        cwd=directory / "cwd",
        env=dict(program_environment(directory) if env is None else env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_program(source: str, directory: Path, env: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    process = start_program(source, directory, env)
    out, errors = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, errors


def left_behind(directory: Path) -> list[str]:
    """What the program left in its temporary and working directories."""
    return sorted(str(path.relative_to(directory)) for name in ("tmp", "cwd") for path in (directory / name).iterdir())
