"""Basic delivery: on receipt, holes or not, once (lansis-1992 3.1).

A basic burst is a node of the DAG like any other, so it is acknowledged and sent again when it was lost; but it is in no queue.
"""

from __future__ import annotations

from collections.abc import Sequence

from transis.types.ids import DatagramClass
from transis.wire.burst import Burst


def on_receipt(fresh: Sequence[Burst]) -> list[Burst]:
    """Which of these datagrams go up at once. The messages of a basic burst are whole in its last datagram."""
    return [part.slice(part.last_seq, part.last_seq) for part in fresh if part.klass is DatagramClass.BASIC and part.ends_visit]
