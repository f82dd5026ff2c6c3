"""What the fixture `cluster` is: call it for a cluster. It owns the event loop of the test, and ends everything in order.

1. All clusters of one test share one virtual time and one event loop.
2. A seed or an engine from the command line wins over the one in the test: whoever repeats a test over seeds means it.
3. At the end what still runs is cancelled, then the clusters are checked, then what failed unseen in the background is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from transis.sessions.host import SessionPolicy
from transis.testing.cluster import POLICY, Cluster
from transis.testing.loop import VirtualLoop
from transis.testing.timeline import Timeline
from transis.types.config import ENGINES
from transis.types.errors import SessionLost

T = TypeVar("T")


class Clusters:
    """`replay` is the line that runs the test again with its seed."""

    def __init__(self, seed: int | None = None, replay: str = "", engine: str | None = None) -> None:
        self.loop = VirtualLoop(Timeline())
        self.loop.set_exception_handler(self._note_failure)
        self._seed = seed
        self._replay = replay
        self._engine = engine
        self._made: list[Cluster] = []
        self._failures: list[BaseException] = []

    def __call__(
        self,
        nodes: int | Sequence[str] = 3,
        *,
        seed: int = 0,
        quorum: Sequence[str] = (),
        policy: SessionPolicy = POLICY,
        engine: str = ENGINES[0],
        settled: bool = True,
        check: bool = True,
    ) -> Cluster:
        """A cluster of so many nodes (a, b, c ...), or of these names, that have found each other unless `settled` is False.

        `quorum` names the nodes of which a primary view has a majority; `engine` is who orders, totem or lansis. The guarantees
        are checked at the end, unless `check` is False.
        """
        seed = seed if self._seed is None else self._seed
        engine = self._engine or engine
        made = Cluster(self.loop, nodes, seed, quorum=quorum, policy=policy, engine=engine, is_checked=check, replay=self._replay)
        self._made.append(made)
        if settled:
            made.start()
        return made

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the virtual time of all clusters; what it returns."""
        return self.loop.run_until_complete(coroutine)

    def story(self) -> str:
        """What each cluster is and what was done to it."""
        return "\n".join(made.story() for made in self._made)

    def _note_failure(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Of a callback, or of a task that nobody awaited. Who lost its session with its node failed as the test wanted it."""
        failure = context.get("exception")
        if not isinstance(failure, BaseException):
            loop.default_exception_handler(context)
        elif not isinstance(failure, SessionLost):
            self._failures.append(failure)

    def close(self) -> None:
        try:
            self.loop.finish()
            for made in self._made:
                made.close()
        finally:
            self.loop.close()
        if self._failures:
            raise AssertionError(f"a task or callback failed and nobody looked\n{self.story()}") from self._failures[0]
