"""The drawing as a page for a browser: the SVG, a few lines of script for hovering, and what happened in words.

Self-contained: nothing is fetched, and the page forbids itself to.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from transis.console.diagram.layers import draw_svg
from transis.drawing.palette import DARK, FONT, LIGHT
from transis.drawing.svg import element, escaped
from transis.drawing.times import clock
from transis.sim.picture import Picture

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"

_STYLE: Final = f"""
html{{color-scheme:light dark}}
body{{margin:0;font:14px/1.5 {FONT};background:{LIGHT.paper};color:{LIGHT.ink}}}
#scroll{{overflow-x:auto}}
svg{{display:block}}
svg.hot .m:not(.on){{opacity:.12}}
svg .b.on rect.edge{{stroke:currentColor;stroke-width:2}}
#tip{{position:fixed;display:none;max-width:34em;padding:7px 10px;border-radius:6px;white-space:pre-line;pointer-events:none;
font-size:12px;line-height:1.4;background:{LIGHT.ink};color:{LIGHT.paper};box-shadow:0 3px 14px #0005;z-index:2}}
details{{margin:10px 14px}} summary{{cursor:pointer;font-weight:600}}
li{{font-variant-numeric:tabular-nums}} ul{{margin:6px 0;padding-left:22px}}
@media screen and (prefers-color-scheme:dark){{body{{background:{DARK.paper};color:{DARK.ink}}}
#tip{{background:{DARK.ink};color:{DARK.paper}}}}}
@media print{{#scroll{{overflow:visible}} svg{{width:100%;height:auto}} @page{{size:landscape;margin:10mm}}}}
"""

# Titles become tips that show at once; what shares a `data-k` with the element under the pointer lights up with it; the
# heading and the names of the lanes stay in sight; and a violation is what one sees first.
_SCRIPT: Final = """
const svg=document.querySelector('svg'),tip=document.getElementById('tip'),scroll=document.getElementById('scroll');
svg.querySelectorAll('title').forEach(t=>{t.parentNode.dataset.tip=t.textContent;t.remove()});
let lit=[];
function dark(){lit.forEach(e=>e.classList.remove('on'));lit=[];svg.classList.remove('hot');tip.style.display='none'}
svg.addEventListener('pointermove',event=>{
  const found=event.target.closest('[data-tip]');
  dark();
  if(!found)return;
  tip.textContent=found.dataset.tip;tip.style.display='block';
  const x=Math.min(event.clientX+14,innerWidth-tip.offsetWidth-8),below=event.clientY+16;
  tip.style.left=Math.max(4,x)+'px';
  tip.style.top=(below+tip.offsetHeight>innerHeight?event.clientY-tip.offsetHeight-12:below)+'px';
  const key=found.dataset.k;
  if(!key)return;
  lit=[...svg.querySelectorAll('[data-k]')].filter(e=>e.dataset.k===key);
  lit.forEach(e=>e.classList.add('on'));
  if(found.classList.contains('m'))svg.classList.add('hot');
});
svg.addEventListener('pointerleave',dark);
const still=[document.getElementById('lanes'),document.getElementById('heading')],ring=svg.querySelector('#proofs .ring');
scroll.addEventListener('scroll',()=>still.forEach(e=>e.setAttribute('transform',`translate(${scroll.scrollLeft} 0)`)));
if(ring)scroll.scrollLeft=ring.cx.baseVal.value-innerWidth/2;
"""


def draw_html(picture: Picture) -> str:
    """A self-contained HTML document."""
    head = (
        '<meta charset="utf-8"/>',
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
        element("title", escaped(picture.title)),
        element("style", _STYLE),
    )
    body = (
        element("div", draw_svg(picture), id="scroll"),
        _listed("What was done", (f"{clock(strike.time_us)}: {strike.text}" for strike in picture.strikes)),
        '<div id="tip"></div>',
        f"<script>{_SCRIPT}</script>",
    )
    return f'<!DOCTYPE html>\n<html lang="en"><head>{"".join(head)}</head>\n<body>{"".join(body)}</body></html>\n'


def _listed(heading: str, lines: Iterable[str]) -> str:
    items = [element("li", escaped(line)) for line in lines]
    if not items:
        return ""
    return element("details", element("summary", escaped(heading)), element("ul", *items))
