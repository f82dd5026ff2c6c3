"""What a decoder answers when bytes are not a packet. Rejections are counted by their field, never raised."""

from __future__ import annotations

from typing import NamedTuple


class Rejection(NamedTuple):
    """`field` names what was wrong and is one of few words, fit to be a counter's label; `why` is for people."""

    field: str
    why: str
