"""Lines for an operator: words instead of codes, and nothing more often than once a minute."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from transis.daemon.logs import (
    LOGGER,
    STRANGERS_MAX,
    NodeLog,
    Often,
    Strangers,
    adopt,
    level_name,
    say,
    set_level,
    start_logging,
    view_in_words,
)
from transis.types.ids import NodeId, ViewId, ViewKind
from transis.types.outputs import Note
from transis.types.views import Cause, Member, View

ANN, BOB, CID, DAN = (NodeId(name, 1, number) for number, name in enumerate(("ann", "bob", "cid", "dan"), 1))
BOB_AGAIN = NodeId("bob", 2, 9)
MINUTE_US = 60_000_000


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    before = list(LOGGER.handlers), LOGGER.level, LOGGER.propagate
    start_logging("debug", json=False, stream=stream)
    yield stream
    LOGGER.handlers[:], LOGGER.level, LOGGER.propagate = before


def view(seq: int, *nodes: NodeId, cause: Cause | None = None, kind: ViewKind = ViewKind.REGULAR) -> View:
    identity = ViewId(kind, seq, nodes[0])
    return View(identity, identity, tuple(Member(node, "", None) for node in nodes), cause or Cause("start"), 0)


def figures(**changed: int) -> dict[str, int | str]:
    return {"pauses": 0, "longest_pause_us": 0, "overflows": 0, "state": "Operational"} | changed


def test_a_view_says_who_is_there_who_went_and_why() -> None:
    before = view(8, ANN, BOB, CID, DAN)
    after = view(12, ANN, BOB, CID, cause=Cause("token lost", BOB, (), "token loss timer"))
    assert view_in_words(after, before) == "view R12@ann/1: ann/1 bob/1 cid/1; left: dan/1 (token loss noticed by bob/1)"


def test_a_view_tells_a_newcomer_from_one_born_again() -> None:
    after = view(12, ANN, BOB_AGAIN, CID, cause=Cause("foreign ring", BOB_AGAIN))
    assert (
        view_in_words(after, view(8, ANN, BOB))
        == "view R12@ann/1: ann/1 bob/2 cid/1; joined: cid/1, born again: bob/2 (the ring of bob/2 was heard)"
    )


def test_the_first_view_has_nothing_before_it() -> None:
    assert view_in_words(view(4, ANN), None) == "view R4@ann/1: ann/1; the first (the node started)"


def test_a_crowd_is_cut() -> None:
    crowd = [NodeId(f"n{number:03}", 1, number) for number in range(100)]
    assert "n031/1 and 68 more;" in view_in_words(view(4, *crowd), None)


def test_leaving_the_ring_is_news_and_the_steps_between_are_not(lines: io.StringIO) -> None:
    log = NodeLog()
    set_level("info")
    for before, after in (("Operational", "Gather"), ("Gather", "Commit"), ("Commit", "Recovery"), ("Recovery", "Operational")):
        log.note(0, Note("state", (("from", before), ("to", after), ("event", "token lost"))))
    log.view(view(4, ANN, kind=ViewKind.TRANSITIONAL))
    log.view(view(8, ANN))
    told = lines.getvalue().splitlines()
    assert len(told) == 2
    assert told[0].endswith("info    Operational -> Gather: token lost")
    assert "view R8@ann/1" in told[1]


def test_junk_is_told_at_once_and_then_once_a_minute_with_its_count(lines: io.StringIO) -> None:
    log = NodeLog()
    log.note(0, Note("rejected", (("field", "seal"), ("why", "the key is another"))))
    log.look(1_000_000, figures(rejected_seal=50))
    log.look(2_000_000, figures(rejected_seal=90))
    log.look(MINUTE_US, figures(rejected_seal=101))
    log.look(MINUTE_US + 1, figures(rejected_seal=500))
    told = lines.getvalue().splitlines()
    assert len(told) == 2
    assert "the key is another" in told[0]
    assert "100 more datagrams were rejected (seal)" in told[1]


def refused(node: str) -> Note:
    return Note("refused", (("node", node), ("why", "its engine is another")))


def test_a_stranger_that_keeps_trying_is_told_at_once_and_then_once_a_minute_with_its_tries(lines: io.StringIO) -> None:
    log = NodeLog()
    for second in range(61):
        log.note(second * 1_000_000, refused("bob/1"))
    log.note(61_000_000, refused("cid/1"))
    told = [line.partition("warning ")[2] for line in lines.getvalue().splitlines()]
    assert told == [
        "bob/1 cannot be a member: its engine is another",
        "bob/1 cannot be a member: its engine is another (tried 60 times since the last such line)",
        "cid/1 cannot be a member: its engine is another",
    ]
    assert log.strangers.lately(62_000_000) == ["bob/1", "cid/1"]
    assert log.strangers.lately(122_000_000) == []


def test_of_a_crowd_of_strangers_who_was_silent_longest_is_forgotten() -> None:
    strangers = Strangers()
    for number in range(STRANGERS_MAX + 1):
        strangers.refused(number, "keeps-trying/1")
        assert strangers.refused(number, f"n{number}/1") == 1
    lately = strangers.lately(STRANGERS_MAX)
    assert len(lately) == STRANGERS_MAX
    assert {"keeps-trying/1", f"n{STRANGERS_MAX}/1"} <= set(lately)
    assert strangers.refused(STRANGERS_MAX, "n0/1") == 1, "a forgotten one is new"


def test_pauses_and_overflows_are_told(lines: io.StringIO) -> None:
    log = NodeLog()
    log.look(0, figures(pauses=2, longest_pause_us=750_000, overflows=3))
    log.look(5, figures(pauses=3, longest_pause_us=750_000, overflows=3))
    told = lines.getvalue()
    assert "did not run for a while (2 times, longest so far 750 ms)" in told
    assert "net.core.rmem_max" in told
    assert len(told.splitlines()) == 2


def test_often_never_tells_twice_and_never_forgets() -> None:
    often = Often()
    told = [often.due(second * 1_000_000, "x", second) for second in range(1, 200)]
    assert sum(told) == 181
    assert [second for second, count in enumerate(told, 1) if count] == [1, 61, 121, 181]


def test_json_lines_have_the_sentence_and_its_parts() -> None:
    stream = io.StringIO()
    before = list(LOGGER.handlers), LOGGER.level
    start_logging("info", json=True, stream=stream)
    try:
        NodeLog().view(view(8, ANN, BOB))
        say(logging.WARNING, "trace", "a sentence", bytes=5)
        LOGGER.debug("too quiet")
    finally:
        LOGGER.handlers[:], LOGGER.level = before
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first["event"] == "view"
    assert first["members"] == ["ann/1", "bob/1"]
    assert first["text"].startswith("view R8@ann/1")
    assert (second["level"], second["bytes"]) == ("warning", 5)


def test_a_logger_that_is_adopted_speaks_as_the_daemon_does(lines: io.StringIO) -> None:
    other = logging.getLogger("tests.of.another.library")
    adopt(other)
    other.error("something was not awaited")
    assert re.fullmatch(r"\S+Z error   something was not awaited\n", lines.getvalue())


def test_the_level_can_be_changed_and_asked_for(lines: io.StringIO) -> None:
    set_level("warning")
    assert level_name() == "warning"
    LOGGER.info("unheard")
    assert lines.getvalue() == ""
