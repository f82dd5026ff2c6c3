"""Verdicts on groups where evidence is missing: what cannot be known is pending, never broken; what is known still counts."""

from collections import Counter
from functools import cache

from tests.guarantees.toy import Toy
from transis.audit.guarantees import GROUP_PROPERTIES, check, check_groups
from transis.sim.run import simulate
from transis.trace.events import ClientDelivery, ClientLife, Delivery, Event, Gap, HandedRuns, History, NodeTrace
from transis.types.ids import Service


@cache
def recorded() -> History:
    return simulate(5, nodes=4, groups=True).history


def without(history: History, kind: type[Event]) -> History:
    """The events keep their numbers: deliveries are pointed at by them."""
    kept = [NodeTrace(node, [event for event in events if not isinstance(event, kind)]) for node, events in history.nodes]
    return history._replace(nodes=kept)


def test_a_history_without_clients_is_not_judged_by_their_properties() -> None:
    history = simulate(5, nodes=3).history
    assert not set(check(history).verdicts) & set(GROUP_PROPERTIES)
    assert {verdict.verdict for verdict in check_groups(history).verdicts.values()} == {"not exercised"}


def test_every_property_is_judged_where_there_are_clients() -> None:
    verdicts = check(recorded()).verdicts
    expected = dict.fromkeys(GROUP_PROPERTIES, "held") | {"replicas_agree": "not exercised"}
    assert {name: verdicts[name].verdict for name in GROUP_PROPERTIES} == expected


def test_toto_promises_no_order_by_places_to_groups_either() -> None:
    """41 of 100 seeds of ToTo with groups broke `group_order`: messages leave as they are voted on, and not by their places."""
    text = Toy("a: R4{a} c1 Vg1{a#1} s4@g d4 h4>1 c2 Vg3{a#1,a#2}")
    assert "group_order" in check(text.history(engine="lansis")).broken
    assert check(text.history(promises="toto", engine="lansis")).verdicts["group_order"].verdict == "not promised"


def test_a_gap_leaves_what_it_touches_pending() -> None:
    history = recorded()
    for place, (node, events) in enumerate(history.nodes):
        middle = len(events) // 2
        hole = Gap(events[middle].lseq, events[middle].time_us, events[middle].lseq, events[middle + 3].lseq)
        cut = NodeTrace(node, [*events[:middle], hole, *events[middle + 4 :]])
        outcome = check_groups(history._replace(nodes=[*history.nodes[:place], cut, *history.nodes[place + 1 :]]))
        assert outcome.broken == (), [violation.explanation for violation in outcome.violations]
        assert "group_members_only" in outcome.pending


def test_an_open_history_is_not_broken() -> None:
    """All traces end at one moment: in one that ends long before the others, what made their processes known may be missing."""
    history = recorded()._replace(closed=False)
    times = sorted(event.time_us for _, events in history.nodes for event in events)
    moment = times[len(times) * 2 // 3]
    cut = [NodeTrace(node, [event for event in events if event.time_us <= moment]) for node, events in history.nodes]
    assert check_groups(history._replace(nodes=cut)).broken == ()


def test_where_nobody_says_who_connects_silence_is_no_proof_but_a_later_word_is() -> None:
    """The last thing that a process gets may be missing because it is gone; one in the middle may not."""
    history = without(recorded(), ClientLife)
    assert "group_members_only" not in check_groups(history).broken
    node, events = next((node, events) for node, events in history.nodes if len(ordered_handings(events)) > 2)
    found = ordered_handings(events)
    assert "group_members_only" in check_groups(taken_back(history, node, *found[0])).broken


def ordered_handings(events: list[Event]) -> list[tuple[ClientDelivery, HandedRuns]]:
    """What processes of one set got that they were obliged to get; several such events, so that the first is not the last."""
    basic = {event.lseq for event in events if isinstance(event, Delivery) and event.service is Service.BASIC}
    handings = [(event, event.handed[0]) for event in events if isinstance(event, ClientDelivery) and len(event.handed) == 1]
    obliged = [(event, handed) for event, handed in handings if not basic.issuperset(handed.runs)]
    often = Counter(handed.processes for _, handed in obliged).most_common(1)
    return [one for one in obliged if one[1].processes == often[0][0]]


def taken_back(history: History, gone_from: object, event: ClientDelivery, handed: HandedRuns) -> History:
    nodes = [
        NodeTrace(node, [other for other in events if node != gone_from or other is not event]) for node, events in history.nodes
    ]
    return history._replace(nodes=nodes)
