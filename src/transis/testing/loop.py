"""An asyncio event loop in virtual time: it never waits, and while it would, the simulated world goes on.

1. Time is integer microseconds. It passes only when every task waits; then the worlds are taken to the next instant at which
   something happens in one of them, or to the loop's next timer, whichever is first. What a task does takes no time.
2. All that happens in the worlds at one instant happens before a task runs again. A world has a time of its own, which began when
   the world did; the timeline knows how far apart the two are.
3. The same seed gives the same order of everything: nothing comes from outside. Sockets, threads, processes and signals are
   refused with a sentence. Tasks are hashed by the order in which they were made, because asyncio keeps them in sets.
4. A program that spins without waiting is given time all the same, and one that waits for what cannot come gets an error.

Only documented parts of asyncio are used: a selector of our own, `time`, `call_soon`, `call_at` and a task factory.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from asyncio import Handle, Task, TimerHandle
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context
from itertools import count
from typing import Any, Final, NamedTuple, Protocol, TypeVarTuple

from transis.types.config import SECOND
from transis.types.errors import UsageError
from transis.types.outputs import NEVER

# --- timeline ---------------------------------------------------------------------------------------------------------


class TimedWorld(Protocol):
    """What a timeline knows of a world (sim/world.py)."""

    @property
    def now(self) -> int: ...
    @property
    def next_us(self) -> int: ...
    def run(self, until_us: int) -> None: ...


class AttachedWorld(NamedTuple):
    """`began_us` is the timeline's time at which the world's was 0; `look` is called after every instant."""

    world: TimedWorld
    began_us: int
    look: Callable[[], None]


class Timeline:
    """The time of a loop and of the worlds that go with it."""

    def __init__(self) -> None:
        self.now_us: int = 0
        self._attached: list[AttachedWorld] = []

    def attach(self, world: TimedWorld, look: Callable[[], None]) -> None:
        self._attached.append(AttachedWorld(world, self.now_us - world.now, look))

    def detach(self, world: TimedWorld) -> None:
        self._attached = [one for one in self._attached if one.world is not world]

    def next_us(self) -> int:
        """When something happens next in one of the worlds."""
        return min((min(NEVER, one.began_us + one.world.next_us) for one in self._attached), default=NEVER)

    def advance(self, to_us: int) -> None:
        """Take the worlds to this time. A step beyond `next_us` would keep `look` from being called at every instant."""
        assert to_us >= self.now_us, "time does not go back"
        self.now_us = to_us
        for one in self._attached:
            one.world.run(to_us - one.began_us)
            one.look()


# --- loop -------------------------------------------------------------------------------------------------------------

Ts = TypeVarTuple("Ts")

SPIN_TURNS: Final = 100
"""Turns of the loop at one instant before time passes after all, a microsecond for each: a task that loops over
`asyncio.sleep(0)` is waiting for something."""

STUCK_US: Final = 60 * SECOND
"""How long the world goes on while no task of the test has a timer and none is woken. Views settle within a few seconds."""

VIRTUAL_US_MAX: Final = 3_600 * SECOND
"""Virtual time of one loop. An hour of a small cluster takes minutes: a test that needs more waits for something by mistake."""

TASKS_SHOWN: Final = 10

REFUSED: Final[dict[str, str]] = {
    name: what
    for what, names in {
        "threads": "run_in_executor",
        "sockets": "create_connection create_server create_unix_connection create_unix_server create_datagram_endpoint "
        "connect_accepted_socket start_tls sendfile sock_recv sock_recv_into sock_recvfrom sock_recvfrom_into sock_sendall "
        "sock_sendto sock_connect sock_accept sock_sendfile getaddrinfo getnameinfo add_reader add_writer",
        "processes and pipes": "subprocess_exec subprocess_shell connect_read_pipe connect_write_pipe",
        "signals": "add_signal_handler",
    }.items()
    for name in names.split()
}
"""Methods that a loop without an outside refuses, and what they would need."""


class Stuck(AssertionError):
    """Nothing that the test waits for can come, or it takes longer than any test should."""


class OrderedTask(Task[Any]):
    """Tasks of which a set, such as that of a TaskGroup, has the same order in every process."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], *, serial: int, **options: Any) -> None:
        self.serial = serial
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self.serial


class VirtualSelector(selectors.BaseSelector):
    """Selects nothing, ever; instead of waiting it lets virtual time pass."""

    def __init__(self, pass_time: Callable[[float | None], None]) -> None:
        self._pass_time = pass_time
        self._registered: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """The loop's own pipe, by which other threads wake it; here nobody writes to it."""
        key = self._registered[fileobj] = selectors.SelectorKey(fileobj, int(fileobj), events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._registered.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._pass_time(timeout)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._registered


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is that of a timeline."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline: Timeline = timeline
        self._stirred = False
        self._spun = 0
        self._thread = threading.get_ident()
        super().__init__(VirtualSelector(self._pass_time))
        serials = count(1)
        self.set_task_factory(lambda loop, coro, **options: OrderedTask(coro, serial=next(serials), loop=loop, **options))

    # --- time -------------------------------------------------------------------------------------------------------

    def time(self) -> float:
        return self.timeline.now_us / SECOND

    def _pass_time(self, timeout: float | None) -> None:
        """Called when the loop would wait: for so long, for a timer, or until something comes from outside."""
        if timeout is not None and timeout <= 0:
            self._spun += 1
            if self._spun < SPIN_TURNS:
                return
            timeout = SPIN_TURNS / SECOND
        self._spun = 0
        if timeout is None:
            self._go_to(self.timeline.now_us + STUCK_US, "and no task has a timer")
        else:
            self._go_to(self.timeline.now_us + max(1, round(timeout * SECOND)), "")

    def _go_to(self, latest_us: int, stuck: str) -> None:
        """Advance instant by instant until something concerns the loop or time is up; then raise Stuck, if `stuck` says why."""
        timeline = self.timeline
        self._stirred = False
        while not self._stirred:
            next_us = timeline.next_us()
            if next_us >= latest_us:
                if stuck:
                    raise Stuck(self._in_words(f"nothing the test waits for came within {STUCK_US // SECOND} s, {stuck}"))
                timeline.advance(latest_us)
                return
            if next_us > VIRTUAL_US_MAX:
                raise Stuck(self._in_words(f"the test took more than {VIRTUAL_US_MAX // SECOND} s"))
            timeline.advance(next_us)

    def _in_words(self, what: str) -> str:
        tasks = sorted(asyncio.all_tasks(self), key=hash)
        lines = [f"{what}, all in virtual time. These tasks wait:"]
        lines += [f"  {task.get_name()}: {_place_of(task)}" for task in tasks[:TASKS_SHOWN]]
        return "\n".join(lines)

    # --- what concerns the loop -------------------------------------------------------------------------------------

    def call_soon(self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None) -> Handle:
        self._stirred = True
        return super().call_soon(callback, *args, context=context)

    def call_at(self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None) -> TimerHandle:
        self._stirred = True
        return super().call_at(when, callback, *args, context=context)

    def call_soon_threadsafe(self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None) -> Handle:
        if threading.get_ident() != self._thread:
            raise UsageError(_refusal("call_soon_threadsafe", "threads"))
        return self.call_soon(callback, *args, context=context)

    # --- the end ----------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Cancel what still runs, in the order in which it began, and wait for it."""
        tasks = sorted(asyncio.all_tasks(self), key=hash)
        for task in tasks:
            task.cancel()
        if tasks:
            self.run_until_complete(asyncio.wait(tasks))
        self.run_until_complete(self.shutdown_asyncgens())


def _place_of(task: Task[Any]) -> str:
    frames = task.get_stack(limit=1)
    return f"{frames[0].f_code.co_filename}:{frames[0].f_lineno}" if frames else "about to end"


def _refusal(name: str, what: str) -> str:
    return (
        f"loop.{name} is refused: this loop runs in virtual time and has no {what}, so that the same seed always does the same. "
        f"Write `cluster.connect(name)` for `transis.connect()`, and give a test double to code that needs the outside"
    )


def _refusing(name: str, what: str) -> Callable[..., object]:
    def refuse(loop: VirtualLoop, *_: object, **__: object) -> object:
        raise UsageError(_refusal(name, what))

    return refuse


for _name, _what in REFUSED.items():
    setattr(VirtualLoop, _name, _refusing(_name, _what))
