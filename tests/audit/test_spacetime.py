"""The diagram: well-formed whatever the names are, complete, and the same every time."""

from html.parser import HTMLParser
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from tests.guarantees.oracle import good_history
from transis.audit.draw.layout import LINES_MAX, Picture, PictureLayout, bundles
from transis.audit.draw.spacetime import draw_html, draw_svg
from transis.audit.draw.svg import escaped
from transis.audit.guarantees.property import Violation
from transis.sim.picture import picture_of
from transis.trace.events import Conf, Delivery, End, Event, History, NodeTrace, Sent
from transis.types.ids import NodeId, ProcessId, Service
from transis.types.views import Cause

SVG = "{http://www.w3.org/2000/svg}"
NASTY = "</svg><script>alert('x')</script>&\"\x00\x1b]]>"


def picture(seed: int = 1, steps: int = 300) -> Picture:
    return picture_of(good_history(seed, steps=steps), [(3, "crash a"), (9, "heal")], "a run", ["a fact"])


def renamed(history: History, name: str) -> History:
    """The same history with node a called something else, in every place where it is named."""

    def node(old: NodeId) -> NodeId:
        return old._replace(name=name) if old.name == "a" else old

    def event(old: Event) -> Event:
        if isinstance(old, Delivery):
            return old._replace(process=ProcessId(node(old.process.node), old.process.number))
        if isinstance(old, Conf):
            members = tuple(member._replace(node=node(member.node)) for member in old.view.members)
            return old._replace(view=old.view._replace(members=members, cause=Cause(name)))
        return old

    return history._replace(nodes=[NodeTrace(node(trace.node), list(map(event, trace.events))) for trace in history.nodes])


class Tags(HTMLParser):
    """Counts elements as a browser would find them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)


def test_names_full_of_markup_stay_text() -> None:
    nasty = picture_of(renamed(good_history(2), NASTY), [(5, f"crash {NASTY}")], NASTY, [NASTY])
    svg = draw_svg(nasty)
    root = ElementTree.fromstring(svg)
    assert not list(root.iter(f"{SVG}script"))
    assert any("alert('x')" in (found.text or "") for found in root.iter(f"{SVG}title"))
    page = Tags(draw_html(nasty))
    assert page.found.count("script") == 1
    assert page.found.count("svg") == 1


def test_a_page_fetches_nothing() -> None:
    page = draw_html(picture())
    assert not {"link", "img", "iframe", "object"} & set(Tags(page).found)
    assert "default-src 'none'" in page or "default-src &#39;none&#39;" in page
    assert page.count("http") == page.count("http://www.w3.org/2000/svg") + page.count("http-equiv")


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"])))
def test_escaped_text_reads_back(text: str) -> None:
    read = ElementTree.fromstring(f'<a b="{escaped(text)}">{escaped(text)}</a>')
    expected = text.replace("\ufffe", "\ufffd").replace("\uffff", "\ufffd")
    assert (read.text or "") == expected
    assert read.get("b") == expected


@given(st.text(st.characters(categories=["Cc", "Cs"])))
def test_what_xml_forbids_is_replaced(text: str) -> None:
    assert ElementTree.fromstring(f"<a>{escaped(text)}</a>").tag == "a"


def test_every_view_every_life_and_every_fault_is_drawn() -> None:
    drawn = picture()
    root = ElementTree.fromstring(draw_svg(drawn))
    bands = [found for found in root.iter(f"{SVG}g") if found.get("class") == "b"]
    assert len(bands) == len(drawn.bands)
    history = good_history(1, steps=300)
    assert len(drawn.bands) == sum(isinstance(event, Conf) for trace in history.nodes for event in trace.events)
    crosses = sum(isinstance(event, End) and event.how == "failed" for trace in history.nodes for event in trace.events)
    legend_cross = 1
    assert sum(found.get("class") == "cross" for found in root.iter(f"{SVG}path")) == crosses + legend_cross
    assert sum(found.get("class") == "f" for found in root.iter(f"{SVG}g")) == 2


def test_everything_lies_within_the_drawing() -> None:
    drawn = picture(seed=4)
    layout = PictureLayout(drawn)
    root = ElementTree.fromstring(draw_svg(drawn))
    for found in root.iter(f"{SVG}line"):
        for x in (found.get("x1"), found.get("x2")):
            assert 0 <= float(x or "nan") <= layout.width
        for y in (found.get("y1"), found.get("y2")):
            assert -6 <= float(y or "nan") <= layout.height


def test_the_same_history_gives_the_same_drawing() -> None:
    assert draw_html(picture(3)) == draw_html(picture(3))


def test_messages_are_bundled_until_they_fit() -> None:
    drawn = picture(seed=5, steps=4_000)
    made = bundles(drawn.sendings, drawn.arrivals, PictureLayout(drawn).x)
    assert sum(bundle.count for bundle in made) == sum(sending.count for sending in drawn.sendings)
    landed = sum(landing.count for bundle in made for landing in bundle.landings.values())
    assert landed == sum(arrival.count for arrival in drawn.arrivals)
    assert sum(len(bundle.elsewhere) for bundle in made) <= LINES_MAX


def test_two_lives_of_one_name_at_a_time_have_a_lane_each() -> None:
    history = good_history(1)
    first = history.nodes[0]
    copy = NodeTrace(first.node._replace(boot=first.node.boot + 1), list(first.events))
    lanes = picture_of(history._replace(nodes=[*history.nodes, copy])).lanes
    assert lanes.count(first.node.name) == picture_of(history).lanes.count(first.node.name) + 1


def test_witnesses_of_a_violation_are_ringed() -> None:
    history = good_history(1)
    trace = history.nodes[0]
    violation = Violation("fifo", "it is <wrong>", ((trace.node, trace.events[0].lseq), (trace.node, 1 << 40)), ())
    drawn = picture_of(history, violations=[violation])
    root = ElementTree.fromstring(draw_svg(drawn))
    witnesses = next(found for found in root.iter(f"{SVG}g") if found.get("class") == "witnesses")
    rings = witnesses.findall(f"{SVG}circle")
    assert [ring.findtext(f"{SVG}title") for ring in rings] == ["fifo: it is <wrong>"]


def test_a_pause_is_drawn_from_its_start_to_its_end() -> None:
    log = [(10, "pause a"), (30, "resume a"), (40, "on b Recovery crash b"), (50, "b stopped: it was told to")]
    drawn = picture_of(good_history(1), log)
    assert [(pause.start_us, pause.end_us) for pause in drawn.pauses] == [(10, 30)]
    assert [strike.kind for strike in drawn.strikes] == ["pause", "resume", "said"]


def test_each_service_has_a_line_of_its_own() -> None:
    """Causal messages, too: two nodes of Lansis may deliver them in different orders, and break nothing."""
    history = good_history(1, steps=300)
    assert {event.service for trace in history.nodes for event in trace.events if isinstance(event, Sent)} == set(Service)
    drawn = draw_svg(picture())
    assert all(f'class="m {kind} ' in drawn for kind in ("basic", "causal", "ordered", "safe"))
    assert all(f".{kind} line" in drawn for kind in ("basic", "causal", "safe"))


def test_an_empty_history_is_an_empty_drawing() -> None:
    root = ElementTree.fromstring(draw_svg(picture_of(History([], closed=True))))
    assert not [found for found in root.iter(f"{SVG}g") if found.get("class") == "b"]
