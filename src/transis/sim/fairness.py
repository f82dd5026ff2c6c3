"""Nobody starves: a node with little to send gets its turn while the others saturate the ring (protocols L5, W4; T14).

When the cluster is at rest, all nodes but one fill their queues; after some rounds the last one sends a single message.
It must be delivered before the queues of the others are empty. If they are empty when it speaks, nothing was tried.
"""

from __future__ import annotations

from typing import Final

from transis.sim.checkers.verdict import Findings
from transis.sim.faults import Send
from transis.sim.life import Life
from transis.sim.liveness import budget_us, hop_us, judged, rotation_us, settle
from transis.sim.plan import Plan
from transis.sim.world import World
from transis.trace.events import Delivery, Sent
from transis.types.ids import Service

HEAD_START: Final = 3
"""Rounds that the others have before the single message is sent."""

LEAST_ROUNDS: Final = 12
"""The queues of the others must last so long, or nothing is learned."""

MESSAGES_MAX: Final = 400
"""Messages of one rival."""


def compete(world: World, plan: Plan) -> Findings:
    findings = Findings("fairness")
    lives = judged(world)
    size = plan.config.datagram // 2
    count = min(MESSAGES_MAX, plan.config.window.outbox_bytes // (2 * size))
    if len(lives) < 2 or count * (len(lives) - 1) < 2 * LEAST_ROUNDS * plan.config.window.window:
        return findings
    *rivals, quiet = lives
    for rival in rivals:
        world.strike(Send(rival.host, Service.AGREED, count, size))
    world.run(world.now + HEAD_START * _round_us(plan))
    if not any(map(_has_work, rivals)):
        return findings
    world.strike(Send(quiet.host, Service.AGREED, 1, size))
    if settle(world, plan, budget_us(world, plan)) is None:
        return findings
    findings.checked = 1
    behind = _delivered_behind(quiet)
    if not behind:
        findings.broken(f"{quiet.id} got no turn before everything else was sent: it starved beside busy senders")
    return findings


def _round_us(plan: Plan) -> int:
    """In which a window of messages becomes everybody's: a rotation, or a way there, a word about it, and the way back."""
    return rotation_us(plan) if plan.config.engine == "totem" else 2 * hop_us(plan) + plan.config.pulse.prompt_us


def _has_work(life: Life) -> bool:
    """Has it taken messages that it has not sent yet?"""
    sent = sum(event.count for event in life.recorder.events if isinstance(event, Sent))
    return life.taken - life.refused > sent


def _delivered_behind(quiet: Life) -> int:
    """Messages of others that the quiet node delivered behind its own last one."""
    behind = 0
    for event in reversed(quiet.recorder.events):
        if isinstance(event, Delivery):
            if event.process.node == quiet.id:
                return behind
            behind += event.count
    return behind
