"""Histories of the model against the definitions of extended virtual synchrony, by the numbers of the specification."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.lansis.model import Machine, Stay, World
from transis.types.ids import NodeId, RingId


def judge(world: World) -> list[str]:
    """What is wrong with the histories, by the numbers of the specification; nothing, if the rules are right."""
    return [*_ids(world), *_orders(world), *_own(world), *_atomic(world), *_safe(world), *_holes(world)]


def _stays(world: World) -> Iterator[tuple[Machine, Stay]]:
    for machine in world.everybody:
        for stay in machine.stays:
            yield machine, stay


def _ids(world: World) -> Iterator[str]:
    """One id, one proposal, one list of members; sequences grow at every machine."""
    known: dict[object, tuple[bytes, tuple[NodeId, ...]]] = {}
    for _, stay in _stays(world):
        what = stay.proposal, stay.members
        if known.setdefault(stay.id, what) != what or known.setdefault(stay.tag, what) != what:
            yield f"id {stay.id} names two views"
    for machine in world.everybody:
        seqs = [stay.id.seq for stay in machine.stays]
        if seqs != sorted(set(seqs)):
            yield f"views of {machine.me} do not grow"
        if any(machine.me not in stay.members for stay in machine.stays):
            yield f"{machine.me} is in a view without itself"


def _orders(world: World) -> Iterator[str]:
    """6.1 and 1.4: each view is delivered in the one born order, and nothing of it twice; 1.3: in its own view."""
    for machine, stay in _stays(world):
        keys = [burst.key for burst in stay.all]
        if keys != sorted(set(keys)):
            yield f"6.1 {machine.me} delivers out of order"
        if any(burst.tag != stay.tag for burst in stay.all):
            yield f"1.3 {machine.me} delivers in another view"
        seen: Counter[NodeId] = Counter()
        for burst in stay.all:
            if any(seen[node] < last for node, last in burst.past if node in seen):
                yield f"5 {machine.me} delivers before its causes"
            seen[burst.sender] = burst.counter


def _own(world: World) -> Iterator[str]:
    """3: whoever leaves a view has delivered all that it sent in it."""
    for machine, stay in _stays(world):
        if stay.next is not None:
            own = {burst for burst in machine.all_sent if burst.tag == stay.tag}
            if not own <= set(stay.all):
                yield f"3 {machine.me} has not delivered its own"


def _atomic(world: World) -> Iterator[str]:
    """4: those who go from one view to the same next one have delivered the same in each of the two configurations."""
    seen: dict[tuple[RingId, RingId], tuple[object, ...]] = {}
    for machine, stay in _stays(world):
        if stay.next is not None:
            what = stay.regular, stay.transitional, stay.trans
            if seen.setdefault((stay.id, stay.next), what) != what:
                yield f"4 {machine.me} has delivered something else in {stay.id}"


def _safe(world: World) -> Iterator[str]:
    """7.1: a safe burst is delivered by every member of the configuration that does not crash in it; 7.2: all installed it."""
    by_node = {(machine.me, stay.id): stay for machine, stay in _stays(world)}
    for machine, stay in _stays(world):
        for name, bursts, members in (("regular", stay.regular, stay.members), ("transitional", stay.transitional, stay.trans)):
            for burst in (one for one in bursts if one.is_safe):
                for node in members:
                    other = by_node.get((node, stay.id))
                    if other is None:
                        yield f"7.2 {node} never installed {stay.id}"
                    elif other.next is not None and burst not in other.all:
                        yield f"7.1 {name}: {machine.me} delivered {burst.sender} {burst.counter}, {node} never does"


def _holes(world: World) -> Iterator[str]:
    """6.3: who goes on with the sender of something that another delivered before something common has it too."""
    by_view: dict[RingId, list[Stay]] = {}
    for _, stay in _stays(world):
        by_view.setdefault(stay.id, []).append(stay)
    for stays in by_view.values():
        for one in stays:
            for other in (stay for stay in stays if stay.next is not None and stay is not one):
                missing = [at for at, burst in enumerate(one.all) if burst not in other.all and burst.sender in other.trans]
                if missing and any(burst in other.all for burst in one.all[missing[0] + 1 :]):
                    yield f"6.3 a hole in {other.id}"
