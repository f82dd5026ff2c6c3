"""The follower's figures for Prometheus: whether a guarantee is broken, how much was compared, and how old the evidence is."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from transis.model.guarantees import BROKEN
from transis.pipeline.follow.telling import ONE_SEQUENCE, FollowVerdict
from transis.types.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from prometheus_client.core import Metric


class Figures(NamedTuple):
    """As the last batch left them; never changed, so that a scrape may read them at any time."""

    verdicts: tuple[FollowVerdict, ...] = ()
    heard_us: tuple[tuple[str, str, int], ...] = ()
    """Cluster, node, and when it last sealed a file."""
    looked_s: float = 0.0
    unreadable: int = 0


class FollowMetrics:
    """Serves the latest figures until it is closed; from the first moment those that are known, for an alert must not go away
    while the follower starts."""

    def __init__(self, host: str, port: int, known: Figures) -> None:
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


def _ages(core: Any, figures: Figures) -> Any:
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
