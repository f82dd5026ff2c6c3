"""Streams of an archiver made up by hypothesis: frames, views and configurations as a node might tell them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from transis.client.attributes import time_at, with_attributes
from transis.client.events import Batch, Configuration, Raw, View
from transis.sessions.frames import Stream, payload_cost
from transis.types.ids import NodeId, Place, ProcessId, Service, Stretch, ViewId, ViewKind
from transis.types.views import Address, Cause, GroupCause, GroupViewId, Member, Origin, group_id
from transis.wire.items import attributed_address, encode_address

Event = Batch[bytes] | View | Configuration

NODES = (NodeId("ann", 1, 7), NodeId("bob", 2, 1 << 63), NodeId("bob", 3, 5))
PROCESSES = tuple(ProcessId(node, number) for node in NODES for number in (1, 2))
EVENT_US = 1_600_000_000_000_000
START = ViewId(ViewKind.REGULAR, 4, NODES[0])


def configuration(view: ViewId, regular: ViewId, previous: ViewId | None) -> Configuration:
    members = tuple(Member(node, "x:1", previous if number else None) for number, node in enumerate(NODES))
    return Configuration(view, regular, members, Cause("token lost", NODES[0], (NODES[1],), "token_loss"), 0)


def group_view(view: ViewId, place: Place, primary: bool | None = None, names: tuple[str, ...] = ()) -> View:
    origins = (Origin(GroupViewId(START, Place(0, 0)), PROCESSES[:2]),)
    cause = GroupCause("join", PROCESSES[0])
    members, joined, left = PROCESSES[:3], PROCESSES[:1], PROCESSES[3:]
    return View(group_id("g"), "g", GroupViewId(view, place), members, joined, left, origins, cause, primary, names)


def batch(
    conf: ViewId,
    sender: ProcessId,
    service: Service,
    first: int,
    stretches: list[Stretch],
    size: int = 3,
    attributed: bool = False,
) -> Batch[bytes]:
    """If `attributed`, every second message has a key, every third one headers, and every fifth one a time of its own."""
    payloads = [b"%d" % (first + rank) + bytes(size) for rank in range(sum(count for _, _, count in stretches))]
    address = b""
    if attributed:
        address = attributed_address(encode_address(Address((group_id("g"),))))
        payloads = [_attributed(first + rank, payload) for rank, payload in enumerate(payloads)]
    times = [(EVENT_US + first, len(payloads))]
    frame = Stream(sender, address, service, conf, 1000 + first, first, stretches, payloads, times, payload_cost(payloads))
    return Batch(frame, ("g",), Raw())


def _attributed(counter: int, data: bytes) -> bytes:
    key = None if counter % 2 else b"k%d" % counter
    headers = None if counter % 3 else {"source": b"web", "\u00fc": bytes([counter % 256])}
    return with_attributes(data, key, headers, None if counter % 5 else time_at(EVENT_US + counter * 77))


@st.composite
def streams(draw: st.DrawFn) -> list[Event]:
    """Begins with what is in force and a view; places grow in a ring, and rings follow each other."""
    ring, conf, seq = START, START, draw(st.integers(1, 5))
    events: list[Event] = [configuration(START, START, None), group_view(START, Place(seq, 0))]
    counters = dict.fromkeys(PROCESSES, 0)
    for step in draw(st.lists(st.sampled_from("mmmmmvctr"), max_size=25)):
        if step == "v" and conf.is_regular:
            seq += 1
            place, names = Place(seq, draw(st.integers(0, 3))), draw(st.sampled_from([(), ("billing", "", "stock")]))
            events.append(group_view(ring, place, draw(st.sampled_from([None, True, False])), names))
        elif step == "t" and conf.is_regular:
            conf = ViewId(ViewKind.TRANSITIONAL, ring.seq + 2, NODES[1])
            events += [configuration(conf, ring, ring), group_view(conf, Place(0, 0))]
        elif step in "cr":
            ring = conf = ViewId(ViewKind.REGULAR, ring.seq + 4, draw(st.sampled_from(NODES)))
            seq = 0
            events.append(configuration(ring, ring, None))
            events += [group_view(ring, Place(0, 0))] if step == "r" else []
        elif step == "m":
            seq, made = draw(messages(conf, seq, counters))
            events.append(made)
    return events


@st.composite
def messages(draw: st.DrawFn, conf: ViewId, seq: int, counters: dict[ProcessId, int]) -> Any:
    stretches: list[Stretch] = []
    for count in draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)):
        seq += 1
        stretches.append((seq, draw(st.integers(0, 9)), count))
    sender, skip = draw(st.sampled_from(PROCESSES)), draw(st.integers(0, 2))
    service, size = draw(st.sampled_from(Service)), draw(st.integers(0, 4))
    made = batch(conf, sender, service, counters[sender] + 1, stretches, size, draw(st.booleans()))
    counters[sender] += len(made)
    return seq, made.after(min(skip, len(made) - 1))
