"""The recorder: numbers that are dense, positions that count, and a Gap instead of a stall."""

from collections.abc import Sequence

from transis.trace.events import Conf, Delivery, End, Event, Fault, Gap, NoteEvent, Refuse, Sent, Submit
from transis.trace.recorder import Recorder
from transis.types.ids import NodeId, Place, ProcessId, Service, ViewId, ViewKind
from transis.types.outputs import Accepted, Configure, Delivered, Lane, Note, Originated, Phase, Refused, Room, RunIds, Stopped
from transis.types.views import Cause, Member, View

A = NodeId("a", 1, 7)
REGULAR = ViewId(ViewKind.REGULAR, 4, A)
LATER = ViewId(ViewKind.REGULAR, 8, A)
TRANSITIONAL = ViewId(ViewKind.TRANSITIONAL, 6, A)
IDS = RunIds(0, 1, 2, Service.AGREED, b"x")


def configure(view: ViewId) -> Configure:
    return Configure(View(view, REGULAR, (Member(A, "", None),), Cause("test"), 0))


def delivered(first: int, count: int, service: Service = Service.AGREED, view: ViewId = REGULAR) -> Delivered:
    payloads, places = [b"abc"] * count, [(first, 0, count)]
    ordered = service is not Service.BASIC
    return Delivered(ProcessId(A, 0), b"x", service, first, payloads, view, Phase.REGULAR, places, False, 5, 6, ordered)


def test_outputs_become_events_with_dense_numbers() -> None:
    recorder = Recorder(A)
    outputs = [
        configure(REGULAR),
        Accepted(IDS),
        Originated(IDS, REGULAR, [(1, 0, IDS.count)], 9),
        delivered(1, 2),
        Refused(IDS, "why"),
    ]
    for now, output in enumerate([*outputs, Room(Lane.APPLICATION), Note("state", ()), Stopped("left")]):
        recorder.observe(now, [output])
    kinds = [type(event) for event in recorder.events]
    assert kinds == [Conf, Submit, Sent, Delivery, Refuse, NoteEvent, End]
    assert [event.lseq for event in recorder.events] == [1, 2, 3, 4, 5, 6, 7]
    assert recorder.events[2] == Sent(3, 2, REGULAR, 0, 1, 2, Service.AGREED, b"x", Place(1, 0), 9)


def test_tpos_counts_ordered_messages_through_the_transitional_and_starts_again() -> None:
    recorder = Recorder(A)
    outputs = [
        configure(REGULAR), delivered(1, 3), delivered(4, 1, Service.BASIC), delivered(5, 1, Service.CAUSAL),
        configure(TRANSITIONAL), delivered(6, 1, Service.SAFE), configure(LATER), delivered(7, 1),
    ]  # fmt: skip
    for output in outputs:
        recorder.observe(0, [output])
    runs = [event for event in recorder.events if isinstance(event, Delivery)]
    assert [run.tpos for run in runs] == [0, -1, 3, 4, 0]
    assert [run.conf for run in runs] == [REGULAR, REGULAR, REGULAR, TRANSITIONAL, LATER]
    assert runs[0].size == 9


def test_a_run_is_told_by_datagram_whatever_was_delivered_together() -> None:
    together, apart = Recorder(A), Recorder(A)
    pieces = [delivered(1, 2), delivered(3, 1), delivered(4, 3)]
    whole = delivered(1, 6)._replace(stretches=[piece.stretches[0] for piece in pieces])
    together.observe(9, [whole])
    for piece in pieces:
        apart.observe(9, [piece])
    assert together.events == apart.events
    assert len(apart.events) == 3


def test_notes_for_coverage_are_no_evidence() -> None:
    recorder = Recorder(A)
    recorder.observe(0, [Note("event", ())])
    recorder.observe(0, [Note("trap", ())])
    assert recorder.events == []


def test_nothing_follows_an_end() -> None:
    recorder = Recorder(A)
    recorder.fault(3, "cut a->b")
    recorder.end(4, "failed")
    recorder.end(5, "stopped")
    recorder.observe(6, [Accepted(IDS)])
    assert recorder.events == [Fault(1, 3, "cut a->b"), End(2, 4, "failed")]


class Fussy:
    """A sink that refuses the batches it is told to."""

    def __init__(self, refuse: set[int]) -> None:
        self.refuse = refuse
        self.calls = 0
        self.events: list[Event] = []

    def write(self, events: Sequence[Event]) -> bool:
        self.calls += 1
        if self.calls in self.refuse:
            return False
        self.events.extend(events)
        return True


def test_a_refused_batch_becomes_a_gap() -> None:
    sink = Fussy({2, 3})
    recorder = Recorder(A, sink)
    for turn in range(5):
        recorder.fault(turn, f"turn {turn}")
        recorder.flush()
    assert [event.lseq for event in sink.events] == [1, 5, 6, 7]
    assert sink.events[1] == Gap(5, 2, 2, 4)


def test_a_turn_beyond_its_limit_becomes_a_gap_behind_what_was_kept() -> None:
    sink = Fussy(set())
    recorder = Recorder(A, sink, turn_max=2)
    for turn in range(5):
        recorder.fault(turn, "many")
    recorder.flush()
    recorder.flush()
    assert [event.lseq for event in sink.events] == [1, 2, 6]
    assert sink.events[2] == Gap(6, 1, 3, 5)
