"""What a process was handed, as tests look at it; and the judgement of groups' promises over what their nodes recorded."""

from __future__ import annotations

from typing import NamedTuple

from transis.audit.guarantees import check_groups
from transis.trace.events import History
from transis.types.ids import MessageId, Service
from transis.types.outputs import GroupLeft, GroupRefused
from transis.types.views import GroupId, GroupView


class Seen(NamedTuple):
    """A message as one process got it, and the groups through which it did."""

    message: MessageId
    service: Service
    groups: tuple[GroupId, ...]


StreamEvent = GroupView | Seen | GroupLeft | GroupRefused


def judge(history: History) -> list[str]:
    """What the checkers of groups find wrong, in words."""
    return [f"{violation.property}: {violation.explanation}" for violation in check_groups(history).violations]
