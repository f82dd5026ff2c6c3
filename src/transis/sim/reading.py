"""What a script may ask of a cluster beside its views and deliveries: counts, causes, refusals, packets.

Everything is read from what was recorded; nothing here changes the cluster. Counts are of the whole run unless a function
says otherwise, and are in sorted order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from transis.model.ids import MessageId
from transis.model.view import Cause
from transis.sim.cluster import Cluster, grouped, show_message, show_node, show_view_id
from transis.sim.life import Life
from transis.trace.events import Conf, Delivery, Event, NoteEvent, Refuse, Sent


def awaited(cluster: Cluster, name: str, what: str) -> Callable[[], bool]:
    """Tells whether the node of a host came to a protocol state, or to a view such as R8, since now or is there now.

    A node may pass through a state within one turn, so being there is not enough to go by.
    """
    before = _arrivals(cluster, name, what)

    def came() -> bool:
        host = cluster.world.hosts[name]
        return host.state == what or _arrivals(cluster, name, what) > before

    return came


def _arrivals(cluster: Cluster, name: str, what: str) -> int:
    life = cluster.world.hosts[name].life
    events = life.recorder.events if life is not None else []
    return sum(_arrival(event) == what for event in events)


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

    def delivered() -> bool:
        life = cluster.world.hosts[name].life
        return life is not None and any(
            show_message(MessageId(event.process, event.first + i)) == message
            for event in life.recorder.events
            if isinstance(event, Delivery)
            for i in range(event.count)
        )

    return delivered


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
    accused = f", accused {' '.join(map(show_node, cause.accused))}" if cause.accused else ""
    return cause.what + accused + (f", said {show_node(cause.accuser)}" if cause.accuser is not None else "")


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
