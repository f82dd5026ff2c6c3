"""Mutants of what replicas went through: orders that differ, promises that were not kept. The original has come to rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from tests.guarantees.mutants_of_messages import strike
from tests.guarantees.surgery import Draft, Kit
from transis.trace.events import ReplicaStep
from transis.types.ids import NodeId

REPLICAS = Kit()

Own = tuple[NodeId, ReplicaStep]
FAR = 1_000_000
"""Beyond every place and number of a run."""


def steps(draft: Draft, what: str) -> list[Own]:
    return [
        (node, event)
        for node, events in draft.traces.items()
        for event in events
        if isinstance(event, ReplicaStep) and event.what == what
    ]


def of_messages(draft: Draft, what: str) -> list[Own]:
    return [(node, step) for node, step in steps(draft, what) if not step.lane]


def everywhere(draft: Draft, place: int) -> Iterator[Own]:
    """What all replicas were handed at a place."""
    return ((node, step) for node, step in steps(draft, "ordered") if step.place == place)


def id_of(step: ReplicaStep) -> tuple[int, int, int]:
    return step.creator, step.lane, step.number


def places(draft: Draft) -> dict[tuple[int, int, int], int]:
    return {id_of(step): step.place for _, step in steps(draft, "ordered")}


def to_compare(draft: Draft) -> list[Own]:
    """Messages that two lives were handed, at the later of them."""
    several: dict[int, list[Own]] = {}
    for own in of_messages(draft, "ordered"):
        several.setdefault(own[1].place, []).append(own)
    return [max(found, key=lambda own: (own[0], own[1].lseq)) for found in several.values() if len(found) > 1]


def edit(draft: Draft, **fields: object) -> Callable[[Own], None]:
    return lambda own: draft.exchange(*own, own[1]._replace(**fields))  # type: ignore[arg-type]


# Order.


@REPLICAS.breaks("replicated_order")
def another_state(draft: Draft, rng: Random) -> bool:
    """An application is in another state than the others behind one place."""
    return strike(rng, to_compare(draft), edit(draft, state=b"another"))


@REPLICAS.breaks("replicated_order")
def another_offset(draft: Draft, rng: Random) -> bool:
    """One replica counts one message more."""
    return strike(rng, to_compare(draft), lambda own: edit(draft, offset=own[1].offset + 1)(own))


def _neighbours(draft: Draft) -> list[tuple[int, int]]:
    """Places of two messages of one creator."""
    found: dict[int, dict[int, int]] = {}
    for (creator, lane, number), place in places(draft).items():
        if not lane:
            found.setdefault(creator, {})[number] = place
    return [
        (place, numbers[number + 1]) for numbers in found.values() for number, place in numbers.items() if number + 1 in numbers
    ]


@REPLICAS.breaks("replicated_fifo", may=("replicated_causal",))
def two_messages_overtake(draft: Draft, rng: Random) -> bool:
    """Everywhere two messages of one replica have changed places. Who had seen one may not have seen the other."""
    return strike(rng, _neighbours(draft), lambda pair: _renumber(draft, pair[0], pair[1]))


@REPLICAS.breaks("replicated_fifo", may=("replicated_causal",))
def the_first_message_comes_last(draft: Draft, rng: Random) -> bool:
    """The first and the last message of a replica have changed places."""
    pairs = [(low, high) for low, high in _ends(draft) if low < high]
    return strike(rng, pairs, lambda pair: _renumber(draft, pair[0], pair[1]))


def _ends(draft: Draft) -> list[tuple[int, int]]:
    found: dict[int, list[int]] = {}
    for (creator, lane, _), place in places(draft).items():
        if not lane:
            found.setdefault(creator, []).append(place)
    return [(min(all_places), max(all_places)) for all_places in found.values()]


def _renumber(draft: Draft, low: int, high: int) -> None:
    numbers = {step.place: step.number for _, step in steps(draft, "ordered")}
    for place, number in ((low, numbers[high]), (high, numbers[low])):
        for own in list(everywhere(draft, place)):
            edit(draft, number=number)(own)


# Causality.


def _placed_posts(draft: Draft) -> list[Own]:
    """The last post of each message that was ordered."""
    placed = places(draft)
    last = {
        id_of(step): (node, step) for node, step in sorted(of_messages(draft, "posted"), key=lambda own: (own[0], own[1].lseq))
    }
    return [own for action, own in last.items() if action in placed]


@REPLICAS.breaks("replicated_causal")
def saw_what_came_later(draft: Draft, rng: Random) -> bool:
    """A poster had seen a message of another replica that has its place behind the post."""
    placed = places(draft)
    later = {
        own: [
            (creator, number) for (creator, lane, number), place in placed.items() if _is_later(own, creator, lane, place, placed)
        ]
        for own in _placed_posts(draft)
    }
    targets = [(own, found[0]) for own, found in later.items() if found]
    return strike(rng, targets, lambda target: edit(draft, seen=(target[1],))(target[0]))


def _is_later(own: Own, creator: int, lane: int, place: int, placed: dict[tuple[int, int, int], int]) -> bool:
    return not lane and creator != own[1].creator and place > placed[id_of(own[1])]


@REPLICAS.breaks("replicated_causal")
def saw_what_was_never_ordered(draft: Draft, rng: Random) -> bool:
    return strike(rng, _placed_posts(draft), lambda own: edit(draft, seen=(*own[1].seen, (own[1].creator, FAR)))(own))


# Promises.


def _kept_promises(draft: Draft) -> list[Own]:
    gone = {step.number for what in ("lost", "left") for _, step in steps(draft, what)}
    return [own for own in of_messages(draft, "accepted") if own[1].creator not in gone]


@REPLICAS.breaks("accepted_never_lost")
def accepted_and_forgotten(draft: Draft, rng: Random) -> bool:
    """One more message was accepted, of which nobody else ever heard."""
    return strike(rng, _kept_promises(draft), lambda own: draft.put_after(*own, own[1]._replace(number=FAR)))


@REPLICAS.breaks("accepted_never_lost", may=("replicated_causal", "ordered_never_lost", "replicated_fifo"))
def ordered_nowhere(draft: Draft, rng: Random) -> bool:
    """A message that was accepted has no place anywhere. Others had seen it."""
    placed = places(draft)
    targets = [own for own in _kept_promises(draft) if id_of(own[1]) in placed]

    def act(own: Own) -> None:
        for found in list(everywhere(draft, placed[id_of(own[1])])):
            draft.cut(*found)

    return strike(rng, targets, act)


@REPLICAS.breaks("ordered_never_lost")
def rests_too_early(draft: Draft, rng: Random) -> bool:
    """A replica is at rest though it lacks the last action."""
    targets = [own for own in steps(draft, "rest") if own[1].place]
    return strike(rng, targets, lambda own: edit(draft, place=own[1].place - 1)(own))


@REPLICAS.breaks("ordered_never_lost")
def one_more_was_ordered(draft: Draft, rng: Random) -> bool:
    """Once somebody was handed an action behind the last, which nobody knows any more."""
    more = {"place": FAR, "number": FAR, "key": b"", "offset": FAR}
    return strike(rng, of_messages(draft, "ordered"), lambda own: draft.put_after(*own, own[1]._replace(**more)))  # type: ignore[arg-type]


# Primaries.


@REPLICAS.breaks("one_primary")
def another_view_of_the_primary(draft: Draft, rng: Random) -> bool:
    """Of the replicas in a primary, one is in another view."""
    return strike(rng, _in_company(draft), edit(draft, tag=7))


def _in_company(draft: Draft) -> list[Own]:
    several: dict[int, list[Own]] = {}
    for own in steps(draft, "primary"):
        several.setdefault(own[1].number, []).append(own)
    return [found[-1] for found in several.values() if len(found) > 1]


@REPLICAS.breaks("one_primary")
def a_number_twice(draft: Draft, rng: Random) -> bool:
    """A primary has the number of the one before."""
    primaries = {step.number: step.tag for _, step in steps(draft, "primary")}
    targets = [own for own in steps(draft, "primary") if primaries.get(own[1].number - 1, own[1].tag) != own[1].tag]
    return strike(rng, targets, lambda own: edit(draft, number=own[1].number - 1)(own))


# Stable, keys.


@REPLICAS.breaks("stable_is_everywhere")
def stable_beyond_all_disks(draft: Draft, rng: Random) -> bool:
    targets = [own for own in steps(draft, "stable") if own[1].members]
    return strike(rng, targets, edit(draft, place=FAR))


@REPLICAS.breaks("stable_is_everywhere")
def a_disk_that_had_nothing(draft: Draft, rng: Random) -> bool:
    """A replica whose order others called stable never had any of it on its disk."""
    stable = {member for _, step in steps(draft, "stable") for member in step.members if step.place}
    owners = {step.directory for _, step in steps(draft, "synced") if step.number in stable}

    def act(directory: bytes) -> None:
        for what in ("opened", "synced"):
            for own in [own for own in steps(draft, what) if own[1].directory == directory]:
                edit(draft, place=0)(own)

    return strike(rng, sorted(owners), act)


@REPLICAS.breaks("exactly_once_keys")
def a_retry_runs(draft: Draft, rng: Random) -> bool:
    """What was answered from memory runs again, everywhere."""
    ran = {step.key for _, step in steps(draft, "ordered") if step.effect == "run"}
    again = sorted({step.place for _, step in steps(draft, "ordered") if step.effect == "again" and step.key in ran})

    def act(place: int) -> None:
        for own in list(everywhere(draft, place)):
            edit(draft, effect="run")(own)

    return strike(rng, again, act)


@REPLICAS.breaks("exactly_once_keys")
def one_key_for_two(draft: Draft, rng: Random) -> bool:
    """Two actions that ran have one key."""
    ran = sorted({step.place for _, step in steps(draft, "ordered") if step.effect == "run" and not step.lane})

    def act(place: int) -> None:
        for at in (ran[0], place):
            for own in list(everywhere(draft, at)):
                edit(draft, key=b"the same")(own)

    return strike(rng, ran[1:], act)
