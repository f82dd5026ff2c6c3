"""The story of the demonstration: five nodes through a crash, a partition, a merge and a restart.

A step is a paragraph for a person and what is done to the cluster; `demo.py` plays the steps and tells what came of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from transis.sim.cluster import Cluster
from transis.sim.paces import agreement_us
from transis.sim.plan import Plan, with_setting
from transis.types.config import MS
from transis.types.ids import Service

NAMES: Final = ("a", "b", "c", "d", "e")
SEED: Final = 5
PACE_US: Final = 4 * MS
"""Between two rounds of messages."""


class Step(NamedTuple):
    heading: str
    paragraph: str
    act: Callable[[Cluster], None]


def plan(engine: str = "totem") -> Plan:
    return with_setting(Plan(SEED, NAMES), "config.engine", engine)


def _talk(cluster: Cluster, names: str, rounds: int, service: Service = Service.AGREED) -> None:
    """Everybody named sends a message in each round, and a little time passes."""
    for _ in range(rounds):
        for name in names:
            cluster.submit(name, service)
        cluster.run(PACE_US)


def _start(cluster: Cluster) -> None:
    cluster.settle()


def _send(cluster: Cluster) -> None:
    _talk(cluster, "abcde", 2)
    _talk(cluster, "bd", 2, Service.SAFE)
    cluster.settle()


def _crash(cluster: Cluster) -> None:
    """The crash comes while messages are under way: some of c's last ones may have reached nobody."""
    for name in "abcde":
        cluster.submit(name, Service.SAFE, 2)
    cluster.run(1 * MS)
    cluster.crash("c")
    _talk(cluster, "ae", 1)
    cluster.settle()


def _partition(cluster: Cluster) -> None:
    """Both sides are left alone until each has its own view; only then do they talk."""
    for name in "abde":
        cluster.submit(name, Service.SAFE)
    cluster.run(1 * MS)
    cluster.partition("ab", "de")
    cluster.run(_until_apart_us(cluster))
    _talk(cluster, "abde", 2)
    cluster.run(20 * MS)


def _until_apart_us(cluster: Cluster) -> int:
    """Long enough to miss the others, to agree on who is left, and to recover."""
    config = cluster.plan.config
    return 2 * (config.detection_us + agreement_us(config))


def _merge(cluster: Cluster) -> None:
    cluster.heal()
    cluster.settle()
    _talk(cluster, "abde", 1)
    cluster.settle()


def _restart(cluster: Cluster) -> None:
    cluster.restart("c")
    cluster.settle()
    _talk(cluster, "abcde", 1)
    _talk(cluster, "c", 1, Service.SAFE)
    cluster.settle()


STEPS: Final = (
    Step(
        "Five nodes start",
        "Each node starts alone, in a view of one (R0). They hear each other's beacons, agree on who is there, and "
        "install one view of five. A view is a list of members that all of them agree on.",
        _start,
    ),
    Step(
        "Everybody sends",
        "All five send agreed messages at the same time; b and d also send safe ones, which are delivered only when every "
        "member is known to have them. Everybody delivers the same messages in the same order.",
        _send,
    ),
    Step(
        "c crashes",
        "c dies in the middle of traffic. The others notice its silence, agree who is left, and recover what any of them "
        "has of the old view. A transitional view (T) tells them: what you deliver in it is certain only among these. Then "
        "a new regular view of four begins.",
        _crash,
    ),
    Step(
        "The network splits: a and b here, d and e there",
        "Neither side can know whether the other died. Both go on, each in a view of two, each with its own order. "
        "Messages sent now are delivered only on the side where they were sent. A safe message under way when the net split may "
        "be delivered in the old view on one side and in the transitional view on the other: that side could not confirm it.",
        _partition,
    ),
    Step(
        "The network heals: the two sides merge",
        "The sides hear each other's beacons and form one view again. Each member says from which view it comes, so an "
        "application knows with whom it shares its past and with whom it must exchange state.",
        _merge,
    ),
    Step(
        "c comes back",
        "c starts again from its disk. It is a new incarnation, c/2: nothing it said in its first life can be mistaken for "
        "what it says now. It starts alone, is heard, and joins.",
        _restart,
    ),
)
