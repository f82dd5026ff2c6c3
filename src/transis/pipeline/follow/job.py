"""The query of `transis audit --follow`: sealed digests in, verdicts, metrics and evidence out, for as long as it is wanted.

Reading and decoding files, which grows with the cluster, is done by Spark's tasks; a batch is then a few rows a node and second,
which are folded here (follower.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from transis.model.guarantees import BROKEN
from transis.pipeline.follow.checkpoint import discard_if_damaged
from transis.pipeline.follow.evidence import Evidence
from transis.pipeline.follow.follower import Follower, Tell, figures_of
from transis.pipeline.follow.ledger import FollowLedger, opened
from transis.pipeline.follow.metrics import FollowMetrics
from transis.pipeline.follow.source import sealed
from transis.pipeline.follow.telling import FollowVerdict
from transis.pipeline.ingest import is_local, local_path
from transis.pipeline.session import spark_session
from transis.types.errors import PipelineError


@dataclass(frozen=True)
class FollowWish:
    """What somebody asks for."""

    inputs: tuple[str, ...]
    ledger: Path
    every_s: int = 15
    metrics: tuple[str, int] | None = None
    once: bool = False
    master: str | None = None


class Outcome(NamedTuple):
    """What is known in the end, whether this follower found it or one before it."""

    verdicts: list[FollowVerdict]
    lacking: str | None
    """Why nothing can be said, where somebody looked once and found nothing that could be judged."""

    @property
    def is_broken(self) -> bool:
        return any(one.verdict == BROKEN for one in self.verdicts)


def follow(wish: FollowWish, tell: Tell, enough: Event, started: Callable[[], None]) -> Outcome:
    """Follow until `enough` is set, or once. `started` is called when Spark runs: it changes what Ctrl-C does, and whoever sets
    `enough` by a signal must set that again."""
    directories = directories_of(wish.inputs)
    with ExitStack() as stack:
        ledger = stack.enter_context(opened(wish.ledger))
        metrics = _opened_metrics(wish, ledger, stack, tell)
        if discard_if_damaged(ledger.checkpoint):
            tell("Spark's checkpoint was damaged and begins anew: all digests that are still there are read again")
        spark = stack.enter_context(spark_session(wish.master, app="transis audit --follow"))
        evidence = Evidence(wish.ledger, directories, tell)
        follower = Follower(ledger, metrics, evidence, directories, tell)
        try:
            started()
            evidence.explain_what_is_left()
            tell(f"following {', '.join(wish.inputs)}")
            follower.run(_query(spark, wish, directories, follower), enough, wish.every_s)
        except BaseException:
            evidence.close(patiently=False)
            raise
        evidence.close(patiently=wish.once)
    return Outcome(ledger.fold.verdicts(), follower.lacking() if wish.once else None)


def _opened_metrics(wish: FollowWish, ledger: FollowLedger, stack: ExitStack, tell: Tell) -> FollowMetrics | None:
    if wish.metrics is None:
        return None
    metrics = FollowMetrics(*wish.metrics, figures_of(ledger))
    stack.callback(metrics.close)
    tell(f"metrics: port {metrics.port}")
    return metrics


def directories_of(inputs: Sequence[str]) -> list[str]:
    """As whole paths. What is no directory, or one that may not be read, is a PipelineError."""
    for one in inputs:
        if not is_local(one):
            raise PipelineError(f"{one}: only a local or mounted directory can be followed; copy or mount it")
        if not os.path.isdir(local_path(one)):
            raise PipelineError(f"{one}: there is no such directory; name those to which nodes write their digests ([flight])")
        try:
            os.scandir(local_path(one)).close()
        except OSError as error:
            raise PipelineError(f"{one} cannot be listed ({error.strerror or error}): let the follower read it") from error
    return [os.path.abspath(local_path(one)) for one in inputs]


def _query(spark: SparkSession, wish: FollowWish, directories: Sequence[str], follower: Follower) -> StreamingQuery:
    writer = sealed(spark, directories).writeStream.foreachBatch(follower.take)
    writer = writer.option("checkpointLocation", str(Path(wish.ledger).absolute() / "checkpoint"))
    return (writer.trigger(availableNow=True) if wish.once else writer.trigger(processingTime=f"{wish.every_s} seconds")).start()
