"""What a client writes down of its stream, for those who compare it with what others wrote."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from transis.client import View
from transis.types.ids import MessageId, Place, Service, ViewId


class Heard(NamedTuple):
    """A message, as far as anybody asks later."""

    id: MessageId
    service: Service
    groups: tuple[str, ...]
    view: ViewId
    place: Place
    size: int


@dataclass
class Notes:
    label: str
    names: tuple[str, ...]
    """The groups of its stream."""
    heard: list[Heard | View] = field(default_factory=list)
    spoilt: list[MessageId] = field(default_factory=list)
    """Messages that did not arrive as they were sent."""
    promised: set[MessageId] = field(default_factory=set)
    """Its own messages whose receipts say that they were delivered, if the stream was not cut off."""
