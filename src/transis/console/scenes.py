"""The story that real daemons play: traffic in every service, kill -9 of one, a partition, a heal, a restart.

A scene is a paragraph for a person and what is done; `real_demo.py` plays the scenes and tells what came of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from transis.console.stage import Stage
from transis.types.ids import Service


class Scene(NamedTuple):
    heading: str
    paragraph: str
    act: Callable[[Stage], Awaitable[None]]


async def _start(stage: Stage) -> None:
    await stage.start("abcde")
    await stage.together("abcde")


async def _send(stage: Stage) -> None:
    receipts = await stage.say("abcde", 2, Service.AGREED)
    receipts += await stage.say("ace", 1, Service.CAUSAL)
    receipts += await stage.say("bd", 2, Service.SAFE)
    await stage.say("ab", 1, Service.BASIC)
    await stage.heard("abcde", receipts)


async def _kill(stage: Stage) -> None:
    """In the middle of traffic: some of c's last messages may have reached nobody."""
    receipts = await stage.say("abde", 3, Service.SAFE)
    await stage.say("c", 3, Service.SAFE)
    victim = stage.actors["c"]
    stage.kill("c")
    await stage.lost(victim)
    await stage.together("abde")
    await stage.heard("abde", receipts)
    await stage.talk("ae", 2, Service.AGREED)


async def _part(stage: Stage) -> None:
    """In the middle of traffic too; then each side talks to itself."""
    await stage.say("abde", 1, Service.SAFE)
    stage.part("ab", "de")
    await stage.together("ab", "de")
    await stage.talk("ab", 2, Service.AGREED)
    await stage.talk("de", 2, Service.AGREED)


async def _heal(stage: Stage) -> None:
    stage.heal()
    await stage.together("abde")
    await stage.talk("abde", 1, Service.AGREED)


async def _restart(stage: Stage) -> None:
    await stage.restart("c")
    await stage.together("abcde")
    await stage.talk("abcde", 1, Service.AGREED)
    await stage.talk("abcde", 1, Service.SAFE)


SCENES: Final = (
    Scene(
        "Five daemons start, and a client of each joins the group orders",
        "Five processes on loopback, each alone at first, in a view of one (R0). They hear each other's beacons, agree on who is "
        "there, and install one view of five. A client connects to each over its Unix socket and joins a process group. The "
        "cluster is told its quorum, so views say whether they hold a majority of the five.",
        _start,
    ),
    Scene(
        "Everybody sends",
        "Agreed messages have one place in one order everywhere; causal ones come after whatever caused them; safe ones are "
        "delivered only when every member is known to have them; basic ones come when they come.",
        _send,
    ),
    Scene(
        "kill -9 of the daemon c",
        "c dies in the middle of traffic, without a word. Its client is told that the session is lost, and that of its last "
        "messages nobody knows whether they were sent. The others notice, agree who is left, and recover what "
        "any of them has of the old view. A transitional view (T) tells them: what you deliver in it is certain only among "
        "these. Then a view of four begins.",
        _kill,
    ),
    Scene(
        "The network is cut: a and b here, d and e there",
        "Neither side can know whether the other died. Both go on, each in a view of two, each with its own order: what is sent "
        "now is delivered only on the side where it was sent. Neither side has three of the five, so both say that they are not "
        "primary: an application that must not diverge stops there, and one that may goes on.",
        _part,
    ),
    Scene(
        "The cut heals",
        "The sides hear each other's beacons and form one view again. Each member says from which view it comes, so an "
        "application knows with whom it shares its past and with whom it must exchange state.",
        _heal,
    ),
    Scene(
        "c is started again",
        "From its own state directory, as a new incarnation, c/2: nothing it said in its first life can be mistaken for what it "
        "says now. Its new client joins the group.",
        _restart,
    ),
)
