"""The report as one page: everything that it needs is in it, nothing is fetched, and nothing from outside is markup or script.

The page's own policy names its scripts by their digests: even if a name got through unescaped, a browser would not run it.
"""

from __future__ import annotations

import os
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Final

from transis.drawing.html import row, table, tag, words
from transis.pipeline.report.charts import Chart, embedded, figures_charts
from transis.pipeline.report.content import Change, Content, Run
from transis.pipeline.report.provenance import provenance_section
from transis.pipeline.report.run_section import RUNS_DRAWN, Of, chart_markup, run_section, runs_told_of
from transis.pipeline.report.style import SCRIPT, UNFOLD, chart_themes, page_style
from transis.pipeline.report.summary import starts_us, verdicts_by_run
from transis.pipeline.report.timeline import hatching
from transis.pipeline.report.verdict_section import banner, verdict_section
from transis.pipeline.report.violation_section import violation_section
from transis.types.errors import MissingExtra, PipelineError

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
_PLACES: Final = {
    "verdicts": "Verdicts",
    "violations": "Violations",
    "runs": "What happened",
    "measures": "Compared",
    "computed": "How it was computed",
}


def write_report(content: Content, path: Path) -> None:
    """Write the page; a reader never sees half of it."""
    page = page_of(content)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        beside.write_text(page, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise PipelineError(f"the report {path} cannot be written: {error.strerror}; choose another place with -o") from error


def page_of(content: Content) -> str:
    """A self-contained HTML document; the same for the same content."""
    starts = starts_us(content)
    runs, charts = _runs_section(content, starts)
    compared = {f"chart-figure-{place}": chart for place, chart in enumerate(figures_charts(content.figures))}
    charts |= compared
    sections = {
        "verdicts": verdict_section(content),
        "violations": violation_section(content, starts),
        "runs": runs,
        "measures": _measures_section(content, compared),
        "computed": provenance_section(content),
    }
    scripts = [UNFOLD, *([_plotly(), SCRIPT] if charts else [])]
    body = (
        tag("a", "Skip to the verdicts", href="#verdicts", class_="skip"),
        hatching(),
        _header(content, [name for name, markup in sections.items() if markup]),
        tag("main", *sections.values()),
        _chart_data(charts) if charts else "",
        *(f"<script>{script}</script>" for script in scripts),
    )
    return f'<!DOCTYPE html>\n<html lang="en">{_head(content.title, scripts)}\n<body>{"".join(body)}</body></html>\n'


def _head(title: str, scripts: list[str]) -> str:
    digests = (b64encode(sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    policy = f"{_POLICY}; script-src {allowed}"
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        words("title", title),
        tag("style", page_style()),
    )


def _header(content: Content, places: list[str]) -> str:
    links = (tag("a", _PLACES[name], href=f"#{name}") for name in places)
    clusters = sorted({run.cluster for run in content.runs if run.cluster})
    events = sum(run.events for run in content.runs)
    facts = [
        f"{len(content.runs):,} run{'s' if len(content.runs) != 1 else ''}",
        f"cluster {', '.join(clusters)}" if len(clusters) == 1 else f"{len(clusters):,} clusters" if clusters else "",
        f"{sum(run.nodes for run in content.runs):,} lives of nodes",
        f"{events:,} events" if events else "",
    ]
    about = words("p", " · ".join(filter(None, facts)), class_="note")
    return tag("header", words("h1", content.title), about, banner(content), tag("nav", *links, aria_label="Parts of this page"))


def _runs_section(content: Content, starts: dict[str, int]) -> tuple[str, dict[str, Chart]]:
    """The runs in trouble first; the page would be too large with all."""
    known = {run.name: run for run in content.runs}
    told = runs_told_of(content)
    names = [name for name in verdicts_by_run(content) if name in told]
    drawn = [
        run_section(known.get(name, Run(name=name)), Of(content, name, starts.get(name, 0)), place)
        for place, name in enumerate(names[:RUNS_DRAWN])
    ]
    more = len(content.runs) - len(drawn)
    rest = words("p", f"{more:,} more runs are not drawn; those in trouble come first.", class_="note") if more > 0 else ""
    charts = {name: chart for one in drawn for name, chart in one.charts.items()}
    hint = words("noscript", "The charts need JavaScript; everything else does not.")
    parts = (words("h2", "What happened"), hint if charts else "", *(one.markup for one in drawn), rest)
    return (tag("section", *parts, id="runs") if drawn else ""), charts


def _measures_section(content: Content, figures: dict[str, Chart]) -> str:
    if not figures and not content.changes:
        return ""
    parts = [chart_markup(name, chart) for name, chart in figures.items()]
    if content.changes:
        ordered = sorted(content.changes, key=lambda one: (one.what, one.before_build, one.after_build))
        parts.append(table(["measure", "before", "#", "after", "#", "#change"], map(_change, ordered)))
    return tag("section", words("h2", "Runs and builds compared"), *parts, id="measures")


def _change(one: Change) -> str:
    share = f"{(one.after - one.before) / one.before:+.1%}" if one.before and one.after is not None else ""
    before, after = ("" if value is None else f"{value:,.6g} {one.unit}" for value in (one.before, one.after))
    return row(
        [
            words("th", one.what, scope="row"),
            words("td", one.before_build),
            words("td", before, class_="n"),
            words("td", one.after_build),
            words("td", after, class_="n"),
            words("td", share, class_="n"),
        ]
    )


def _chart_data(charts: dict[str, Chart]) -> str:
    data = {name: {"data": chart.data, "layout": chart.layout} for name, chart in charts.items()}
    return f'<script type="application/json" id="chart-data">{embedded({"charts": data, "themes": chart_themes()})}</script>'


def _plotly() -> str:
    """plotly.js itself, once: a reader without a network has it too."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise MissingExtra("the report", "spark") from error
    script = str(get_plotlyjs())
    assert "</script" not in script, "it would end its element"
    return script
