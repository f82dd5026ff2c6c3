"""How the page looks, on light and dark screens and on paper, and the few lines of script that draw its charts."""

from __future__ import annotations

from typing import Any, Final

from transis.drawing.palette import DARK, FONT, LIGHT, Theme, style

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
nav a{{margin-right:18px}} .skip{{position:absolute;left:-999em}}
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
.timeline{{display:block;width:100%;min-width:860px;height:auto}}
.spacetime{{display:block;margin:8px 0}} .spacetime .proof{{font-weight:700}}
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
.spacetime{max-width:100%;height:auto} .timeline{min-width:0}
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
"""Charts in a folded part are drawn when it is unfolded: a page of many opens quickly. On paper they are light."""

UNFOLD: Final = """
let folded=[];
addEventListener('beforeprint',()=>{folded=[...document.querySelectorAll('details:not([open])')];folded.forEach(part=>part.open=true)});
addEventListener('afterprint',()=>folded.forEach(part=>part.open=false));
"""
"""On paper nothing is folded. Runs before the charts are drawn for it."""
