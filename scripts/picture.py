"""Draws docs/partition.svg, the picture in the README: `.venv/bin/python scripts/picture.py [FILE]`."""

import sys
from pathlib import Path

from transis import Service
from transis.audit.draw.spacetime import write_diagram
from transis.sim.cluster import SimulatedCluster
from transis.sim.picture import picture_of
from transis.sim.plan import Plan

PICTURE = Path(__file__).parents[1] / "docs" / "partition.svg"


def draw(file: Path) -> None:
    """Three simulated nodes send, part, send apart, and meet again; the same picture every time."""
    cluster = SimulatedCluster(Plan(5, ("ann", "bob", "cyd")))
    cluster.settle()
    cluster.submit("ann")
    cluster.run(800)
    cluster.submit("cyd")
    cluster.run(1_500)
    cluster.submit("bob", Service.SAFE)
    cluster.run(3_000)
    cluster.submit("cyd")
    cluster.run(2_000)
    cluster.partition(["ann", "bob"], ["cyd"])
    cluster.run(300_000)
    cluster.submit("ann")
    cluster.run(500)
    cluster.submit("cyd")
    cluster.run(3_000)
    cluster.heal()
    cluster.settle()
    cluster.submit("bob")
    cluster.run(1_000)
    cluster.submit("cyd", Service.SAFE)
    cluster.run(4_000)
    facts = ("one order of messages and views; after a partition each side goes on with its own",)
    write_diagram(file, picture_of(cluster.history(), cluster.world.log, "Three nodes, a partition, a merge", facts))


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE)
