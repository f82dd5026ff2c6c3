"""The tape: from its rows come the recorder's deliveries of the same run, and its sums are those of what was delivered."""

import pytest

from tests.trace.taped import Taped, taped_run
from transis.sim.plan import TOTEM, Scenario
from transis.trace.events import Conf, Delivery, Event
from transis.trace.tape import (
    ADDRESSES_MAX,
    DATAGRAMS_MAX,
    EMPTY,
    AddressNumber,
    DeliveryLog,
    Drained,
    PrefixDigest,
    after,
    head_of,
    rows_of,
    runs_of,
)
from transis.types.ids import NodeId, ProcessId, Service, ViewId, ViewKind
from transis.types.outputs import Delivered, Phase
from transis.types.views import PROCESSES_MAX, Cause, Member, View

A = NodeId("a", 1, 7)
B = NodeId("b", 1, 9)
REGULAR = ViewId(ViewKind.REGULAR, 4, A)
VIEW = View(REGULAR, REGULAR, (Member(A, "", None), Member(B, "", None)), Cause("test"), 0)

Shown = tuple[object, ...]


def shown(event: Conf | Delivery) -> Shown:
    """What of an event the tape keeps; runs of one datagram only."""
    if isinstance(event, Conf):
        return ("conf", event.view)
    who = (event.process.node.boot, event.process.number, event.first, event.count, event.service, event.address)
    return ("delivery", *who, event.place, event.tpos)


def from_tape(taken: Drained) -> list[Shown]:
    told: list[Shown] = []
    addresses: dict[int, bytes] = {}
    for piece in taken.pieces:
        if isinstance(piece, View):
            told.append(("conf", piece))
        elif isinstance(piece, AddressNumber):
            addresses[piece.number] = piece.address
        else:
            for row in rows_of(piece):
                for run in runs_of(row):
                    who = (row.boot, row.number, run.first, run.count, row.service, addresses[row.address])
                    told.append(("delivery", *who, run.place, run.tpos))
    return told


def recorded(events: list[Event]) -> list[Shown]:
    return [shown(event) for event in events if isinstance(event, Conf | Delivery)]


def sums_of(events: list[Event]) -> list[PrefixDigest]:
    """The last sums of every configuration but the one in force at the end, message by message."""
    found, sums, conf = [], EMPTY, None
    for event in events:
        if isinstance(event, Conf):
            if conf is not None:
                found.append(PrefixDigest(conf.id, conf.regular, sums, True))
            sums, conf = EMPTY, event.view
        elif isinstance(event, Delivery) and event.tpos >= 0:
            head = head_of(event.process.node.boot, event.process.number, event.service)
            for i in range(event.count):
                sums = after(sums, head, event.first + i, 1)
    return found


def check(life: Taped) -> int:
    """A node that was killed may have handed its tape what it had not handed its recorder."""
    expected, taken = recorded(life.events), life.tape.take(0)
    told = from_tape(taken)
    assert told[: len(expected)] == expected
    lasts = [one for one in taken.digests if isinstance(one, PrefixDigest) and one.last]
    ends = sums_of(life.events)
    assert lasts[: len(ends)] == ends
    return len(expected)


@pytest.mark.parametrize("groups", [False, True], ids=["nodes", "groups"])
@pytest.mark.parametrize("scenario", [TOTEM, Scenario("lansis"), Scenario("lansis", order="toto")], ids=lambda one: one.options)
def test_the_tape_has_what_the_recorder_has(scenario: Scenario, groups: bool) -> None:
    lives, _ = taped_run(3, groups, scenario)
    assert sum(map(check, lives)) > 100


def delivered(first: int, count: int, seq: int, index: int = 0, **changed: object) -> Delivered:
    run = Delivered(
        ProcessId(A, 0),
        b"x",
        Service.AGREED,
        first,
        [b"abc"] * count,
        REGULAR,
        Phase.REGULAR,
        [(seq, index, count)],
        False,
        5,
        6,
        True,
    )
    return run._replace(**changed)  # type: ignore[arg-type]


def wire_run(process: ProcessId, first: int, datagrams: int, seq: int, index: int = 0) -> list[Delivered]:
    """Two messages in each datagram, the first of which has messages of another run before them if there is an index."""
    return [delivered(first + 2 * i, 2, seq + i, 0 if i else index, process=process) for i in range(datagrams)]


def whole(*parts: Delivered) -> Delivered:
    """The parts of one run, delivered together."""
    payloads = [payload for part in parts for payload in part.payloads]
    return parts[0]._replace(payloads=payloads, stretches=[stretch for part in parts for stretch in part.stretches])


def same(*feeds: list[Delivered]) -> None:
    """What is fed comes back."""
    tape = DeliveryLog()
    tape.configured(VIEW)
    for run in (run for feed in feeds for run in feed):
        tape.add(run)
    told, tpos, expected = from_tape(tape.take(0))[1:], 0, []
    parts = [part for feed in feeds for run in feed for part in run.parts()]
    for run in (part for part in parts if part.process.number < PROCESSES_MAX):
        at = tpos if run.ordered else -1
        tpos += len(run.payloads) if run.ordered else 0
        who = (run.process.node.boot, run.process.number, run.first_counter, len(run.payloads), run.service, run.address)
        expected.append(("delivery", *who, run.place, at))
    assert told == expected


CONTROL = ProcessId(A, PROCESSES_MAX + 5)


@pytest.mark.parametrize(
    "feeds",
    {
        "one datagram after the other": ([delivered(1, 2, 1)], [delivered(3, 5, 2)], [delivered(8, 1, 3)]),
        "a run of several datagrams, and on": ([whole(*wire_run(ProcessId(A, 0), 1, 9, seq=4, index=3))], [delivered(19, 2, 13)]),
        "messages longer than a datagram": (
            [whole(delivered(1, 1, 1), delivered(2, 1, 4), delivered(3, 2, 5))],
            [whole(delivered(5, 1, 6), delivered(6, 1, 8))],
            [delivered(7, 300, 9)],
        ),
        "places that jump": ([delivered(1, 1, 1)], [delivered(2, 1, 5)], [delivered(3, 1, 1 << 43)]),
        "another sender": ([delivered(1, 1, 1)], [delivered(2, 1, 2, process=ProcessId(B, 0))], [delivered(2, 1, 3)]),
        "another address": ([delivered(1, 1, 1)], [delivered(2, 1, 2, address=b"y")]),
        "another service": ([delivered(1, 1, 1)], [delivered(2, 1, 2, service=Service.SAFE)]),
        "out of the order": ([delivered(1, 1, 1)], [delivered(2, 1, 2, service=Service.BASIC, ordered=False)]),
        "two runs of one datagram": ([delivered(1, 3, 1)], [delivered(4, 3, 1, 3)]),
        "a hole in the counters": ([delivered(1, 3, 1)], [delivered(5, 3, 2)]),
        "the groups' own": ([delivered(1, 3, 1)], [delivered(4, 1, 2, process=CONTROL)], [delivered(4, 1, 2, 1)]),
        "several runs of the wire in one burst": (
            [
                *wire_run(ProcessId(A, 0), 1, 10, seq=1),
                *wire_run(ProcessId(A, 0), 21, 3, seq=10, index=2),
                *wire_run(ProcessId(A, 1), 1, 1, seq=12, index=2),
                *wire_run(ProcessId(A, 0), 27, 40, seq=13),
            ],
            wire_run(ProcessId(A, 0), 107, 5, seq=53),
        ),
        "a long visit": ([delivered(i + 1, 1, i + 1) for i in range(DATAGRAMS_MAX + 7)], [delivered(DATAGRAMS_MAX + 8, 1, 9999)]),
    }.items(),
    ids=lambda item: item[0],
)
def test_every_cut_comes_back(feeds: tuple[str, tuple[list[Delivered], ...]]) -> None:
    same(*feeds[1])


def test_a_feed_of_one_run_is_one_row() -> None:
    process = ProcessId(A, 0)
    feed = [delivered(1 + 20 * i, 20, 1 + i, process=process) for i in range(46)]
    feed.append(delivered(1 + 20 * 46, 3, 50, process=process))
    tape = DeliveryLog()
    tape.configured(VIEW)
    for run in feed:
        tape.add(run)
    ramp = [piece for piece in tape.take(0).pieces if isinstance(piece, bytes)]
    assert len(ramp) == 1
    assert len(ramp[0]) < 64 + 47 * 10 + 10
    same(feed)


def test_numbers_of_addresses_are_given_anew_when_there_are_too_many() -> None:
    same(*([delivered(1, 1, 1 + i, address=b"%d" % i)] for i in range(2 * ADDRESSES_MAX + 5)))


def test_bytes_that_are_no_rows_end_them() -> None:
    tape = DeliveryLog()
    tape.configured(VIEW)
    tape.add(delivered(1, 2, 1))
    (rows,) = [piece for piece in tape.take(0).pieces if isinstance(piece, bytes)]
    assert len(list(rows_of(rows))) == 1
    for cut in range(len(rows)):
        assert list(rows_of(rows[:cut])) == []
    for junk in (bytes(200), b"\xff" * 200):
        assert list(rows_of(junk)) == []
        assert len(list(rows_of(rows + junk))) == 1


def test_digests_are_told_of_all_that_ended_and_of_where_everything_rests() -> None:
    tape = DeliveryLog()
    tape.configured(VIEW)
    tape.take(0)
    tape.add(delivered(1, 3, 1))
    assert tape.take(1).digests == [PrefixDigest(REGULAR, REGULAR, after(EMPTY, head_of(7, 0, Service.AGREED), 1, 2), False)]
    assert tape.take(5_000_000).digests == [
        PrefixDigest(REGULAR, REGULAR, after(EMPTY, head_of(7, 0, Service.AGREED), 1, 3), False)
    ]
