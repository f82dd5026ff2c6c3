"""A day of digests: what managing their files costs a node, and what following them costs.

    python -m bench.day [--nodes 4] [--hours 24] [--directory DIR] [--json]

Real flight recorders write what a busy node seals in a day, under a clock that runs fast. Then the node inspects its directory
as it does every five seconds, and `transis audit --follow --once` reads all directories from the beginning.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from transis.trace.flight import Flight, FlightLimits, Tidier
from transis.trace.segment import Header
from transis.types.ids import NodeId, ProcessId, Service, ViewId, ViewKind
from transis.types.outputs import Delivered, Phase
from transis.types.views import Cause, Member, View

MESSAGES = 1000
"""Of one sender in a second; senders take turns."""
LOOKS = 20


class Cluster:
    def __init__(self, nodes: int) -> None:
        self.nodes = [NodeId(f"n{number:02d}", 1, 1000 + number) for number in range(1, nodes + 1)]
        conf = ViewId(ViewKind.REGULAR, 8, self.nodes[0])
        self.view = View(conf, conf, tuple(Member(node, "", None) for node in self.nodes), Cause("bench"), 0)

    def delivered(self, second: int) -> Delivered:
        rounds, turn = divmod(second, len(self.nodes))
        process, first = ProcessId(self.nodes[turn], 0), 1 + MESSAGES * rounds
        what = (process, b"x", Service.AGREED, first, [b""] * MESSAGES, self.view.id, Phase.REGULAR)
        return Delivered(*what, [(1 + second, 0, MESSAGES)], False, 0, 0, True)

    def record(self, node: NodeId, directory: Path, seconds: int) -> None:
        flight = Flight(directory, Header("bench", "evs", node), FlightLimits(), 0)
        flight.tape.configured(self.view)
        for second in range(seconds):
            flight.tape.add(self.delivered(second))
            flight.look((1 + second) * 1_000_000)
        flight.close(seconds * 1_000_000, "stopped")


def tidying_ms(directory: Path, node: NodeId) -> float:
    """Of a processor, for a look at a directory that is known."""
    tidier = Tidier(directory, node.name, FlightLimits())
    tidier.tidy(frozenset(), time.time())
    found = []
    for _ in range(LOOKS):
        began = time.process_time()
        tidier.tidy(frozenset(), time.time())
        found.append(time.process_time() - began)
    return 1e3 * statistics.median(found)


def follow_once(directory: Path, ledger: Path) -> dict[str, Any]:
    """What its last batch tells, and how long all of them took."""
    command = [sys.executable, "-m", "transis", "audit", "--follow", str(directory), "--ledger", str(ledger), "--once", "--json"]
    began = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    batches = [line for line in map(json.loads, done.stdout.splitlines()) if "batch" in line]
    verdicts = {one["property"]: one["verdict"] for one in batches[-1]["verdicts"]}
    files = sum(batch["files"] for batch in batches)
    return {"files": files, "follow_s": round(time.monotonic() - began, 1), "one_sequence": verdicts["one_sequence"]}


def measure(nodes: int, hours: float, directory: Path) -> dict[str, Any]:
    cluster = Cluster(nodes)
    flight = directory / "flight"
    for node in cluster.nodes:
        cluster.record(node, flight / node.name, int(hours * 3600))
    first = cluster.nodes[0]
    sealed = list((flight / first.name).glob("*.digests"))
    found = {"nodes": nodes, "hours": hours, "files_of_a_node": len(sealed)}
    found |= {"kb_of_a_node": sum(path.stat().st_size for path in sealed) // 1000}
    found |= {"tidying_ms": round(tidying_ms(flight / first.name, first), 1)}
    return found | follow_once(flight, directory / "ledger")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--directory", type=Path, help="an empty one, which is kept; otherwise a temporary one")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with TemporaryDirectory(prefix="transis-bench-") as temporary:
        found = measure(arguments.nodes, arguments.hours, arguments.directory or Path(temporary))
    print(json.dumps(found) if arguments.json else "\n".join(f"{name:16} {value}" for name, value in found.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
