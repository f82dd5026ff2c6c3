"""The flight recorder: sealed digests, ring files that are exported as the deliveries they hold, bounds, a disk that refuses."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.trace.taped import taped_run
from transis.audit.guarantees import check
from transis.sim.plan import TOTEM, Scenario
from transis.trace.events import CheckpointEvent, Conf, Delivery, End, Event, Gap, History, NodeTrace, Prefix
from transis.trace.export import ExportRequest, export_wanted, main
from transis.trace.flight import (
    EXPORTING,
    KEPT,
    MB,
    RING_FILE_BYTES,
    RING_FILES,
    Flight,
    FlightLimits,
    Keep,
    RingFileWriter,
    Tidier,
    forget_half_exported,
    read_ring_file,
)
from transis.trace.reader import read_segment, read_trace
from transis.trace.recovery import record_end, seal_open_lives
from transis.trace.segment import DIGESTS, Header, frame, life_name
from transis.types.ids import NodeId, Place, ProcessId, Service, ViewId, ViewKind
from transis.types.limits import ADDRESS_MAX
from transis.types.outputs import Checkpoint, Delivered, Phase
from transis.types.views import Cause, GroupId, GroupViewId, Member, View

SECOND = 1_000_000
ODD = NodeId("ä %_b", 3, 7)
OTHER = NodeId("b", 1, 9)


def view_of(seq: int, node: NodeId = ODD, kind: ViewKind = ViewKind.REGULAR, regular: int = 0) -> View:
    view = ViewId(kind, seq, node)
    members = (Member(OTHER, "", None), Member(node, "", None))
    return View(view, ViewId(ViewKind.REGULAR, regular or seq, node), members, Cause("test"), 0)


def run_of(first: int, count: int, sender: NodeId = OTHER, address: bytes = b"x") -> Delivered:
    what = (ProcessId(sender, 0), address, Service.AGREED, first, [b"abc"] * count, view_of(4).id, Phase.REGULAR)
    return Delivered(*what, [(first, 0, count)], False, 5, 6, True)


class Opened:
    """Flight recorders, whose files are closed when the test is over."""

    def __init__(self) -> None:
        self.all: list[Flight] = []

    def __call__(self, directory: Path, node: NodeId = ODD, **limits: int) -> Flight:
        self.all.append(Flight(directory, Header("test", "live", node), FlightLimits(**limits), 0))
        return self.all[-1]


@pytest.fixture
def flight_in() -> Iterator[Opened]:
    opened = Opened()
    yield opened
    for flight in opened.all:
        flight.close(1 << 40, "failed")


def digests(directory: Path, node: NodeId = ODD) -> list[Event]:
    """Of all sealed files; they must be sealed and follow each other."""
    events: list[Event] = []
    previous = ""
    for path in sorted(directory.glob(f"life-{life_name(node)}-*{DIGESTS.suffix}")):
        segment = read_segment(path)
        assert segment.footer is not None
        assert segment.header.previous == previous
        previous = segment.digest
        events += segment.events
    return events


def exported(directory: Path, wanted: ExportRequest, out: Path) -> dict[NodeId, list[Event]]:
    export_wanted([directory], wanted, out)
    return {trace.node: trace.events for trace in read_trace(out).history.nodes} if out.exists() else {}


# --- what comes back ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", [TOTEM, Scenario("lansis")], ids=lambda one: one.engine)
def test_ring_files_of_a_run_are_exported_as_what_the_recorder_has(tmp_path: Path, scenario: Scenario) -> None:
    lives, history = taped_run(11, scenario=scenario)
    for life in lives:
        ring_files = RingFileWriter(tmp_path, Header("test", "live", life.node, engine=scenario.engine), type(life.tape)())
        assert ring_files.begin(0)
        assert ring_files.write(1, life.tape.take(0).pieces)
        ring_files.end()
    found = exported(tmp_path, ExportRequest(), tmp_path / "out")
    for trace in history.nodes:
        expected = [_comparable(event) for event in trace.events if isinstance(event, Conf | Delivery)]
        if expected:
            gap, *rest = found[trace.node]
            assert gap == Gap(2, 1, 1, 1)
            assert [_comparable(event) for event in rest][: len(expected)] == expected
            assert [event.lseq for event in rest] == list(range(3, len(rest) + 3))


def _comparable(event: Event) -> Event:
    if isinstance(event, Delivery):
        return event._replace(lseq=0, time_us=0, size=0, origin_us=0, timestamp=0)
    return event._replace(lseq=0, time_us=0)


def test_a_part_of_a_ring_file_has_the_configuration_in_force_and_a_gap(tmp_path: Path, flight_in: Opened) -> None:
    flight = flight_in(tmp_path)
    flight.look(0)
    flight.tape.configured(view_of(4))
    for second in range(1, 6):
        flight.tape.add(run_of(10 * second, 10))
        flight.observe(second * SECOND, [])
        flight.flush()
    flight.close(6 * SECOND, "stopped")
    whole = exported(tmp_path, ExportRequest(), tmp_path / "all")[ODD]
    assert [type(event) for event in whole] == [Gap, Conf, *[Delivery] * 5, End]
    by_time = exported(tmp_path, ExportRequest(3 * SECOND, 4 * SECOND), tmp_path / "time")[ODD]
    assert [type(event) for event in by_time] == [Conf, Gap, Delivery, Delivery]
    assert by_time[1] == Gap(3, 3 * SECOND, 2, 2)
    assert [event.first for event in by_time if isinstance(event, Delivery)] == [30, 40]
    by_place = exported(tmp_path, ExportRequest(regular=view_of(4).id, first=15, last=25), tmp_path / "place")[ODD]
    assert [event.tpos for event in by_place if isinstance(event, Delivery)] == [10, 20]
    assert exported(tmp_path, ExportRequest(regular=view_of(8).id), tmp_path / "none") == {}


def test_a_ring_file_that_begins_in_a_transitional_configuration_tells_both(tmp_path: Path, flight_in: Opened) -> None:
    flight = flight_in(tmp_path, minutes=1)
    flight.tape.configured(view_of(4))
    flight.tape.configured(view_of(6, kind=ViewKind.TRANSITIONAL, regular=4))
    flight.observe(SECOND, [])
    flight.flush()
    flight.look(60 * SECOND)
    flight.tape.add(run_of(1, 3))
    flight.tape.configured(view_of(8))
    flight.close(61 * SECOND, "failed")
    events = exported(tmp_path, ExportRequest(from_us=30 * SECOND), tmp_path / "out")[ODD]
    assert [type(event) for event in events] == [Conf, Gap, Conf, Gap, Delivery, Conf, End]
    assert [event.view.id.seq for event in events if isinstance(event, Conf)] == [4, 6, 8]
    assert [event.conf.seq for event in events if isinstance(event, Delivery)] == [6]


def test_what_is_forbidden_is_seen_in_ring_files_whose_beginning_is_gone(tmp_path: Path, flight_in: Opened) -> None:
    """A node that skips a message in a configuration that has long been there: nothing else could say so."""
    for node, skipped in ((ODD, 0), (OTHER, 33)):
        flight = flight_in(tmp_path, node)
        flight.tape.configured(view_of(4))
        for counter in range(1, 60):
            if counter != skipped:
                flight.tape.add(run_of(counter, 1))
            flight.observe(counter * SECOND, [])
            flight.flush()
        flight.close(60 * SECOND, "stopped")
    traces = exported(tmp_path, ExportRequest(20 * SECOND, 50 * SECOND), tmp_path / "out")
    report = check(History([NodeTrace(node, events) for node, events in sorted(traces.items())], closed=False))
    assert report.broken == ("one_sequence",)
    (violation,) = report.verdicts["one_sequence"].violations
    assert "delivered b/1#0:33" in violation.explanation
    assert "the last that they have in common is b/1#0:32" in violation.explanation


# --- digests --------------------------------------------------------------------------------------------------------


def test_digests_are_sealed_when_they_are_old_enough(tmp_path: Path, flight_in: Opened) -> None:
    flight = flight_in(tmp_path, seal_s=10)
    flight.look(0)
    flight.tape.configured(view_of(4))
    flight.tape.add(run_of(1, 1))
    for second in range(1, 10):
        flight.look(second * SECOND)
    assert digests(tmp_path) == []
    assert len(list(tmp_path.glob(f"life-*{DIGESTS.unfinished}"))) == 1
    for second in range(10, 40):
        flight.look(second * SECOND)
    assert [type(event) for event in digests(tmp_path)] == [Conf, Prefix]
    assert list(tmp_path.glob(f"life-*{DIGESTS.unfinished}")) == []
    told = Checkpoint(2, GroupId(5), "orders", GroupViewId(view_of(4).id, Place(1, 0)), 3, None, 0, Place(0, 0), b"state")
    flight.observe(41 * SECOND, [told, told._replace(count=1 << 70)])
    flight.flush()
    flight.close(42 * SECOND, "stopped")
    events = digests(tmp_path)
    again = Conf(3, 41 * SECOND, view_of(4))
    assert events[-3:] == [again, CheckpointEvent(4, 41 * SECOND, *told), End(5, 42 * SECOND, "stopped")]


def test_the_next_life_seals_what_a_killed_one_left(tmp_path: Path, flight_in: Opened) -> None:
    """Cut anywhere, as a power cut does it; twice is nothing."""
    flight = flight_in(tmp_path)
    flight.tape.configured(view_of(4))
    flight.tape.add(run_of(1, 1))
    flight.observe(SECOND, [])
    flight.flush()
    (path,) = tmp_path.glob(f"life-*{DIGESTS.unfinished}")
    content = path.read_bytes()
    for cut in range(0, len(content) + 1, 7):
        place = tmp_path / f"cut{cut}"
        place.mkdir()
        (place / path.name).write_bytes(content[:cut])
        stranger = place / path.name.replace(life_name(ODD), life_name(OTHER))
        stranger.write_bytes(content)
        seal_open_lives(place, ODD.name)
        assert record_end(place, ODD, "failed", DIGESTS) == bool(digests(place))
        events = digests(place)
        assert not events or isinstance(events[-1], End)
        assert [event.lseq for event in events] == list(range(1, len(events) + 1))
        seal_open_lives(place, ODD.name)
        assert not record_end(place, ODD, "failed", DIGESTS)
        assert digests(place) == events
        assert stranger.read_bytes() == content
    seal_open_lives(tmp_path / "nothing there", ODD.name)


# --- bounds ---------------------------------------------------------------------------------------------------------


def test_ring_files_are_rotated_and_the_oldest_deleted(tmp_path: Path, flight_in: Opened) -> None:
    flight = flight_in(tmp_path, films_mb=16)
    flight.tape.configured(view_of(4))
    flight.look(0)
    for number in range(4 * RING_FILE_BYTES // ADDRESS_MAX):
        flight.tape.add(run_of(1 + 2 * number, 1, address=(b"%08d" % number) * (ADDRESS_MAX // 8)))
        flight.observe(number * 1000, [])
        flight.flush()
    ring_files = list(tmp_path.glob(f"*{RING_FILES.suffix}"))
    assert len(ring_files) >= 3
    tidier = Tidier(tmp_path, ODD.name, flight.limits)
    found = tidier.tidy(flight.current, now_s=0)
    assert flight.current <= {path.name for path in tmp_path.iterdir()}
    assert found.bytes <= 16 * MB + MB
    assert sum(path.stat().st_size for path in tmp_path.glob("life-*")) == found.bytes
    later = tidier.tidy(flight.current, now_s=4e9)
    assert {path.name for path in tmp_path.glob("life-*")} == flight.current
    assert later.bytes < found.bytes
    (tmp_path / KEPT / "000001-R4-a").mkdir(parents=True)
    (tmp_path / KEPT / "000001-R4-a" / "big.trace").write_bytes(bytes(2 * MB))
    assert tidier.tidy(flight.current, now_s=4e9).kept == 1
    assert Tidier(tmp_path, ODD.name, FlightLimits(kept_mb=1)).tidy(flight.current, now_s=4e9).kept == 0


@contextmanager
def full_disk(bytes_max: int) -> Iterator[None]:
    """Files may not grow beyond this: every write that would is refused, or cut."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_max, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_refuses_is_a_gap_and_the_sums_go_on(tmp_path: Path, flight_in: Opened) -> None:
    flight, calm = flight_in(tmp_path / "refused"), flight_in(tmp_path / "calm")
    for second in range(1, 30):
        for one in (flight, calm):
            if second == 1:
                one.tape.configured(view_of(4))
            one.tape.add(run_of(second, 1, address=b"%d" % second))
        calm.look(second * SECOND)
        with full_disk(60 if 10 <= second < 20 else 1 << 30):
            flight.look(second * SECOND)
    flight.tape.configured(view_of(8))
    calm.tape.configured(view_of(8))
    flight.close(31 * SECOND, "stopped")
    calm.close(31 * SECOND, "stopped")
    assert flight.dropped > 0 == calm.dropped
    events = digests(tmp_path / "refused")
    assert any(isinstance(event, Gap) for event in events)
    lasts = [
        [event[3:] for event in events if isinstance(event, Prefix) and event.last]
        for events in (events, digests(tmp_path / "calm"))
    ]
    assert lasts[0] == lasts[1] != []
    told = exported(tmp_path / "refused", ExportRequest(), tmp_path / "out")[ODD]
    assert [type(event) for event in told].count(Gap) == 2
    runs = [event for event in told if isinstance(event, Delivery)]
    assert [run.address for run in runs] == [b"%d" % run.first for run in runs]
    assert {run.first for run in runs} >= {1, 9, 28}
    assert 15 not in {run.first for run in runs}
    assert all(run.tpos == run.first - 1 for run in runs)


# --- around changes of the view -------------------------------------------------------------------------------------


def test_changes_of_the_view_are_kept_together_when_they_are_close(tmp_path: Path, flight_in: Opened) -> None:
    flight = flight_in(tmp_path, before_s=30, after_s=10)
    found: list[Keep] = []
    for second in range(200):
        for seq, at in ((4, 5), (8, 12), (12, 100)):
            if second == at:
                flight.tape.configured(view_of(seq - 2, kind=ViewKind.TRANSITIONAL, regular=seq - 4))
                flight.tape.configured(view_of(seq))
        found += [keep] if (keep := flight.look(second * SECOND)) is not None else []
    assert found == [
        Keep(view_of(8).id, -25 * SECOND, 22 * SECOND),
        Keep(view_of(12).id, 70 * SECOND, 110 * SECOND),
    ]


def test_changes_without_end_are_kept_now_and_then(tmp_path: Path, flight_in: Opened) -> None:
    flight = flight_in(tmp_path, before_s=30, after_s=10)
    found = []
    for second in range(200):
        flight.tape.configured(view_of(4 + 4 * second))
        found += [keep] if (keep := flight.look(second * SECOND)) is not None else []
    assert [keep.to_us // SECOND for keep in found] == [40, 81, 122, 163]


def test_ring_files_behind_a_link_are_found(tmp_path: Path, flight_in: Opened) -> None:
    """As who follows several nodes puts their directories together."""
    flight = flight_in(tmp_path / "state")
    flight.tape.configured(view_of(4))
    flight.close(SECOND, "stopped")
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "n1").symlink_to(tmp_path / "state")
    assert list(exported(tmp_path / "all", ExportRequest(), tmp_path / "out")) == [ODD]


def test_ring_files_that_were_copied_are_exported_once(tmp_path: Path, flight_in: Opened) -> None:
    """A copy that is still on its way is shorter: the whole one counts, whichever is found first."""
    flight = flight_in(tmp_path / "n1")
    flight.look(0)
    flight.tape.configured(view_of(4))
    for second in range(1, 4):
        flight.tape.add(run_of(10 * second, 10))
        flight.observe(second * SECOND, [])
        flight.flush()
    flight.close(4 * SECOND, "stopped")
    expected = exported(tmp_path / "n1", ExportRequest(), tmp_path / "once")
    for name, part in (("backup", 1), ("a half", 2)):
        (tmp_path / name).mkdir()
        for ring_file in (tmp_path / "n1").glob(f"*{RING_FILES.suffix}"):
            content = ring_file.read_bytes()
            (tmp_path / name / ring_file.name).write_bytes(content[: len(content) // part])
    assert exported(tmp_path, ExportRequest(), tmp_path / "out") == expected


def test_what_is_exported_around_different_things_is_judged_apart(tmp_path: Path, flight_in: Opened) -> None:
    """Around changes that follow each other the same deliveries are told twice, which is no duplicate."""
    flight = flight_in(tmp_path)
    flight.look(0)
    flight.tape.configured(view_of(4))
    flight.tape.add(run_of(1, 10))
    flight.close(SECOND, "stopped")
    for around in ("R4@ann/1", "R8@ann/1"):
        export_wanted([tmp_path], ExportRequest(around=around), tmp_path / KEPT / around.partition("@")[0])
    runs = {read_segment(path).header.run for path in (tmp_path / KEPT).rglob("*.trace")}
    assert runs == {"live around R4@ann/1", "live around R8@ann/1"}


def test_a_frame_that_nobody_can_read_ends_its_ring_file_and_no_other(tmp_path: Path, flight_in: Opened) -> None:
    flight = flight_in(tmp_path, minutes=1)
    flight.look(0)
    flight.tape.configured(view_of(4))
    flight.observe(SECOND, [])
    flight.flush()
    flight.tape.add(run_of(1, 3))
    flight.look(60 * SECOND)
    (first,) = tmp_path.glob(f"*-000001{RING_FILES.suffix}")
    flight.tape.add(run_of(4, 2))
    flight.close(61 * SECOND, "failed")
    with first.open("ab") as ring_file:
        ring_file.write(frame(b"C", b"of a later version"))
    events = exported(tmp_path, ExportRequest(), tmp_path / "out")[ODD]
    assert [type(event) for event in events] == [Gap, Conf, Delivery, Gap, Delivery, End]


def test_what_is_exported_appears_when_it_is_complete(tmp_path: Path, flight_in: Opened) -> None:
    flight = flight_in(tmp_path)
    flight.tape.configured(view_of(4))
    flight.close(SECOND, "stopped")
    out = tmp_path / KEPT / "000001-R4-a"
    assert main([str(tmp_path), str(out), '{"from_us":0,"to_us":9000000,"why":"the view changed"}']) == 0
    assert sorted(path.suffix for path in out.iterdir()) == [".json", ".trace"]
    assert [path.name for path in out.parent.iterdir()] == [out.name]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["{here}", "out"], "2 arguments were given, three are needed"),
        (["{here}/nothing", "out", "{{}}"], "DIRECTORY = "),
        (["{here}", "out", "{{"], "WANTED = "),
        (["{here}", "out", '{{"from": 5}}'], "unknown field `from`"),
        (["{here}", "out", '{{"from_us": 9000000000}}'], "no ring file in "),
    ],
    ids=["too few", "no directory", "no JSON", "unknown field", "nothing there"],
)
def test_what_cannot_be_exported_is_one_sentence(
    arguments: list[str], complaint: str, tmp_path: Path, flight_in: Opened, capsys: pytest.CaptureFixture[str]
) -> None:
    flight_in(tmp_path).close(SECOND, "stopped")
    assert main([one.format(here=tmp_path) for one in arguments]) == 1
    said = capsys.readouterr().err
    assert complaint in said
    assert said.count("\n") == 1


def test_what_a_killed_one_left_half_exported_is_thrown_away(tmp_path: Path) -> None:
    left, whole = tmp_path / KEPT / f"{EXPORTING}000002-R8-a", tmp_path / KEPT / "000001-R4-a"
    for directory in (left, whole):
        directory.mkdir(parents=True)
        (directory / "n1.trace").write_bytes(b"x")
    forget_half_exported(tmp_path)
    assert list((tmp_path / KEPT).iterdir()) == [whole]


def test_every_file_of_digests_begins_with_the_configuration_in_force(tmp_path: Path, flight_in: Opened) -> None:
    """Older files are deleted: who begins to follow a configuration that is weeks old must know whom to wait for."""
    flight = flight_in(tmp_path, seal_s=1)
    flight.tape.configured(view_of(4))
    for second in range(1, 6):
        flight.tape.add(run_of(second, 1))
        flight.look(second * 2 * SECOND)
    flight.close(20 * SECOND, "stopped")
    files = [read_segment(path).events for path in sorted(tmp_path.glob(f"*{DIGESTS.suffix}"))]
    assert len(files) > 2
    for events in files[:-1]:
        assert isinstance(events[0], Conf)
        assert events[0].view == view_of(4)
        assert any(isinstance(event, Prefix) for event in events)


def test_a_pause_counts_what_it_dropped_and_nothing_twice(tmp_path: Path, flight_in: Opened) -> None:
    flight = flight_in(tmp_path)
    flight.paused = "the disk is full"
    flight.tape.configured(view_of(4))
    flight.look(SECOND)
    dropped = flight.dropped
    assert dropped > 0
    for second in range(2, 9):
        flight.look(second * SECOND)
    assert flight.dropped == dropped


def test_a_ring_file_is_read_up_to_its_last_whole_frame(tmp_path: Path, flight_in: Opened) -> None:
    flight = flight_in(tmp_path)
    flight.tape.configured(view_of(4))
    flight.look(0)
    for second in range(1, 4):
        flight.tape.add(run_of(second, 1))
        flight.observe(second * SECOND, [])
        flight.flush()
    flight.close(4 * SECOND, "stopped")
    path = max(tmp_path.glob(f"*{RING_FILES.suffix}"))
    content = path.read_bytes()
    counts = []
    for cut in range(len(content) - 150, len(content) + 1):
        path.write_bytes(content[:cut])
        counts.append(len(list(read_ring_file(path).frames)))
    assert counts == sorted(counts)
    assert len(set(counts)) > 2
