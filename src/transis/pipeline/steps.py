"""What the pipeline is doing right now, for a person who waits: one line on a terminal, nothing in a log file."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple, TextIO


class Step(NamedTuple):
    words: str
    seconds: float


class Steps:
    """`with steps("reading 12 segments"): ...` shows the words and the time so far, and keeps how long it took."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.taken: list[Step] = []
        self._stream = sys.stderr if stream is None else stream

    @contextmanager
    def __call__(self, words: str) -> Iterator[None]:
        started = time.monotonic()
        with self._line(words):
            yield
        self.taken.append(Step(words, time.monotonic() - started))

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
