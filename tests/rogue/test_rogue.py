"""A member with the key may split a cluster or slow it down; it ends no honest node and keeps no honest receipt open. Who has the
key and is no member breaks nothing at all."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from tests.rogue.liar import UNTOUCHED
from tests.rogue.lying import FIELDS, lying_run
from transis.lansis.packets import Alive, Attempt, Faults, Flushed, Joining, Query
from transis.sim.plan import Scenario
from transis.totem.packets import Commit, Join, Token, Wake

SEEDS = range(8)
FOUND = {
    "totem": {
        0: "data under numbers that others were about to use",
        3: "a token that had forgotten numbers",
        10: "claims that grew until nobody could read what honest members forwarded",
        28: "data as in 0, while the token was held",
        48: "a token as in 3",
    },
    "lansis": {},
}
"""Seeds that once ended a node or left a receipt open, and what the lie was."""


PACKETS: dict[str, tuple[type[Any], ...]] = {
    "totem": (Token, Join, Commit, Wake),
    "lansis": (Alive, Attempt, Joining, Faults, Flushed, Query),
}
EVERY_KIND = {engine: tuple(kind for kinds in known for kind in kinds) for engine, known in FIELDS.items()}
PROVEN_OR_WORDS = {"sender", "cause"}
"""The envelope says who sent it, and causes are for people."""


@pytest.mark.parametrize("engine", PACKETS)
def test_every_field_of_every_packet_is_lied_about(engine: str) -> None:
    tried = {(kind, name) for kinds, names in FIELDS[engine].items() for kind in kinds for name in names}
    for packet in PACKETS[engine]:
        names = {one.name for one in fields(packet)} if is_dataclass(packet) else set(packet._fields)
        assert {name for name in names - UNTOUCHED - PROVEN_OR_WORDS if (packet.__name__, name) not in tried} == set(), packet


@pytest.mark.parametrize(
    ("engine", "seed"), [(engine, seed) for engine, found in FOUND.items() for seed in sorted({*SEEDS, *found})]
)
def test_whatever_one_member_says_the_others_go_on(engine: str, seed: int) -> None:
    run = lying_run(seed, Scenario(engine))
    assert not run.mishaps, run.words
    assert not run.unrest, run.words


@pytest.mark.parametrize("engine", FOUND)
@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_a_stranger_says_nothing_is_broken(engine: str, seed: int) -> None:
    """It repeats what it hears, with lies, and some of it about itself, as if it wanted to be a member. When it was believed,
    numbers of the order were used twice, messages came twice, and a view named a member that was not in the one before."""
    run = lying_run(seed, Scenario(engine), EVERY_KIND[engine], permille=300, stranger=True)
    assert sum(run.told.values()) > 0
    assert not run.mishaps, run.words
    assert not run.unrest, run.words
    assert not run.broken, run.words


@pytest.mark.long
@pytest.mark.parametrize("scenario", [Scenario("totem"), Scenario("lansis"), Scenario("lansis", order="toto")])
def test_two_hundred_strangers(scenario: Scenario) -> None:
    for seed in range(1000, 1200):
        run = lying_run(seed, scenario, stranger=True)
        assert not run.mishaps, run.words
        assert not run.unrest, run.words
        assert not run.broken, run.words


@pytest.mark.long
@pytest.mark.parametrize("scenario", [Scenario("totem"), Scenario("lansis"), Scenario("lansis", order="toto")])
def test_two_hundred_liars(scenario: Scenario) -> None:
    for seed in range(1000, 1200):
        run = lying_run(seed, scenario)
        assert not run.mishaps, run.words
        assert not run.unrest, run.words
