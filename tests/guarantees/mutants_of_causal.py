"""Mutants of causal messages that are not in the total order (Lansis): whoever looks at ordered messages only sees none of them.

See `mutants.py`. Where a wound would break more than its point, targets are narrowed as in `mutants_of_messages.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tests.guarantees.mutants_of_messages import strike
from tests.guarantees.surgery import Draft, Kit
from transis.audit.guarantees.history import Deliveries, Obligation, SentRun, Stay
from transis.trace.events import Delivery, Sent
from transis.types.ids import MessageId, NodeId, ProcessId, Service

CAUSAL = Kit()

Pair = tuple[Stay, int]
"""A stay and the position of the first of two neighbours in it."""


# Order.


@CAUSAL.breaks("causal_5")
def causal_before_a_causal_cause(draft: Draft, rng: Random) -> bool:
    """A causal message and one before it that its sender had seen change places at one node."""
    pairs = [pair for pair in _effects(draft) if not _same_process(*pair) and _is_causal(pair[0].all.runs[pair[1]])]
    return strike(rng, pairs, lambda pair: _swap(draft, *pair))


@CAUSAL.breaks("causal_5", "total_order_6_1")
def causal_before_an_ordered_cause(draft: Draft, rng: Random) -> bool:
    """The same with an ordered one, which its sender had delivered: what is delivered everywhere as one comes before itself."""
    pairs = [pair for pair in _effects(draft) if not _same_process(*pair) and _was_delivered(draft, *pair)]
    pairs = [(stay, position) for stay, position in pairs if not _is_causal(stay.all.runs[position])]
    return strike(rng, pairs, lambda pair: _swap(draft, *pair))


@CAUSAL.breaks("causal_5", "fifo")
def causal_fifo_swap(draft: Draft, rng: Random) -> bool:
    """The same with two causal messages of one process."""
    pairs = [pair for pair in _effects(draft) if _same_process(*pair) and _is_causal(pair[0].all.runs[pair[1]])]
    return strike(rng, pairs, lambda pair: _swap(draft, *pair))


@CAUSAL.breaks("partial_order_1_1", "total_order_6_1")
def causal_delivered_before_sent(draft: Draft, rng: Random) -> bool:
    """The sender delivers its causal message just before it sends it, with nothing else in between."""
    targets = []
    for stay in draft.stays:
        for origin in filter(_of_causal, stay.origins):
            position = stay.all.position.get(stay.sent_codes[origin.first_rank])
            if position is not None and position == origin.all_before and position < stay.all.cut:
                targets.append((stay.node, origin.sent, stay.all.runs[position]))

    def act(target: tuple[NodeId, Sent, Delivery]) -> None:
        node, sent, run = target
        draft.cut(node, run)
        draft.put_before(node, sent, run)

    return strike(rng, targets, act)


@CAUSAL.breaks("places", may=("total_order_6_1", "no_holes_6_3", "one_sequence"))
def causal_taken_for_ordered(draft: Draft, rng: Random) -> bool:
    """A causal message that a node delivered behind a later place is called agreed everywhere. Others who did not so: order."""
    codes = [code for stay in draft.stays for code in _behind_later_places(stay.all)]

    def act(code: int) -> None:
        message = draft.index.message(code)
        for node, events in draft.traces.items():
            for event in list(events):
                if isinstance(event, Sent | Delivery) and _message_of(node, event) == message:
                    draft.exchange(node, event, event._replace(service=Service.AGREED))

    return strike(rng, codes, act)


# Too few, too many.


@CAUSAL.breaks("failure_atomicity_4")
def causal_lost(draft: Draft, rng: Random) -> bool:
    """A node misses the causal message that is the last of its stay; its companions have it."""
    targets = [stay for stay in _ends_with_causal(draft) if stay.all.runs[-1].process.node != stay.node and _shared(draft, stay)]
    return strike(rng, targets, lambda stay: draft.cut(stay.node, stay.all.runs[-1]))


@CAUSAL.breaks("self_delivery_3")
def own_causal_not_delivered(draft: Draft, rng: Random) -> bool:
    """A node without company does not deliver its own last causal message."""
    targets = [
        stay
        for stay in _ends_with_causal(draft)
        if stay.all.runs[-1].process.node == stay.node
        and not draft.company(stay)
        and stay.obligation(closed=True) is Obligation.DUE
    ]
    return strike(rng, targets, lambda stay: draft.cut(stay.node, stay.all.runs[-1]))


@CAUSAL.breaks("no_duplicates")
def causal_delivered_twice(draft: Draft, rng: Random) -> bool:
    targets = [(stay.node, run) for stay in draft.stays for run in stay.all.runs if _is_causal(run)]
    return strike(rng, targets, lambda target: draft.put_after(*target, target[1]))


@CAUSAL.breaks("no_creation", "delivered_where_sent_1_3")
def causal_from_nowhere(draft: Draft, rng: Random) -> bool:
    """A living node ends with a causal message that its process has not reached yet."""
    stays = [stay for stay in _ends_with_causal(draft) if stay.life.end is None and stay.following is None]

    def act(stay: Stay) -> None:
        run = stay.all.runs[-1]
        draft.append(stay.node, run._replace(first=run.first + 10_000, place=draft.next_place(stay.ring)))

    return strike(rng, stays, act)


# In the wrong view.


@CAUSAL.breaks("failure_atomicity_4")
def causal_behind_the_transitional(draft: Draft, rng: Random) -> bool:
    """The last message of the regular configuration, a causal one, comes after the transitional one at one of those who go on."""
    targets = [stay for stay in draft.stays if stay.trans is not None and _cut_behind_causal(stay.all) and draft.company(stay)]

    def act(stay: Stay) -> None:
        assert stay.trans is not None
        run = stay.all.runs[stay.all.run_cut - 1]
        draft.cut(stay.node, run)
        draft.put_after(stay.node, stay.trans, run._replace(conf=stay.trans.view.id))

    return strike(rng, targets, act)


@CAUSAL.breaks("delivered_where_sent_1_3", "failure_atomicity_4", may=("fifo",))
def causal_in_a_later_view(draft: Draft, rng: Random) -> bool:
    """A node delivers its stay's last message, a causal one, only at the end of its last view. Later ones of the sender: FIFO."""
    targets = [stay for stay in _ends_with_causal(draft) if _shared(draft, stay) and stay.life.end is None]
    targets = [stay for stay in targets if stay.all.runs[-1].process.node != stay.node]

    def act(stay: Stay) -> None:
        run, ring = stay.all.runs[-1], stay.life.stays[-1].ring
        draft.cut(stay.node, run)
        draft.append(stay.node, run._replace(conf=ring, regular=ring, place=draft.next_place(ring)))

    return strike(rng, targets, act)


@CAUSAL.breaks("configuration_2_2")
def causal_with_a_false_tag(draft: Draft, rng: Random) -> bool:
    targets = [(stay.node, run) for stay in draft.stays for run in stay.all.runs if _is_causal(run)]

    def act(target: tuple[NodeId, Delivery]) -> None:
        node, run = target
        draft.exchange(node, run, run._replace(regular=run.regular._replace(seq=run.regular.seq + 1)))

    return strike(rng, targets, act)


def _message_of(node: NodeId, event: Sent | Delivery) -> MessageId:
    process = ProcessId(node, event.process) if isinstance(event, Sent) else event.process
    return MessageId(process, event.first)


def _is_causal(run: Delivery) -> bool:
    return run.service is Service.CAUSAL


def _of_causal(origin: SentRun) -> bool:
    return origin.sent.service is Service.CAUSAL


def _effects(draft: Draft) -> Iterator[Pair]:
    """Neighbours of one configuration in the trace, of which the second is causal and was sent after the first was seen."""
    for stay in draft.stays:
        line = stay.all
        for position in range(len(line.runs) - 1):
            before, after = line.runs[position : position + 2]
            if _is_causal(after) and before.lseq + 1 == after.lseq and position + 1 != line.cut and _sees(draft, stay, position):
                yield stay, position


def _sees(draft: Draft, stay: Stay, position: int) -> bool:
    first, second = stay.all.codes[position : position + 2]
    origin, earlier = draft.index.origins[second], draft.index.origins[first]
    sent = earlier.stay is origin.stay and earlier.sent.lseq < origin.sent.lseq
    return sent or _was_delivered(draft, stay, position)


def _was_delivered(draft: Draft, stay: Stay, position: int) -> bool:
    """Had the sender of the second delivered the first?"""
    first, second = stay.all.codes[position : position + 2]
    origin = draft.index.origins[second]
    assert origin.stay is not None
    return origin.stay.all.position.get(first, origin.all_before) < origin.all_before


def _same_process(stay: Stay, position: int) -> bool:
    return stay.all.runs[position].process == stay.all.runs[position + 1].process


def _swap(draft: Draft, stay: Stay, position: int) -> None:
    draft.swap(stay.node, stay.all.runs[position], stay.all.runs[position + 1])


def _ends_with_causal(draft: Draft) -> list[Stay]:
    return [stay for stay in draft.stays if stay.all.runs and _is_causal(stay.all.runs[-1])]


def _shared(draft: Draft, stay: Stay) -> bool:
    """Do companions have the last message of the stay?"""
    return any(stay.all.codes[-1] in other.all.position for other in draft.company(stay))


def _cut_behind_causal(line: Deliveries) -> bool:
    return line.run_cut > 0 and _is_causal(line.runs[line.run_cut - 1])


def _behind_later_places(line: Deliveries) -> Iterator[int]:
    """Causal messages that come after an ordered one of a later place."""
    latest = 0
    for run, code in zip(line.runs, line.codes, strict=True):
        if not _is_causal(run):
            latest = run.place.seq
        elif run.place.seq < latest:
            yield code
