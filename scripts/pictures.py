"""Draws the pictures of the documents: that of the README, and worked examples for docs/play.md.

.venv/bin/python scripts/pictures.py [DIRECTORY]
"""

import sys
from pathlib import Path
from typing import Final

from transis import Service
from transis.audit.draw.spacetime import write_diagram
from transis.sim.cluster import SimulatedCluster
from transis.sim.picture import picture_of
from transis.sim.plan import Plan
from transis.sim.play import load_example, picture_of_play, played
from transis.sim.scripts import Player

DOCS: Final = Path(__file__).parents[1] / "docs"
PARTITION: Final = "partition.svg"
FIGURES: Final = {
    "paper_order_of_the_token": ("token",),
    "paper_transitional_then_regular": (),
    "paper_close_of_business": (),
    "lansis_paper_chain": ("dag",),
    "paper_p_q_r_in_groups_g_and_h": (),
    "lansis_paper_fig2": (),
    "lansis_toto_two_orders": ("dag",),
}
"""Worked examples, and the layers that their pictures show."""


def draw_all(directory: Path) -> None:
    """The same pictures every time."""
    draw_partition(directory / PARTITION)
    (directory / "figures").mkdir(exist_ok=True)
    for name, layers in FIGURES.items():
        player = Player()
        for _ in played(player, load_example(name, player.engine)):
            pass
        write_diagram(directory / "figures" / f"{name}.svg", picture_of_play(player, name, layers))


def draw_partition(file: Path) -> None:
    """Three simulated nodes send, part, send apart, and meet again."""
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
    draw_all(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS)
