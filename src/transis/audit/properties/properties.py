"""Every property of the audit by the name it has in reports, in the order in which they are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from transis.audit.plans.clients import Clients
from transis.audit.plans.finding import Found
from transis.audit.plans.lay import Laid
from transis.audit.plans.tail import OrderedHistory
from transis.audit.properties import (
    group_members,
)

OF_VIEWS: Final[dict[tuple[str, ...], Callable[[Laid], Found]]] = {}

OF_ORDER: Final[dict[tuple[str, ...], Callable[[OrderedHistory], Found]]] = {}

OF_GROUPS: Final[dict[tuple[str, ...], Callable[[Clients], Found]]] = {
    ("group_members_only",): group_members.check,
}
"""What groups promise their members, judged where a run has client processes."""
