"""The drawing itself, layer by layer from the back: grid, views, faults, messages, lives, words on top.

Each element that a person may ask about carries a title; elements that belong together carry the same `data-k`, and
the page lights them up together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log10
from typing import Final

from transis.console.diagram.layout import LEFT, Layout
from transis.console.diagram.marks import fault_marks, legend, life_marks, proof_marks
from transis.console.diagram.traffic import Bundle, Landing, bundles, kind_of
from transis.drawing.labels import fitting
from transis.drawing.palette import sender_class, style, view_class
from transis.drawing.svg import element, group, line, number, path, rect, text, title
from transis.drawing.times import clock
from transis.sim.cluster import show_node, show_view, show_view_id
from transis.sim.picture import Band, Picture
from transis.types.ids import ProcessId, ViewId

RUNS_TOLD: Final = 6
LANDINGS_TOLD: Final = 24


def draw_svg(picture: Picture) -> str:
    """A self-contained SVG document."""
    layout = Layout(picture)
    numbers = _view_numbers(picture)
    layers = (
        element("style", style()),
        _definitions(),
        rect(0, 0, layout.width, layout.height, class_="paper"),
        group(_heading(layout), id="heading"),
        group(_grid(layout)),
        group(_bands(layout, numbers)),
        group(fault_marks(layout)),
        group(_messages(layout)),
        group(life_marks(layout)),
        group(_band_words(layout)),
        group(proof_marks(layout), id="proofs"),
        group(_lane_names(layout), id="lanes"),
    )
    size = {"width": number(layout.width), "height": number(layout.height)}
    view_box = f"0 0 {size['width']} {size['height']}"
    return element("svg", *layers, xmlns="http://www.w3.org/2000/svg", viewBox=view_box, **size, role="img")


def _definitions() -> str:
    stroke = path("M0 6 L6 0", class_="hatching", stroke_width="1", stroke_opacity=".55")
    return element("defs", element("pattern", stroke, id="hatch", width="6", height="6", patternUnits="userSpaceOnUse"))


def _heading(layout: Layout) -> Iterator[str]:
    yield text(14, 23, layout.picture.title, class_="title")
    for index, fact in enumerate(layout.picture.facts):
        yield text(14, 42 + 17 * index, fact, class_="faint")
    yield from legend(14, layout.head + 12, bool(layout.picture.proofs))


def _grid(layout: Layout) -> Iterator[str]:
    top, end = layout.axis_y, layout.lanes_end
    for time_us, offset in layout.scale.ticks():
        x = LEFT + offset
        yield line(x, top, x, end + 4, class_="grid")
        yield text(x, top - 6, clock(time_us), class_="faint small middle")
        yield text(x, end + 18, clock(time_us), class_="faint small middle")
    for silence in layout.scale.silences:
        yield _cut(layout, LEFT + silence.x + silence.width / 2, silence.end_us - silence.start_us)


def _cut(layout: Layout, x: float, length_us: int) -> str:
    words = f"nothing happens for {clock(length_us)}: cut short"
    zigzag = "".join(f"M{number(x + dx)} {number(y - 5)} l-4 10 " for y in (layout.axis_y, layout.lanes_end + 4) for dx in (0, 5))
    return group((path(zigzag, class_="life", fill="none"), rect(x - 8, layout.axis_y - 6, 16, 12, opacity="0"), title(words)))


def _view_numbers(picture: Picture) -> dict[ViewId, int]:
    """Regular views in order of appearance; a transitional view has the colour of the view that it ends."""
    starts = sorted((band.start, band.view.regular) for band in picture.bands)
    return {view: index for index, view in enumerate(dict.fromkeys(view for _, view in starts))}


def _bands(layout: Layout, numbers: dict[ViewId, int]) -> Iterator[str]:
    for band in layout.picture.bands:
        x, end = layout.x(band.start), layout.x(band.end)
        top, height = layout.strip(band.lane)
        shape = (x, top, max(1.0, end - x), height)
        parts = [rect(*shape, class_=f"edge {view_class(numbers[band.view.regular])}")]
        if not band.view.id.is_regular:
            parts.append(rect(*shape, fill="url(#hatch)"))
        yield group((*parts, title(_band_tip(band))), class_="b", data_k=f"v{band.view.id}")


def _band_tip(band: Band) -> str:
    view = band.view
    kind = "regular" if view.id.is_regular else f"transitional after {view.regular}"
    lines = [
        f"{show_node(band.node)}: {kind} view {view.id}",
        f"members {', '.join(map(str, view.nodes))}",
        f"cause: {view.cause}",
        f"from {clock(band.start.time_us)} to {clock(band.end.time_us)}",
    ]
    lines += [f"{member.node} comes from {member.previous or 'nowhere'}" for member in view.members if view.id.is_regular]
    return "\n".join(lines)


def _band_words(layout: Layout) -> Iterator[str]:
    for band in layout.picture.bands:
        x, width = layout.x(band.start), layout.x(band.end) - layout.x(band.start) - 6
        top, _ = layout.strip(band.lane)
        size = f"{len(band.view.members)} nodes"
        name = show_view_id(band.view.id)
        words = fitting((show_view(band.view), f"{name} {size}", name), width)
        if words:
            yield text(x + 4, top + 12, words, class_="halo", pointer_events="none")
        cause = (
            fitting((str(band.view.cause), band.view.cause.what), width) if layout.detailed and band.view.id.is_regular else ""
        )
        if cause:
            yield text(x + 4, top + 24, cause, class_="faint small halo", pointer_events="none")


def _lane_names(layout: Layout) -> Iterator[str]:
    picture = layout.picture
    yield rect(0, layout.lanes_top, LEFT - 6, layout.lanes_end - layout.lanes_top, class_="paper")
    for lane, name in enumerate(picture.lanes):
        y = layout.line_y(lane)
        yield element("circle", cx=16.0, cy=y - 4, r=5.0, class_=sender_class(lane))
        shown = name if len(name) <= 8 else name[:7] + "…"
        yield text(27, y, shown, title(name), class_="lane" if layout.lane_px > 30 else "")


def _messages(layout: Layout) -> Iterator[str]:
    drawn = bundles(layout.picture.sendings, layout.picture.arrivals, layout.x)
    for index, bundle in enumerate(drawn):
        landings = sorted(bundle.landings.values(), key=lambda landing: (landing.moment, landing.lane))
        yield group(
            (*_bundle_lines(layout, bundle), *_bundle_dots(layout, bundle, landings), title(_bundle_tip(bundle, landings))),
            class_=f"m {kind_of(bundle.service)} {sender_class(bundle.first.lane)}",
            data_k=f"m{index}",
        )


def _bundle_lines(layout: Layout, bundle: Bundle) -> Iterator[str]:
    x, y = layout.x(bundle.first.moment), layout.line_y(bundle.first.lane)
    yield line(x, y - 5, x, y + 5, stroke_width="1.6", stroke_dasharray="none")
    width = number(0.9 + 0.6 * log10(bundle.count))
    for landing in bundle.elsewhere:
        yield line(x, y, layout.x(landing.moment), layout.line_y(landing.lane), stroke_width=width)


def _bundle_dots(layout: Layout, bundle: Bundle, landings: Sequence[Landing]) -> Iterator[str]:
    radius = min(4.5, 1.9 + 0.7 * log10(bundle.count))
    for landing in landings:
        yield element("circle", cx=layout.x(landing.moment), cy=layout.line_y(landing.lane), r=radius, stroke="none")


def _bundle_tip(bundle: Bundle, landings: Sequence[Landing]) -> str:
    first = bundle.first
    what = f"{bundle.count} message{'s' if bundle.count > 1 else ''} ({kind_of(bundle.service)})"
    runs = [_run_words(*run) for run in bundle.runs[:RUNS_TOLD]]
    more = f" and {len(bundle.runs) - RUNS_TOLD} more runs" if len(bundle.runs) > RUNS_TOLD else ""
    lines = [
        f"{show_node(first.process.node)} sent {what} in {show_view_id(first.conf)} from {clock(first.moment.time_us)} on",
        ", ".join(runs) + more,
    ]
    for landing in landings[:LANDINGS_TOLD]:
        part = f" {landing.count} of them" if landing.count < bundle.count else ""
        view = show_view_id(landing.conf)
        lines.append(f"delivered at {show_node(landing.node)} in {view} from {clock(landing.moment.time_us)} on{part}")
    return "\n".join(lines if landings else [*lines, "delivered nowhere"])


def _run_words(process: ProcessId, first: int, count: int) -> str:
    return f"{process}:{first}" if count == 1 else f"{process}:{first}..{first + count - 1}"
