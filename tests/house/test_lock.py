"""What is locked did not change (lock.py).

To change it: `python -m tests.house.lock --write`, read the difference, and say why in the subject of the commit.
"""

from __future__ import annotations

import pytest

from tests.house.lock import (
    FAMILIES,
    PARTS,
    SEEDS,
    SEEDS_IN_SHORT,
    difference,
    digests,
    in_short,
    kept,
    kept_text,
    of_family,
    of_one_run,
)

RUNS = kept()["runs"]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_first_runs_of_a_family_are_what_they_were(family: str) -> None:
    assert in_short(digests(family, SEEDS_IN_SHORT)) == RUNS["families"][family]["seeds"][:SEEDS_IN_SHORT]


@pytest.mark.long
@pytest.mark.parametrize("family", FAMILIES)
def test_all_runs_of_a_family_are_what_they_were(family: str) -> None:
    found = digests(family, SEEDS)
    assert in_short(found) == RUNS["families"][family]["seeds"]
    assert of_family(found) == RUNS["families"][family]["all"]


@pytest.mark.parametrize("which", ["without groups", "with groups"])
def test_a_run_and_the_bytes_of_its_traces_are_what_they_were(which: str) -> None:
    assert of_one_run(groups=which == "with groups") == RUNS[which]


@pytest.mark.parametrize("part", PARTS)
def test_a_text_is_what_it_was(part: str) -> None:
    changed = difference(part, PARTS[part][1]())
    assert not changed, f"\n{changed}\n\nIf this is meant: python -m tests.house.lock --write {part}"


@pytest.mark.parametrize("part", PARTS)
def test_a_difference_names_what_changed(part: str) -> None:
    lines = kept_text(part).splitlines()
    changed = "\n".join([*lines[:-1], f"{lines[-1]}?", ""])
    assert f"+{lines[-1]}?" in difference(part, changed).splitlines()
