"""The schedule of a run: episodes of faults, each drawn by one small function.

1. Times are drawn so that short distances are as common as long ones: what breaks protocols is the second fault, while the first
   is being repaired. Some faults wait in ambush for the state in which a protocol is weakest.
2. Lansis gets faults of its own: a machine says something and is then heard no more, while what it said is still on its way. Only
   messages that arrive after statements, flushes and acknowledgements test what these promise, and in good weather nothing is
   slow enough. So what is sent around these last words arrives late, or never.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from transis.sim.faults import (
    Ambush,
    CopyDirectory,
    CrashNode,
    CutLink,
    Delay,
    HealNetwork,
    InjectedFault,
    LeaveCluster,
    MendLink,
    PartitionNetwork,
    PauseNode,
    RestartNode,
    ResumeNode,
    Schedule,
    SendMessages,
    SlowNode,
    Weather,
)
from transis.sim.plan import gathering_us
from transis.sim.streams import RandomStream
from transis.types.config import MS, Config, Timing
from transis.types.ids import Service
from transis.types.outputs import Port

# --- episodes ---------------------------------------------------------------------------------------------------------

EPISODES_MAX: Final = 7
"""Episodes of one kind in one run."""

THEMED_PERMILLE: Final = 350
"""Runs whose episodes follow one another instead of overlapping."""

THEMES: Final = ("cascade", "cascade", "cascade", "promise", "promise", "promise", "storm", "crash", "partition")

THEMES_OF_ONE: Final = ("downpour", "downpour", "crash", "crash together")
"""The same for runs in which living nodes must not lose each other."""

AMBUSH_MOMENTS: Final = {
    "totem": ("Gather", "Commit", "Commit", "Recovery", "Recovery", "Recovery", "Operational", "Persist", "Received"),
    "lansis": ("Faults", "Stage 1", "Stage 2", "Flush", "Flush", "Flush", "Operational", "Flushed"),
}

CASCADE_MOMENTS: Final = {
    "totem": ("Operational", "Operational", "Recovery", "Recovery", "Commit"),
    "lansis": ("Operational", "Operational", "Flush", "Flushed", "Faults"),
}

PROMISED: Final = {"totem": "Received", "lansis": "Flushed"}
"""The moment from which others may rely on what a node has of an old view."""


@dataclass(slots=True)
class Draft:
    """What the drawing functions share; `faults` grows."""

    stream: RandomStream
    names: tuple[str, ...]
    config: Config
    safety_us: int
    faults: list[tuple[int, InjectedFault]]
    sequel_us: int = 0
    """When the next episode starts, if episodes follow one another."""

    @property
    def timing(self) -> Timing:
        return self.config.timing

    @property
    def detection_us(self) -> int:
        return self.config.detection_us

    def moment(self) -> int:
        return self.sequel_us or self.stream.between(self.safety_us // 20, self.safety_us)

    def while_us(self) -> int:
        """How long an episode lasts: from far below the time in which a failure is detected to far above it."""
        return self.stream.stretched(max(1, self.detection_us // 16), 16 * self.detection_us)

    def name(self) -> str:
        return self.stream.pick(self.names)

    def add(self, time_us: int, fault: InjectedFault) -> None:
        self.faults.append((time_us, fault))

    def add_perhaps_in_ambush(self, time_us: int, watched: str, fault: InjectedFault) -> None:
        if self.stream.chance(400):
            fault = Ambush(watched, self.stream.pick(AMBUSH_MOMENTS[self.config.engine]), fault, self.some_hops_us())
        self.add(time_us, fault)

    def components(self) -> tuple[tuple[str, ...], ...]:
        """A partition: everybody in one of several components."""
        count = self.stream.pick((2, 2, 2, 3, len(self.names)))
        components: list[list[str]] = [[] for _ in range(count)]
        for name in self.names:
            self.stream.pick(components).append(name)
        return tuple(tuple(component) for component in components if component)

    def some_hops_us(self) -> int:
        """Zero, or up to the few rotations that forming a ring takes."""
        return self.stream.pick((0, self.stream.between(0, 6 * len(self.names) * self.timing.hop_us)))


def draw_schedule(
    stream: RandomStream, names: tuple[str, ...], config: Config, safety_us: int, sealed: bool, partitions: bool = True
) -> Schedule:
    """Either a medley of kinds at any time, or episodes one after another, for those that need a whole ring to break."""
    draft = Draft(stream, names, config, safety_us, [])
    if stream.chance(THEMED_PERMILLE):
        _one_after_another(draft, THEMES if partitions else THEMES_OF_ONE)
    else:
        _medley(draft, sealed, KINDS if partitions else KINDS_OF_ONE)
    return tuple(sorted(draft.faults, key=lambda entry: entry[0]))


def _medley(draft: Draft, sealed: bool, kinds: tuple[tuple[str, int], ...]) -> None:
    stream = draft.stream
    for kind, on_permille in kinds:
        episodes = stream.between(1, EPISODES_MAX)
        if not stream.chance(on_permille) or (kind in NEED_A_SEAL and not sealed):
            continue
        for _ in range(episodes):
            EPISODES[kind](draft)


def _one_after_another(draft: Draft, themes: tuple[str, ...]) -> None:
    """Between two episodes the ring comes together again."""
    pause = draft.timing.beacon_us + gathering_us(draft.config) + 4 * draft.detection_us
    draft.sequel_us = pause
    while draft.sequel_us < draft.safety_us:
        EPISODES[draft.stream.pick(themes)](draft)
        last = max((time for time, _ in draft.faults), default=0)
        draft.sequel_us = max(draft.sequel_us, last) + pause


def _crash(draft: Draft) -> None:
    """Down for a moment (faster than anybody notices) or for long; in the middle of its outputs as often as not."""
    name = draft.name()
    time = draft.moment()
    after = draft.stream.pick((0, 0, draft.stream.between(1, 20)))
    draft.add_perhaps_in_ambush(time, name, CrashNode(name, after))
    if draft.stream.chance(800):
        draft.add(time + draft.while_us(), RestartNode(name))


def _crash_loop(draft: Draft) -> None:
    """A node that dies again soon after every start, now and then before its disk has written anything."""
    name = draft.name()
    time = draft.moment()
    for _ in range(draft.stream.between(2, 5)):
        draft.add(time, CrashNode(name, draft.stream.pick((0, 0, 1, 2))))
        time += draft.stream.stretched(500, 20 * MS)
        draft.add(time, RestartNode(name))
        time += draft.stream.stretched(1 * MS, 4 * (gathering_us(draft.config) + draft.detection_us))


def _crash_together(draft: Draft) -> None:
    """Several nodes die almost together; in some runs these are the holder of the token and its successor."""
    if len(draft.names) < 2:
        return
    time = draft.moment()
    for name in draft.stream.some(draft.names, draft.stream.between(2, max(2, len(draft.names) // 2))):
        draft.add(time + draft.stream.between(0, draft.detection_us // 8), CrashNode(name))
        draft.add(time + draft.while_us(), RestartNode(name))


def _pause(draft: Draft) -> None:
    name = draft.name()
    time = draft.moment()
    draft.add_perhaps_in_ambush(time, name, PauseNode(name))
    draft.add(time + draft.while_us(), ResumeNode(name))


def _partition(draft: Draft) -> None:
    """Several partitions in a row, each cutting across the one before, then one network again."""
    time = draft.moment()
    for _ in range(draft.stream.between(1, 4)):
        draft.add_perhaps_in_ambush(time, draft.name(), PartitionNetwork(draft.components()))
        time += draft.while_us()
    draft.add(time, HealNetwork())


def _storm(draft: Draft) -> None:
    """Messages on their way, some of them lost, and then the ring breaks: what recovery is for."""
    stream = draft.stream
    time = draft.moment()
    _floods(draft, time, draft.names)
    draft.add(time, stream.pick((Weather("loss", stream.between(100, 600)), CutLink("*", draft.name(), Port.DATA))))
    blow = time + stream.stretched(max(1, draft.detection_us // 32), draft.detection_us)
    for _ in range(stream.between(1, 3)):
        fault = stream.pick((PartitionNetwork(draft.components()), PartitionNetwork(draft.components()), CrashNode(draft.name())))
        draft.add(blow, fault)
        if stream.chance(300):
            draft.add(blow, Weather("loss", 0))
        blow += draft.while_us() // 4
    draft.add(blow, Weather("loss", 0))
    draft.add(blow + draft.while_us(), HealNetwork())


def _downpour(draft: Draft) -> None:
    """A storm in which nobody is cut off: messages on their way, some of them lost, and then nodes die."""
    stream = draft.stream
    time = draft.moment()
    _floods(draft, time, draft.names)
    draft.add(time, Weather("loss", stream.between(50, 300)))
    blow = time + stream.stretched(max(1, draft.detection_us // 32), draft.detection_us)
    for name in stream.some(draft.names, stream.between(1, max(1, len(draft.names) // 2))):
        draft.add_perhaps_in_ambush(blow, name, CrashNode(name))
        draft.add(blow + draft.while_us(), RestartNode(name))
        blow += draft.while_us() // 4
    draft.add(blow, Weather("loss", 0))


def _cascade(draft: Draft) -> None:
    """A component that lacks messages of departed nodes splits again, just when one of its members has installed.

    First the data of some nodes no longer reach the others, so that there are gaps which nobody can fill; then the two
    sides part; then the deaf side is split in ambush, again and again. Members that installed have promised something to
    those that did not (docs/protocol.md).
    """
    stream, names = draft.stream, draft.names
    if len(names) < 3:
        return
    time = draft.moment()
    rest = list(stream.some(names, len(names)))
    gone = [rest.pop() for _ in range(stream.between(1, len(rest) - 2))]
    for source in gone:
        for target in rest:
            draft.add(time, CutLink(source, target, Port.DATA))
    _floods(draft, time, names)
    time += stream.stretched(max(1, draft.detection_us // 16), draft.detection_us)
    draft.add(time, PartitionNetwork((tuple(rest), tuple(gone))))
    while len(rest) > 1:
        watched = stream.pick(rest)
        cut = stream.between(1, len(rest) - 1)
        apart = (tuple(rest[:cut]), tuple(rest[cut:]))
        moment = stream.pick(CASCADE_MOMENTS[draft.config.engine])
        draft.add(time, Ambush(watched, moment, PartitionNetwork((*apart, tuple(gone))), draft.some_hops_us()))
        time += stream.stretched(max(1, draft.detection_us // 4), 2 * draft.detection_us)
        gone, rest = gone + rest[cut:], rest[:cut]
    draft.add(time + draft.while_us(), HealNetwork())


def _promise(draft: Draft) -> None:
    """Promises that are inherited (W3): one node acknowledged an exchange and another did not when the ring broke; then
    the first installs a smaller ring and the other is cut off, with what the first delivered there.

    There must be a gap that nobody can fill, and behind it messages of somebody who is gone by then.
    """
    stream = draft.stream
    if len(draft.names) < 4:
        return
    time = draft.moment()
    lost, gone, *rest = stream.some(draft.names, len(draft.names))
    for target in (gone, *rest):
        draft.add(time, CutLink(lost, target, Port.DATA))
    size = draft.config.datagram // 2
    draft.add(time, SendMessages(lost, Service.AGREED, stream.between(1, 4), size))
    draft.add(time + draft.some_hops_us(), SendMessages(gone, Service.SAFE, stream.between(1, 8), size))
    time += stream.stretched(max(1, draft.detection_us // 16), draft.detection_us // 2)
    first, last = stream.pick(rest), stream.pick(rest)
    others = tuple(name for name in rest if name != last)
    draft.add(time, Ambush(first, PROMISED[draft.config.engine], PartitionNetwork(((gone,), tuple(rest), (lost,)))))
    draft.add(time, Ambush(last, "Operational", PartitionNetwork(((gone,), (last,), others, (lost,)))))
    draft.add(time, PartitionNetwork(((gone, *rest), (lost,))))
    draft.add(time + 12 * draft.detection_us, HealNetwork())


def _floods(draft: Draft, time: int, names: tuple[str, ...]) -> None:
    """Applications send many messages around one moment, most of them safe."""
    stream = draft.stream
    for name in stream.some(names, stream.between(1, min(4, len(names)))):
        size = stream.pick((50, draft.config.datagram // 2, 2 * draft.config.datagram, 8 * draft.config.datagram))
        count = stream.stretched(1, 40) if size < draft.config.datagram else stream.between(1, 6)
        service = stream.pick((Service.AGREED, Service.SAFE, Service.SAFE))
        draft.add(time + stream.between(0, draft.detection_us // 4), SendMessages(name, service, count, size))


def _cut(draft: Draft) -> None:
    """One direction, one pair, or all that a node hears or says; sometimes on one port only."""
    stream = draft.stream
    time = draft.moment()
    end = time + draft.while_us()
    port = stream.pick((None, None, Port.DATA, Port.TOKEN, Port.TOKEN, Port.CONTROL))
    source, target = draft.name(), draft.name()
    links = stream.pick((((source, target),), ((source, target), (target, source)), ((source, "*"),), (("*", source),)))
    for one, other in links:
        draft.add(time, CutLink(one, other, port))
        draft.add(end, MendLink(one, other, port))


def _weather(what: str, low: int, high: int) -> Callable[[Draft], None]:
    def episode(draft: Draft) -> None:
        time = draft.moment()
        draft.add(time, Weather(what, draft.stream.stretched(low, high)))
        draft.add(time + 2 * draft.while_us(), Weather(what, 0))

    return episode


def _always(what: str, low: int, high: int) -> Callable[[Draft], None]:
    def episode(draft: Draft) -> None:
        draft.add(0, Weather(what, draft.stream.stretched(low, high)))

    return episode


def _slow(draft: Draft) -> None:
    name = draft.name()
    time = draft.moment()
    draft.add(time, SlowNode(name, draft.stream.stretched(50, 20 * MS)))
    draft.add(time + draft.while_us(), SlowNode(name, 0))


def _delay(draft: Draft) -> None:
    """One port lags behind the others: tokens overtake data, or the other way round."""
    time = draft.moment()
    port = draft.stream.pick((Port.DATA, Port.DATA, Port.TOKEN, Port.CONTROL))
    draft.add(time, Delay(port, draft.stream.stretched(200, 900 * MS)))
    draft.add(time + draft.while_us(), Delay(port, 0))


def _leave(draft: Draft) -> None:
    name = draft.name()
    time = draft.moment()
    draft.add_perhaps_in_ambush(time, name, LeaveCluster(name))
    if draft.stream.chance(600):
        draft.add(time + 2 * draft.while_us(), RestartNode(name))


def _copy(draft: Draft) -> None:
    draft.add(draft.moment(), CopyDirectory(draft.name()))


def _lost_directory(draft: Draft) -> None:
    name = draft.name()
    time = draft.moment()
    draft.add(time, CrashNode(name))
    draft.add(time + draft.while_us(), RestartNode(name, lost_directory=True))


EPISODES: Final[dict[str, Callable[[Draft], None]]] = {
    "crash": _crash,
    "crash loop": _crash_loop,
    "crash together": _crash_together,
    "pause": _pause,
    "partition": _partition,
    "storm": _storm,
    "downpour": _downpour,
    "cascade": _cascade,
    "promise": _promise,
    "cut": _cut,
    "loss": _weather("loss", 10, 300),
    "steady loss": _always("loss", 2, 150),
    "burst": _weather("burst", 2, 50),
    "duplicate": _weather("duplicate", 10, 500),
    "reorder": _weather("reorder", 5, 300),
    "corrupt": _weather("corrupt", 5, 100),
    "junk": _weather("junk", 5, 100),
    "replay": _weather("replay", 5, 200),
    "slow": _slow,
    "delay": _delay,
    "leave": _leave,
    "copy": _copy,
    "lost directory": _lost_directory,
}

KINDS: Final = (
    ("crash", 600), ("crash loop", 200), ("crash together", 150), ("pause", 350), ("partition", 600),
    ("storm", 500), ("cascade", 300), ("promise", 250), ("cut", 350), ("loss", 400), ("steady loss", 150),
    ("burst", 200), ("duplicate", 250), ("reorder", 250), ("corrupt", 500), ("junk", 150), ("replay", 200),
    ("slow", 200), ("delay", 250), ("leave", 200), ("copy", 80), ("lost directory", 80),
)  # fmt: skip
"""In how many of a thousand runs each kind occurs at all; the rare ones end a node's life for good."""

KINDS_OF_ONE: Final = (
    ("crash", 800), ("crash loop", 200), ("crash together", 300), ("downpour", 500), ("loss", 400), ("steady loss", 150),
    ("burst", 200), ("duplicate", 250), ("reorder", 250), ("corrupt", 500), ("junk", 150), ("replay", 200),
    ("leave", 200), ("lost directory", 80),
)  # fmt: skip
"""The same without what keeps living nodes from hearing each other for long."""

NEED_A_SEAL: Final = frozenset(("corrupt",))
"""Without a seal a node cannot tell a damaged datagram from a sound one (on a real network UDP's checksum would stop it)."""


# --- last words -------------------------------------------------------------------------------------------------------

RUNS_PERMILLE: Final = 200
LAST_EPISODES_MAX: Final = 4
SIZE: Final = 40


def draw_last_words(stream: RandomStream, names: tuple[str, ...], config: Config, safety_us: int, partitions: bool) -> Schedule:
    """Last words, in some runs: they take one node that speaks and two that may differ about what it said."""
    draft = Draft(stream, names, config, safety_us, [])
    if len(names) > 2 and stream.chance(RUNS_PERMILLE):
        for _ in range(stream.between(1, LAST_EPISODES_MAX)):
            if partitions and stream.chance(500):
                _late_data(draft)
            else:
                _last_words(draft, partitions)
    return tuple(draft.faults)


def _last_words(draft: Draft, partitions: bool) -> None:
    stream, hop_us, detection_us = draft.stream, draft.timing.hop_us, draft.detection_us
    time, speaker = draft.moment(), draft.name()
    draft.add(time, Weather("reorder", stream.pick((300, 600, 1000))))
    draft.add(time, Weather("loss", stream.pick((0, 100, 300))))
    service = stream.pick((Service.AGREED, Service.SAFE, Service.SAFE))
    draft.add(time, SendMessages(speaker, service, stream.between(1, 3), SIZE))
    gone = time + stream.between(0, 2 * hop_us)
    is_heard_no_more = partitions and stream.chance(500)
    draft.add(gone, CutLink(speaker, "*") if is_heard_no_more else CrashNode(speaker))
    if partitions and stream.chance(500):  # Nodes that heard it are parted from nodes that did not, before they can compare.
        draft.add(gone + stream.between(detection_us // 2, 2 * detection_us), PartitionNetwork(draft.components()))
    calm = gone + stream.stretched(max(1, detection_us // 4), 4 * detection_us)
    draft.add(calm, Weather("reorder", 0))
    draft.add(calm, Weather("loss", 0))
    end = calm + stream.between(4, 10) * detection_us
    if partitions:
        draft.add(end, HealNetwork())
    draft.add(end, RestartNode(speaker))


def _late_data(draft: Draft) -> None:
    """Only the data of one machine still arrive, and so late that the others have stated that it is gone. It does not hear these
    statements at once, but may hear what they say of its data. Two of the others do not hear each other and so get no further."""
    stream, hop_us, detection_us = draft.stream, draft.timing.hop_us, draft.detection_us
    time, speaker = draft.moment(), draft.name()
    watched = stream.pick([name for name in draft.names if name != speaker])
    other = stream.pick([name for name in draft.names if name not in (speaker, watched)])
    draft.add(time, Delay(Port.DATA, stream.between(detection_us * 3 // 4, detection_us * 5 // 4)))
    draft.add(time, SendMessages(speaker, Service.SAFE, stream.between(1, 3), SIZE))
    quiet = time + stream.between(1, 3) * hop_us
    draft.add(quiet, Delay(Port.DATA, 0))
    draft.add(quiet, CutLink(speaker, "*", Port.CONTROL))
    draft.add(quiet, CutLink(speaker, "*", Port.TOKEN))
    draft.add(quiet, Ambush(watched, "Faults", CutLink("*", speaker, Port.CONTROL)))
    draft.add(quiet, Ambush(watched, "Faults", CutLink(watched, other, Port.CONTROL)))
    draft.add(quiet, Ambush(watched, "Faults", CutLink(other, watched, Port.CONTROL)))
    draft.add(quiet, Ambush(watched, "Faults", MendLink("*", speaker, Port.CONTROL), stream.between(0, detection_us // 4)))
    draft.add(quiet + stream.between(4, 10) * detection_us, HealNetwork())
