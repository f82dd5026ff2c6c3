"""The story of `story.py`, played by simulated nodes in virtual time: no network, no privileges, the same every time."""

from __future__ import annotations

from rich.console import Console

from transis.console.story import STEPS, Step, plan
from transis.console.telling import tell_outcome, tell_step
from transis.sim.checkers.verdict import Findings, Verdict
from transis.sim.cluster import Cluster


def play_simulated(console: Console | None, engine: str) -> Cluster:
    """Without a console it is played in silence."""
    if console is not None:
        console.print(f"Transis: five simulated nodes, ordered by {engine}, in virtual time.", style="bold")
    cluster = Cluster(plan(engine))
    for number, step in enumerate(STEPS, 1):
        _play(console, cluster, number, step)
    return cluster


def _play(console: Console | None, cluster: Cluster, number: int, step: Step) -> None:
    since_us = cluster.world.now
    step.act(cluster)
    if console is not None:
        tell_step(console, number, step.heading, step.paragraph, (since_us, cluster.world.now))
        tell_outcome(console, cluster.history(), since_us)


def verdicts_of(cluster: Cluster) -> list[Verdict]:
    """The checkers' verdicts, and what the harness itself saw: no node raised, every byte arrived as it was sent."""
    integrity, no_crash = Findings("integrity"), Findings("no_crash")
    integrity.checked, no_crash.checked = cluster.world.verified, cluster.world.turns
    for mishap in cluster.world.mishaps:
        (integrity if mishap.property == "integrity" else no_crash).broken(mishap.explanation)
    return [*cluster.check().verdicts.values(), integrity.verdict(), no_crash.verdict()]
