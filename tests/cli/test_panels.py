"""Rows about daemons: what fits, what is left out first, and what is said when a daemon is silent."""

from __future__ import annotations

from time import monotonic
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from transis.cli.panels import COLUMNS, DaemonReport, WatchedDaemon, daemon_table, name_lines, past_views, short, view_lines


def look(node: str, *members: str, view: str = "R8@a", **status: object) -> DaemonReport:
    cause = "token loss noticed by a"
    values: dict[str, Any] = {"node": node, "state": "Operational", "sessions": 2, "groups": 3, "up_s": 90, "rates": {}}
    values["view"] = {"id": view, "members": list(members), "cause": cause, "since_s": 5, "primary": None}
    figures = {"tokens_lost_gather": 2, "tokens_lost_commit": 1, "window": 300, "window_used": 7, "last_rotation_us": 1500}
    return DaemonReport(values | status, figures, monotonic())


def watched(found: DaemonReport) -> WatchedDaemon:
    one = WatchedDaemon(found.node, None, 1.0)
    one.take(found)
    return one


def printed(what: Any, width: int = 200) -> str:
    console = Console(width=width, highlight=False, color_system=None)
    with console.capture() as captured:
        console.print(what)
    return captured.get()


def test_a_row_has_what_the_daemon_said() -> None:
    page = printed(daemon_table([watched(look("a", "a", "b"))], 200, {"a": "0.5 / 1.2"}))
    for words in ("Operational", "R8@a", "1.5 ms", "7/300", "1 min", "0.5 / 1.2"):
        assert words in page
    heading, row = page.splitlines()
    assert row[heading.index("lost tokens") : heading.index("lost tokens") + 11].strip() == "3"


@given(st.integers(40, 220))
def test_rows_fit_and_the_most_important_columns_stay(width: int) -> None:
    page = printed(daemon_table([watched(look("a", "a", "b"))], width), 400)
    heading = page.splitlines()[0].rstrip()
    assert len(heading) <= max(width, 62)
    for column in COLUMNS:
        if column.rank == 0:
            assert column.heading in heading


def test_each_engine_has_its_own_columns_and_a_mixture_has_both() -> None:
    ring = watched(look("a", "a"))
    figures = {"unsafe_datagrams": 12, "window": 300, "breaks_silence": 1, "breaks_lag": 3}
    lansis = watched(look("b", "b", engine="lansis")._replace(figures=figures))
    own = {"rotation", "lost tokens"}, {"unstable", "given up"}
    for shown, there, absent in (([ring], own[0], own[1]), ([lansis], own[1], own[0]), ([ring, lansis], own[0] | own[1], set())):
        heading = printed(daemon_table(shown, 300), 300).splitlines()[0]
        assert all(words in heading for words in there)
        assert not any(words in heading for words in absent)
    heading, row = printed(daemon_table([lansis], 300), 300).splitlines()
    assert row[heading.index("unstable") : heading.index("unstable") + 8].strip() == "12"
    assert row[heading.index("given up") : heading.index("given up") + 8].strip() == "4"
    assert "12/300" in row


def test_a_silent_daemon_says_so() -> None:
    gone = watched(look("a", "a"))
    gone.silence = "no daemon answers"
    hanging = watched(look("c", "c")._replace(taken_s=monotonic() - 20))
    page = printed(daemon_table([gone, WatchedDaemon("b", None, 1.0), hanging], 120, never_seen="not there yet")).splitlines()
    assert [line.split(maxsplit=1)[1].rstrip() for line in page[1:]] == ["no answer", "not there yet", "hangs 20 s"]


def test_before_anybody_answers_no_engine_is_shown() -> None:
    heading, row = printed(daemon_table([WatchedDaemon("b", None, 1.0)], 300), 300).splitlines()
    assert row.split(maxsplit=1)[1].rstrip() == "no answer"
    assert not any(column.heading in heading for column in COLUMNS if column.engine)


def test_two_views_are_two_lines_and_a_minority_stands_out() -> None:
    minority = look("c", "c", view="R12@c")
    minority.status["view"]["primary"] = False  # type: ignore[index]
    lines = [line.plain for line in view_lines([look("a", "a", "b"), look("b", "a", "b"), minority])]
    assert lines == [
        "view R8@a: a b, for 5 s: token loss noticed by a",
        "view R12@c: c, for 5 s: token loss noticed by a; without a majority of the quorum",
    ]


def test_names_of_processes_are_shown_once_for_each_view() -> None:
    called = [{"name": "billing@a", "process": "a/1#3"}, {"name": "stock@b", "process": "b/1#1"}]
    a, b = (look(node, "a", "b", names=called, named=2) for node in "ab")
    alone = look("c", "c", view="R12@c", names=[{"name": "x@c", "process": "c/2#1"}], named=1_234)
    assert [line.plain for line in name_lines([a, b, alone])] == [
        "names in R12@c: x@c is c/2#1, and 1,233 more: transis groups",
        "names in R8@a: billing@a is a/1#3, stock@b is b/1#1",
    ]
    older = look("d", "d", view="R16@d")
    assert name_lines([older, look("e", "e", view="R20@e", names=[], named=0)]) == []


def test_views_are_remembered_once_with_who_saw_them() -> None:
    one, two = watched(look("a", "a", "b")), watched(look("b", "a", "b"))
    one.take(look("a", "a", "b"))
    one.take(look("a", "a", view="R12@a")._replace(taken_s=monotonic() + 100))
    page = printed(past_views([one, two], 8)).splitlines()
    assert [line.split()[-1] for line in page[1:]] == ["a", "a"], "the cause's last word, a line a view"
    assert "R12@a" in page[1], "the newest first"
    assert "a b" in page[2]


@given(st.floats(0, 1e15))
def test_numbers_stay_short(number: float) -> None:
    assert len(short(number)) <= 5


def test_numbers_are_readable() -> None:
    assert [short(value) for value in (0, 999, 1000, 12_345, 999_999, 4_500_000)] == ["0", "999", "1.0k", "12.3k", "1.0M", "4.5M"]
