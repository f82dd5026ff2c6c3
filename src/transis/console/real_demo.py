"""The scenes of `scenes.py`, played by real daemons and told as they happen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.status import Status
from rich.table import Table
from rich.text import Text

from transis.cli.options import plain_table
from transis.console.scenes import SCENES
from transis.console.stage import GROUP, Actor, Stage
from transis.console.telling import tell_outcome, tell_step
from transis.sim.checkers import check
from transis.sim.checkers.verdict import Report, Verdict
from transis.sim.cluster import show_node
from transis.trace.events import Delivery, History, NodeTrace, Sent
from transis.trace.reader import Finding
from transis.types.views import PROCESSES_MAX


class Played(NamedTuple):
    """What is left when the curtain has fallen."""

    history: History
    report: Report
    verdicts: list[Verdict]
    findings: list[Finding]
    log: list[tuple[int, str]]
    clients: Table
    seconds: float


async def play_real(console: Console | None, directory: Path, engine: str) -> Played:
    """Without a console it is played in silence."""
    async with Stage(directory, engine) as stage:
        if console is not None:
            console.print(
                f"Transis: five daemons on this machine, real processes on real sockets, ordered by {engine}.", style="bold"
            )
        for number, scene in enumerate(SCENES, 1):
            since_us, lost = stage.now_us(), len(stage.past)
            await _act(console, stage, number)
            if console is not None:
                tell_step(console, number, scene.heading, scene.paragraph, (since_us, stage.now_us()))
                tell_outcome(console, stage.history(closed=False)[0], since_us)
                for actor in stage.past[lost:]:
                    _tell_lost(console, actor)
        played = _played(stage)
    stage.testify()
    return played


async def _act(console: Console | None, stage: Stage, number: int) -> None:
    scene = SCENES[number - 1]
    if console is None or not console.is_terminal:
        await scene.act(stage)
        return
    with Status(f"{number}. {scene.heading} ...", console=console):
        await scene.act(stage)


def _tell_lost(console: Console, actor: Actor) -> None:
    doubt = sum(receipt.count for receipt in actor.receipts if receipt.outcome == "in doubt")
    told = f"  The client of {actor.name} was told: {actor.lost}. {doubt} of its messages are in doubt."
    console.print(Text(told, style="dim"), soft_wrap=True)


def _played(stage: Stage) -> Played:
    history, findings = stage.history(closed=True)
    report = check(history)
    verdicts = [*report.verdicts.values(), stage.integrity()]
    clients = _client_table([*stage.past, *stage.actors.values()])
    return Played(history, report, verdicts, findings, stage.log, clients, stage.now_us() / 1e6)


def drawn(history: History) -> History:
    """Without the daemons' own messages: a picture has room for the story only."""
    nodes = [NodeTrace(trace.node, list(filter(_is_drawn, trace.events))) for trace in history.nodes]
    return history._replace(nodes=nodes)


def _is_drawn(event: object) -> bool:
    if isinstance(event, Sent):
        return event.process < PROCESSES_MAX
    return not isinstance(event, Delivery) or event.process.number < PROCESSES_MAX


def _client_table(actors: Sequence[Actor]) -> Table:
    """What each client saw: its views of the group, and how many messages it got in each."""
    headings = ("client of", "views, and messages got in each (~: transitional, !: not primary)")
    table = plain_table(*headings, title=f"What clients of the group {GROUP} saw")
    table.columns[1].justify = "left"
    for actor in sorted(actors, key=lambda actor: actor.node):
        stays = (_stay(actor, index) for index in range(len(actor.stays)))
        table.add_row(show_node(actor.node), " → ".join(stays) + (" → session lost" if actor.lost else ""))
    return table


def _stay(actor: Actor, index: int) -> str:
    view, messages = actor.stays[index]
    names = ",".join(sorted(show_node(member.node) for member in view.members))
    sign = "!" if view.primary is False else ""
    kind = "" if view.id.configuration.is_regular else "~"
    return f"{kind}{sign}{{{names}}} {sum(messages)}"
