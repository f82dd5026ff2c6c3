"""Mutants: a good history with one wound, and the properties that must notice it.

Each shows that a checker can see. `must` are the properties that it breaks always; `may` those that it breaks depending on
where it struck, the reason stands beside it; anything else broken is a false alarm. A mutant that finds no place
to strike in a history returns None. They start from closed histories, where nothing is pending.
"""

from __future__ import annotations

from typing import Final

from tests.guarantees.mutants_of_causal import CAUSAL
from tests.guarantees.mutants_of_group_views import GROUP_VIEWS
from tests.guarantees.mutants_of_handing import FENCES, HANDING
from tests.guarantees.mutants_of_messages import MESSAGES
from tests.guarantees.mutants_of_replicas import REPLICAS
from tests.guarantees.mutants_of_views import VIEWS
from tests.guarantees.surgery import Mutant

__all__ = ["CAUSAL_MUTANTS", "FENCE_MUTANTS", "GROUP_MUTANTS", "MUTANTS", "REPLICA_MUTANTS", "Mutant"]

MUTANTS: Final[tuple[Mutant, ...]] = (*MESSAGES.mutants, *VIEWS.mutants)

CAUSAL_MUTANTS: Final[tuple[Mutant, ...]] = tuple(CAUSAL.mutants)
"""Of histories in which causal messages are not in the total order."""

GROUP_MUTANTS: Final[tuple[Mutant, ...]] = (*HANDING.mutants, *GROUP_VIEWS.mutants)
"""Of histories that tell of client processes."""

REPLICA_MUTANTS: Final[tuple[Mutant, ...]] = tuple(REPLICAS.mutants)
"""Of histories that tell of replicas."""

FENCE_MUTANTS: Final[tuple[Mutant, ...]] = tuple(FENCES.mutants)
"""Of histories that tell of client processes, in which causal messages are not in the total order."""
