"""Evidence of a violation: exported once and explained once, whenever the follower ends in between and ring files come."""

from __future__ import annotations

import json
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from tests.trace.test_flight import ODD, OTHER, SECOND, run_of, view_of
from transis.audit.follow.divergence import ONE_SEQUENCE, Divergence
from transis.audit.follow.evidence import AGAIN_S, EvidenceExport
from transis.trace.flight import Flight, FlightLimits
from transis.trace.segment import Header
from transis.types.errors import PipelineError

CONF = view_of(4).id
FOUND = Divergence("test", ONE_SEQUENCE, CONF, CONF, 3, 4, (("a/1",), ("b/1",)), "in R4 nodes delivered different messages")
SENTENCE = [{"property": ONE_SEQUENCE, "explanation": "b/1 delivered another message"}]


def write_ring_files(directory: Path) -> None:
    """Two nodes deliver in one configuration."""
    for node in (ODD, OTHER):
        flight = Flight(directory, Header("test", "live", node), FlightLimits(), 0)
        flight.tape.configured(view_of(4))
        flight.tape.add(run_of(1, 9))
        flight.close(SECOND, "stopped")


class Kept:
    """Evidence beside a ledger, with a clock that is set by hand and an audit that says one sentence."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.said: list[str] = []
        self.asked: list[Path] = []
        self.now_s = 1000.0
        self.evidence = self.begin()

    def begin(self) -> EvidenceExport:
        """As the next follower on the ledger does."""
        self.evidence = EvidenceExport(
            self.place, [str(self.place / "flight")], self.said.append, self.explain, lambda: self.now_s
        )
        return self.evidence

    def explain(self, place: Path) -> list[dict[str, str]]:
        self.asked.append(place)
        return SENTENCE

    def why(self) -> dict[str, Any]:
        (path,) = self.place.glob("evidence/*/why.json")
        found: dict[str, Any] = json.loads(path.read_bytes())
        return found


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    (tmp_path / "flight").mkdir()
    return Kept(tmp_path)


def keep_to_the_end(evidence: EvidenceExport) -> None:
    evidence.explain_what_is_left()
    evidence.keep([FOUND])
    evidence.close(patiently=True)


def test_what_is_kept_and_explained_is_not_kept_again(kept: Kept) -> None:
    write_ring_files(kept.place / "flight")
    kept.evidence.keep([FOUND])
    keep_to_the_end(kept.evidence)
    assert kept.why()["exactly"] == SENTENCE
    keep_to_the_end(kept.begin())
    assert len(kept.asked) == 1


def test_a_follower_that_ends_before_the_explanation_leaves_it_to_the_next(kept: Kept) -> None:
    """Ctrl-C between the two: nothing more is taken, and nothing fails unseen."""
    write_ring_files(kept.place / "flight")
    ending = EvidenceExport(kept.place, [str(kept.place / "flight")], lambda _said: ending.close(patiently=False), kept.explain)
    keep_to_the_end(ending)
    assert (kept.why()["exactly"], kept.asked) == (None, [])
    next_one = kept.begin()
    next_one.explain_what_is_left()
    next_one.close(patiently=True)
    assert kept.why()["exactly"] == SENTENCE, "however long ago it was"
    assert [path.name for path in kept.asked] == [f"000001-{ONE_SEQUENCE}-R4-%C3%A4%20%25_b"]


def test_an_audit_that_failed_is_made_by_the_next_follower(kept: Kept) -> None:
    write_ring_files(kept.place / "flight")

    def fail(place: Path) -> list[dict[str, str]]:
        raise PipelineError(f"{place}: Spark's Java process ended unexpectedly")

    keep_to_the_end(EvidenceExport(kept.place, [str(kept.place / "flight")], kept.said.append, fail))
    assert "is not whole" in kept.said[-1]
    keep_to_the_end(kept.begin())
    assert kept.why()["exactly"] == SENTENCE


def test_ring_files_that_come_later_are_exported_by_the_next_follower(kept: Kept) -> None:
    keep_to_the_end(kept.evidence)
    keep_to_the_end(kept.begin())
    assert ["unless ring files come soon" in one for one in kept.said] == [True, True]
    write_ring_files(kept.place / "flight")
    keep_to_the_end(kept.begin())
    assert kept.why()["exactly"] == SENTENCE


def test_ring_files_that_come_later_are_exported_by_the_follower_that_waits_for_them(kept: Kept) -> None:
    said: Queue[str] = Queue()
    evidence = EvidenceExport(kept.place, [str(kept.place / "flight")], said.put, kept.explain, lambda: kept.now_s)
    evidence.keep([FOUND])
    assert "unless ring files come soon" in said.get(timeout=60)
    write_ring_files(kept.place / "flight")
    kept.now_s += AGAIN_S - 1
    evidence.keep([FOUND])
    assert said.empty(), "it does not look at every call"
    kept.now_s += 1
    keep_to_the_end(evidence)
    assert kept.why()["exactly"] == SENTENCE
