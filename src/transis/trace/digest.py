"""The canonical digest of a history: the same events give the same digest in any process, under any hash seed.

Traces are taken in order of node id, events in their own order, each with a number for its kind; msgpack writes tuples of
integers and strings in exactly one way.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import msgspec

from transis.trace.events import Event, History
from transis.trace.rows import NUMBERS


def digest(history: History) -> str:
    """SHA-256, in hexadecimal, of everything a history says."""
    total = sha256(_bytes((history.closed, history.promises, len(history.nodes))))
    for trace in sorted(history.nodes, key=lambda trace: trace.node):
        total.update(_bytes(trace.node))
        total.update(events_digest(trace.events))
    return total.hexdigest()


def events_digest(events: Sequence[Event]) -> bytes:
    """SHA-256 of one node's events."""
    kinds = bytes(NUMBERS[type(event)] for event in events)
    total = sha256(_bytes((len(events), kinds)))
    total.update(_bytes(events))
    return total.digest()


def _bytes(value: object) -> bytes:
    return msgspec.msgpack.encode(value)
