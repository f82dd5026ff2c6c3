"""The counter-examples hold with the machine as it is, and catch the defects that they are about."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.prsl.catching import BY_EXAMPLE, ENGINE_BY_EXAMPLE
from tests.prsl.engine_examples import ENGINE_EXAMPLES
from tests.prsl.examples import EXAMPLES, empty_disk_under_its_old_identity
from tests.prsl.stories import Story
from transis.sim.defects import changed
from transis.sim.replicas.defects import REPLICA_DEFECTS
from transis.sim.replicas.engine_defects import ENGINE_DEFECTS
from transis.sim.replicas.ledger import Violation

NAMED = {example.__name__: example for example in (*EXAMPLES, *ENGINE_EXAMPLES)}


@pytest.mark.parametrize("example", NAMED.values(), ids=list(NAMED))
def test_the_machine_gets_it_right(example: Callable[[], Story]) -> None:
    example()


@pytest.mark.parametrize(("defect", "example"), (BY_EXAMPLE | ENGINE_BY_EXAMPLE).items())
def test_the_defect_is_caught(defect: str, example: str) -> None:
    with changed((REPLICA_DEFECTS | ENGINE_DEFECTS)[defect].changes), pytest.raises((Violation, AssertionError)):
        NAMED[example]()


def test_an_empty_disk_must_not_have_its_old_identity() -> None:
    """This is why a directory has a random identity, made with it (R18)."""
    with pytest.raises(Violation, match="replicated_order: place 0 is 1:1, and at bob 2:1"):
        empty_disk_under_its_old_identity()
