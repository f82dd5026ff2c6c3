"""What a follower does with every batch, and between batches. In a batch: fold, ledger, metric; evidence comes behind.

Between batches it looks after what Spark does not: files whose read failed, directories that cannot be listed, evidence for which
the films were not there yet.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Event, Lock
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from transis.model.guarantees import NOT_EXERCISED, NOT_PROMISED
from transis.pipeline.follow.checkpoint import id_of
from transis.pipeline.follow.evidence import Evidence
from transis.pipeline.follow.ledger import FollowLedger
from transis.pipeline.follow.metrics import Figures, FollowMetrics
from transis.pipeline.follow.source import read_back, row_of, unlisted
from transis.pipeline.follow.telling import Divergence, FollowVerdict, Trouble
from transis.types.errors import TransisError

LOOK_S: Final = 0.5
"""How often it is looked whether somebody wants an end."""


class Batch(NamedTuple):
    """What is told of a batch."""

    number: int
    files: int
    verdicts: list[FollowVerdict]
    divergences: list[Divergence]
    troubles: list[Trouble]
    seconds: float


Tell = Callable[[Batch | str], None]


def figures_of(ledger: FollowLedger) -> Figures:
    heard = tuple((cluster, node, at) for (cluster, node), at in ledger.fold.heard_us().items())
    return Figures(tuple(ledger.fold.verdicts()), heard, ledger.kept.looked_s, ledger.kept.unreadable)


class Follower:
    """Spark calls `take` in a thread of its own; what is between batches takes turns with it."""

    def __init__(
        self, ledger: FollowLedger, metrics: FollowMetrics | None, evidence: Evidence, directories: Sequence[str], tell: Tell
    ) -> None:
        self._ledger = ledger
        self._metrics = metrics
        self._evidence = evidence
        self._directories = directories
        self._tell = tell
        self._turn = Lock()
        self._failure: TransisError | None = None
        self._unlisted: set[str] = set()
        self._files = self._whole = 0
        """Files that were looked at, and that could be read to their end."""

    def run(self, query: StreamingQuery, enough: Event, every_s: float) -> None:
        """Until the query ends by itself, or nobody wants more of it. A supervisor that ends us may have ended Java, too: what
        Spark says of that is no news, and what was kept is kept."""
        try:
            self._watch(query, enough, every_s)
        except TransisError:
            raise
        except Exception:
            if not enough.is_set():
                raise

    def _watch(self, query: StreamingQuery, enough: Event, every_s: float) -> None:
        try:
            self.look()
            looked = time.monotonic()
            while query.isActive and not enough.wait(LOOK_S):
                if time.monotonic() - looked >= every_s:
                    self.look()
                    looked = time.monotonic()
        finally:
            query.stop()
        if self._failure is not None:
            raise self._failure
        failed = query.exception()
        if failed is not None:
            raise failed

    def take(self, files: DataFrame, number: int) -> None:
        """One batch. What goes wrong here ends the query, and is told in our words and not in Java's."""
        try:
            with self._turn:
                query = id_of(self._ledger.checkpoint)
                if not self._ledger.knows(query, number):
                    started = time.monotonic()
                    self._fold(files.collect(), query, number, self._ledger.kept.owed, started)
        except TransisError as error:
            self._failure = error
            raise

    def look(self) -> None:
        """Between batches. What was told once is not told again."""
        with self._turn:
            now = set(unlisted(self._directories))
            for one in sorted(now - self._unlisted):
                self._tell(one)
            self._unlisted = now
            self._read_again()
            self._evidence.keep(self._ledger.recent())

    def _read_again(self) -> None:
        """Files whose read failed. Those that fail again stay owed; those that are gone are not."""
        started, kept = time.monotonic(), self._ledger.kept
        rows = {path: row_of(path) for path in kept.owed}
        owed = [path for path, row in rows.items() if row is not None and row["may_pass"]]
        if owed != kept.owed:
            found = [row for path, row in rows.items() if row is not None and path not in owed]
            self._fold(found, kept.query, kept.batch, owed, started)

    def _fold(self, rows: Sequence[Any], query: str, number: int, owed: Sequence[str], started: float) -> None:
        told, troubles = read_back(rows)
        divergences = self._ledger.fold.add(told)
        owed = [*owed, *(one.path for one in troubles if one.may_pass)]
        verdicts = self._ledger.add(query, number, divergences, troubles, owed)
        self._files += len(rows)
        self._whole += len(rows) - len(troubles)
        self._show()
        self._tell(Batch(number, len(rows), verdicts, divergences, troubles, time.monotonic() - started))
        self._evidence.keep(divergences)

    def _show(self) -> None:
        """The metric, from what is known."""
        if self._metrics is not None:
            self._metrics.latest = figures_of(self._ledger)

    def lacking(self) -> str | None:
        """Why nothing can be said of what was looked at. That nothing is new is no lack where something was judged earlier."""
        if (self._files or self._ledger.kept.owed) and not self._whole:
            return "nothing could be judged: none of the files that are new could be read to its end"
        if any(one.verdict not in (NOT_EXERCISED, NOT_PROMISED) for one in self._ledger.fold.verdicts()):
            return None
        if not self._ledger.fold.clusters:
            return f"nothing could be judged: there are no sealed digests below {', '.join(self._directories)}"
        return "nothing could be judged: no two nodes told anything that can be compared; are the directories of all nodes there?"
