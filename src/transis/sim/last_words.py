"""Faults for Lansis: a machine says something and is not heard any more, while what it said is still on its way.

What statements, flushes and acknowledgements promise is put to the test only by messages that come after them. In good weather
nothing is so slow: whoever is missed has been silent for long. So what is sent around the last words comes late, or never.
"""

from __future__ import annotations

from typing import Final

from transis.sim.episodes import Draft
from transis.sim.faults import Ambush, Crash, Cut, Delay, Heal, Mend, Partition, Restart, Schedule, Send, Weather
from transis.sim.streams import Stream
from transis.types.config import Config
from transis.types.ids import Service
from transis.types.outputs import Port

RUNS_PERMILLE: Final = 200
LAST_EPISODES_MAX: Final = 4
SIZE: Final = 40


def draw_last_words(stream: Stream, names: tuple[str, ...], config: Config, safety_us: int, partitions: bool) -> Schedule:
    """In some runs; it takes one who speaks and two who may differ about it."""
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
    draft.add(time, Send(speaker, service, stream.between(1, 3), SIZE))
    gone = time + stream.between(0, 2 * hop_us)
    is_heard_no_more = partitions and stream.chance(500)
    draft.add(gone, Cut(speaker, "*") if is_heard_no_more else Crash(speaker))
    if partitions and stream.chance(500):  # Those who heard it and those who did not part before they have told each other.
        draft.add(gone + stream.between(detection_us // 2, 2 * detection_us), Partition(draft.components()))
    calm = gone + stream.stretched(max(1, detection_us // 4), 4 * detection_us)
    draft.add(calm, Weather("reorder", 0))
    draft.add(calm, Weather("loss", 0))
    end = calm + stream.between(4, 10) * detection_us
    if partitions:
        draft.add(end, Heal())
    draft.add(end, Restart(speaker))


def _late_data(draft: Draft) -> None:
    """Only data of one machine still come, and so late that the others have stated that it is gone; what they say of that is not
    heard by it at once, what they say of its data perhaps is. Two of them do not hear each other and so stay where they are."""
    stream, hop_us, detection_us = draft.stream, draft.timing.hop_us, draft.detection_us
    time, speaker = draft.moment(), draft.name()
    watched = stream.pick([name for name in draft.names if name != speaker])
    other = stream.pick([name for name in draft.names if name not in (speaker, watched)])
    draft.add(time, Delay(Port.DATA, stream.between(detection_us * 3 // 4, detection_us * 5 // 4)))
    draft.add(time, Send(speaker, Service.SAFE, stream.between(1, 3), SIZE))
    quiet = time + stream.between(1, 3) * hop_us
    draft.add(quiet, Delay(Port.DATA, 0))
    draft.add(quiet, Cut(speaker, "*", Port.CONTROL))
    draft.add(quiet, Cut(speaker, "*", Port.TOKEN))
    draft.add(quiet, Ambush(watched, "Faults", Cut("*", speaker, Port.CONTROL)))
    draft.add(quiet, Ambush(watched, "Faults", Cut(watched, other, Port.CONTROL)))
    draft.add(quiet, Ambush(watched, "Faults", Cut(other, watched, Port.CONTROL)))
    draft.add(quiet, Ambush(watched, "Faults", Mend("*", speaker, Port.CONTROL), stream.between(0, detection_us // 4)))
    draft.add(quiet + stream.between(4, 10) * detection_us, Heal())
