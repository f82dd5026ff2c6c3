"""A space-time diagram, drawn from a `Picture`: of a whole run, of its views only, or of the events around a violation.

1. Layers from the back: grid, views, faults, links, messages, lives, marks, words, the names of the lanes. Links are the token's
   way and the edges of the DAG; a page has a switch for each kind.
2. What a reader may want explained carries a title. Elements that belong together carry the same `data-k`, and the page lights
   them up together.
3. A diagram is a drawing, or a page around one for a browser. Nothing is fetched, and the page forbids itself to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import log10
from pathlib import Path
from typing import Final

from transis.audit.draw.layout import (
    Bundle,
    DrawnLink,
    Label,
    Landing,
    LifeLine,
    Picture,
    PictureLayout,
    bundles,
)
from transis.audit.draw.svg import (
    DARK,
    FONT,
    LIGHT,
    LabelRows,
    clock,
    element,
    escaped,
    fitting,
    group,
    line,
    number,
    path,
    rect,
    sender_class,
    shortened,
    style,
    text,
    title,
    view_class,
    width_of,
)

# --- documents --------------------------------------------------------------------------------------------------------


def draw_svg(picture: Picture) -> str:
    """A self-contained SVG document."""
    layout = PictureLayout(picture)
    size = {"width": number(layout.width), "height": number(layout.height)}
    view_box = f"0 0 {size['width']} {size['height']}"
    paper = rect(0, 0, layout.width, layout.height, class_="paper")
    drawn = (element("style", style()), _definitions(), paper, *_layers(layout, with_ids=True))
    return element("svg", *drawn, xmlns="http://www.w3.org/2000/svg", viewBox=view_box, **size, role="img")


def draw_inline(picture: Picture, label: str, class_: str) -> str:
    """An SVG element for a page that has `style()` and, once, `hatching()`."""
    layout = PictureLayout(picture)
    view_box = f"0 0 {number(layout.width)} {number(layout.height)}"
    size = {"width": layout.width, "height": layout.height}
    return element("svg", *_layers(layout, with_ids=False), viewBox=view_box, **size, role="img", aria_label=label, class_=class_)


def hatching() -> str:
    """The fill of transitional views. It must not be in a folded part of the page, where browsers do not find it."""
    return element("svg", _definitions(), width="0", height="0", class_="hidden", aria_hidden="true")


def _definitions() -> str:
    stroke = path("M0 6 L6 0", class_="hatching", stroke_width="1", stroke_opacity=".55")
    return element("defs", element("pattern", stroke, id="hatch", width="6", height="6", patternUnits="userSpaceOnUse"))


def write_diagram(file: Path, picture: Picture) -> None:
    """Write a bare drawing if the file's name ends in .svg, else a page."""
    drawn = draw_svg(picture) if file.suffix.lower() == ".svg" else draw_html(picture)
    file.write_text(drawn, encoding="utf-8")


# --- layers -----------------------------------------------------------------------------------------------------------


def _layers(layout: PictureLayout, with_ids: bool) -> Iterator[str]:
    """The script of a page with one drawing moves two layers by their ids; with several drawings ids would not be unique."""
    if layout.picture.title:
        yield group(_heading(layout), id="heading" if with_ids else None)
    yield group(_grid(layout))
    yield group(_bands(layout))
    yield group(_faults(layout))
    yield from _links(layout)
    yield group(_messages(layout))
    yield group(_lives(layout))
    yield group(_marks(layout))
    yield group(_band_words(layout))
    yield group(_mark_words(layout))
    yield group(_witnesses(layout), class_="witnesses")
    yield group(_lane_names(layout), id="lanes" if with_ids else None)


def _heading(layout: PictureLayout) -> Iterator[str]:
    yield text(14, 23, layout.picture.title, class_="title")
    for index, fact in enumerate(layout.picture.facts):
        yield text(14, 42 + 17 * index, fact, class_="faint")
    yield from _legend(14, layout.head + 12, bool(layout.picture.witnesses))


def _legend(x: float, y: float, broken: bool) -> Iterator[str]:
    """One row of signs, each with its meaning."""
    for sign, width, words in (*_LEGEND, _BROKEN) if broken else _LEGEND:
        yield element("g", sign, transform=f"translate({number(x)} {number(y)})")
        yield text(x + width + 5, y + 4, words, class_="faint")
        x += width + 5 + len(words) * 5.9 + 18


def _sample(kind: str) -> str:
    return element("g", line(0, 0, 26, 0, stroke_width="1.4"), class_=f"m {kind} c0")


_LEGEND: Final = (
    (rect(0, -6, 22, 12, class_="edge v0"), 22.0, "regular view"),
    (rect(0, -6, 22, 12, class_="edge v0") + rect(0, -6, 22, 12, fill="url(#hatch)"), 22.0, "transitional"),
    (_sample("ordered"), 26.0, "ordered message, sender's colour"),
    (_sample("safe"), 26.0, "safe"),
    (_sample("basic"), 26.0, "basic"),
    (_sample("causal"), 26.0, "causal"),
    (element("circle", cx=3, cy=0, r=3, class_="c0"), 6.0, "delivered"),
    (path("M0 -5 l8 5 l-8 5 z", class_="ink"), 8.0, "start"),
    (path("M0 -5 l10 10 m0 -10 l-10 10", class_="cross", fill="none"), 10.0, "crash"),
    (rect(0, -5, 10, 10, class_="ink"), 10.0, "stop"),
    (line(0, 0, 18, 0, class_="rest"), 18.0, "paused"),
    (line(0, 0, 18, 0, class_="blow wide"), 18.0, "fault"),
    (path("M4 -5 l-4 10 M9 -5 l-4 10", class_="life", fill="none"), 9.0, "silence, cut short"),
)

_BROKEN: Final = (element("circle", cx=6, cy=0, r=6, class_="ring"), 12.0, "part of a violation")


def _grid(layout: PictureLayout) -> Iterator[str]:
    top, end = layout.axis_y, layout.lanes_end
    for time_us, offset in layout.scale.ticks():
        x = layout.left + offset
        yield line(x, top, x, end + 4, class_="grid")
        yield text(x, top - 6, clock(time_us), class_="faint small middle")
        yield text(x, end + 18, clock(time_us), class_="faint small middle")
    for silence in layout.scale.silences:
        yield _cut(layout, layout.left + silence.x + silence.width / 2, silence.end_us - silence.start_us)


def _cut(layout: PictureLayout, x: float, length_us: int) -> str:
    words = f"nothing happens for {clock(length_us)}: cut short"
    zigzag = "".join(f"M{number(x + dx)} {number(y - 5)} l-4 10 " for y in (layout.axis_y, layout.lanes_end + 4) for dx in (0, 5))
    return group((path(zigzag, class_="life", fill="none"), rect(x - 8, layout.axis_y - 6, 16, 12, opacity="0"), title(words)))


def _lane_names(layout: PictureLayout) -> Iterator[str]:
    if layout.picture.title:
        yield rect(0, layout.lanes_top, layout.left - 6, layout.lanes_end - layout.lanes_top, class_="paper")
    for lane, name in enumerate(layout.picture.lanes):
        y = layout.line_y(lane)
        yield element("circle", cx=16.0, cy=y - 4, r=5.0, class_=sender_class(lane))
        words = shortened(name, layout.name_max)
        yield text(27, y, words, title(name), class_="lane" if layout.lane_px > 30 else "")


# --- views ------------------------------------------------------------------------------------------------------------


def _bands(layout: PictureLayout) -> Iterator[str]:
    """Views have colours in the order in which they appear."""
    starts = sorted((band.start, band.regular) for band in layout.picture.bands)
    numbers = {view: index for index, view in enumerate(dict.fromkeys(view for _, view in starts))}
    for band in layout.picture.bands:
        x, end = layout.x(band.start), layout.x(band.end)
        top, height = layout.band(band.lane)
        shape = (x, top, max(1.0, end - x), height)
        parts = [rect(*shape, class_=f"edge {view_class(numbers[band.regular])}")]
        if not band.is_regular:
            parts.append(rect(*shape, fill="url(#hatch)"))
        yield group((*parts, title(band.tip)), class_="b", data_k=f"v{band.view}")


def _band_words(layout: PictureLayout) -> Iterator[str]:
    for band in layout.picture.bands:
        x, width = layout.x(band.start), layout.x(band.end) - layout.x(band.start) - 6
        top, _ = layout.band(band.lane)
        name = fitting(band.names, width)
        detail = fitting(band.details, width) if layout.detailed else ""
        if name:
            yield text(x + 4, top + 12, name, class_="halo", pointer_events="none")
        if detail:
            yield text(x + 4, top + 24, detail, class_="faint small halo", pointer_events="none")


# --- faults and lives -------------------------------------------------------------------------------------------------


def _faults(layout: PictureLayout) -> Iterator[str]:
    for label in layout.labels:
        words = f"{clock(label.strike.time_us)}: {label.strike.text}"
        yield group((*_fault_lines(layout, label), *_fault_words(layout, label), title(words)), class_="f")


def _fault_lines(layout: PictureLayout, label: Label) -> Iterator[str]:
    """A fault of the network crosses all lanes; one of a node ends at its lane."""
    lanes = label.strike.lanes
    whole = not lanes or label.strike.kind == "partition"
    end = layout.lanes_end if whole else layout.line_y(lanes[-1])
    top = layout.axis_y - 4 if label.row is None else layout.label_y(label.row) + 2
    yield line(label.x, top, label.x, end, class_="blow wide" if whole else "blow", stroke_opacity=".8" if whole else ".5")
    for lane in () if whole else lanes:
        yield element("circle", cx=label.x, cy=layout.line_y(lane), r=3.0, class_="word")


def _fault_words(layout: PictureLayout, label: Label) -> Iterator[str]:
    if label.row is None:
        yield path(f"M{number(label.x - 3)} {number(layout.axis_y - 7)} h6 l-3 5 z", class_="word")
    else:
        yield text(label.word_x, layout.label_y(label.row), label.words, class_="word halo")


def _lives(layout: PictureLayout) -> Iterator[str]:
    for life in layout.picture.lives:
        y, start, end = layout.line_y(life.lane), layout.at(life.start_us), layout.at(life.end_us)
        yield line(start, y, end, y, class_="life")
        if life.birth:
            yield from _birth(layout, life, start, y)
        if life.death:
            yield group((_cross(end, y) if life.crashed else rect(end - 5, y - 5, 10, 10, class_="ink"), title(life.death)))
    for pause in layout.picture.pauses:
        y, start, end = layout.line_y(pause.lane), layout.at(pause.start_us), layout.at(pause.end_us)
        words = f"paused from {clock(pause.start_us)} to {clock(pause.end_us)}"
        yield line(start, y, end, y, title(words), class_="rest")


def _birth(layout: PictureLayout, life: LifeLine, x: float, y: float) -> Iterator[str]:
    yield path(f"M{number(x)} {number(y - 5)} l8 5 l-8 5 z", title(life.birth), class_="ink")
    if life.label and layout.detailed:
        yield text(x + 11, y + 13, life.label, class_="small halo", pointer_events="none")


def _cross(x: float, y: float) -> str:
    return path(f"M{number(x - 6)} {number(y - 6)} l12 12 m0 -12 l-12 12", class_="cross", fill="none")


# --- marks ------------------------------------------------------------------------------------------------------------

MARK_ROWS: Final = 2
MARK_WORDS_PX: Final = 130.0


def _marks(layout: PictureLayout) -> Iterator[str]:
    for mark in layout.picture.marks:
        drawn = _sign(mark.sign, layout.x(mark.moment), layout.line_y(mark.lane), sender_class(mark.lane))
        yield group((drawn, title(mark.tip)))


def _sign(sign: str, x: float, y: float, colour: str) -> str:
    match sign:
        case "send":
            return path(f"M{number(x)} {number(y - 7)} l5 11 h-10 z", class_=colour)
        case "deliver":
            return element("circle", cx=x, cy=y, r=4.2, class_=colour)
        case "view":
            return rect(x - 3, y - 14, 6, 28, class_="ink")
        case "end":
            return _cross(x, y)
        case "fault" | "gap":
            return path(f"M{number(x)} {number(y + 7)} l5 -11 h-10 z", class_="word")
        case "refused":
            return path(f"M{number(x)} {number(y + 4)} l-3 6 h6 z", class_="faint")
        case _:
            return element("circle", cx=x, cy=y, r=2.4, class_="faint")


def _mark_words(layout: PictureLayout) -> Iterator[str]:
    """The words of events, where there is room."""
    rows = [LabelRows(MARK_ROWS, layout.width) for _ in layout.picture.lanes]
    for mark in sorted(layout.picture.marks, key=lambda mark: layout.x(mark.moment)):
        words = fitting(mark.words, MARK_WORDS_PX)
        place = rows[mark.lane].place(layout.x(mark.moment) - 4, width_of(words)) if words else None
        if place is not None:
            row, x = place
            yield text(x, layout.line_y(mark.lane) + 21 + 12 * row, words, class_="halo small", pointer_events="none")


def _witnesses(layout: PictureLayout) -> Iterator[str]:
    for witness in layout.picture.witnesses:
        x, y = layout.x(witness.moment), layout.line_y(witness.lane)
        yield element("circle", title(witness.text), cx=x, cy=y, r=9.0, class_="ring")
        if witness.number:
            yield text(x, y - 13, witness.number, class_="alarm middle halo strong", pointer_events="none")


# --- links ------------------------------------------------------------------------------------------------------------

SHORTEST_PX: Final = 1.2
"""Links of one layer between the same lanes that begin closer to each other than this are drawn once."""
LAYERS: Final = {"token": "the token's way", "dag": "acknowledgements (DAG)"}


def _links(layout: PictureLayout) -> Iterator[str]:
    picture = layout.picture
    for layer in LAYERS:
        is_shown = layer in picture.layers
        links = [link for link in picture.links if link.layer == layer]
        if links:
            yield group(_drawn_links(layout, links), class_=layer if is_shown else f"{layer} off", id=f"layer-{layer}")


def _drawn_links(layout: PictureLayout, links: Sequence[DrawnLink]) -> Iterator[str]:
    """None within a silence that is cut short: there, an idle token would be a black block."""
    last: dict[tuple[int, int], float] = {}
    for link in sorted(links, key=lambda link: link.start):
        if layout.scale.is_cut(link.start.time_us) and layout.scale.is_cut(link.end.time_us):
            continue
        x, end = layout.x(link.start), layout.x(link.end)
        lanes = (link.lane, link.to_lane)
        if x - last.get(lanes, -SHORTEST_PX) >= SHORTEST_PX:
            last[lanes] = x
            y, end_y = layout.line_y(link.lane), layout.line_y(link.to_lane)
            yield (_arc if link.layer == "dag" else _straight)(x, y, end, end_y, link.tip)


def _straight(x: float, y: float, end: float, end_y: float, tip: str) -> str:
    return line(x, y, end, end_y, title(tip))


def _arc(x: float, y: float, end: float, end_y: float, tip: str) -> str:
    """Bent, so that it does not lie on the line of a message between the same moments."""
    bend = f"Q{number(max(x, end))} {number((y + end_y) / 2)}"
    return path(f"M{number(x)} {number(y)} {bend} {number(end)} {number(end_y)}", title(tip))


# --- messages ---------------------------------------------------------------------------------------------------------

RUNS_NAMED: Final = 6
LANDINGS_NAMED: Final = 24


def _messages(layout: PictureLayout) -> Iterator[str]:
    drawn = bundles(layout.picture.sendings, layout.picture.arrivals, layout.x)
    for index, bundle in enumerate(drawn):
        landings = sorted(bundle.landings.values(), key=lambda landing: (landing.moment, landing.lane))
        yield group(
            (*_bundle_lines(layout, bundle), *_bundle_dots(layout, bundle, landings), title(_bundle_tip(bundle, landings))),
            class_=f"m {bundle.first.kind} {sender_class(bundle.first.lane)}",
            data_k=f"m{index}",
            opacity=".4" if bundle.first.faint else None,
        )


def _bundle_lines(layout: PictureLayout, bundle: Bundle) -> Iterator[str]:
    x, y = layout.x(bundle.first.moment), layout.line_y(bundle.first.lane)
    yield line(x, y - 5, x, y + 5, stroke_width="1.6", stroke_dasharray="none")
    thin = bundle.first.faint or not layout.picture.spaced
    width = number((0.9 if thin else 1.8) + 0.6 * log10(bundle.count))
    for landing in bundle.elsewhere:
        yield line(x, y, layout.x(landing.moment), layout.line_y(landing.lane), stroke_width=width)


def _bundle_dots(layout: PictureLayout, bundle: Bundle, landings: Sequence[Landing]) -> Iterator[str]:
    radius = min(4.5, 1.9 + 0.7 * log10(bundle.count))
    for landing in landings:
        yield element("circle", cx=layout.x(landing.moment), cy=layout.line_y(landing.lane), r=radius, stroke="none")


def _bundle_tip(bundle: Bundle, landings: Sequence[Landing]) -> str:
    first = bundle.first
    messages = f"{bundle.count} message{'s' if bundle.count > 1 else ''} ({first.kind})"
    runs = [_run_words(*run) for run in bundle.runs[:RUNS_NAMED]]
    more = f" and {len(bundle.runs) - RUNS_NAMED} more runs" if len(bundle.runs) > RUNS_NAMED else ""
    lines = [
        f"{first.node} sent {messages}{_in(first.view)} from {clock(first.moment.time_us)} on",
        ", ".join(runs) + more,
    ]
    for landing in landings[:LANDINGS_NAMED]:
        part = f" {landing.count} of them" if landing.count < bundle.count else ""
        lines.append(f"delivered at {landing.node}{_in(landing.view)} from {clock(landing.moment.time_us)} on{part}")
    return "\n".join(lines if landings else [*lines, "delivered nowhere"])


def _in(view: str) -> str:
    return f" in {view.partition('@')[0]}" if view else ""


def _run_words(process: str, first: int, count: int) -> str:
    return f"{process}:{first}" if count == 1 else f"{process}:{first}..{first + count - 1}"


# --- page -------------------------------------------------------------------------------------------------------------

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"

_STYLE: Final = f"""
html{{color-scheme:light dark}}
body{{margin:0;font:14px/1.5 {FONT};background:{LIGHT.paper};color:{LIGHT.ink}}}
#scroll{{overflow-x:auto}}
svg{{display:block}}
svg.hot .m:not(.on){{opacity:.12}}
svg .b.on rect.edge{{stroke:currentColor;stroke-width:2}}
#controls{{display:flex;flex-wrap:wrap;gap:8px 20px;align-items:center;padding:8px 14px}}
#controls label,#controls button{{display:inline-flex;gap:6px;align-items:center;white-space:nowrap}}
#tip{{position:fixed;display:none;max-width:34em;padding:7px 10px;border-radius:6px;white-space:pre-line;pointer-events:none;
font-size:12px;line-height:1.4;background:{LIGHT.ink};color:{LIGHT.paper};box-shadow:0 3px 14px #0005;z-index:2}}
details{{margin:10px 14px}} summary{{cursor:pointer;font-weight:600}}
li{{font-variant-numeric:tabular-nums}} ul{{margin:6px 0;padding-left:22px}}
@media screen and (prefers-color-scheme:dark){{body{{background:{DARK.paper};color:{DARK.ink}}}
#tip{{background:{DARK.ink};color:{DARK.paper}}}}}
@media print{{#scroll{{overflow:visible}} svg{{width:100%;height:auto}} @page{{size:landscape;margin:10mm}}}}
"""

# Titles become tips that show at once; elements that share a `data-k` with the one under the pointer light up with it; the
# heading and the names of the lanes stay in sight; and the page opens at the violation, if there is one.
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
const still=[document.getElementById('lanes'),document.getElementById('heading')],ring=svg.querySelector('.witnesses .ring');
const hold=()=>still.forEach(e=>e&&e.setAttribute('transform',`translate(${scroll.scrollLeft*100/zoom.value} 0)`));
scroll.addEventListener('scroll',hold);
if(ring)scroll.scrollLeft=ring.cx.baseVal.value-innerWidth/2;
document.querySelectorAll('[data-layer]').forEach(box=>box.addEventListener('change',()=>
  document.getElementById('layer-'+box.dataset.layer).classList.toggle('off',!box.checked)));
const zoom=document.getElementById('zoom'),size=svg.viewBox.baseVal;
function scale(percent){
  const before=scroll.scrollLeft/svg.clientWidth;
  svg.setAttribute('width',size.width*percent/100);svg.setAttribute('height',size.height*percent/100);
  scroll.scrollLeft=before*svg.clientWidth;
  hold();
}
zoom.addEventListener('input',()=>scale(+zoom.value));
document.getElementById('fit').addEventListener('click',()=>{zoom.value=Math.max(10,100*innerWidth/size.width);scale(+zoom.value)});
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
        _controls(picture),
        element("div", draw_svg(picture), id="scroll"),
        _listed("What broke", (witness.text for witness in picture.witnesses), is_open=True),
        _listed("What was done", (f"{clock(strike.time_us)}: {strike.text}" for strike in picture.strikes)),
        '<div id="tip"></div>',
        f"<script>{_SCRIPT}</script>",
    )
    return f'<!DOCTYPE html>\n<html lang="en"><head>{"".join(head)}</head>\n<body>{"".join(body)}</body></html>\n'


def _controls(picture: Picture) -> str:
    """Switches for the layers that the picture has, and the zoom of a long run."""
    there = {link.layer for link in picture.links}
    boxes = [_switch(layer, words, is_on=layer in picture.layers) for layer, words in LAYERS.items() if layer in there]
    zoom = '<label>zoom <input type="range" id="zoom" min="10" max="300" value="100"/></label><button id="fit">whole run</button>'
    return element("div", *boxes, zoom, id="controls")


def _switch(layer: str, words: str, *, is_on: bool) -> str:
    box = element("input", type="checkbox", data_layer=layer, checked="checked" if is_on else None)
    return element("label", box, " ", escaped(words))


def _listed(heading: str, lines: Iterable[str], *, is_open: bool = False) -> str:
    """Each line once: several events may show one violation."""
    items = [element("li", escaped(line)) for line in dict.fromkeys(lines)]
    if not items:
        return ""
    return element("details", element("summary", escaped(heading)), element("ul", *items), open="open" if is_open else None)
