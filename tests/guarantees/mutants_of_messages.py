"""Mutants that drop, repeat, move, reorder or invent sends and deliveries. See `mutants.py`.

Where a wound would break more than its point, targets are narrowed: the last message of a stay leaves no hole behind it, a
stay without company owes nobody the same set, a place behind all others contradicts none.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TypeVar

from tests.guarantees.surgery import Draft, Kit
from transis.audit.guarantees.history import Life, Obligation, Stay
from transis.trace.events import Delivery, Gap, Refuse, Sent, Submit
from transis.types.ids import NodeId, Place, ProcessId, Service

MESSAGES = Kit()

STRANGER = 77
"""A process number that no history uses."""

Target = TypeVar("Target")


def strike(rng: Random, targets: list[Target], act: Callable[[Target], None]) -> bool:
    if targets:
        act(rng.choice(targets))
    return bool(targets)


# Order.


@MESSAGES.breaks("total_order_6_1", "places", "no_holes_6_3", "one_sequence")
def swapped_deliveries(draft: Draft, rng: Random) -> bool:
    """Two neighbours that do not depend on each other change places at one node; another node has both."""
    pairs = [pair for pair in _regular_neighbours(draft) if _independent(draft, *pair) and _witnesses(draft, *pair)]
    return strike(rng, pairs, lambda pair: _swap(draft, *pair))


@MESSAGES.breaks("total_order_6_1", "places", "no_holes_6_3", "one_sequence", "causal_5", "fifo")
def fifo_swap(draft: Draft, rng: Random) -> bool:
    """The same with two messages of one process."""
    pairs = [pair for pair in _regular_neighbours(draft) if _same_process(*pair) and _witnesses(draft, *pair)]
    return strike(rng, pairs, lambda pair: _swap(draft, *pair))


@MESSAGES.breaks("total_order_6_1", "places", "no_holes_6_3", "one_sequence", "causal_5")
def effect_before_cause(draft: Draft, rng: Random) -> bool:
    """The same with a message and one of another process that had seen, or whose node had sent, the first."""
    pairs = [
        pair
        for pair in _regular_neighbours(draft)
        if not _independent(draft, *pair) and not _same_process(*pair) and _witnesses(draft, *pair)
    ]
    return strike(rng, pairs, lambda pair: _swap(draft, *pair))


@MESSAGES.breaks("places")
def reordered_at_all_nodes(draft: Draft, rng: Random) -> bool:
    """Everybody delivers two neighbours the other way round: one order still, but not the one that places claim."""
    neighbours = set(_neighbours(draft))
    pairs = [
        (stay, position)
        for stay, position in _neighbours(draft)
        if _independent(draft, stay, position) and all(pair in neighbours for pair in _everywhere(draft, stay, position))
    ]

    def act(pair: tuple[Stay, int]) -> None:
        for stay, position in _everywhere(draft, *pair):
            _swap(draft, stay, position)

    return strike(rng, pairs, act)


@MESSAGES.breaks("fifo", "causal_5", "places")
def fifo_swap_at_all_nodes(draft: Draft, rng: Random) -> bool:
    """The same with two messages of one process: one order, which is not that in which it sent them."""
    neighbours = set(_neighbours(draft))
    pairs = [
        (stay, position)
        for stay, position in _neighbours(draft)
        if _same_process(stay, position) and all(pair in neighbours for pair in _everywhere(draft, stay, position))
    ]

    def act(pair: tuple[Stay, int]) -> None:
        for stay, position in _everywhere(draft, *pair):
            _swap(draft, stay, position)

    return strike(rng, pairs, act)


@MESSAGES.breaks("partial_order_1_1", "total_order_6_1")
def delivered_before_sent(draft: Draft, rng: Random) -> bool:
    """The sender delivers its message just before it sends it, with nothing else in between."""
    targets = []
    for stay in draft.stays:
        for origin in stay.ordered_origins:
            position = stay.position.get(stay.sent_codes[origin.first_rank])
            if position is not None and position == origin.before and position < stay.cut:
                targets.append((stay.node, origin.sent, stay.runs[position]))

    def act(target: tuple[NodeId, Sent, Delivery]) -> None:
        node, sent, run = target
        draft.cut(node, run)
        draft.put_before(node, sent, run)

    return strike(rng, targets, act)


@MESSAGES.breaks("places")
def false_place(draft: Draft, rng: Random) -> bool:
    """One node claims another index in the same datagram."""
    targets = [(stay, run) for stay in draft.stays for run in stay.runs]

    def act(target: tuple[Stay, Delivery]) -> None:
        stay, run = target
        draft.exchange(stay.node, run, run._replace(place=Place(run.place.seq, run.place.index + 1000)))

    return strike(rng, [target for target in targets if _last_in_datagram(*target)], act)


# Too few.


@MESSAGES.breaks("safe_7_1")
def dropped_safe(draft: Draft, rng: Random) -> bool:
    """A node without company misses the last safe message, which somebody delivered in the regular configuration."""
    return strike(rng, [stay for stay in _droppable(draft, safe=True) if not draft.company(stay)], _drop_last(draft))


@MESSAGES.breaks("safe_7_1", "failure_atomicity_4")
def dropped_safe_in_company(draft: Draft, rng: Random) -> bool:
    """The same at a node whose companions delivered it."""
    return strike(rng, [stay for stay in _droppable(draft, safe=True) if _company_has_last(draft, stay)], _drop_last(draft))


@MESSAGES.breaks("failure_atomicity_4")
def dropped_last_agreed(draft: Draft, rng: Random) -> bool:
    """A node misses the last agreed message before the change, its companions do not."""
    return strike(rng, [stay for stay in _droppable(draft, safe=False) if _company_has_last(draft, stay)], _drop_last(draft))


@MESSAGES.breaks("no_holes_6_3", "one_sequence", may=("failure_atomicity_4", "causal_5"))
def dropped_agreed(draft: Draft, rng: Random) -> bool:
    """A node misses a message in the middle, another has it. Company breaks 4 too, an answer that was seen 5."""
    targets = [
        (stay, position)
        for stay, position in _regular_neighbours(draft)
        if stay.runs[position].service is not Service.SAFE
        and stay.runs[position].process.node != stay.node
        and _witnesses(draft, stay, position)
    ]
    return strike(rng, targets, lambda target: draft.cut(target[0].node, target[0].runs[target[1]]))


@MESSAGES.breaks("one_sequence", may=("failure_atomicity_4", "causal_5"))
def skipped_behind_a_gap(draft: Draft, rng: Random) -> bool:
    """The same where the beginning of the stay is missing in the trace, as in one that begins in the middle of a view: nobody can
    say then whether it was delivered elsewhere, but what stands at its position is another message."""
    targets = [
        (stay, position)
        for stay, position in _regular_neighbours(draft)
        if position > 0 and stay.runs[position].process.node != stay.node and _in_regular_of_others(draft, stay, position)
    ]

    def act(target: tuple[Stay, int]) -> None:
        stay, position = target
        draft.put_after(stay.node, stay.conf, Gap(0, stay.conf.time_us, 0, 0))
        draft.cut(stay.node, stay.runs[position])

    return strike(rng, targets, act)


@MESSAGES.breaks("self_delivery_3")
def own_message_not_delivered(draft: Draft, rng: Random) -> bool:
    """A node without company does not deliver its own last message."""
    targets = [
        stay
        for stay in draft.stays
        if stay.runs
        and stay.obligation(closed=True) is Obligation.DUE
        and stay.runs[-1].process.node == stay.node
        and stay.runs[-1].service is not Service.SAFE
        and not draft.company(stay)
    ]
    return strike(rng, targets, _drop_last(draft))


@MESSAGES.breaks("self_delivery_3")
def sent_to_nobody(draft: Draft, rng: Random) -> bool:
    """A living node sends a last message of a new process, and nobody delivers it."""

    def act(life: Life) -> None:
        ring = life.stays[-1].ring
        ids = (STRANGER, 1, 1, Service.AGREED, b"")
        draft.append(life.node, Submit(0, 0, *ids), Sent(0, 0, ring, *ids, draft.next_place(ring), 0))

    return strike(rng, draft.alive, act)


@MESSAGES.breaks("no_creation", "delivered_where_sent_1_3", "every_submit_accounted")
def missing_send(draft: Draft, rng: Random) -> bool:
    """The SEND of a delivered message of a living node is gone."""
    delivered = {code for stay in draft.stays for code in stay.codes}
    targets = [
        (life.node, origin.sent)
        for life in draft.alive
        for origin in life.origins
        if _code(draft, life.node, origin.sent) in delivered
    ]
    return strike(rng, targets, lambda target: draft.cut(*target))


@MESSAGES.breaks("basic", "every_submit_accounted")
def missing_basic_send(draft: Draft, rng: Random) -> bool:
    """The same for a basic message."""
    delivered = {(run.process.node, run.process.number, run.first) for life in draft.index.lives for run in life.basics}
    targets = [
        (life.node, origin.sent)
        for life in draft.alive
        for origin in life.origins
        if (life.node, origin.sent.process, origin.sent.first) in delivered
    ]
    return strike(rng, targets, lambda target: draft.cut(*target))


@MESSAGES.breaks("every_submit_accounted")
def lost_submit(draft: Draft, rng: Random) -> bool:
    """A living node accepts a message of a new process and forgets it."""
    event = Submit(0, 0, STRANGER, 1, 1, Service.AGREED, b"")
    return strike(rng, draft.alive, lambda life: draft.append(life.node, event))


@MESSAGES.breaks("basic_arrives")
def lost_basic(draft: Draft, rng: Random) -> bool:
    """A basic message does not come to a node that goes on with its sender, or to the sender itself."""
    return strike(rng, _shared_basics(draft), lambda target: draft.cut(target[0].node, target[1]))


@MESSAGES.breaks("basic_arrives")
def late_basic(draft: Draft, rng: Random) -> bool:
    """It comes, but only when the next configuration is installed."""

    def act(target: tuple[Stay, Delivery]) -> None:
        stay, run = target
        assert stay.following is not None
        draft.cut(stay.node, run)
        draft.put_after(stay.node, stay.following.conf, run._replace(regular=stay.following.ring))

    return strike(rng, _shared_basics(draft), act)


def _shared_basics(draft: Draft) -> list[tuple[Stay, Delivery]]:
    """Deliveries of basic messages at nodes that went on to the next configuration with the sender; the sender is one of them."""
    ends = {(stay.ring, stay.node): stay.way for stay in draft.stays}
    return [
        (stay, run)
        for stay in draft.stays
        for run in stay.basics
        if stay.following is not None and ends.get((run.regular, run.process.node)) == stay.way
    ]


# Too many.


@MESSAGES.breaks("no_duplicates", may=("one_sequence",))
def duplicate_delivery(draft: Draft, rng: Random) -> bool:
    """What follows it stands one position further on than with others, if there is any in the regular configuration."""
    targets = [(stay.node, run) for stay in draft.stays for run in stay.runs]
    return strike(rng, targets, lambda target: draft.put_after(*target, target[1]))


@MESSAGES.breaks("basic")
def duplicate_basic(draft: Draft, rng: Random) -> bool:
    targets = [(life.node, run) for life in draft.index.lives for run in life.basics]
    return strike(rng, targets, lambda target: draft.put_after(*target, target[1]))


@MESSAGES.breaks("no_creation", "delivered_where_sent_1_3")
def delivery_from_nowhere(draft: Draft, rng: Random) -> bool:
    """A living node ends with a message that its process has not reached yet."""
    stays = [life.stays[-1] for life in draft.alive if life.stays[-1].runs]

    def act(stay: Stay) -> None:
        run = stay.runs[-1]
        draft.append(stay.node, run._replace(first=run.first + 10_000, place=draft.next_place(stay.ring), service=Service.AGREED))

    return strike(rng, stays, act)


@MESSAGES.breaks("basic")
def basic_from_nowhere(draft: Draft, rng: Random) -> bool:
    targets = [(life.node, run) for life in draft.index.lives for run in life.basics]
    return strike(rng, targets, lambda target: draft.put_after(*target, target[1]._replace(first=target[1].first + 10_000)))


@MESSAGES.breaks("sent_once_1_4")
def sent_twice(draft: Draft, rng: Random) -> bool:
    targets = [(life.node, origin.sent) for life in draft.index.lives for origin in life.origins]
    return strike(rng, targets, lambda target: draft.put_after(*target, target[1]))


@MESSAGES.breaks("every_submit_accounted")
def refused_and_sent(draft: Draft, rng: Random) -> bool:
    targets = [(life.node, origin.sent) for life in draft.index.lives for origin in life.origins]

    def act(target: tuple[NodeId, Sent]) -> None:
        node, sent = target
        draft.put_after(node, sent, Refuse(0, sent.time_us, sent.process, sent.first, 1, "mutant"))

    return strike(rng, targets, act)


# In the wrong view.


@MESSAGES.breaks("delivered_where_sent_1_3", "total_order_6_1", "failure_atomicity_4", may=("fifo",))
def moved_across_a_view(draft: Draft, rng: Random) -> bool:
    """A node delivers its stay's last message only at the end of its last view. Later messages of the sender: FIFO."""
    targets = [stay for stay in _droppable(draft, safe=False) if _company_has_last(draft, stay) and stay.life.end is None]

    def act(stay: Stay) -> None:
        run, ring = stay.runs[-1], stay.life.stays[-1].ring
        draft.cut(stay.node, run)
        draft.append(stay.node, run._replace(conf=ring, regular=ring, place=draft.next_place(ring)))

    return strike(rng, targets, act)


@MESSAGES.breaks("failure_atomicity_4", "total_order_6_1")
def moved_across_the_transitional(draft: Draft, rng: Random) -> bool:
    """The last message of the regular configuration comes after the transitional one at one of those who go together."""
    targets = [stay for stay in draft.stays if stay.cut and stay.trans is not None and any(map(_delivers, draft.company(stay)))]

    def act(stay: Stay) -> None:
        assert stay.trans is not None
        run = stay.runs[stay.cut - 1]
        draft.cut(stay.node, run)
        draft.put_after(stay.node, stay.trans, run._replace(conf=stay.trans.view.id))

    return strike(rng, [stay for stay in targets if stay.runs[stay.cut - 1].service is not Service.SAFE], act)


@MESSAGES.breaks("no_duplicates", "delivered_where_sent_1_3", may=("fifo",))
def delivered_again_in_a_later_view(draft: Draft, rng: Random) -> bool:
    """A living node repeats an old message at its end. Later messages of the sender: FIFO."""
    targets = [stay for life in draft.alive for stay in life.stays[:-1] if stay.runs]

    def act(stay: Stay) -> None:
        ring = stay.life.stays[-1].ring
        run = stay.runs[-1]._replace(service=Service.AGREED, conf=ring, regular=ring, place=draft.next_place(ring))
        draft.append(stay.node, run)

    return strike(rng, targets, act)


@MESSAGES.breaks("sent_once_1_4", "basic_arrives")
def sent_in_the_transitional(draft: Draft, rng: Random) -> bool:
    """A basic message is sent while a transitional configuration is in force, and lost."""

    def act(stay: Stay) -> None:
        assert stay.trans is not None
        submit = Submit(0, 0, STRANGER, 1, 1, Service.BASIC, b"")
        sent = Sent(0, 0, stay.ring, STRANGER, 1, 1, Service.BASIC, b"", Place(0, 0), 0)
        draft.put_after(stay.node, stay.trans, submit, sent)

    return strike(rng, [stay for stay in draft.stays if stay.trans is not None and stay.following is not None], act)


@MESSAGES.breaks("configuration_2_2")
def delivery_with_a_false_tag(draft: Draft, rng: Random) -> bool:
    """A delivery claims a ring that was not in force."""
    targets = [(stay, run) for stay in draft.stays for run in stay.runs]

    def act(target: tuple[Stay, Delivery]) -> None:
        stay, run = target
        draft.exchange(stay.node, run, run._replace(regular=run.regular._replace(seq=run.regular.seq + 1)))

    return strike(rng, targets, act)


def _neighbours(draft: Draft) -> list[tuple[Stay, int]]:
    """Ordered deliveries of sent messages that stand side by side in the trace, in one configuration."""
    return [
        (stay, position)
        for stay in draft.stays
        for position in range(len(stay.runs) - 1)
        if position + 1 != stay.cut
        and stay.runs[position].lseq + 1 == stay.runs[position + 1].lseq
        and draft.index.origins.keys() >= set(stay.codes[position : position + 2])
    ]


def _regular_neighbours(draft: Draft) -> list[tuple[Stay, int]]:
    """Neighbours in regular configurations, where no hole is explained."""
    return [(stay, position) for stay, position in _neighbours(draft) if position < stay.cut]


def _same_process(stay: Stay, position: int) -> bool:
    return stay.runs[position].process == stay.runs[position + 1].process


def _independent(draft: Draft, stay: Stay, position: int) -> bool:
    """The sender of the second had neither sent nor delivered the first when it sent the second."""
    first, second = stay.codes[position : position + 2]
    origin = draft.index.origins[second]
    assert origin.stay is not None
    seen = origin.stay.position.get(first, origin.before) < origin.before
    return not seen and stay.runs[position].process.node != stay.runs[position + 1].process.node


def _everywhere(draft: Draft, stay: Stay, position: int) -> list[tuple[Stay, int]]:
    """Where the first of two neighbours stands at everybody who has either of them."""
    first, second = stay.codes[position : position + 2]
    found = []
    for other in draft.index.rings[stay.ring].stays:
        here, there = other.position.get(first), other.position.get(second)
        if here is not None or there is not None:
            found.append((other, here if here is not None and there == here + 1 else -1))
    return found


def _witnesses(draft: Draft, stay: Stay, position: int) -> bool:
    """Does another node deliver both, and one, perhaps another, the first of them in the regular configuration?"""
    pair = stay.codes[position : position + 2]
    others = draft.index.rings[stay.ring].stays
    has_both = any(other is not stay and all(code in other.position for code in pair) for other in others)
    return has_both and _in_regular_of_others(draft, stay, position)


def _in_regular_of_others(draft: Draft, stay: Stay, position: int) -> bool:
    """Does another node have something at this position of the regular configuration?"""
    return any(other is not stay and other.cut > position for other in draft.index.rings[stay.ring].stays)


def _swap(draft: Draft, stay: Stay, position: int) -> None:
    draft.swap(stay.node, stay.runs[position], stay.runs[position + 1])


def _droppable(draft: Draft, safe: bool) -> list[Stay]:
    """Stays whose last delivery is somebody else's message, safe and delivered elsewhere in the regular, or not safe."""
    return [
        stay
        for stay in draft.stays
        if stay.runs
        and stay.obligation(closed=True) is Obligation.DUE
        and stay.runs[-1].process.node != stay.node
        and (stay.runs[-1].service is Service.SAFE) == safe
        and (not safe or _delivered_in_regular(draft, stay))
    ]


def _delivered_in_regular(draft: Draft, stay: Stay) -> bool:
    others = draft.index.rings[stay.ring].stays
    return any(other.position.get(stay.codes[-1], other.cut) < other.cut for other in others if other is not stay)


def _company_has_last(draft: Draft, stay: Stay) -> bool:
    return any(stay.codes[-1] in other.position for other in draft.company(stay))


def _drop_last(draft: Draft) -> Callable[[Stay], None]:
    return lambda stay: draft.cut(stay.node, stay.runs[-1])


def _delivers(stay: Stay) -> bool:
    return stay.cut > 0


def _last_in_datagram(stay: Stay, run: Delivery) -> bool:
    return all(other is run or other.place.seq != run.place.seq or other.place < run.place for other in stay.runs)


def _code(draft: Draft, node: NodeId, sent: Sent) -> int:
    return draft.index.codes(ProcessId(node, sent.process), sent.first, 1)[0]
