"""The predicates of extended virtual synchrony word by word, in quadratic time: the dumb twin of the checkers.

Small closed histories only. Each function answers whether its predicate is broken.
"""

from __future__ import annotations

from itertools import combinations, pairwise, product
from typing import NamedTuple

from transis.trace.events import Conf, Delivery, End, History, Sent
from transis.types.ids import MessageId, NodeId, ProcessId, Service, ViewId
from transis.types.views import View


class Happening(NamedTuple):
    """send(p,m,c), deliver(p,m,c) or deliver_conf(p,c), with the local index; `ring` is reg(c)."""

    what: str
    node: NodeId
    index: int
    conf: View | None
    ring: ViewId | None
    message: MessageId | None
    service: Service | None


class Naive:
    def __init__(self, history: History) -> None:
        self.engine = history.engine
        self.happenings: list[Happening] = []
        self.ended: set[NodeId] = set()
        for trace in history.nodes:
            self._read(trace.node, trace.events)
        self.deliveries = [h for h in self.happenings if h.what == "deliver"]
        self.sends = [h for h in self.happenings if h.what == "send"]
        self.confs = [h for h in self.happenings if h.what == "conf"]

    def _read(self, node: NodeId, events: list) -> None:  # type: ignore[type-arg]
        conf: View | None = None
        ring: ViewId | None = None
        for event in events:
            if isinstance(event, End):
                self.ended.add(node)
                return
            if isinstance(event, Conf):
                conf = event.view
                ring = event.view.id if event.view.id.is_regular else ring
                self._add("conf", node, conf, ring, None, None)
            if isinstance(event, Sent | Delivery) and event.service is not Service.BASIC:
                what = "send" if isinstance(event, Sent) else "deliver"
                process = ProcessId(node, event.process) if isinstance(event, Sent) else event.process
                for counter in range(event.first, event.first + event.count):
                    self._add(what, node, conf, ring, MessageId(process, counter), event.service)

    def _add(
        self, what: str, node: NodeId, conf: View | None, ring: ViewId | None, message: MessageId | None, service: Service | None
    ) -> None:
        self.happenings.append(Happening(what, node, len(self.happenings), conf, ring, message, service))

    def _delivery(self, node: NodeId, message: MessageId, ring: ViewId | None) -> Happening | None:
        found = (d for d in self.deliveries if d.node == node and d.message == message and d.ring == ring)
        return next(found, None)

    def _goes_on(self, node: NodeId, ring: ViewId | None) -> bool:
        """Did it come out of this ring alive, or stay in it to the end of the closed run?"""
        rings = [c.ring for c in self.confs if c.node == node and c.conf is not None and c.conf.id.is_regular]
        return ring not in rings or rings[-1] != ring or node not in self.ended

    def total_order(self) -> bool:
        """6.1: G with merged configurations and merged deliveries has a cycle."""
        return self._cyclic(merged=True)

    def partial_order(self) -> bool:
        return self._cyclic(merged=False)

    def _cyclic(self, merged: bool) -> bool:
        edges: set[tuple[object, object]] = set()
        sent = {send.message for send in self.sends}
        for node in {h.node for h in self.happenings}:
            mine = list(dict.fromkeys(self._vertex(h, merged) for h in self.happenings if h.node == node))
            edges |= set(pairwise(mine))
        edges |= {(("send", d.message), self._vertex(d, merged)) for d in self.deliveries if d.message in sent}
        return _has_cycle(edges)

    def _vertex(self, happening: Happening, merged: bool) -> object:
        if happening.what == "conf":
            return ("conf", None if happening.conf is None else happening.conf.id)
        if happening.what == "send" or (merged and self._is_ordered(happening)):
            return (happening.what, happening.message)
        return (happening.what, happening.message, happening.node)

    def _is_ordered(self, happening: Happening) -> bool:
        """The service says it; a causal message is in the order of the ring, and in that of no other engine."""
        return happening.service is not Service.CAUSAL or self.engine == "totem"

    def self_delivery(self) -> bool:
        return any(
            s.message is not None and self._goes_on(s.node, s.ring) and self._delivery(s.node, s.message, s.ring) is None
            for s in self.sends
        )

    def causal(self) -> bool:
        """5, from the transitive closure of direct causes within a configuration."""
        for first, second in product(self.sends, self.sends):
            if first.ring != second.ring or first is second or not self._precedes(first, second):
                continue
            for d in [d for d in self.deliveries if d.message == second.message and d.ring == first.ring]:
                assert first.message is not None
                cause = self._delivery(d.node, first.message, d.ring)
                if cause is None or cause.index > d.index:
                    return True
        return False

    def _precedes(self, first: Happening, second: Happening) -> bool:
        """A path of sends and deliveries inside one ring."""
        seen, todo = {first.index}, [first]
        while todo:
            here = todo.pop()
            after = [s for s in self.sends if s.node == here.node and s.index > here.index and s.ring == first.ring]
            arrived = [d for d in self.deliveries if here.what == "send" and d.message == here.message and d.ring == first.ring]
            for following in after + arrived:
                if following is second:
                    return True
                if following.index not in seen:
                    seen.add(following.index)
                    todo.append(following)
        return False

    def no_holes(self) -> bool:
        """6.3 as it is written, of what is in the order."""
        ordered = list(filter(self._is_ordered, self.deliveries))
        for m, later in product(ordered, ordered):
            if m.node != later.node or m.ring != later.ring or m.index >= later.index or m.message == later.message:
                continue
            for q in [d for d in ordered if d.message == later.message and d.ring == later.ring]:
                assert m.message is not None
                assert q.conf is not None
                if m.message.process.node in q.conf.nodes:
                    here = self._delivery(q.node, m.message, q.ring)
                    if here is None or here.index > q.index:
                        return True
        return False

    def one_sequence(self) -> bool:
        """Who delivers in a regular configuration: lists of which one is the beginning of the other."""
        rings = {d.ring for d in self.deliveries if d.conf is not None and d.conf.id.is_regular}
        for ring in rings:
            here = [d for d in self.deliveries if d.conf is not None and d.conf.id == ring and self._is_ordered(d)]
            lists = [[d.message for d in here if d.node == node] for node in {d.node for d in here}]
            if any(left[: len(right)] != right[: len(left)] for left, right in combinations(lists, 2)):
                return True
        return False

    def failure_atomicity(self) -> bool:
        """4: both go directly from c to c3, but delivered different sets in c."""
        for p, q in combinations(sorted({h.node for h in self.happenings}), 2):
            for step in self._steps(p) & self._steps(q):
                if self._set(p, step[0]) != self._set(q, step[0]):
                    return True
        return False

    def _steps(self, node: NodeId) -> set[tuple[ViewId, ViewId]]:
        confs = [c.conf.id for c in self.confs if c.node == node and c.conf is not None]
        return set(pairwise(confs))

    def _set(self, node: NodeId, conf: ViewId) -> set[MessageId | None]:
        return {d.message for d in self.deliveries if d.node == node and d.conf is not None and d.conf.id == conf}

    def safe(self) -> bool:
        """7.1 with the F8 reading: every member delivers it in the ring or in its own transitional configuration, or fails."""
        for d in self.deliveries:
            if d.service is Service.SAFE and d.conf is not None and d.message is not None:
                for q in d.conf.nodes:
                    if self._delivery(q, d.message, d.ring) is None and self._goes_on(q, d.ring):
                        return True
        return False


def _has_cycle(edges: set[tuple[object, object]]) -> bool:
    """Take away vertices without predecessors until none is left; a cycle is what cannot be taken away."""
    vertices = {vertex for edge in edges for vertex in edge}
    while vertices:
        free = vertices - {target for source, target in edges if source in vertices}
        if not free:
            return True
        vertices -= free
        edges = {edge for edge in edges if edge[0] in vertices}
    return False
