"""A simulated cluster for tests: nodes to connect to, virtual time, and (simulation.py) what a test may do to the nodes.

1. Time passes only in `settle`, `run_for` and whatever the test awaits. Outside of a coroutine the two run at once; inside of one
   they must be awaited.
2. A session is the real one (client/), over a link in memory; the node's side of it is that of a daemon.
3. The fixture `cluster` is called for a cluster. All clusters of one test share one virtual time and one event loop.
4. A seed or an engine from the command line wins over the one in the test: whoever repeats a test over seeds means it.
5. At the end what still runs is cancelled, then the clusters are checked, then what failed unseen in the background is raised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Generator, Sequence
from types import TracebackType
from typing import Any, Final, TypeVar, overload

from transis.client.connection import WINDOW, Connection
from transis.client.events import Codec, Raw
from transis.client.link import Link
from transis.sessions.host import SessionPolicy
from transis.testing.loop import Timeline, VirtualLoop
from transis.testing.node import SimulatedLink, SimulatedSessions
from transis.testing.simulation import GuaranteeBroken, Simulation, chosen_names
from transis.types.config import ENGINES, MS, SECOND, EngineName, WithoutQuorum
from transis.types.errors import ConnectError, SessionLost, UsageError

# --- cluster ----------------------------------------------------------------------------------------------------------

__all__ = ["Cluster", "GuaranteeBroken", "Unsettled"]

T = TypeVar("T")

SLICE_US: Final = 5 * MS
"""How often `settle` looks."""

POLICY: Final = SessionPolicy()


class Unsettled(AssertionError):
    """The cluster did not come to rest in time."""


class _Done:
    """What has been done already, but can still be awaited."""

    def __await__(self) -> Generator[Any, None, None]:
        yield from ()


class Cluster(Simulation):
    """`is_checked` says whether the guarantees are held against the run when the cluster is closed."""

    def __init__(
        self,
        loop: VirtualLoop,
        nodes: int | Sequence[str],
        seed: int = 0,
        *,
        quorum: Sequence[str] = (),
        policy: SessionPolicy = POLICY,
        engine: EngineName = ENGINES[0],
        is_checked: bool = True,
        replay: str = "",
        without_quorum: WithoutQuorum = "continue",
    ) -> None:
        super().__init__(chosen_names(nodes), seed, quorum, policy, replay or _call(nodes, seed, engine), engine, without_quorum)
        self.is_checked = is_checked
        self._loop = loop
        self._is_closed = False
        loop.timeline.attach(self._world, self._look)

    # --- clients ----------------------------------------------------------------------------------------------------

    @overload
    def connect(self, node: str, *, name: str | None = None, label: str = "", window: int = WINDOW) -> Connection[bytes]: ...
    @overload
    def connect(
        self, node: str, *, name: str | None = None, label: str = "", window: int = WINDOW, codec: Codec[T]
    ) -> Connection[T]: ...
    def connect(
        self, node: str, *, name: str | None = None, label: str = "", window: int = WINDOW, codec: Codec[Any] | None = None
    ) -> Connection[Any]:
        """As `transis.connect`, to this `node`: `name`, `label`, `window` and `codec` mean the same."""
        self._host(node)

        async def make_link() -> Link:
            return self._link(node)

        return Connection(make_link, label, window, codec if codec is not None else Raw(), name)

    def _link(self, name: str) -> Link:
        if asyncio.get_running_loop() is not self._loop:
            raise UsageError(
                "this coroutine runs in another event loop than the simulated cluster: run it by `cluster.run(...)`, or make the "
                "test itself `async def` without the mark of another plugin"
            )
        life = self._host(name).life
        if life is None or self._is_closed:
            raise ConnectError(f"the simulated node {name} does not run: `restart({name!r})` starts a node that crashed or left")
        assert isinstance(life.sessions, SimulatedSessions)
        return SimulatedLink(self._world, self._loop, life.sessions)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a `coroutine` in virtual time and return its result."""
        if self._loop.is_running():
            coroutine.close()
            raise UsageError("a coroutine runs already: await this one there, or make a task of it")
        return self._loop.run_until_complete(coroutine)

    # --- time -------------------------------------------------------------------------------------------------------

    def run_for(self, seconds: float) -> Awaitable[None]:
        """Let so many `seconds` of virtual time pass."""
        return self._do(asyncio.sleep(seconds))

    def settle(self, within: float | None = None) -> Awaitable[None]:
        """Let time pass until all nodes that can reach each other share a view and nothing is in flight.

        Raises Unsettled, with the reason, if that takes more than `within` virtual seconds; by default, more than the protocol
        may take at worst.
        """
        limit_us = self._budget_us() if within is None else round(within * SECOND)
        return self._do(self._settling(self._world.now + limit_us))

    async def _settling(self, latest_us: int) -> None:
        """At rest means: found at rest twice."""
        looks = 0
        while looks < 2:
            why = self.unrest()
            looks = 0 if why else looks + 1
            self._require_in_time(why, latest_us)
            await asyncio.sleep(SLICE_US / SECOND)

    def _require_in_time(self, why: str, latest_us: int) -> None:
        if why and self._world.now > latest_us:
            raise Unsettled(f"the cluster did not settle: {why}\n{self.story()}")

    def _do(self, coroutine: Coroutine[Any, Any, None]) -> Awaitable[None]:
        if self._loop.is_running():
            return coroutine
        self.run(coroutine)
        return _Done()

    def start(self) -> None:
        """Let the nodes find each other before anybody connects, in a time of their own: no time passes for anybody else."""
        world, latest_us = self._world, self._budget_us()
        self._loop.timeline.detach(world)
        while why := self.unrest():
            self._require_in_time(why, latest_us)
            world.run(world.now + SLICE_US)
        self._loop.timeline.attach(world, self._look)
        self._look()

    # --- the end ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End time here and check the run, unless it is not to be checked. Closing again does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._loop.timeline.detach(self._world)
        if self.is_checked:
            self.check()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """If the test failed, its error comes first, and the cluster is closed later."""
        if error is None:
            self.close()

    def __repr__(self) -> str:
        return f"<Cluster {' '.join(self.names)}, seed {self.seed}, at {self.now:.6f} s>"


def _call(nodes: int | Sequence[str], seed: int, engine: str) -> str:
    """The call that makes such a cluster."""
    return f"cluster({nodes!r}, seed={seed}{'' if engine == ENGINES[0] else f', engine={engine!r}'})"


# --- clusters ---------------------------------------------------------------------------------------------------------


class Clusters:
    """`replay` is the line that runs the test again with its seed."""

    def __init__(self, seed: int | None = None, replay: str = "", engine: EngineName | None = None) -> None:
        self._loop = VirtualLoop(Timeline())
        self._loop.set_exception_handler(self._note_failure)
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
        engine: EngineName = ENGINES[0],
        settled: bool = True,
        check: bool = True,
        without_quorum: WithoutQuorum = "continue",
    ) -> Cluster:
        """A cluster of this many nodes (a, b, c ...), or with these names; they have found each other unless `settled` is False.

        `quorum` names the nodes of which a primary view has a majority, and `without_quorum` says what applications do in a
        view that is not; `engine` orders the messages, totem or lansis. The guarantees are checked at the end, unless `check`
        is False.
        """
        seed = seed if self._seed is None else self._seed
        engine = self._engine or engine
        made = Cluster(
            self._loop,
            nodes,
            seed,
            quorum=quorum,
            policy=policy,
            engine=engine,
            is_checked=check,
            replay=self._replay,
            without_quorum=without_quorum,
        )
        self._made.append(made)
        if settled:
            made.start()
        return made

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a `coroutine` in the virtual time of all clusters and return its result."""
        return self._loop.run_until_complete(coroutine)

    def story(self) -> str:
        """What each cluster is and what was done to it."""
        return "\n".join(made.story() for made in self._made)

    def _note_failure(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Keep the failure of a callback, or of a task that nobody awaited. The test wants sessions to die with their node."""
        failure = context.get("exception")
        if not isinstance(failure, BaseException):
            loop.default_exception_handler(context)
        elif not isinstance(failure, SessionLost):
            self._failures.append(failure)

    def close(self) -> None:
        """End time in all clusters, and check each of their runs."""
        try:
            self._loop.finish()
            for made in self._made:
                made.close()
        finally:
            self._loop.close()
        if self._failures:
            raise AssertionError(f"a task or callback failed and nobody looked\n{self.story()}") from self._failures[0]
