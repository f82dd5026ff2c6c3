"""Rates between looks, and metrics under the names that are documented."""

from __future__ import annotations

from pathlib import Path

from transis.daemon.metrics import COUNTERS, GAUGES, LABELLED, LOOKS, RATES, Figures
from transis.net.transport import StatisticsDict

SECOND = 1_000_000
PAGE = (Path(__file__).parents[2] / "docs" / "operating.md").read_text(encoding="utf-8")


class Counting:
    """A node that sends a hundred datagrams between two looks."""

    sent = 0

    def __call__(self) -> StatisticsDict:
        self.sent += 100
        return {"sent_datagrams": self.sent, "state": "Operational"}


def test_rates_are_those_of_the_last_seconds() -> None:
    figures = Figures([Counting()])
    assert set(figures.rates().values()) == {0.0}
    for second in range(5):
        figures.look(second * 2 * SECOND)
    assert figures.rates()["sent_datagrams_per_s"] == 50.0
    assert set(figures.rates()) == set(RATES.values())
    assert figures.latest["sent_datagrams"] == 500


def test_old_looks_are_forgotten() -> None:
    figures = Figures([Counting()])
    figures.look(0)
    for second in range(1_000, 1_000 + LOOKS + 1):
        figures.look(second * SECOND)
    assert figures.rates()["sent_datagrams_per_s"] == 100.0


def test_the_page_has_every_metric() -> None:
    for name, words in COUNTERS.items():
        assert f"| `transis_{name}_total` | counter | {words} |" in PAGE
    for name, labelled in LABELLED.items():
        assert f"| `transis_{name}_total` | counter, by `{labelled.label}` | {labelled.help} |" in PAGE
    for name, words in GAUGES.items():
        assert f"| `transis_{name}` | gauge | {words} |" in PAGE
