"""What the tape costs: microseconds a datagram that is delivered, by how many come in one feed, beside the full recorder.

    python -m bench.tape [--rounds 9]

The sizes are those of a busy ring: 20 messages of 64 B or one of 1000 B in a datagram; senders take turns every eight feeds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

from transis.trace.events import Event
from transis.trace.recorder import Recorder
from transis.trace.tape import DeliveryLog
from transis.types.ids import NodeId, ProcessId, Service, ViewId, ViewKind
from transis.types.outputs import Delivered, Phase
from transis.types.views import Cause, Member, View
from transis.wire.items import Payloads, Run

NODES = [NodeId(name, 1, 0x1234567890ABCDE0 + number) for number, name in enumerate("abcd")]
REGULAR = ViewId(ViewKind.REGULAR, 8, NODES[0])
VIEW = View(REGULAR, REGULAR, tuple(Member(node, "", None) for node in NODES), Cause("bench"), 0)
ADDRESS = b"\x01\x01\x00" + bytes(8)
FEEDS = 400
FEEDS_OF_ONE_SENDER = 8


class Nowhere:
    def write(self, events: Sequence[Event]) -> bool:
        return True


def feeds(datagrams: int, messages: int, size: int) -> list[list[Delivered]]:
    counters = dict.fromkeys(NODES, 1)
    found, seq = [], 1
    for number in range(FEEDS):
        node = NODES[number // FEEDS_OF_ONE_SENDER % len(NODES)]
        count = datagrams * messages
        run = Run(3, Service.AGREED, ADDRESS, counters[node], count, size)
        payloads = Payloads(memoryview(bytes(count * size)), 0, run, 0, count)
        stretches = [(seq + ahead, 0, messages) for ahead in range(datagrams)]
        what = (ProcessId(node, 3), ADDRESS, Service.AGREED, counters[node], payloads, REGULAR, Phase.REGULAR, stretches)
        found.append([Delivered(*what, False, 123_456_789, 55, True)])
        counters[node] += count
        seq += datagrams
    return found


def best_us(rounds: int, work: Callable[[], object]) -> float:
    """The best of several: everything else on the machine can only add."""
    times = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return 1e6 * min(times)


def taped(fed: list[list[Delivered]]) -> int:
    tape, size = DeliveryLog(), 0
    tape.configured(VIEW)
    for run in (run for feed in fed for run in feed):
        tape.add(run)
    size += sum(len(piece) for piece in tape.take(0).pieces if isinstance(piece, bytes))
    return size


def recorded(fed: list[list[Delivered]]) -> None:
    recorder = Recorder(NODES[0], Nowhere())
    for feed in fed:
        for run in feed:
            recorder.observe(1, run)
        recorder.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="Times that each is run; the best counts.")
    rounds = parser.parse_args().rounds
    print("datagrams a feed | messages | tape us/datagram | bytes/datagram | recorder us/datagram")
    for messages, size in ((20, 64), (1, 1000)):
        for datagrams in (1, 5, 20, 46):
            fed = feeds(datagrams, messages, size)
            total = FEEDS * datagrams
            tape = best_us(rounds, lambda fed=fed: taped(fed)) / total  # type: ignore[misc]
            recorder = best_us(rounds, lambda fed=fed: recorded(fed)) / total  # type: ignore[misc]
            print(f"{datagrams:16} | {messages:3}x{size:4} | {tape:16.3f} | {taped(fed) / total:14.1f} | {recorder:.2f}")


if __name__ == "__main__":
    main()
