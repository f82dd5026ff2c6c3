"""The report: complete, the same for the same content, at home in every browser, and deaf to what names try to tell it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import fields, replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from random import Random

import pytest

from tests.audit.contents import content_of_seed, many_runs, two_runs
from transis.audit.draw.spacetime import draw_inline
from transis.audit.report.charts import embedded, latency_chart
from transis.audit.report.content import (
    AroundRow,
    Content,
    EndRow,
    FaultRow,
    LatencyRow,
    StayRow,
    VerdictRow,
    ViolationRow,
    from_json,
    to_json,
)
from transis.audit.report.page import kind_of_master, page_of, write_report
from transis.audit.report.pictures import EVENTS_OF_A_NODE, picture_around, picture_of_views, reported_once
from transis.audit.report.runs import percentiles
from transis.types.errors import PipelineError

SECTIONS = ["verdicts", "violations", "runs", "computed"]
HOSTILE_NAME = "<img src=x onerror=alert(1)>"
HOSTILE_FAULT = "</script><script>alert(2)</script><!--"
VOID = {"meta", "br", "hr", "col"}
SIZE_MAX = 6_000_000
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@cache
def good() -> Content:
    return content_of_seed(5)


@cache
def broken() -> Content:
    return content_of_seed(5, ("swapped_deliveries", "dropped_safe"))


@cache
def hostile() -> Content:
    """Node a and every fault are called something that a browser would obey."""
    text = to_json(broken()).decode()
    text = re.sub(r'"what":"(cut|heal|partition)[^"]*"', f'"what":{json.dumps(HOSTILE_FAULT)}', text)
    return from_json(re.sub(r"\ba/1", f"{HOSTILE_NAME}/1", text).encode())


class Page(HTMLParser):
    """A page as a browser would read it; elements that do not close in order are remembered."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []
        self.wrong: list[str] = []
        self._open: list[str] = []
        self.feed(markup)
        self.close()
        self.wrong += self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.wrong.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "script":
            self.scripts.append(data)
        elif self._open and self._open[-1] != "style":
            self.texts.append(data)

    @property
    def ids(self) -> list[str]:
        return [value for _, name, value in self.attributes if name == "id"]

    @property
    def text(self) -> str:
        return " ".join(self.texts)


CONTENTS = {"good": good, "broken": broken, "hostile": hostile, "many": lambda: many_runs(100), "two": two_runs, "empty": Content}


@pytest.fixture(params=CONTENTS)
def content(request: pytest.FixtureRequest) -> Content:
    return CONTENTS[request.param]()


def test_elements_close_in_order_and_ids_are_unique(content: Content) -> None:
    page = Page(page_of(content))
    assert page.wrong == []
    assert len(page.ids) == len(set(page.ids))


def test_nothing_is_fetched(content: Content) -> None:
    markup = page_of(content)
    page = Page(markup)
    links = [value for _, name, value in page.attributes if name in ("href", "src", "srcset", "action", "data")]
    assert all(link.startswith("#") for link in links)
    assert {link[1:] for link in links} <= set(page.ids)
    assert not {"link", "img", "iframe", "object", "embed", "base", "form"} & set(page.tags)
    policy = next(value for _, name, value in page.attributes if name == "content" and "default-src" in value)
    assert policy.startswith("default-src 'none'")
    assert "unsafe-eval" not in policy
    assert "script-src 'unsafe-inline'" not in policy


def test_what_a_node_did_in_two_lives_is_not_counted_as_two_nodes() -> None:
    assert f"{good().runs[0].nodes} lives of nodes" in page_of(good())


def test_every_section_is_there_verdicts_first() -> None:
    page = Page(page_of(broken()))
    found = [name for name in page.ids if name in SECTIONS]
    assert found == SECTIONS
    for words in ("Views and faults", "Latency from origination", "Throughput over time", "Incidents", "The ring over time"):
        assert words in page.text
    assert page.tags.index("table") < page.tags.index("svg", page.tags.index("main"))


def test_what_is_broken_comes_first_and_what_was_not_judged_stands_apart() -> None:
    text = Page(page_of(broken())).text
    table, apart = text.index("checks made"), text.index("Not exercised: nothing happened")
    places = [text.index(name, table) for name in ("total_order_6_1", "safe_7_1", "no_creation", "fifo")]
    assert places == sorted(places)
    assert places[-1] < apart < text.index("basic messages: sent")
    assert "5 guarantees were broken." in text


def test_evidence_is_told_before_everything_else() -> None:
    lost = VerdictRow(run="seed 5", property="quality_chain", verdict="broken", checked=4, violations=1)
    missing = ViolationRow(run="seed 5", property="quality_chain", explanation="segment 2 of b/1 is missing")
    text = Page(page_of(replace(broken(), verdicts=(*broken().verdicts, lost), violations=(*broken().violations, missing)))).text
    assert "The evidence is not whole" in text
    assert text.index("quality_chain") < text.index("total_order_6_1")
    assert text.index("segment 2 of b/1 is missing") < text.index(broken().violations[0].explanation)


def test_names_and_faults_stay_words() -> None:
    markup = page_of(hostile())
    page = Page(markup)
    usual = Page(page_of(broken()))
    assert "img" not in page.tags
    assert page.tags.count("script") == usual.tags.count("script") == len(page.scripts)
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert HOSTILE_NAME in page.text
    assert HOSTILE_FAULT in page.text


def test_names_in_charts_are_neither_markup_nor_the_end_of_the_script() -> None:
    data = next(script for script in Page(page_of(hostile())).scripts if '"charts"' in script[:20])
    assert not set("<>&") & set(data)
    names = [line["name"] for chart in json.loads(data)["charts"].values() for line in chart["data"]]
    assert f"{HOSTILE_NAME}/1".replace("<", "&lt;").replace(">", "&gt;") in names
    assert not [name for name in names if "<" in name]
    assert json.loads(embedded({HOSTILE_FAULT: "&"})) == {HOSTILE_FAULT: "&"}


def test_equal_content_gives_equal_bytes_in_whatever_order_its_rows_come() -> None:
    shuffled = {}
    for field in fields(Content):
        value = getattr(broken(), field.name)
        if isinstance(value, tuple):
            rows = list(value)
            Random(7).shuffle(rows)
            shuffled[field.name] = tuple(rows)
    assert page_of(replace(broken(), **shuffled)) == page_of(broken())
    assert page_of(from_json(to_json(broken()))) == page_of(broken())


def test_a_hundred_runs_are_summed_up_broken_ones_first() -> None:
    markup = page_of(many_runs(100))
    text = Page(markup).text
    assert "1 guarantee was broken in 2 of 100 runs." in text
    trouble = text[text.index("Runs in trouble") : text.index("97 of 100 runs have nothing broken")]
    assert trouble.index("run 003") < trouble.index("run 041") < trouble.index("run 007")
    assert "run 005" not in trouble
    assert "99 more runs are not drawn" in text
    assert len(markup.encode()) < SIZE_MAX


def test_of_several_runs_each_has_its_part_and_the_broken_one_is_open() -> None:
    page = Page(page_of(two_runs()))
    text = page.text
    assert text.index("second", text.index("What happened")) < text.index("seed 5", text.index("What happened"))
    assert sum(name.startswith("chart-0-") for name in page.ids) == sum(name.startswith("chart-1-") for name in page.ids) > 2
    assert [value for _, name, value in page.attributes if name == "class"].count("timeline") == 2


def test_without_violations_and_without_anything_a_report_says_so() -> None:
    text = Page(page_of(good())).text
    assert "Every guarantee that was exercised held." in text
    assert "None was found." in text
    empty = page_of(Content())
    assert "Nothing was exercised" in Page(empty).text
    assert len(empty) < 20_000, "without a chart the page does not carry what draws them"


def test_every_violation_has_its_sentence_its_events_and_its_picture() -> None:
    page = Page(page_of(broken()))
    violations = broken().violations
    assert len(violations) > 1
    for violation in violations:
        assert violation.explanation in page.text
    pictures = [value for _, name, value in page.attributes if name == "class" and value == "spacetime"]
    assert len(pictures) == len(violations)
    rings = [value for _, name, value in page.attributes if name == "class" and value == "ring"]
    assert len(rings) == sum(len(set(violation.witness)) for violation in violations)


def around(node: str, lseq: int, time_us: int, kind: str, about: str = "m") -> AroundRow:
    return AroundRow(
        run="r", property="fifo", rank=1, node=node, lseq=lseq, time_us=time_us, kind=kind, label=f"{kind} {about}", about=about
    )


def drawn(violation: ViolationRow, events: list[AroundRow], stays: tuple[StayRow, ...] = ()) -> Page:
    return Page(draw_inline(picture_around(violation, events, 0, stays), "events", "spacetime"))


def stay(start_us: int, end_us: int, view: str, kind: str = "regular") -> StayRow:
    return StayRow(run="r", node="a/1", start_us=start_us, end_us=end_us, view=view, kind=kind, members=("a/1", "b/1"))


def test_a_picture_leads_from_a_sending_to_its_deliveries() -> None:
    violation = ViolationRow(run="r", property="fifo", explanation="", witness=(("b", 4),))
    events = [
        around("a", 1, 10, "send"),
        around("a", 2, 11, "deliver"),
        around("b", 4, 20, "deliver"),
        around("c", 1, 5, "deliver", "x"),
    ]
    picture = picture_around(violation, events, 0)
    (sending,), (arrival,) = picture.sendings, picture.arrivals
    assert (sending.node, arrival.node, sending.faint) == ("a", "b", False)
    links = [value for tag, name, value in drawn(violation, events).attributes if (tag, name) == ("line", "stroke-width")]
    assert links == ["1.6", "1.8"], "the sending's own stroke, and one line"


def test_what_the_violation_is_not_about_is_faint() -> None:
    violation = ViolationRow(run="r", property="fifo", explanation="", witness=(("b", 4),))
    events = [
        *(around("a", 1, 10, "send"), around("b", 4, 20, "deliver")),
        *(around("a", 2, 11, "send", "x"), around("b", 5, 21, "deliver", "x")),
    ]
    assert [sending.faint for sending in picture_around(violation, events, 0).sendings] == [False, True]


def test_a_node_whose_clock_goes_back_is_drawn_in_the_order_of_its_events() -> None:
    violation = ViolationRow(run="r", property="fifo", explanation="", witness=(("a", 1), ("a", 2)))
    page = drawn(violation, [around("a", 1, 50, "send"), around("a", 2, 10, "deliver")])
    centres = [float(value) for tag, name, value in page.attributes if (tag, name) == ("circle", "cx")]
    first, second = centres[-3:-1]
    assert first < second, "the last circle is that of the lane's name"


def test_a_picture_of_too_much_keeps_what_is_near_the_witness() -> None:
    violation = ViolationRow(run="r", property="fifo", explanation="", witness=(("a", 500),))
    page = drawn(violation, [around("a", lseq, lseq, "submit") for lseq in range(1, 1000)])
    tips = [text for text in page.texts if text.startswith("a, event")]
    assert len(tips) == EVENTS_OF_A_NODE
    assert any(text.startswith("a, event 500 ") for text in tips)


def test_a_picture_shows_the_views_of_its_nodes() -> None:
    """Those installed in it, and before the first of them the one that was in force."""
    violation = ViolationRow(run="r", property="fifo", explanation="", witness=(("a/1", 2),))
    events = [around("a/1", 1, 30, "send"), around("a/1", 2, 50, "view", "T9@a/1"), around("a/1", 3, 50, "view", "R9@a/1")]
    stays = (stay(5, 50, "R5@a/1"), stay(50, 50, "T9@a/1", "transitional"), stay(50, 90, "R9@a/1"))
    bands = picture_around(violation, events, 0, stays).bands
    assert [(band.view, band.regular) for band in bands] == [("R5@a/1", "R5@a/1"), ("T9@a/1", "R5@a/1"), ("R9@a/1", "R9@a/1")]
    assert all(band.start < band.end for band in bands)
    known_by_name = picture_around(violation, events, 0).bands
    assert [(band.view, band.is_regular) for band in known_by_name] == [("T9@a/1", False), ("R9@a/1", True)]


def test_a_transitional_view_of_one_instant_has_room_in_the_timeline() -> None:
    stays = [stay(5, 50, "R5@a/1"), stay(50, 50, "T9@a/1", "transitional"), stay(50, 90, "R9@a/1")]
    faults = reported_once([FaultRow(run="r", node=node, time_us=40, what="cut a->b") for node in ("b/1", "a/1")])
    picture = picture_of_views(stays, faults, [EndRow(run="r", node="a/1", time_us=95, how="failed")], (5, 95))
    assert [(band.start, band.end) for band in picture.bands] == [((0, 0), (45, 0)), ((45, 0), (45, 2)), ((45, 2), (85, 0))]
    assert [(strike.time_us, strike.lanes) for strike in picture.strikes] == [(35, (0,))]
    (life,) = picture.lives
    assert (life.start_us, life.end_us, life.crashed) == (0, 90, True)


def bar(low_us: float, high_us: float, count: int) -> LatencyRow:
    return LatencyRow(run="r", service="safe", low_us=low_us, high_us=high_us, count=count)


def test_the_area_of_a_density_is_one() -> None:
    rows = [
        LatencyRow(run="r", service="safe", low_us=low, high_us=2 * low, count=count)
        for low, count in ((100, 3), (200, 5), (800, 2))
    ]
    chart = latency_chart(rows)
    assert chart is not None
    x, y = chart.data[0]["x"], chart.data[0]["y"]
    assert list(zip(x, y, strict=True)) == [
        (0.1, 0.0), (0.1, 0.3), (0.2, 0.3), (0.2, 0.5), (0.4, 0.5), (0.4, 0.0), (0.8, 0.0), (0.8, 0.2), (1.6, 0.2), (1.6, 0.0),
    ]  # fmt: skip


def test_percentiles_of_a_histogram() -> None:
    rows = [
        LatencyRow(run="r", service="safe", low_us=low, high_us=low + 10, count=count)
        for low, count in ((0, 50), (10, 40), (90, 10))
    ]
    assert percentiles(rows, (0.25, 0.5, 0.7, 0.9, 0.95, 1.0)) == [5.0, 10.0, 15.0, 20.0, 95.0, 100.0]
    assert percentiles([], (0.5,)) == [0.0]


def test_how_it_was_computed_tells_no_address() -> None:
    page = page_of(good())
    assert "a standalone Spark cluster" in page
    assert "10.1.2.3" not in page
    assert kind_of_master("local[*]") == "Spark on the machine itself"
    assert kind_of_master("k8s://somewhere:443") == "Kubernetes"


def test_a_report_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    target = tmp_path / "there" / "report.html"
    with pytest.raises(PipelineError, match=r"report\.html cannot be written: No such file or directory"):
        write_report(Content(), target)
    target.parent.mkdir()
    write_report(Content(), target)
    assert target.read_text(encoding="utf-8") == page_of(Content())
    assert os.listdir(target.parent) == ["report.html"]


@pytest.mark.parametrize("name", ["hostile", "many", "two", "empty"])
def test_a_browser_draws_it_without_complaint(name: str, tmp_path: Path) -> None:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"no browser to look with: none of {', '.join(BROWSERS)} is installed")
    content = CONTENTS[name]()
    write_report(content, tmp_path / "report.html")
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--enable-logging=stderr")
    profile, patience = f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=5000"
    command = [browser, *options, profile, patience, "--dump-dom", (tmp_path / "report.html").as_uri()]
    seen = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert [line for line in seen.stderr.splitlines() if "CONSOLE" in line] == []
    found = Page(seen.stdout)
    assert "img" not in found.tags
    unfolded = [name for name in Page(page_of(content)).ids if name.startswith(("chart-0-", "chart-figure-"))]
    charts = [value for _, kind, value in found.attributes if kind == "class" and "js-plotly-plot" in value]
    assert len(charts) == len(unfolded), "what is folded is drawn when it is opened"
