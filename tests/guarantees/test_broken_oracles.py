"""Oracles with one rule of recovery wrong: the checkers find each within a few dozen histories, and say what broke."""

import pytest

from tests.guarantees.oracle import AbstractWorld, Actor, RingLog, broken_by
from transis.types.ids import NodeId, Service
from transis.types.outputs import Configure, Phase
from transis.types.views import View


class OnlyTheCoveredAfterTheTransitional(AbstractWorld):
    """What TOCS95 says literally (F1): after the transitional configuration only messages of the obligation."""

    def _recover(self, actor: Actor, high: int, covered: frozenset[NodeId], transitional: View) -> None:
        assert actor.ring is not None
        log = actor.ring.log
        position = actor.delivered
        while position in actor.received and (log[position].ids.service is not Service.SAFE or position < high):
            self._deliver_at(actor, position, Phase.REGULAR)
            position += 1
        actor.recorder.observe(self._tick(), Configure(transitional))
        for rest in range(position, len(log)):
            if rest in actor.received and log[rest].sender in covered:
                self._deliver_at(actor, rest, Phase.TRANSITIONAL)


class AnybodyAfterTheGap(AbstractWorld):
    """Messages behind a gap are delivered whoever sent them."""

    def _recover(self, actor: Actor, high: int, covered: frozenset[NodeId], transitional: View) -> None:
        everybody = frozenset(other.id for other in self.lives)
        super()._recover(actor, high, everybody, transitional)


class NoObligation(AbstractWorld):
    """A laggard forgets what it exchanged (F3). It is rare that this matters, so here much is sent, and little arrives."""

    def step(self) -> None:
        self.rng.choices([self._submit, self._originate, self._receive, self._deliver, self._regroup], [8, 8, 5, 2, 3])[0]()

    def _regroup(self) -> None:
        names = sorted(self.live)
        component = sorted(self.rng.sample(names, self.rng.randint(1, len(names))))
        self._form(component, self.rng.choice(component) if len(component) > 1 else None)

    def _leave_ring(self, old: RingLog | None, group: list[Actor], view: View, laggard: str | None) -> None:
        super()._leave_ring(old, group, view, laggard)
        for actor in group:
            actor.obligation = frozenset({actor.id})


class SafeWithoutWaiting(AbstractWorld):
    """Safe messages are delivered like agreed ones."""

    def _deliver_some(self, actor: Actor, limit: int) -> None:
        assert actor.ring is not None
        actor.ring.acked = dict.fromkeys(actor.ring.members, 1 << 30)
        super()._deliver_some(actor, limit)


@pytest.mark.parametrize(
    ("oracle", "breaks"),
    [
        (OnlyTheCoveredAfterTheTransitional, {"safe_7_1"}),
        (AnybodyAfterTheGap, {"causal_5"}),
        (NoObligation, {"safe_7_1"}),
        (SafeWithoutWaiting, {"safe_7_1", "safe_7_2"}),
    ],
)
def test_a_wrong_rule_is_found(oracle: type[AbstractWorld], breaks: set[str]) -> None:
    assert breaks <= broken_by(oracle)
