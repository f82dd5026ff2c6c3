"""The query of `transis audit --follow`: sealed digests in; verdicts, metrics and evidence out, until somebody ends it.

1. Spark's tasks read and decode files, which grows with the cluster. What comes to the driver is a few rows per node and
   second; they are folded, kept in the ledger and shown as figures for Prometheus. Evidence follows behind.
2. Between batches the follower looks after what Spark does not: files whose read failed, directories that cannot be listed, and
   evidence whose ring files were not there yet.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from transis.audit.follow.divergence import ONE_SEQUENCE, Divergence, FollowVerdict, Trouble
from transis.audit.follow.evidence import EvidenceExport
from transis.audit.follow.ledger import FollowLedger, discard_if_damaged, id_of, opened
from transis.audit.follow.source import read_back, row_of, sealed, unlisted
from transis.audit.guarantees.property import BROKEN, NOT_EXERCISED, NOT_PROMISED
from transis.spark.inputs import is_local, local_path
from transis.spark.session import spark_session
from transis.types.errors import ConfigError, MissingExtra, PipelineError, TransisError

if TYPE_CHECKING:
    from prometheus_client.core import Metric


# --- metrics ----------------------------------------------------------------------------------------------------------


class FollowFigures(NamedTuple):
    """The figures after the last batch; never changed, so that a scrape may read them at any time."""

    verdicts: tuple[FollowVerdict, ...] = ()
    heard_us: tuple[tuple[str, str, int], ...] = ()
    """Cluster, node, and when it last sealed a file."""
    looked_s: float = 0.0
    unreadable: int = 0


class FollowMetrics:
    """Serves the latest figures until it is closed. It starts with those already known, because an alert must not go away while
    the follower starts."""

    def __init__(self, host: str, port: int, known: FollowFigures) -> None:
        library = _library()
        self.latest = known
        registry = library.CollectorRegistry()
        registry.register(self)
        try:
            self._server, self._thread = library.start_http_server(port, host, registry)
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or "no name of a host"
            raise ConfigError("metrics", f"{host}:{port}", f"cannot be opened ({why}): choose another") from error
        self.port: int = self._server.server_port

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        core = _library().core
        figures, of_property = self.latest, ("cluster", "property")
        broken = core.GaugeMetricFamily("transis_audit_broken", "1 if this guarantee was seen broken", labels=of_property)
        violations = core.CounterMetricFamily("transis_audit_violations", "Violations of this guarantee", labels=of_property)
        pending = core.GaugeMetricFamily("transis_audit_pending", "Checks that wait for evidence", labels=of_property)
        compared = core.CounterMetricFamily(
            "transis_audit_positions_compared", "Digests of one node held against another's", labels=("cluster",)
        )
        for one in figures.verdicts:
            broken.add_metric((one.cluster, one.property), int(one.verdict == BROKEN))
            violations.add_metric((one.cluster, one.property), one.violations)
            pending.add_metric((one.cluster, one.property), one.pending)
            if one.property == ONE_SEQUENCE:
                compared.add_metric((one.cluster,), one.checked)
        yield from (broken, violations, pending, compared, _ages(core, figures))
        yield core.CounterMetricFamily(
            "transis_audit_unreadable_files", "Files of digests that could not be read, or not to their end", figures.unreadable
        )
        yield core.GaugeMetricFamily(
            "transis_audit_last_batch_time_seconds", "When digests were last looked at", figures.looked_s
        )


def _ages(core: Any, figures: FollowFigures) -> Any:
    ages = core.GaugeMetricFamily(
        "transis_audit_evidence_age_seconds", "How long ago a node sealed digests", labels=("cluster", "node")
    )
    for cluster, node, heard_us in figures.heard_us:
        ages.add_metric((cluster, node), max(0.0, time.time() - heard_us / 1_000_000))
    return ages


def _library() -> Any:
    try:
        import prometheus_client
        import prometheus_client.core
    except ImportError as error:
        raise MissingExtra("--metrics", "metrics") from error
    return prometheus_client


# --- follower ---------------------------------------------------------------------------------------------------------

LOOK_S: Final = 0.5
"""How often the follower checks whether it shall end."""


class FollowedBatch(NamedTuple):
    """What a batch changed."""

    number: int
    files: int
    verdicts: list[FollowVerdict]
    divergences: list[Divergence]
    troubles: list[Trouble]
    seconds: float


Tell = Callable[[FollowedBatch | str], None]


def figures_of(ledger: FollowLedger) -> FollowFigures:
    heard = tuple((cluster, node, at) for (cluster, node), at in ledger.fold.heard_us().items())
    return FollowFigures(tuple(ledger.fold.verdicts()), heard, ledger.kept.looked_s, ledger.kept.unreadable)


class Follower:
    """Spark calls `take` in a thread of its own; work between batches takes turns with it."""

    def __init__(
        self,
        ledger: FollowLedger,
        metrics: FollowMetrics | None,
        evidence: EvidenceExport,
        directories: Sequence[str],
        tell: Tell,
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
        """How many files were looked at, and how many of them could be read to their end."""

    def run(self, query: StreamingQuery, enough: Event, every_s: float) -> None:
        """Run until the query ends by itself, or `enough` is set. A supervisor that ends us may have ended Java, too: Spark's
        errors then mean nothing, and what was kept is kept."""
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
        """Take one batch. An error here ends the query, and is reported in our words and not in Java's."""
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
        """The work between batches. Nothing is reported twice."""
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
        files, troubles = read_back(rows)
        divergences = self._ledger.fold.add(files)
        owed = [*owed, *(one.path for one in troubles if one.may_pass)]
        verdicts = self._ledger.add(query, number, divergences, troubles, owed)
        self._files += len(rows)
        self._whole += len(rows) - len(troubles)
        self._show()
        self._tell(FollowedBatch(number, len(rows), verdicts, divergences, troubles, time.monotonic() - started))
        self._evidence.keep(divergences)

    def _show(self) -> None:
        """Update the metrics."""
        if self._metrics is not None:
            self._metrics.latest = figures_of(self._ledger)

    def lacking(self) -> str | None:
        """Why nothing could be judged. If something was judged earlier, a lack of news is fine."""
        if (self._files or self._ledger.kept.owed) and not self._whole:
            return "nothing could be judged: none of the files that are new could be read to its end"
        if any(one.verdict not in (NOT_EXERCISED, NOT_PROMISED) for one in self._ledger.fold.verdicts()):
            return None
        if not self._ledger.fold.clusters:
            return f"nothing could be judged: there are no sealed digests below {', '.join(self._directories)}"
        return "nothing could be judged: no two nodes reported anything comparable; are the directories of all nodes there?"


# --- job --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FollowRequest:
    """What the command line asked for."""

    inputs: tuple[str, ...]
    ledger: Path
    every_s: int = 15
    metrics: tuple[str, int] | None = None
    once: bool = False
    master: str | None = None


class Outcome(NamedTuple):
    """What is known in the end, whether this follower found it or an earlier one."""

    verdicts: list[FollowVerdict]
    lacking: str | None
    """With --once: why nothing could be judged."""

    @property
    def is_broken(self) -> bool:
        return any(one.verdict == BROKEN for one in self.verdicts)


def follow(request: FollowRequest, tell: Tell, enough: Event, started: Callable[[], None]) -> Outcome:
    """Follow until `enough` is set, or once. `started` is called when Spark runs: starting it changes what Ctrl-C does, so a
    caller that sets `enough` by a signal must set its handlers again."""
    directories = directories_of(request.inputs)
    with ExitStack() as stack:
        ledger = stack.enter_context(opened(request.ledger))
        metrics = _opened_metrics(request, ledger, stack, tell)
        if discard_if_damaged(ledger.checkpoint):
            tell("Spark's checkpoint was damaged and begins anew: all digests that are still there are read again")
        spark = stack.enter_context(spark_session(request.master, app="transis audit --follow"))
        evidence = EvidenceExport(request.ledger, directories, tell)
        follower = Follower(ledger, metrics, evidence, directories, tell)
        try:
            started()
            evidence.explain_what_is_left()
            tell(f"following {', '.join(request.inputs)}")
            follower.run(_query(spark, request, directories, follower), enough, request.every_s)
        except BaseException:
            evidence.close(patiently=False)
            raise
        evidence.close(patiently=request.once)
    return Outcome(ledger.fold.verdicts(), follower.lacking() if request.once else None)


def _opened_metrics(request: FollowRequest, ledger: FollowLedger, stack: ExitStack, tell: Tell) -> FollowMetrics | None:
    if request.metrics is None:
        return None
    metrics = FollowMetrics(*request.metrics, figures_of(ledger))
    stack.callback(metrics.close)
    tell(f"metrics: port {metrics.port}")
    return metrics


def directories_of(inputs: Sequence[str]) -> list[str]:
    """The directories as absolute paths. PipelineError if one is not a directory, or may not be read."""
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


def _query(spark: SparkSession, request: FollowRequest, directories: Sequence[str], follower: Follower) -> StreamingQuery:
    writer = sealed(spark, directories).writeStream.foreachBatch(follower.take)
    writer = writer.option("checkpointLocation", str(Path(request.ledger).absolute() / "checkpoint"))
    every = f"{request.every_s} seconds"
    return (writer.trigger(availableNow=True) if request.once else writer.trigger(processingTime=every)).start()
