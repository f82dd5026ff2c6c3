"""Lansis against what a user would pick instead, and against the ring, each pair in the same minutes on the same machine.

    python -m bench.compare [--peer 'NAME=COMMAND' ...] [--nodes 4] [--sizes 64,1000] [--seconds 4] [--rounds 3] [--rate 1000]
                            [--lan] [--json]

1. Throughput: all nodes send, agreed, as fast as they may. COMMAND runs a peer under the same load and prints one line of JSON
   with `msgs_per_s`, what one of its nodes delivered a second; {nodes}, {size} and {seconds} in it are filled in. In each round
   every peer runs once and Lansis once; a peer that fails is left out of it. The figure is the ratio to the peer that was best
   in the round, median of the rounds.
2. Latency: all nodes send, `--rate` messages a second together, agreed. Both engines run once in each round; the figure is the
   ratio of their medians, and again the median of the rounds.

Only ratios within one round compare: absolute figures depend on the machine and on what else it does.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from transis.bench.machines import machine
from transis.bench.throughput import ThroughputRequest, measure_throughput
from transis.types.config import ENGINES

PATIENCE_S = 120.0
"""What a peer may take to start and to end, beyond its seconds."""
LATENCY_SIZE = 64


def peer_of(text: str) -> tuple[str, str]:
    name, separator, command = text.partition("=")
    if not (name and separator and command):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=COMMAND")
    return name, command


def peer_msgs_per_s(command: str, nodes: int, size: int, seconds: float) -> float | None:
    """None if it failed: then it is not present in this round, and its own words are on standard error."""
    for name, value in (("nodes", nodes), ("size", size), ("seconds", seconds)):
        command = command.replace(f"{{{name}}}", str(value))
    done = subprocess.run(shlex.split(command), stdout=subprocess.PIPE, text=True, check=False, timeout=seconds + PATIENCE_S)
    return float(json.loads(done.stdout.splitlines()[-1])["msgs_per_s"]) if done.returncode == 0 else None


def against_the_best(ours: float, peers: Mapping[str, float]) -> dict[str, Any]:
    """One round: who was best, and how many times as fast we were."""
    best = max(sorted(peers), key=lambda name: peers[name])
    rates = {"lansis": ours, **peers}
    return {**{name: round(rate) for name, rate in rates.items()}, "best": best, "ratio": round(ours / peers[best], 2)}


def middle(rounds: Iterable[Mapping[str, Any]]) -> float:
    ratios: list[float] = [one["ratio"] for one in rounds]
    return round(statistics.median(ratios), 2)


def _ours(arguments: argparse.Namespace, engine: str, size: int, rate: float) -> dict[str, Any]:
    wanted = ThroughputRequest(
        arguments.nodes, size, "agreed", "embedded", arguments.seconds, arguments.lan, False, "multicast", engine, rate
    )
    figures = measure_throughput(wanted, lambda _: None)
    if figures["lost"] or figures["view_changes"]:
        print(f"{engine}: lost {figures['lost']}, view changes {figures['view_changes']}", file=sys.stderr)
    return figures


def throughput(arguments: argparse.Namespace, size: int) -> dict[str, Any]:
    rounds = []
    for _ in range(arguments.rounds):
        found = {name: peer_msgs_per_s(command, arguments.nodes, size, arguments.seconds) for name, command in arguments.peer}
        peers = {name: rate for name, rate in found.items() if rate is not None}
        if peers:
            rounds.append(against_the_best(_ours(arguments, "lansis", size, 0.0)["msgs_per_s"], peers))
            print(f"{size} bytes: {rounds[-1]}", file=sys.stderr)
    return {"size": size, "times_the_best_peer": middle(rounds) if rounds else None, "rounds": rounds}


def latency(arguments: argparse.Namespace) -> dict[str, Any]:
    rounds = []
    for _ in range(arguments.rounds):
        found = {
            engine: _ours(arguments, engine, LATENCY_SIZE, arguments.rate / arguments.nodes)["latency_ms"] for engine in ENGINES
        }
        rounds.append({**found, "ratio": round(found["lansis"]["p50"] / found["totem"]["p50"], 2)})
        print(f"latency: {rounds[-1]}", file=sys.stderr)
    return {"rate": arguments.rate, "p50_times_the_ring": middle(rounds), "rounds": rounds}


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", type=peer_of, action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--sizes", type=lambda text: [int(word) for word in text.split(",")], default=[64, 1000])
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=float, default=1000.0, help="messages a second of all nodes together, for the latency")
    parser.add_argument("--lan", action="store_true", help="our nodes in network namespaces (root), as peers may be")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(words)


def main() -> int:
    arguments = parsed()
    figures: dict[str, Any] = {"nodes": arguments.nodes, "seconds": arguments.seconds, "latency": latency(arguments)}
    if arguments.peer:
        figures["throughput"] = [throughput(arguments, size) for size in arguments.sizes]
    figures["machine"] = machine()
    if arguments.json:
        print(json.dumps(figures))
        return 0
    print(f"latency: {figures['latency']['p50_times_the_ring']} times the ring's at {arguments.rate:g} messages a second")
    for one in figures.get("throughput", []):
        print(f"{one['size']} bytes: {one['times_the_best_peer']} times the best peer, by round {one['rounds']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
