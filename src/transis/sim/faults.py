"""Faults as data: what can be done to nodes and links, each with one line of text that reads back to it.

1. A fault is a value; world.py carries it out. A schedule is a list of (virtual time, fault).
2. `parse(str(fault)) == fault` for every fault: a failing schedule becomes a script, a script a schedule.
3. An `Ambush` waits for a moment in a node's life (it enters a protocol state, it waits for its disk) and strikes then:
   the windows in which protocols break are too short for the clock alone to find them.
4. Times and rates are written as people write them, `250us`, `20ms`, `1.5s`, `12.5%`; inside, all are integers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final

from transis.types.ids import Service
from transis.types.outputs import Port

# --- durations --------------------------------------------------------------------------------------------------------

UNITS_US = {"us": 1, "ms": 1_000, "s": 1_000_000}
_DURATION = re.compile(r"(\d+)(?:\.(\d+))?(us|ms|s)")
_RATE = re.compile(r"(\d+)(?:\.(\d))?%")


def parse_duration(text: str) -> int:
    """Microseconds; ValueError says what was wrong."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration such as 250us, 20ms or 1.5s")
    whole, fraction, unit = match.groups()
    scale = UNITS_US[unit]
    part = int(fraction) * scale // 10 ** len(fraction) if fraction else 0
    return int(whole) * scale + part


def format_duration(time_us: int) -> str:
    """The shortest exact way: whole seconds, whole milliseconds, or microseconds."""
    if time_us and time_us % 1_000_000 == 0:
        return f"{time_us // 1_000_000}s"
    if time_us and time_us % 1_000 == 0:
        return f"{time_us // 1_000}ms"
    return f"{time_us}us"


def parse_rate(text: str) -> int:
    """Permille."""
    match = _RATE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a rate such as 5% or 12.5%")
    whole, tenth = match.groups()
    permille = int(whole) * 10 + int(tenth or 0)
    if permille > 1000:
        raise ValueError(f"{text!r} is more than 100%")
    return permille


def format_rate(permille: int) -> str:
    return f"{permille // 10}%" if permille % 10 == 0 else f"{permille // 10}.{permille % 10}%"


# --- faults -----------------------------------------------------------------------------------------------------------

COPY_SUFFIX: Final = "+copy"
"""Ends the address of a host that runs a copy of another host's state directory."""

MOMENTS_OF_TOTEM: Final = ("Starting", "Gather", "Commit", "Recovery", "Operational", "Persist", "Received")
"""When an ambush may strike: on entering a state, between a Persist and its completion, or just when a node has
acknowledged everything of a recovery and its promise begins to bind (docs/protocol.md)."""

MOMENTS_OF_LANSIS: Final = ("Stage 1", "Stage 2", "Faults", "Flush", "Flushed")
"""On entering a state, or just when a node has said that it has flushed a proposal, which others may install from now on."""

MOMENTS: Final = MOMENTS_OF_TOTEM + MOMENTS_OF_LANSIS

SEND_SIZE: Final = 100
"""Bytes of a message whose size does not matter."""

REPLICA_ACTS: Final = ("post", "snapshot", "trim", "acknowledge", "add", "remove", "replace")
"""What a replica at a node does, or is asked for: to add one there, to remove one there, to replace a lost one by one there."""

WEATHERS: Final = ("loss", "burst", "duplicate", "reorder", "corrupt", "junk", "replay")
"""Rates that hold for the whole network; network.py says what each does."""


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """What all faults have: a kind that names them in scripts and in the coverage table."""

    kind: ClassVar[str] = ""

    def __str__(self) -> str:
        return self.kind


@dataclass(frozen=True, slots=True)
class NodeFault(InjectedFault):
    """A fault of one node."""

    node: str

    def __str__(self) -> str:
        return f"{self.kind} {self.node}"


@dataclass(frozen=True, slots=True)
class CrashNode(NodeFault):
    """The node dies after it carried out `after` more outputs: 0 is between two turns, more is in the middle of one."""

    kind: ClassVar[str] = "crash"
    after: int = 0

    def __str__(self) -> str:
        return f"crash {self.node}" + (f" after={self.after}" if self.after else "")


@dataclass(frozen=True, slots=True)
class RestartNode(NodeFault):
    """A new life on the same host, from what its disk kept, or from an empty directory."""

    kind: ClassVar[str] = "restart"
    lost_directory: bool = False

    def __str__(self) -> str:
        return f"restart {self.node}" + (" lost" if self.lost_directory else "")


@dataclass(frozen=True, slots=True)
class CopyDirectory(NodeFault):
    """Somebody copies the state directory of this node and starts it on another host."""

    kind: ClassVar[str] = "copy"


@dataclass(frozen=True, slots=True)
class LeaveCluster(NodeFault):
    kind: ClassVar[str] = "leave"


@dataclass(frozen=True, slots=True)
class PauseNode(NodeFault):
    """The process is stopped: its sockets fill, its timers grow stale, its clock goes on."""

    kind: ClassVar[str] = "pause"


@dataclass(frozen=True, slots=True)
class ResumeNode(NodeFault):
    kind: ClassVar[str] = "resume"


@dataclass(frozen=True, slots=True)
class SlowNode(NodeFault):
    """Every datagram costs the node this much more time; 0 ends it."""

    kind: ClassVar[str] = "slow"
    cost_us: int = 0

    def __str__(self) -> str:
        return f"slow {self.node} {format_duration(self.cost_us)}"


@dataclass(frozen=True, slots=True)
class SendMessages(NodeFault):
    """Not a fault, but what makes faults bite: an application sends at a chosen moment."""

    kind: ClassVar[str] = "send"
    service: Service = Service.AGREED
    count: int = 1
    size: int = SEND_SIZE

    def __str__(self) -> str:
        return f"send {self.node} {self.service.name.lower()} {self.count} {self.size}"


@dataclass(frozen=True, slots=True)
class ActAsClients(NodeFault):
    """Not a fault either: client processes of the node make this many requests, to join or leave groups or to disconnect."""

    kind: ClassVar[str] = "ask"
    count: int = 1

    def __str__(self) -> str:
        return f"ask {self.node} {self.count}"


@dataclass(frozen=True, slots=True)
class KillReplica(NodeFault):
    """The replicas at this node die after so many more outputs, and come back some time later."""

    kind: ClassVar[str] = "kill"
    after: int = 0

    def __str__(self) -> str:
        return f"kill {self.node}" + (f" after={self.after}" if self.after else "")


@dataclass(frozen=True, slots=True)
class DropSession(NodeFault):
    """The replicas at this node lose their sessions, and open others."""

    kind: ClassVar[str] = "drop"


@dataclass(frozen=True, slots=True)
class HangDisk(NodeFault):
    """The disk of this node's replicas syncs nothing until it is freed."""

    kind: ClassVar[str] = "hang"


@dataclass(frozen=True, slots=True)
class FreeDisk(NodeFault):
    kind: ClassVar[str] = "free"


@dataclass(frozen=True, slots=True)
class LoseDisk(NodeFault):
    """The directory of a replica at this node is gone for good, and the replica with it."""

    kind: ClassVar[str] = "wipe"


@dataclass(frozen=True, slots=True)
class ActAsReplica(NodeFault):
    """Not a fault: a replica at the node, or its administrator, does something."""

    kind: ClassVar[str] = "replica"
    act: str = "snapshot"

    def __str__(self) -> str:
        return f"replica {self.node} {self.act}"


@dataclass(frozen=True, slots=True)
class PartitionNetwork(InjectedFault):
    """Only hosts of one component hear each other; hosts that are not named make up one more component."""

    kind: ClassVar[str] = "partition"
    components: tuple[tuple[str, ...], ...] = ()

    def __str__(self) -> str:
        return "partition " + " | ".join(",".join(component) for component in self.components)


@dataclass(frozen=True, slots=True)
class HealNetwork(InjectedFault):
    """Partitions and cuts end."""

    kind: ClassVar[str] = "heal"


@dataclass(frozen=True, slots=True)
class CutLink(InjectedFault):
    """One direction of one link is dead, for one port or for all; `*` stands for every host."""

    kind: ClassVar[str] = "cut"
    source: str = "*"
    target: str = "*"
    port: Port | None = None

    def __str__(self) -> str:
        return f"{self.kind} {self.source}->{self.target}" + ("" if self.port is None else f" {self.port.name.lower()}")


@dataclass(frozen=True, slots=True)
class MendLink(CutLink):
    """The opposite of a cut."""

    kind: ClassVar[str] = "mend"


@dataclass(frozen=True, slots=True)
class Weather(InjectedFault):
    """A rate of the whole network changes."""

    kind: ClassVar[str] = "weather"
    what: str = "loss"
    permille: int = 0

    def __str__(self) -> str:
        return f"weather {self.what} {format_rate(self.permille)}"


@dataclass(frozen=True, slots=True)
class Delay(InjectedFault):
    """Everything on one port takes this much longer; 0 ends it."""

    kind: ClassVar[str] = "delay"
    port: Port = Port.DATA
    extra_us: int = 0

    def __str__(self) -> str:
        return f"delay {self.port.name.lower()} {format_duration(self.extra_us)}"


HEAL: Final = HealNetwork()


@dataclass(frozen=True, slots=True)
class Ambush(NodeFault):
    """`fault` strikes when `node` next comes to `moment`, or `later_us` after that."""

    kind: ClassVar[str] = "on"
    moment: str = "Recovery"
    fault: InjectedFault = HEAL
    later_us: int = 0

    def __str__(self) -> str:
        later = f"+{format_duration(self.later_us)}" if self.later_us else ""
        return f"on {self.node} {self.moment.replace(' ', '_')}{later} {self.fault}"


HARMLESS: Final = (Ambush, SendMessages, ActAsClients, ActAsReplica)
"""What does no harm by itself: neither counted nor reported as a fault."""

Schedule = tuple[tuple[int, InjectedFault], ...]


def names_in(fault: InjectedFault) -> frozenset[str]:
    """The hosts that a fault names, for shrinking to fewer nodes."""
    match fault:
        case Ambush(node=node, fault=inner):
            return names_in(inner) | {node}
        case NodeFault(node=node):
            return frozenset((node,))
        case PartitionNetwork(components=components):
            return frozenset(name for component in components for name in component)
        case CutLink(source=source, target=target):
            return frozenset((source, target)) - {"*"}
        case _:
            return frozenset()


def parse(line: str) -> InjectedFault:
    """A fault from its line; ValueError names what was not understood."""
    verb, _, rest = line.strip().partition(" ")
    reader = READERS.get(verb)
    if reader is None:
        raise ValueError(f"{verb!r} is not a fault; known are {', '.join(sorted(READERS))}")
    return reader(rest.strip())


def _words(rest: str, least: int, most: int) -> list[str]:
    words = rest.split()
    if not least <= len(words) <= most:
        raise ValueError(f"expected {least} to {most} words, found {rest!r}")
    return words


def _crash(rest: str) -> InjectedFault:
    return CrashNode(*_who_after(rest))


def _kill(rest: str) -> InjectedFault:
    return KillReplica(*_who_after(rest))


def _who_after(rest: str) -> tuple[str, int]:
    words = _words(rest, 1, 2)
    return words[0], int(words[1].removeprefix("after=")) if len(words) == 2 else 0


def _restart(rest: str) -> InjectedFault:
    words = _words(rest, 1, 2)
    if words[1:] not in ([], ["lost"]):
        raise ValueError(f"expected nothing or 'lost' after the name, found {words[1]!r}")
    return RestartNode(words[0], len(words) == 2)


def _slow(rest: str) -> InjectedFault:
    node, cost = _words(rest, 2, 2)
    return SlowNode(node, parse_duration(cost))


def _send(rest: str) -> InjectedFault:
    words = _words(rest, 2, 4)
    if words[1].upper() not in Service.__members__:
        raise ValueError(f"{words[1]!r} is not a service; known are basic, causal, agreed, safe")
    return SendMessages(words[0], Service[words[1].upper()], *map(int, words[2:]))


def _ask(rest: str) -> InjectedFault:
    node, count = _words(rest, 2, 2)
    return ActAsClients(node, int(count))


def _replica(rest: str) -> InjectedFault:
    node, act = _words(rest, 2, 2)
    if act not in REPLICA_ACTS:
        raise ValueError(f"{act!r} is nothing that a replica does; known are {', '.join(REPLICA_ACTS)}")
    return ActAsReplica(node, act)


def _partition(rest: str) -> InjectedFault:
    return PartitionNetwork(tuple(tuple(name.strip() for name in part.split(",")) for part in rest.split("|")))


def _port(name: str) -> Port:
    if name.upper() not in Port.__members__:
        raise ValueError(f"{name!r} is not a port; known are data, control, token")
    return Port[name.upper()]


def _link(rest: str) -> tuple[str, str, Port | None]:
    words = _words(rest, 1, 2)
    source, arrow, target = words[0].partition("->")
    if not arrow:
        raise ValueError(f"expected source->target, found {words[0]!r}")
    return source, target, _port(words[1]) if len(words) == 2 else None


def _weather(rest: str) -> InjectedFault:
    what, rate = _words(rest, 2, 2)
    if what not in WEATHERS:
        raise ValueError(f"{what!r} is not a kind of weather; known are {', '.join(WEATHERS)}")
    return Weather(what, parse_rate(rate))


def _delay(rest: str) -> InjectedFault:
    port, extra = _words(rest, 2, 2)
    return Delay(_port(port), parse_duration(extra))


def _ambush(rest: str) -> InjectedFault:
    node, when, line = rest.split(None, 2)
    moment, _, later = when.replace("_", " ").partition("+")
    if moment not in MOMENTS:
        raise ValueError(f"{moment!r} is not a moment; known are {', '.join(MOMENTS)}")
    return Ambush(node, moment, parse(line), parse_duration(later) if later else 0)


READERS: Final[dict[str, Callable[[str], InjectedFault]]] = {
    "crash": _crash,
    "restart": _restart,
    "copy": lambda rest: CopyDirectory(_words(rest, 1, 1)[0]),
    "leave": lambda rest: LeaveCluster(_words(rest, 1, 1)[0]),
    "pause": lambda rest: PauseNode(_words(rest, 1, 1)[0]),
    "resume": lambda rest: ResumeNode(_words(rest, 1, 1)[0]),
    "slow": _slow,
    "send": _send,
    "ask": _ask,
    "kill": _kill,
    "drop": lambda rest: DropSession(_words(rest, 1, 1)[0]),
    "hang": lambda rest: HangDisk(_words(rest, 1, 1)[0]),
    "free": lambda rest: FreeDisk(_words(rest, 1, 1)[0]),
    "wipe": lambda rest: LoseDisk(_words(rest, 1, 1)[0]),
    "replica": _replica,
    "partition": _partition,
    "heal": lambda rest: HealNetwork(),
    "cut": lambda rest: CutLink(*_link(rest)),
    "mend": lambda rest: MendLink(*_link(rest)),
    "weather": _weather,
    "delay": _delay,
    "on": _ambush,
}
