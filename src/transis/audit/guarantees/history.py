"""The history laid out for checking: read once, used by every checker.

1. A message is an integer `code` = counter * stride + number of its process, so that a run is a `range` and sequences
   are compared by C code, not message by message.
2. A *life* is one NodeTrace; a *stay* is a life's time in one regular configuration and the transitional one after it
   (com_p(c) of EVS94); a *ring* is one regular configuration with everybody's stay in it.
3. Events count for the configuration in force where they stand in the trace; what they claim is checked in
   configurations.py.
4. A stay's own sequence holds the messages of the total order only; `all` holds those of causal order too, which on the ring
   is the same sequence, as causal messages share its order there. Basic messages are kept apart: they promise no order.
5. After a Gap a stay is not whole: what is missing in it is pending, never broken.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from enum import Enum
from itertools import takewhile
from operator import eq

from transis.trace.events import (
    ClientDelivery,
    Conf,
    Delivery,
    End,
    Event,
    Fault,
    Gap,
    History,
    NodeTrace,
    Refuse,
    Sent,
    Submit,
    is_ordered,
)
from transis.types.ids import MessageId, NodeId, ProcessId, Service, ViewId, ViewKind

PLACE_SHIFT = 32
"""A place (seq, index) as one integer: indices stay far below 2^32, a datagram has at most 65,000 bytes."""


class Obligation(Enum):
    """What becomes of "this event must exist in this stay" when it does not."""

    DUE = "due"
    VOID = "void"
    PENDING = "pending"


class SentRun:
    """One SEND run: where it was sent and how much its sender had delivered there before, in order and of all."""

    __slots__ = ("all_before", "before", "first_rank", "is_ordered", "sent", "stay")

    def __init__(self, sent: Sent, stay: Stay | None, is_ordered: bool) -> None:
        self.sent = sent
        self.stay = stay
        self.is_ordered = is_ordered
        self.before = 0 if stay is None else len(stay.codes)
        self.all_before = 0 if stay is None else len(stay.all.codes)
        self.first_rank = 0 if stay is None else len(stay.sent_codes)


class Deliveries:
    """What a life delivered in a regular configuration and its transitional successor, in its local order."""

    __slots__ = ("_position", "codes", "conf", "cut", "life", "run_cut", "runs", "starts", "trans")

    def __init__(self, life: Life, conf: Conf) -> None:
        self.life = life
        self.conf = conf
        self.trans: Conf | None = None
        self.codes: list[int] = []
        self.runs: list[Delivery] = []
        self.starts: list[int] = []
        self.cut = 0
        self.run_cut = 0
        self._position: dict[int, int] | None = None

    def add(self, run: Delivery, codes: range) -> None:
        self.runs.append(run)
        self.starts.append(len(self.codes))
        self.codes.extend(codes)
        if self.trans is None:
            self.cut = len(self.codes)
            self.run_cut = len(self.runs)

    @property
    def node(self) -> NodeId:
        return self.life.node

    @property
    def ring(self) -> ViewId:
        return self.conf.view.id

    @property
    def position(self) -> dict[int, int]:
        """Where each message stands in `codes`; of a duplicate, the first."""
        if self._position is None:
            last = len(self.codes) - 1
            self._position = {code: last - back for back, code in enumerate(reversed(self.codes))}
        return self._position

    @property
    def regular_codes(self) -> list[int]:
        return self.codes[: self.cut]

    @property
    def transitional_codes(self) -> list[int]:
        return self.codes[self.cut :]

    def conf_at(self, position: int) -> Conf:
        """The configuration in force where the message at this position was delivered."""
        if position < self.cut or self.trans is None:
            return self.conf
        return self.trans

    def event_at(self, position: int) -> tuple[NodeId, int]:
        return (self.node, self.runs[bisect_right(self.starts, position) - 1].lseq)


class Stay(Deliveries):
    """A life's time in a regular configuration and its transitional successor; what it delivered in total order."""

    __slots__ = ("agreed", "all", "basics", "following", "origins", "places", "previous", "sent_codes", "whole")

    def __init__(self, life: Life, conf: Conf, previous: Stay | None, causal_apart: bool) -> None:
        super().__init__(life, conf)
        self.all: Deliveries = Deliveries(life, conf) if causal_apart else self
        self.previous = previous
        self.following: Stay | None = None
        self.places: list[int] = []
        self.origins: list[SentRun] = []
        self.sent_codes: list[int] = []
        self.basics: list[Delivery] = []
        self.whole = True
        self.agreed = 0

    @property
    def ordered_origins(self) -> list[SentRun]:
        return [origin for origin in self.origins if origin.is_ordered]

    def deliver(self, run: Delivery, codes: range, is_ordered: bool) -> None:
        if self.all is not self:
            self.all.add(run, codes)
        if is_ordered:
            self.add(run, codes)
            place = (run.place.seq << PLACE_SHIFT) + run.place.index
            self.places.extend(range(place, place + run.count))

    def go_transitional(self, conf: Conf) -> None:
        self.trans = self.all.trans = conf

    @property
    def way(self) -> ViewId | None:
        """Where its life went from the regular configuration; None while it is there."""
        if self.trans is not None:
            return self.trans.view.id
        return None if self.following is None else self.following.ring

    def obligation(self, closed: bool) -> Obligation:
        if not self.whole or self.life.ended == "unknown":
            return Obligation.PENDING
        if self.following is not None:
            return Obligation.DUE
        if self.life.ended:
            return Obligation.VOID
        return Obligation.DUE if closed else Obligation.PENDING


class Life:
    """One NodeTrace, sorted into what the checkers ask for."""

    def __init__(self, trace: NodeTrace) -> None:
        self.node = trace.node
        self.events = trace.events
        self.stays: list[Stay] = []
        self.confs: list[Conf] = []
        self.submits: list[Submit] = []
        self.refusals: list[Refuse] = []
        self.origins: list[SentRun] = []
        self.basics: list[Delivery] = []
        self.homeless: list[Delivery] = []
        self.faults: list[Fault] = []
        self.afterwards: list[Event] = []
        self.unlinked: list[Conf] = []
        self.end: End | None = None
        self.gapped = False

    @property
    def ended(self) -> str:
        return "" if self.end is None else self.end.how

    @property
    def last_conf(self) -> Conf | None:
        return self.confs[-1] if self.confs else None

    def never_came(self, ring: ViewId, closed: bool) -> Obligation:
        """What to think of a member that never installed `ring`: its trace must have gone past it, or be complete."""
        later = any((stay.ring.seq, stay.ring.rep) > (ring.seq, ring.rep) for stay in self.stays)
        if self.gapped or self.ended == "unknown":
            return Obligation.PENDING
        return Obligation.DUE if later or self.ended or closed else Obligation.PENDING


class Ring:
    """One regular configuration and all stays in it; `canon` is the longest sequence anybody delivered."""

    def __init__(self, ring: ViewId) -> None:
        self.id = ring
        self.stays: list[Stay] = []
        self.canon: Stay
        self.by_node: dict[NodeId, Stay] = {}

    @property
    def members(self) -> tuple[NodeId, ...]:
        return self.stays[0].conf.view.nodes

    def settle(self) -> None:
        """Choose the canon and say of each stay how far it agrees with it."""
        self.canon = max(self.stays, key=lambda stay: len(stay.codes))
        codes = self.canon.codes
        self.by_node = {stay.node: stay for stay in self.stays}
        for stay in self.stays:
            stay.agreed = common_prefix(stay.codes, codes)

    @property
    def is_mixed(self) -> bool:
        """Did anybody deliver messages here that are not in the total order?"""
        return any(len(stay.all.codes) > len(stay.codes) for stay in self.stays)

    @property
    def forks(self) -> list[Stay]:
        """Stays that are not prefixes of the canon: only these need looking at one by one."""
        return [stay for stay in self.stays if stay.agreed < len(stay.codes)]


class LaidHistory:
    """Everything the checkers share."""

    def __init__(self, history: History) -> None:
        self.ordered = frozenset(service for service in Service if is_ordered(service, history.engine))
        self.causal_apart = Service.CAUSAL not in self.ordered
        self.processes = _processes(history)
        self.closed = history.closed and not _lost_lives(history, self.processes)
        self.stride = max(1, len(self.processes))
        self._number = {process: number for number, process in enumerate(self.processes)}
        self.lives = [Life(trace) for trace in sorted(history.nodes, key=lambda trace: trace.node)]
        self.by_node = {life.node: life for life in self.lives}
        self.certified: bool | None = None
        self.origins: dict[int, SentRun] = {}
        self.sent_again: list[tuple[int, SentRun]] = []
        self.rings: dict[ViewId, Ring] = {}
        for life in self.lives:
            _Reading(self, life).read()
        for ring in self.rings.values():
            ring.settle()

    def codes(self, process: ProcessId, first: int, count: int) -> range:
        start = first * self.stride + self._number[process]
        return range(start, start + count * self.stride, self.stride)

    def message(self, code: int) -> MessageId:
        return MessageId(self.sender(code), code // self.stride)

    def messages(self, codes: Iterable[int]) -> tuple[MessageId, ...]:
        """In the order given."""
        return tuple(map(self.message, codes))

    def sender(self, code: int) -> ProcessId:
        return self.processes[code % self.stride]

    def life_of(self, code: int) -> Life | None:
        """The life of the node that a message names as its sender."""
        return self.by_node.get(self.sender(code).node)


class _Reading:
    """One pass over a life's events."""

    def __init__(self, history: LaidHistory, life: Life) -> None:
        self.history = history
        self.life = life
        self.stay: Stay | None = None
        self.blind = False

    def read(self) -> None:
        delivery, events = self.delivery, self.life.events
        for place, event in enumerate(events):
            if type(event) is Delivery:
                delivery(event)
            elif type(event) is End:
                self.life.end = event
                self.life.afterwards = events[place + 1 :]
                return
            else:
                self.other(event)

    def delivery(self, event: Delivery) -> None:
        stay = self.stay
        if event.service is Service.BASIC:
            self.life.basics.append(event)
            if stay is not None:
                stay.basics.append(event)
        elif stay is None:
            self.life.homeless.append(event)
        else:
            codes = self.history.codes(event.process, event.first, event.count)
            stay.deliver(event, codes, event.service in self.history.ordered)

    def other(self, event: Event) -> None:
        match event:
            case Sent():
                self.sent(event)
            case Submit():
                self.life.submits.append(event)
            case Refuse():
                self.life.refusals.append(event)
            case Conf():
                self.conf(event)
            case Gap():
                self.life.gapped = self.blind = True
                if self.stay is not None:
                    self.stay.whole = False
            case Fault():
                self.life.faults.append(event)
            case _:
                pass

    def conf(self, event: Conf) -> None:
        self.life.confs.append(event)
        if self.blind:
            self.life.unlinked.append(event)
        if event.view.id.kind is ViewKind.REGULAR:
            self.open_stay(event)
        elif self.stay is not None and self.stay.trans is None:
            self.stay.go_transitional(event)
        self.blind = False

    def open_stay(self, event: Conf) -> None:
        stay = Stay(self.life, event, self.stay, self.history.causal_apart)
        if self.stay is not None:
            self.stay.following = stay
        stay.whole = not self.blind
        self.stay = stay
        self.life.stays.append(stay)
        self.history.rings.setdefault(stay.ring, Ring(stay.ring)).stays.append(stay)

    def sent(self, event: Sent) -> None:
        stay = self.stay
        origin = SentRun(event, stay, event.service in self.history.ordered)
        codes = self.history.codes(ProcessId(self.life.node, event.process), event.first, event.count)
        self.life.origins.append(origin)
        if stay is not None:
            stay.origins.append(origin)
            if event.service is not Service.BASIC:
                stay.sent_codes.extend(codes)
        for code in codes:
            if self.history.origins.setdefault(code, origin) is not origin:
                self.history.sent_again.append((code, origin))


def common_prefix(left: list[int], right: list[int]) -> int:
    """How many leading elements are equal; the usual case, one a prefix of the other, costs one comparison."""
    shorter = min(len(left), len(right))
    if left[:shorter] == right[:shorter]:
        return shorter
    return sum(1 for _ in takewhile(bool, map(eq, left, right)))


def _lost_lives(history: History, processes: list[ProcessId]) -> set[NodeId]:
    """Members whose messages others know, and of whom there is no trace: nobody can say what they did not do."""
    events = (event for trace in history.nodes for event in trace.events)
    members = {node for event in events if isinstance(event, Conf) for node in event.view.nodes}
    return (members & {process.node for process in processes}) - {trace.node for trace in history.nodes}


def _processes(history: History) -> list[ProcessId]:
    """Every process that any event names, in order of id."""
    found: set[ProcessId] = set()
    for trace in history.nodes:
        found.update({event.process for event in trace.events if type(event) is Delivery})
        own = {event.process for event in trace.events if isinstance(event, Submit | Refuse | Sent)}
        found.update(ProcessId(trace.node, number) for number in own)
        handed = (event for event in trace.events if type(event) is ClientDelivery)
        found.update(waited.sender for event in handed for waited in event.waited)
    return sorted(found)
