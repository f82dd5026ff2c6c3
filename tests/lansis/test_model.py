"""The rules of membership in storms; and each with one rule taken out, because a model that sees nothing is worth nothing."""

from __future__ import annotations

import pytest

from tests.lansis.judging import judge
from tests.lansis.model import Machine, World
from transis.lansis.statements import Proposal, ViewEnd
from transis.types.ids import RingTag

STEPS = 400


def story(seed: int, kind: type[Machine] = Machine) -> tuple[World, list[str]]:
    """A storm, then calm; what is wrong with it."""
    world = World(seed, kind)
    world.storm(STEPS)
    wrong = [] if world.calm() else ["stuck"]
    return world, wrong + judge(world)


@pytest.mark.parametrize("block", range(8))
def test_every_storm_keeps_the_promises_and_ends_in_one_view(block: int) -> None:
    for seed in range(100 * block, 100 * block + 100):
        _, wrong = story(seed)
        assert wrong == [], f"seed {seed}"


def test_storms_go_where_it_hurts() -> None:
    """Otherwise the test above would promise more than it tries."""
    worlds = [story(seed)[0] for seed in range(60)]
    for what, least in (("installed", 300), ("abandoned", 30), ("hearsay", 20), ("crashed", 10)):
        assert sum(world.counts[what] for world in worlds) >= least, what
    stays = [stay for world in worlds for machine in world.everybody for stay in machine.stays]
    assert sum(len(stay.members) > 2 for stay in stays) > 100
    assert sum(len(stay.transitional) for stay in stays) > 100
    assert sum(len(stay.trans) > 1 for stay in stays) > 100


# --- one rule less ----------------------------------------------------------------------------------------------------


class WithoutFlush(Machine):
    """FLUSHED at assent, whatever is held."""

    def holds(self, parting: ViewEnd) -> bool:
        return True


class OwnFrontier(Machine):
    """D is my own frontier and not the furthest of all."""

    def parting(self, proposal: Proposal) -> ViewEnd:
        return super().parting(proposal)._replace(delivered=self.delivered)


class LivePre(Machine):
    """Pre is what I hold now and not what the statements say."""

    def parting(self, proposal: Proposal) -> ViewEnd:
        parting = super().parting(proposal)
        return parting._replace(pre={node: max(last, self.inserted[node]) for node, last in parting.pre.items()})


class InstallsAtAssent(Machine):
    """Agreement is taken for knowledge of agreement."""

    def try_install(self) -> None:
        if self.barrier.flushed is not None:
            self.install(self.barrier.flushed)


class TagOfTheId(Machine):
    """A view is heard of by its id, as if nobody could flush what its representative never does."""

    def _enter_tag(self) -> None:
        self.stay.tag = self.stay.id.tag

    def install(self, proposal: Proposal) -> None:
        super().install(proposal)
        self._enter_tag()
        self.alive()

    def hearsay(self, tag: RingTag) -> bool:
        flushed = self.barrier.flushed
        return super().hearsay(flushed.tag if flushed is not None and tag == flushed.id.tag else RingTag(0, 0))


class FirstAssentHolds(Machine):
    """A newer statement with the same sets changes nothing."""

    def try_assent(self) -> None:
        if self.barrier.assented is None:
            super().try_assent()


@pytest.mark.parametrize(
    ("kind", "seen"),
    [
        (WithoutFlush, "4"),
        (OwnFrontier, "4"),
        (LivePre, "4"),
        (InstallsAtAssent, "4"),
        (TagOfTheId, "id"),
        (FirstAssentHolds, "stuck"),
    ],
)
def test_a_rule_less_is_seen(kind: type[Machine], seen: str) -> None:
    assert any(seen in {what.split()[0] for what in wrongs(seed, kind)} for seed in range(60))


def wrongs(seed: int, kind: type[Machine]) -> list[str]:
    """A machine that takes another view for its own meets somebody whom it does not know."""
    try:
        return story(seed, kind)[1]
    except KeyError as stranger:
        return [f"id of two views, with {stranger}"]
