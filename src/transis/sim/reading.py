"""What a script may ask of a cluster beside its views and deliveries: counts, causes, refusals, packets.

Everything is read from what was recorded; nothing here changes the cluster. Counts are of the whole run unless a function
says otherwise, and are in sorted order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from transis.sim.cluster import Cluster, grouped, show_message, show_node, show_view_id
from transis.sim.host import Host
from transis.sim.life import Life
from transis.trace.events import Conf, Delivery, Event, NoteEvent, Refuse, Sent
from transis.types.ids import MessageId
from transis.types.views import Cause


def awaited(cluster: Cluster, name: str, what: str) -> Callable[[], bool]:
    """Tells whether the node of a host is in a protocol state, or came to it or to a view such as R8 since it was first asked.

    A node may pass through a state within one turn, so being there is not enough to go by.
    """
    host = cluster.world.hosts[name]
    fresh = _Fresh(host, skip=True)
    return lambda: host.state == what or any(_arrival(event) == what for event in fresh.events())


def _arrival(event: Event) -> str:
    """The state or the view to which an event brought its node."""
    match event:
        case NoteEvent(what="state"):
            return str(dict(event.detail)["to"])
        case Conf():
            return show_view_id(event.view.id)
        case _:
            return ""


def delivering(cluster: Cluster, name: str, message: str) -> Callable[[], bool]:
    """Tells whether the node of a host has delivered a message such as a3."""
    fresh = _Fresh(cluster.world.hosts[name], skip=False)
    return lambda: any(message in _delivered_in(event) for event in fresh.events() if isinstance(event, Delivery))


def _delivered_in(event: Delivery) -> list[str]:
    return [show_message(MessageId(event.process, event.first + i)) for i in range(event.count)]


class _Fresh:
    """The events of a host's present life that nobody has asked for yet: asked at every instant, so each is given once."""

    def __init__(self, host: Host, *, skip: bool) -> None:
        self._host = host
        self._life = host.life
        self._given = len(host.life.recorder.events) if skip and host.life is not None else 0

    def events(self) -> Sequence[Event]:
        life = self._host.life
        if life is not self._life:
            self._life, self._given = life, 0
        if life is None:
            return ()
        fresh = life.recorder.events[self._given :]
        self._given += len(fresh)
        return fresh


def causes(cluster: Cluster) -> str:
    """Why each regular view was made, as its members were told; first views have no cause worth telling."""
    lines: dict[str, None] = {}
    for life in cluster.lives():
        views = [event.view for event in life.recorder.events if isinstance(event, Conf) and event.view.id.is_regular]
        for view in views[1:]:
            lines[f"{show_view_id(view.id)}{{{','.join(map(show_node, view.nodes))}}}: {_sentence(view.cause)}"] = None
    return "\n".join(sorted(lines, key=_by_number))


def _by_number(line: str) -> tuple[int, str]:
    return int(line[1 : line.index("{")]), line


def _sentence(cause: Cause) -> str:
    without = f", without {' '.join(map(show_node, cause.accused))}" if cause.accused else ""
    return cause.what + without + (f", noticed by {show_node(cause.accuser)}" if cause.accuser is not None else "")


def totals(cluster: Cluster) -> str:
    """How many messages of whom each life delivered."""
    return grouped([(show_node(life.id), _counted(_delivered_of(life))) for life in cluster.lives()])


def _delivered_of(life: Life) -> Counter[str]:
    count: Counter[str] = Counter()
    for event in life.recorder.events:
        if isinstance(event, Delivery):
            count[show_node(event.process.node)] += event.count
    return count


def sent(cluster: Cluster) -> str:
    """How many messages each life originated, that is, gave a place in the order."""
    lines = []
    for life in cluster.lives():
        count = sum(event.count for event in life.recorder.events if isinstance(event, Sent))
        lines.append((show_node(life.id), str(count)))
    return grouped(lines)


def refused(cluster: Cluster) -> str:
    """Messages that were taken and then not sent, with the reason."""
    lines = []
    for life in cluster.lives():
        refusals = [event for event in life.recorder.events if isinstance(event, Refuse)]
        lines += [f"{show_node(life.id)}: {event.count} from {event.first} on: {event.why}" for event in refusals]
    return "\n".join(lines) or "nothing"


def endings(cluster: Cluster) -> str:
    """Who stopped by itself or was not allowed to start, and why."""
    told = [text for _, text in cluster.world.log if " stopped: " in text or " may not start: " in text]
    return "\n".join(told) or "nobody"


def notes(cluster: Cluster, what: str) -> str:
    """What each life noted and how often, such as `retransmitted`; without a name, everything but states.

    A note with a count of its own, as of datagrams sent again, counts as that many.
    """
    lines = []
    for life in cluster.lives():
        count: Counter[str] = Counter()
        for event in life.recorder.events:
            if isinstance(event, NoteEvent) and event.what != "state" and what in ("", event.what):
                count[event.what] += int(dict(event.detail).get("count", 1))
        if count:
            lines.append((show_node(life.id), _counted(count)))
    return grouped(lines) or f"nobody noted {what or 'anything'}"


def packets(cluster: Cluster, kinds: Sequence[str]) -> str:
    """How many packets of each kind, or of these, were carried to a host since `watch`."""
    seen = cluster.tally.seen
    return _counted(Counter({kind: seen[kind] for kind in kinds or seen})) or "nothing"


def _counted(count: Counter[str]) -> str:
    return ", ".join(f"{name} {count[name]}" for name in sorted(count)) or "nothing"
