"""The report as one page: style, provenance, sections. Everything it needs is in it, and nothing is fetched.

1. Nothing from outside is markup or script. The page's policy names its scripts by their digests: even if a name got through
   unescaped, a browser would not run it.
2. The page works on light and dark screens and on paper.
3. How the report was computed is part of it: versions, inputs, steps. The machine, its user and its network are not.
"""

from __future__ import annotations

import os
import re
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from transis.audit.draw.spacetime import hatching
from transis.audit.draw.svg import DARK, FONT, LIGHT, Theme, escaped, folded, style, tag, word_table, words
from transis.audit.report.charts import Chart, embedded, figures_charts
from transis.audit.report.content import ChangeRow, Computed, Content, RunRow
from transis.audit.report.runs import RUNS_DRAWN, RowsOfRun, chart_markup, run_section, runs_with_rows
from transis.audit.report.verdicts import banner, starts_us, verdict_section, verdicts_by_run, violation_section
from transis.trace.files import rename
from transis.types.errors import MissingExtra, PipelineError

# --- provenance -------------------------------------------------------------------------------------------------------

RUNS_LISTED: Final = 500
_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")


def provenance_section(content: Content) -> str:
    facts = [tag("div", words("dt", what), words("dd", value)) for what, value in _facts(content.computed) if value]
    return tag(
        "section",
        words("h2", "How it was computed"),
        tag("dl", *facts, class_="facts"),
        _steps(content.computed),
        _runs(content),
        _inputs(content),
        id="computed",
    )


def kind_of_master(master: str) -> str:
    """Where Spark ran, without any address."""
    if re.fullmatch(r"local(\[.*\])?", master):
        return "Spark on the machine itself"
    kinds = {"spark": "a standalone Spark cluster", "yarn": "YARN", "k8s": "Kubernetes", "sc": "Spark Connect"}
    return kinds.get(master.partition(":")[0], "a Spark cluster") if master else ""


def _facts(computed: Computed) -> Iterator[tuple[str, str]]:
    yield "transis", computed.transis
    yield "Python", computed.python
    yield "PySpark", computed.pyspark
    yield "Java", computed.java
    yield "ran on", kind_of_master(computed.master)
    yield "inputs", f"{computed.files:,} trace files, {size(computed.bytes)}" if computed.files else ""
    yield "digest of the inputs", computed.digest


def size(count: int) -> str:
    value, unit = float(count), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{count:,} bytes" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def _steps(computed: Computed) -> str:
    if not computed.steps:
        return ""
    return word_table(["step", "#took"], [(what, f"{seconds:.1f} s") for what, seconds in computed.steps])


def _runs(content: Content) -> str:
    rows = [
        (
            *(run.name, run.cluster, run.engine, run.mode, run.seed, ", ".join(run.builds)),
            *(f"{run.nodes:,}", f"{run.files:,}", size(run.bytes), "yes" if run.closed else "no"),
        )
        for run in sorted(content.runs, key=lambda run: (run.cluster, run.name))[:RUNS_LISTED]
    ]
    headings = ["run", "cluster", "engine", "mode", "seed", "builds", "#nodes", "#files", "#size", "came to rest"]
    more = len(content.runs) - RUNS_LISTED
    rest = words("p", f"{more:,} more runs are not listed.", class_="note") if more > 0 else ""
    return folded(escaped(f"Runs ({len(content.runs):,})"), word_table(headings, rows), rest, class_="apart")


def _inputs(content: Content) -> str:
    """Which inputs each run's verdicts were made from."""
    digests = sorted({(one.run, one.inputs) for one in content.verdicts if one.inputs})
    if not digests:
        return ""
    summary = escaped(f"Digests of the inputs of the verdicts ({len(digests):,})")
    return folded(summary, word_table(["run", "digest"], digests[:RUNS_LISTED]), class_="apart")


# --- style ------------------------------------------------------------------------------------------------------------

_LIGHT_SIGNS: Final = {"broken": "#b3001b", "pending": "#8a5a00", "held": "#1a6e30", "card": "#f5f7fa"}
_DARK_SIGNS: Final = {"broken": "#ff8593", "pending": "#f0b040", "held": "#6fd488", "card": "#1a2029"}
"""Each is readable as text on its paper: contrast of at least 4.5."""


def _variables(theme: Theme, signs: dict[str, str]) -> str:
    named = {"paper": theme.paper, "ink": theme.ink, "faint": theme.faint, "line": theme.grid, **signs}
    return "".join(f"--{name}:{value};" for name, value in named.items())


_RULES: Final = f"""
*{{box-sizing:border-box}}
body{{margin:0 auto;max-width:1240px;padding:20px 28px 60px;font:15px/1.5 {FONT};background:var(--paper);color:var(--ink)}}
h1{{font-size:26px;margin:0 0 4px}} h2{{font-size:20px;margin:38px 0 10px;padding-top:14px;border-top:1px solid var(--line)}}
h3{{font-size:17px;margin:24px 0 8px}} h4{{font-size:15px;margin:22px 0 4px}}
a{{color:inherit}} code{{font:.92em ui-monospace,Menlo,Consolas,monospace;overflow-wrap:anywhere}}
nav a{{margin-right:18px;white-space:nowrap}} .skip{{position:absolute;left:-999em}}
.skip:focus{{left:8px;top:8px;background:var(--paper);padding:6px}}
:focus-visible{{outline:3px solid #4c8dff;outline-offset:2px}}
.inline{{display:inline;margin:0}} .hidden{{position:absolute}}
.note,.meaning{{color:var(--faint)}} .note{{margin:2px 0 8px}} .meaning{{font-weight:400;font-size:13px}}
.mark{{margin-left:8px;padding:0 6px;border:1px solid var(--line);border-radius:4px;font-size:12px;font-weight:400}}
.banner{{margin:16px 0;padding:12px 16px;border-left:6px solid;background:var(--card);font-size:18px;font-weight:600}}
.broken{{color:var(--broken)}} .pending{{color:var(--pending)}} .held{{color:var(--held)}} .unknown{{color:var(--faint)}}
.chip{{font-weight:600;white-space:nowrap}}
.scroll{{overflow-x:auto;max-width:100%}}
table{{border-collapse:collapse;margin:6px 0 12px;font-size:14px}}
th,td{{padding:5px 14px 5px 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}}
thead th{{color:var(--faint);font-weight:400;font-size:13px;vertical-align:bottom}} tbody th{{font-weight:600}}
.n{{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}} .runs{{white-space:nowrap}}
.verdicts code{{white-space:nowrap}} .verdicts,.incidents{{width:100%}} .incidents{{font-size:13px}}
.matrix th,.matrix td{{padding:2px 6px}} .matrix .cell{{text-align:center;font-weight:600}}
.turned span{{writing-mode:vertical-rl;transform:rotate(180deg);white-space:nowrap}}
details{{margin:8px 0}} summary{{cursor:pointer}} .apart summary{{color:var(--faint)}} ul,ol{{margin:6px 0;padding-left:26px}}
.violation,.run{{padding:10px 14px;border:1px solid var(--line);border-radius:8px;background:var(--card)}}
.violation .sentence{{display:block;margin:4px 0 2px 18px;font-weight:600;overflow-wrap:anywhere}}
.witnesses li{{overflow-wrap:anywhere}}
.timeline,.spacetime{{display:block;margin:8px 0}} .spacetime .strong{{font-weight:700}}
.chart{{width:100%}}
.facts{{display:grid;grid-template-columns:repeat(auto-fill,minmax(220px,1fr));gap:8px 24px;margin:0 0 14px}}
.facts dt{{color:var(--faint);font-size:13px}} .facts dd{{margin:0;overflow-wrap:anywhere}}
@media (max-width:760px){{body{{padding:12px}} .verdicts .meaning,.verdicts thead th:last-child{{display:none}}}}
"""

_PAPER: Final = """
@media print{@page{size:A4 landscape;margin:12mm}
body{max-width:none;padding:0;font-size:11pt} nav,.skip,.modebar-container{display:none}
.scroll{overflow:visible} table{font-size:9pt}
.violation,.run{border:0;padding:0;background:none} .banner{background:none}
.timeline,.spacetime{max-width:100%;height:auto}
h2,h3,h4,h4+.note,summary,thead{break-after:avoid} tr,svg,.chart,.banner{break-inside:avoid}}
"""


def page_style() -> str:
    """Variables and rules of the page, and the rules of its drawings. The dark theme is for screens only."""
    return (
        f":root{{color-scheme:light dark;{_variables(LIGHT, _LIGHT_SIGNS)}}}"
        f"@media screen and (prefers-color-scheme:dark){{:root{{{_variables(DARK, _DARK_SIGNS)}}}}}"
        f"{_RULES}{_PAPER}{style()}"
    )


def chart_themes() -> dict[str, Any]:
    """What plotly.js needs to know of the two themes."""
    return {
        name: {
            "font": {"color": theme.ink, "family": FONT, "size": 12},
            "grid": theme.grid,
            "mark": theme.fault,
            "colorway": list(theme.senders),
        }
        for name, theme in (("light", LIGHT), ("dark", DARK))
    }


SCRIPT: Final = """
const {charts,themes}=JSON.parse(document.getElementById('chart-data').textContent);
const night=matchMedia('screen and (prefers-color-scheme: dark)');
const config={displaylogo:false,responsive:true,modeBarButtons:[['toImage','zoom2d','pan2d','resetScale2d']],showTips:false};
function layout(chart,theme,width){
  const axis=given=>({gridcolor:theme.grid,zerolinecolor:theme.grid,automargin:true,...given});
  const shapes=(chart.layout.shapes||[]).map(shape=>({...shape,line:{...shape.line,color:theme.mark}}));
  return {paper_bgcolor:'rgba(0,0,0,0)',plot_bgcolor:'rgba(0,0,0,0)',font:theme.font,colorway:theme.colorway,
    margin:{l:60,r:16,t:12,b:48},hovermode:'closest',
    hoverlabel:{namelength:-1},modebar:{bgcolor:'rgba(0,0,0,0)',color:theme.grid,activecolor:theme.font.color},legend:{orientation:'h',y:1.02,yanchor:'bottom'},
    ...chart.layout,shapes,xaxis:axis(chart.layout.xaxis),yaxis:axis(chart.layout.yaxis),...(width?{width,autosize:false}:{autosize:true})};
}
function draw(theme,width){
  for(const [name,chart] of Object.entries(charts)){
    const place=document.getElementById(name);
    if(!place.closest('details:not([open])'))Plotly.react(place,structuredClone(chart.data),layout(chart,theme,width),config);
  }
}
const onScreen=()=>draw(night.matches?themes.dark:themes.light);
document.querySelectorAll('details').forEach(part=>part.addEventListener('toggle',()=>part.open&&onScreen()));
night.addEventListener('change',onScreen);
addEventListener('beforeprint',()=>draw(themes.light,960));
addEventListener('afterprint',onScreen);
onScreen();
"""
"""Charts in a folded part are drawn when it is unfolded, so that a page with many opens quickly. On paper they are light."""

UNFOLD: Final = """
let folded=[];
addEventListener('beforeprint',()=>{folded=[...document.querySelectorAll('details:not([open])')];folded.forEach(part=>part.open=true)});
addEventListener('afterprint',()=>folded.forEach(part=>part.open=false));
"""
"""On paper nothing is folded. This runs before the charts are drawn for printing."""


# --- page -------------------------------------------------------------------------------------------------------------

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
        rename(beside, path)
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
    """Some runs, those in trouble first; with all of them the page would be too large."""
    known = {run.name: run for run in content.runs}
    with_rows = runs_with_rows(content)
    names = [name for name in verdicts_by_run(content) if name in with_rows]
    drawn = [
        run_section(known.get(name, RunRow(name=name)), RowsOfRun(content, name, starts.get(name, 0)), place)
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
        parts.append(word_table(["measure", "before", "#", "after", "#", "#change"], map(_change, ordered)))
    return tag("section", words("h2", "Runs and builds compared"), *parts, id="measures")


def _change(one: ChangeRow) -> tuple[str, ...]:
    share = f"{(one.after - one.before) / one.before:+.1%}" if one.before and one.after is not None else ""
    before, after = ("" if value is None else f"{value:,.6g} {one.unit}" for value in (one.before, one.after))
    return one.what, one.before_build, before, one.after_build, after, share


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
