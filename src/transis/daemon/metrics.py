"""The figures of a daemon in one table: counters of its parts as they are, rates between looks, and the same for Prometheus.

1. A look at the figures is taken once a second and kept for a short while. So a rate is that of the last seconds, whoever asks
   and however often.
2. Scrapes are answered in threads of their own, so they read the last look's table, which nobody changes any more, and never the
   node.
3. Names are stable: they are documented, and a test compares the two.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from transis.net.interfaces import Endpoint
from transis.net.transport import StatisticsDict
from transis.types.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from prometheus_client.core import Metric


# --- figures ----------------------------------------------------------------------------------------------------------

LOOKS: Final = 10
"""Looks to keep; a rate covers this many seconds."""
RATES: Final = {
    "delivered_messages": "delivered_per_s",
    "handed_messages": "handed_per_s",
    "sent_datagrams": "sent_datagrams_per_s",
    "received_datagrams": "received_datagrams_per_s",
    "rotations": "rotations_per_s",
    "bursts_sent": "bursts_per_s",
    "retransmitted": "retransmitted_per_s",
}
"""Counters whose rate people want to see, and the name of the rate."""


class Figures:
    """`sources` are asked at every look; their answers are one table."""

    def __init__(self, sources: Sequence[Callable[[], Mapping[str, int | str]]]) -> None:
        self._sources = sources
        self._looks: deque[tuple[int, StatisticsDict]] = deque(maxlen=LOOKS + 1)

    def statistics(self) -> StatisticsDict:
        figures: StatisticsDict = {}
        for source in self._sources:
            figures |= source()
        return figures

    def look(self, now_us: int) -> StatisticsDict:
        figures = self.statistics()
        self._looks.append((now_us, figures))
        return figures

    @property
    def latest(self) -> StatisticsDict:
        """What the last look found; a finished table that no other thread sees change."""
        return self._looks[-1][1] if self._looks else {}

    def rates(self) -> dict[str, float]:
        """Per second, over the looks that are kept."""
        if len(self._looks) < 2:
            return dict.fromkeys(RATES.values(), 0.0)
        (first_us, first), (last_us, last) = self._looks[0], self._looks[-1]
        seconds = max(1, last_us - first_us) / 1e6
        return {rate: round(_growth(first, last, counter) / seconds, 1) for counter, rate in RATES.items()}


def _growth(first: StatisticsDict, last: StatisticsDict, counter: str) -> int:
    return int(last.get(counter, 0)) - int(first.get(counter, 0))


# --- metrics ----------------------------------------------------------------------------------------------------------

COUNTERS: Final = {
    "delivered_messages": "Messages delivered to this node",
    "handed_messages": "Messages handed to local clients, one for each that got it",
    "rotations": "Visits of the token",
    "tokens_sent_again": "Tokens sent again because nothing showed that they had arrived",
    "bursts_sent": "Bursts sent (lansis)",
    "alives_sent": "Signs of life sent because there was no burst to send (lansis)",
    "retransmitted": "Datagrams sent again for nodes that had missed them",
    "requested": "Datagrams that this node had missed and requested",
    "sent_datagrams": "Datagrams sent",
    "received_datagrams": "Datagrams received",
    "overflows": "Datagrams that the kernel dropped because a receive buffer was full",
    "pauses": "Times that this process could not run for a while",
    "views": "Regular views installed",
    "trace_dropped_events": "Events not recorded because the disk had no room",
    "flight_dropped": "Times that the flight recorder could not write because the disk had no room",
}
GAUGES: Final = {
    "members": "Nodes in the view in force",
    "groups": "Process groups in the configuration",
    "sessions": "Connected clients",
    "operational": "1 while the view works, 0 while a new one is being formed",
    "primary": "1 with a majority of the quorum, 0 without; absent when no quorum is configured",
    "last_rotation_us": "Microseconds of the token's last rotation",
    "token_loss_us": "Microseconds without a token after which the ring counts as lost, as stretched by slowness",
    "longest_pause_us": "Microseconds of the longest time that this process could not run",
    "outbox_bytes": "Bytes of messages that wait here to be sent",
    "ring_backlog_bytes": "Bytes that wait to be sent at all members, by the last token",
    "unsafe_datagrams": "Datagrams not yet known to be at every member",
    "window": "Datagrams that all members together may send in one rotation (totem) or have on their way (lansis)",
    "window_usable": "The part of the window that the slowest member can keep up with, in datagrams (lansis)",
    "window_used": "Datagrams sent in the last rotation",
    "send_delay_us": "Microseconds that this node waits after a burst because the window is filling up (lansis)",
    "held_last_us": "Microseconds for which the last view change held up messages (lansis)",
    "held_max_us": "The longest that a view change held up messages, in microseconds (lansis)",
    "synchrony_agreed_milli": "Members known to have an agreed message at delivery, in thousandths; absent before one (lansis)",
    "synchrony_safe_milli": "Members known to have a safe message at delivery, in thousandths; absent before one (lansis)",
    "session_queue_bytes": "Bytes that wait for clients that are behind",
    "trace_bytes": "Bytes of kept trace segments",
    "flight_bytes": "Bytes of the flight recorder's ring files, digests and exports",
    "flight_kept": "View changes of which an export of the ring files is kept",
}


class Labelled(NamedTuple):
    """A counter with one label, whose values are the ends of names in the table."""

    label: str
    prefix: str
    help: str


LABELLED: Final = {
    "tokens_lost": Labelled("state", "tokens_lost_", "Tokens lost, by the state in which the loss was noticed"),
    "given_up": Labelled("why", "breaks_", "Members left out by this node, by the reason (lansis)"),
    "rejected_datagrams": Labelled("kind", "rejected_", "Received datagrams thrown away, by what was wrong with them"),
    "lost_datagrams": Labelled("error", "lost_", "Datagrams that could not be sent, by the error"),
}


class Metrics:
    """Serves the latest figures until it is closed."""

    def __init__(self, listen: Endpoint, node: str, cluster: str, latest: Callable[[], StatisticsDict]) -> None:
        library = _library()
        registry = library.CollectorRegistry()
        registry.register(_Collector(node, cluster, latest))
        try:
            self._server, self._thread = library.start_http_server(listen.port, str(listen.host), registry)
        except OSError as error:
            raise ConfigError("metrics.listen", str(listen), f"cannot be opened ({error.strerror}): choose another") from error
        self.port: int = self._server.server_port

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Collector:
    def __init__(self, node: str, cluster: str, latest: Callable[[], StatisticsDict]) -> None:
        self._labels = (node, cluster)
        self._latest = latest

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        core = _library().core
        figures = self._latest()
        for families, kind in ((COUNTERS, core.CounterMetricFamily), (GAUGES, core.GaugeMetricFamily)):
            for name, words in families.items():
                if name in figures:
                    family = kind(f"transis_{name}", words, labels=("node", "cluster"))
                    family.add_metric(self._labels, int(figures[name]))
                    yield family
        for name, (label, prefix, words) in LABELLED.items():
            family = core.CounterMetricFamily(f"transis_{name}", words, labels=("node", "cluster", label))
            for key, value in figures.items():
                if key.startswith(prefix):
                    family.add_metric((*self._labels, key.removeprefix(prefix)), int(value))
            yield family


def _library() -> Any:
    try:
        import prometheus_client
        import prometheus_client.core
    except ImportError as error:
        raise MissingExtra("metrics.listen", "metrics") from error
    return prometheus_client
