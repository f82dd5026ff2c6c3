"""Faults for groups: components come together, and just when their daemons exchange who is in which group, something breaks.

An exchange takes a rotation or two after a view is installed, so blows wait in ambush for that moment and fall within a few hops.
Some announcements are lost first, so that those who stay get them only in the transitional configuration, or never.
"""

from __future__ import annotations

from typing import Final

from transis.sim.episodes import Draft
from transis.sim.faults import Ambush, Ask, Crash, Cut, Fault, Heal, Partition, Restart, Schedule, Send, Weather
from transis.sim.streams import Stream
from transis.types.config import Config
from transis.types.ids import Service
from transis.types.outputs import Port

STRIKES: Final = (0, 2, 4, 8)
"""Exchanges of one run that are struck."""


def draw_strikes(stream: Stream, names: tuple[str, ...], config: Config, safety_us: int) -> Schedule:
    """Strikes at exchanges; a cluster of one has nothing to exchange."""
    draft = Draft(stream, names, config, safety_us, [])
    for _ in range(stream.pick(STRIKES) if len(names) > 1 else 0):
        _strike(draft)
    return tuple(draft.faults)


def _strike(draft: Draft) -> None:
    stream, detection_us = draft.stream, draft.detection_us
    time = draft.moment()
    draft.add(time, Partition(draft.components()))
    time += stream.between(2, 8) * detection_us
    draft.add(time, Heal())
    watched = draft.name()
    for name in stream.some(draft.names, stream.between(0, min(2, len(draft.names)))):
        draft.add(time, Ambush(watched, "Operational", Send(name, Service.BASIC, stream.between(1, 4), 40)))
    for name in stream.some(draft.names, stream.between(0, min(3, len(draft.names)))):
        draft.add(time, Ambush(watched, "Operational", Ask(name, stream.between(1, 12))))
    for fault in _losses(draft):
        draft.add(time, Ambush(watched, "Operational", fault))
    victim = draft.name()
    later_us = stream.between(0, 3 * len(draft.names) * draft.timing.hop_us)
    blow = stream.pick((Partition(draft.components()), Partition(draft.components()), Crash(victim)))
    draft.add(time, Ambush(watched, "Operational", blow, later_us))
    end = time + stream.between(4, 10) * detection_us
    draft.add(end, Weather("loss", 0))
    draft.add(end, Heal())
    draft.add(end, Restart(victim))


def _losses(draft: Draft) -> list[Fault]:
    """What makes announcements miss somebody: nothing, one sender's data, or a bit of everybody's."""
    stream = draft.stream
    source = draft.name()
    targets = [name for name in draft.names if name != source]
    cuts: list[Fault] = [Cut(source, target, Port.DATA) for target in stream.some(targets, stream.between(1, len(targets)))]
    weather: list[Fault] = [Weather("loss", stream.between(100, 500))]
    return stream.pick(([], cuts, weather))
