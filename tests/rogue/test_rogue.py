"""A member with the key may split a cluster or slow it down; it ends no honest node and keeps no honest receipt open."""

from __future__ import annotations

import pytest

from tests.rogue.lying import lying_run
from transis.sim.plan import Scenario

SEEDS = range(8)
FOUND = {
    "totem": {
        0: "data under a number that somebody else was about to use",
        28: "the same, while the token was held",
        48: "a token that has fewer numbers than were given out",
        82: "one whose claims grow until nobody reads them",
        58: "a second rotation with entries that are not those of the ring",
    },
    "lansis": {},
}
"""Seeds that once ended a node or left a receipt open, and what the lie was."""


@pytest.mark.parametrize(
    ("engine", "seed"), [(engine, seed) for engine, found in FOUND.items() for seed in sorted({*SEEDS, *found})]
)
def test_whatever_one_member_says_the_others_go_on(engine: str, seed: int) -> None:
    run = lying_run(seed, Scenario(engine))
    assert not run.mishaps, run.words
    assert not run.unrest, run.words


@pytest.mark.long
@pytest.mark.parametrize("scenario", [Scenario("totem"), Scenario("lansis"), Scenario("lansis", order="toto")])
def test_two_hundred_liars(scenario: Scenario) -> None:
    for seed in range(1000, 1200):
        run = lying_run(seed, scenario)
        assert not run.mishaps, run.words
        assert not run.unrest, run.words
