"""What the machine itself can do: bursts of datagrams through loopback and back in one process, with the same help of the kernel.

Speed depends on the machine; the part of this figure that a ring reaches can be compared between machines.
"""

from __future__ import annotations

from time import perf_counter
from typing import Final

from transis.net.interfaces import choose_interface
from transis.net.sockets import BUFFER_BYTES, BurstReceiver, BurstSender, open_unicast, size_buffers

DATAGRAM: Final = 1400
BURST: Final = 46
BARE_BURSTS: Final = 4000


def bare_datagrams_per_s(bursts: int = BARE_BURSTS) -> float:
    with open_unicast(choose_interface("127.0.0.1"), 0) as out, open_unicast(choose_interface("127.0.0.1"), 0) as into:
        size_buffers(into, BUFFER_BYTES, "bare")
        sender, receiver = BurstSender(out), BurstReceiver(into, ("192.0.2.1", 9))
        burst = [bytes(DATAGRAM)] * BURST
        started = perf_counter()
        for _ in range(bursts):
            sender.send(burst, into.getsockname())
            receiver.receive()
        return receiver.datagrams / (perf_counter() - started)
