"""The query of `transis audit --follow`: sealed digests in, verdicts, metrics and evidence out, for as long as it is wanted.

Reading and decoding files, which grows with the cluster, is done by Spark's tasks; a batch is then a few rows a node and second,
which are folded here. In a batch: fold, ledger, metric; evidence comes behind.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, Final, NamedTuple

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from transis.model.errors import PipelineError, TransisError
from transis.model.guarantees import BROKEN
from transis.pipeline.follow.evidence import Evidence
from transis.pipeline.follow.ledger import FollowLedger, opened
from transis.pipeline.follow.metrics import Figures, FollowMetrics
from transis.pipeline.follow.source import Trouble, read_back, sealed
from transis.pipeline.follow.telling import Divergence, FollowVerdict
from transis.pipeline.ingest import is_local, local_path
from transis.pipeline.session import spark_session

LOOK_S: Final = 0.5
"""How often it is looked whether somebody wants an end."""


@dataclass(frozen=True)
class FollowWish:
    """What somebody asks for."""

    inputs: tuple[str, ...]
    ledger: Path
    every_s: int = 15
    metrics: tuple[str, int] | None = None
    once: bool = False
    master: str | None = None


class Batch(NamedTuple):
    """What is told of a batch."""

    number: int
    files: int
    verdicts: list[FollowVerdict]
    divergences: list[Divergence]
    troubles: list[Trouble]
    seconds: float


Tell = Callable[[Batch | str], None]


def follow(wish: FollowWish, tell: Tell, enough: Event, started: Callable[[], None]) -> bool:
    """Follow until `enough` is set, or once; True if anything is broken, now or earlier. `started` is called when Spark runs: it
    changes what Ctrl-C does, and whoever sets `enough` by a signal must set that again."""
    directories = _directories(wish.inputs)
    with ExitStack() as stack:
        ledger = stack.enter_context(opened(wish.ledger))
        metrics = FollowMetrics(*wish.metrics) if wish.metrics is not None else None
        if metrics is not None:
            stack.callback(metrics.close)
            tell(f"metrics: port {metrics.port}")
        spark = stack.enter_context(spark_session(wish.master, app="transis audit --follow"))
        evidence = Evidence(wish.ledger, directories, tell)
        follower = Follower(ledger, metrics, evidence, tell)
        follower.show()
        try:
            started()
            tell(f"following {', '.join(wish.inputs)}")
            evidence.keep(ledger.recent())
            follower.run(_query(spark, wish, directories, follower), enough)
        except BaseException:
            evidence.close(patiently=False)
            raise
        evidence.close(patiently=wish.once)
    return any(one.verdict == BROKEN for one in ledger.fold.verdicts())


def _directories(inputs: Sequence[str]) -> list[str]:
    for one in inputs:
        if not is_local(one):
            raise PipelineError(f"{one}: only a local or mounted directory can be followed; copy or mount it")
        if not os.path.isdir(local_path(one)):
            raise PipelineError(f"{one}: there is no such directory; name those to which nodes write their digests ([flight])")
    return [os.path.abspath(local_path(one)) for one in inputs]


def _query(spark: SparkSession, wish: FollowWish, directories: Sequence[str], follower: Follower) -> StreamingQuery:
    writer = sealed(spark, directories).writeStream.foreachBatch(follower.take)
    writer = writer.option("checkpointLocation", str(Path(wish.ledger).absolute() / "checkpoint"))
    return (writer.trigger(availableNow=True) if wish.once else writer.trigger(processingTime=f"{wish.every_s} seconds")).start()


class Follower:
    """What happens with every batch."""

    def __init__(self, ledger: FollowLedger, metrics: FollowMetrics | None, evidence: Evidence, tell: Tell) -> None:
        self._ledger = ledger
        self._metrics = metrics
        self._evidence = evidence
        self._tell = tell
        self._failure: TransisError | None = None

    def run(self, query: StreamingQuery, enough: Event) -> None:
        """Until the query ends by itself, or nobody wants more of it. A supervisor that ends us may have ended Java, too: what
        Spark says of that is no news, and what was kept is kept."""
        try:
            self._watch(query, enough)
        except TransisError:
            raise
        except Exception:
            if not enough.is_set():
                raise

    def _watch(self, query: StreamingQuery, enough: Event) -> None:
        while query.isActive and not enough.wait(LOOK_S):
            pass
        query.stop()
        if self._failure is not None:
            raise self._failure
        failed = query.exception()
        if failed is not None:
            raise failed

    def take(self, files: DataFrame, number: int) -> None:
        """One batch. What goes wrong here ends the query, and is told in our words and not in Java's."""
        try:
            self._take(files, number)
        except TransisError as error:
            self._failure = error
            raise

    def _take(self, files: DataFrame, number: int) -> None:
        query = self._query_id()
        if self._ledger.knows(query, number):
            self.show()
            return
        started = time.monotonic()
        rows = files.collect()
        told, troubles = read_back(rows)
        divergences = self._ledger.fold.add(told)
        verdicts = self._ledger.add(query, number, divergences)
        self.show()
        self._tell(Batch(number, len(rows), verdicts, divergences, troubles, time.monotonic() - started))
        self._evidence.keep(divergences)

    def show(self) -> None:
        """The metric, from what is known."""
        if self._metrics is not None:
            fold = self._ledger.fold
            heard = tuple((cluster, node, at) for (cluster, node), at in fold.heard_us().items())
            self._metrics.latest = Figures(tuple(fold.verdicts()), heard, time.time())

    def _query_id(self) -> str:
        """By Spark's checkpoint: a new one counts batches from 0 again."""
        try:
            metadata: dict[str, Any] = msgspec.json.decode((self._ledger.checkpoint / "metadata").read_bytes())
            return str(metadata["id"])
        except (OSError, msgspec.DecodeError, KeyError) as error:
            raise PipelineError(f"the ledger {self._ledger.directory} has lost Spark's checkpoint ({error})") from error
