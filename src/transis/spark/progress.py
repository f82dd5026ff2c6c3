"""What Spark is doing now, for a person who waits, and its failures as one sentence each.

1. Progress is one line on a terminal, and nothing in a log file.
2. A failure that a user can cause has a sentence of its own; of any other the first line is shown. The whole text goes to Spark's
   log, and the sentence says where that is: a wrong path must not end in a stack trace of Java.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO

from transis.types.errors import MissingExtra, PipelineError

# --- failures ---------------------------------------------------------------------------------------------------------

WHAT_TO_DO: Final[tuple[tuple[str, str], ...]] = (
    (r"No space left on device", "the disk is full where Spark keeps its working files ({temporary}): make room, or set TMPDIR"),
    (r"Path does not exist: (?:file:)?(?P<what>\S+?)\.?(?:\s|$)", "there is nothing at {what}"),
    (r"(?P<what>/[^\s\"':,()]+) \(Permission denied\)", "no permission for {what}"),
    (r"(?:Permission denied|AccessControlException).*?(?P<what>/[^\s\"':,()]+)", "no permission for {what}"),
    (r"Permission denied|AccessControlException", "no permission for a file that the job reads or writes"),
    (r"FileNotFoundException: (?:File )?(?:file:)?(?P<what>\S+)", "{what} is not there, or no longer"),
    (
        r"No FileSystem for scheme \"(?P<what>[\w-]+)\"|Class (?P<other>org\.apache\.hadoop\.fs\.[\w.]+) not found",
        "this Spark cannot read that kind of address: give it the Hadoop connector for {what}",
    ),
    (r"ParentNotDirectoryException: [^/]*(?:file:)?(?P<what>/\S+)", "{what} is a file, not a directory"),
    (r"Mkdirs failed to create (?:file:)?(?P<what>\S+?)(?:/_temporary\S*)?\s", "{what} cannot be made"),
    (r"UnknownHostException: (?P<what>[^\s:]+)", "there is no host {what}"),
    (r"Call From .* to (?P<what>\S+) failed on connection exception", "nobody answers at {what}"),
    (r"All masters are unresponsive|Master removed our application", "the Spark master does not answer, or ended the job"),
    (
        r"Python in worker has different version",
        "the workers run a different version of Python: set PYSPARK_PYTHON to one of the same version",
    ),
    (
        r"ModuleNotFoundError: No module named '(?P<what>[\w.]+)'",
        "the Python of the workers lacks {what}: install it on every worker (docs/pipeline.md)",
    ),
    (
        r"Cannot run program \"(?P<what>[^\"]+)\"",
        "the workers cannot start {what}: set PYSPARK_PYTHON to a Python that they have",
    ),
    (r"OutOfMemoryError|GC overhead limit", "Spark ran out of memory: give the job a larger machine, or fewer runs at a time"),
    (
        r"(?P<what>[^\s\"']+) is not a Parquet file|Could not read footer for file: *(?P<other>\S+)",
        "{what} is not a Parquet file, or only a part of one",
    ),
    (r"Connection refused", "the connection was refused: is the address right, and does anybody listen there?"),
    (
        r"\[FAILED_READ_FILE\.NO_HINT\] Encountered error while reading file (?:file://)?(?P<what>\S+?)\.\s",
        "{what} is damaged: put a good copy in its place, or move it away",
    ),
)
"""Patterns for the text of a failure, each with its sentence; the first pattern found counts."""

BY_PY4J: Final = "An error occurred while calling"
"""The beginning of a line that says nothing."""


def require_spark() -> None:
    """Raises MissingExtra where pyspark is not installed. Call it before importing any other module of this room."""
    try:
        import pyspark  # noqa: F401
    except ImportError as error:
        raise MissingExtra("the pipeline", "spark") from error


@contextmanager
def plain_failures(log: Path | None = None) -> Iterator[None]:
    """Turns failures of Spark into PipelineError. Use it while the session still runs: the text comes from Spark."""
    require_spark()
    from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except Py4JJavaError as error:
        raise _plain_error(_java_text(error), log) from error
    except PySparkException as error:
        raise _plain_error(f"{error}\n{_causes(error)}", log) from error
    except (Py4JError, ConnectionError) as error:
        raise PipelineError(f"Spark's Java process ended unexpectedly{_where(log)}") from error


def sentence_for(text: str) -> str:
    """The sentence for a failure that is known, else the first line of its text."""
    for pattern, sentence in WHAT_TO_DO:
        if found := re.search(pattern, text):
            named = found.groupdict()
            what = named.get("what") or named.get("other") or ""
            return sentence.format(what=what, temporary=tempfile.gettempdir())
    lines = [line.strip(": ") for line in text.splitlines() if line.strip() and not line.startswith(BY_PY4J)]
    return f"Spark failed: {lines[0] if lines else 'it does not say why'}"


def _plain_error(text: str, log: Path | None) -> PipelineError:
    if log is not None:
        with log.open("a", encoding="utf-8", errors="replace") as file:
            file.write(f"\n{text}\n")
    return PipelineError(f"{sentence_for(text)}{_where(log)}")


def _where(log: Path | None) -> str:
    return f" (Spark's log: {log})" if log is not None else ""


def _java_text(error: Exception) -> str:
    """An exception of Java with its causes; Java itself has to be asked for it, and may be gone."""
    try:
        return str(error)
    except Exception:
        return "Spark's Java process ended unexpectedly"


def _causes(error: Any) -> str:
    """Spark shows the outermost exception of a failed query; the file's name is often only further inside."""
    return str(getattr(error, "_stackTrace", ""))


# --- steps ------------------------------------------------------------------------------------------------------------


class JobStep(NamedTuple):
    words: str
    seconds: float


class StepTimer:
    """`with steps("reading 12 segments"): ...` shows the words and the time so far, and keeps how long it took."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.taken: list[JobStep] = []
        self._stream = sys.stderr if stream is None else stream

    @contextmanager
    def __call__(self, words: str) -> Iterator[None]:
        started = time.monotonic()
        with self._line(words):
            yield
        self.taken.append(JobStep(words, time.monotonic() - started))

    def say(self, words: str) -> None:
        """A line that stays."""
        self._stream.write(f"{words}\n")
        self._stream.flush()

    def _line(self, words: str) -> AbstractContextManager[object]:
        if not self._stream.isatty():
            return nullcontext()
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
        progress = Progress(*columns, console=Console(file=self._stream), transient=True)
        progress.add_task(words, total=None)
        return progress
