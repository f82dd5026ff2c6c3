"""Violations in words, guarantees in words, and the JSON of a run that failed."""

from random import Random

from tests.guarantees.oracle import good_history
from transis.audit.guarantees import HARNESS_MEANINGS, NODE_PROPERTIES, check
from transis.audit.guarantees.property import Violation
from transis.sim.plan import TOTEM
from transis.sim.run import simulate
from transis.sim.runs import Failure, SimulateRequest, Tally, replay_line
from transis.sim.words import as_dict, event_words, witness_lines
from transis.trace.events import Delivery, End, Fault, Gap, History, NodeTrace, NoteEvent, Refuse, Submit
from transis.types.ids import NodeId, Service

NODE = NodeId("a", 1, 7)


def twice_delivered(history: History) -> tuple[History, Delivery]:
    """The history in which one node delivers one message again, right after the first time."""
    trace = next(trace for trace in history.nodes if any(isinstance(event, Delivery) for event in trace.events))
    index = Random(1).choice([i for i, event in enumerate(trace.events) if isinstance(event, Delivery)])
    delivery = trace.events[index]
    assert isinstance(delivery, Delivery)
    later = [event._replace(lseq=event.lseq + 1) for event in trace.events[index:]]
    broken = NodeTrace(trace.node, [*trace.events[:index], delivery, *later])
    return history._replace(nodes=[broken if other is trace else other for other in history.nodes]), delivery


def test_a_witness_is_told_event_by_event() -> None:
    history, delivery = twice_delivered(good_history(1))
    told = list(witness_lines(history, check(history).violations))
    start = next(i for i, line in enumerate(told) if line.startswith("no_duplicates: "))
    assert f"event {delivery.lseq} at" in told[start + 1]
    assert "delivered" in told[start + 1]


def test_each_property_is_explained_once() -> None:
    violations = [Violation("fifo", f"number {i}", (), ()) for i in range(5)]
    assert list(witness_lines(good_history(1), violations)) == ["fifo: number 0"]


def test_every_kind_of_event_has_words() -> None:
    told = [
        event_words(NODE, event)
        for event in (
            Submit(1, 0, 0, 1, 3, Service.SAFE, b""),
            Refuse(2, 0, 0, 1, 1, "view changed"),
            End(3, 0, "failed"),
            Fault(4, 0, "crash a"),
            NoteEvent(5, 0, "token lost", ()),
            Gap(6, 0, 2, 5),
        )
    ]
    assert told == [
        "accepted a1 to a3",
        "refused a1: view changed",
        "ended: failed",
        "suffered: crash a",
        "noted: token lost",
        "dropped its events 2 to 5",
    ]


def test_every_guarantee_has_a_meaning_and_no_meaning_is_left_over() -> None:
    judged = simulate(0, nodes=1).report.verdicts
    assert {*NODE_PROPERTIES, *HARNESS_MEANINGS} == set(judged)


def test_a_failing_seed_is_in_the_json_with_its_replay_line() -> None:
    request = SimulateRequest(TOTEM, range(3, 5), None, 1, "", None)
    tally = Tally(failures=[Failure(4, ("fifo",), "why", "transis simulate --engine totem --seed 4")])
    found = as_dict(request, tally)["failing"]
    line = "transis simulate --engine totem --seed 4"
    assert found == [{"seed": 4, "properties": ["fifo"], "replay": line, "explanation": "why"}]


def test_the_replay_line_of_a_broken_engine_breaks_it_again() -> None:
    assert replay_line("transis simulate --seed 4", "fifo_off") == "transis simulate --seed 4 --broken fifo_off"
    assert replay_line("transis simulate --seed 4", "") == "transis simulate --seed 4"
