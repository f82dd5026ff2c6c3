"""What a process with a node in it needs of its system: a clock, an event loop, a quiet garbage collector, a parent.

1. The clock counts while the machine sleeps (CLOCK_BOOTTIME), so every pause is seen. Where the system has no such clock (macOS)
   it is CLOCK_MONOTONIC, and the other nodes notice a sleep of the machine first.
2. A node that did not run cannot know which members it would have heard. So its timers do not count the time of a pause (SIGSTOP,
   a closed lid, an overloaded machine): they go on from where they were, and its own health stretches its suspicion of others.
3. Collector and parent are for processes that run nothing else (a daemon, the child of an embedded node, a benchmark's node). A
   node in a thread leaves the program around it as it is.
4. Heavy work that is in no hurry runs in a process of its own, which ends with the task that waits for it.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

# --- clock ------------------------------------------------------------------------------------------------------------

_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

PAUSE_US: Final = 20_000
"""Waking later than this after a deadline is a pause; less is normal for schedulers and event loops."""


def boottime_us() -> int:
    return time.clock_gettime_ns(_CLOCK) // 1_000


class NodeClock:
    """The node's time. 1. It never goes back, and never runs faster than the clock beneath.
    2. A pause counts as half of the wait that it fell into, so that pauses without end still let timers come due.
    3. Only the turn that attends to the node, sockets first, may let its timers come due. Calls in between see the time stand
       still at the deadline: an application that sends for long in one go would otherwise walk its own node past all of them.
    """

    def __init__(self, beneath_us: Callable[[], int] = boottime_us) -> None:
        self._beneath_us = beneath_us
        self._missed_us = 0
        self._latest = beneath_us()
        self.pauses = 0
        self.longest_pause_us = 0

    def now(self) -> int:
        self._latest = self._beneath_us() - self._missed_us
        return self._latest

    def passing_by(self, deadline: int) -> int:
        """The time for calls in between, when nobody has looked at the sockets."""
        self._latest = max(self._latest, min(self._beneath_us() - self._missed_us, deadline))
        return self._latest

    def resume(self, deadline: int) -> None:
        """The process runs again, whatever woke it. If that is much later than the deadline, the node was paused."""
        now = self._beneath_us() - self._missed_us
        due = max(deadline, self._latest)
        if now - due <= PAUSE_US:
            return
        pause_us = now - self._latest - (due - self._latest) // 2
        self._missed_us += pause_us
        self.pauses += 1
        self.longest_pause_us = max(self.longest_pause_us, pause_us)


# --- process ----------------------------------------------------------------------------------------------------------

PR_SET_PDEATHSIG: Final = 1
"""Linux: set the signal to get when the parent ends."""
YOUNG_OBJECTS: Final = 50_000
"""Allocations between two looks at the youngest generation. Python's own 700 would look hundreds of times a second."""
OLD_ROUNDS: Final = 1_000
"""Middle collections before a full one: a full one looks at every object of every group, client and message."""

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def fast_loop() -> LoopFactory | None:
    """uvloop where it is installed; None, which means asyncio's own loop, otherwise."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def calm_the_collector() -> None:
    """Collect seldom, and never what exists already.

    A node makes few cycles, but with ten thousand groups one full collection stops it for longer than a token may be away, and
    the others would begin to suspect it. Call this when everything is imported.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 20, OLD_ROUNDS)


def end_with_parent(parent: int) -> bool:
    """Ask the system for SIGTERM when the process `parent` ends. False if it has ended already.

    On Linux the parent is the thread that started this process, so that thread must live as long as this process is wanted.
    """
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    return os.getppid() == parent


# --- work apart ---------------------------------------------------------------------------------------------------------

LOW_PRIORITY: Final = 10
"""Beside a busy node such a process gets a tenth of a core. At the lowest priority, a hundredth, it would never finish."""


async def run_apart(module: str, *arguments: str) -> tuple[int, str]:
    """Run a module of this package; return its exit code and the last line of its stderr."""
    command = (sys.executable, "-m", module, *arguments)
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    with suppress(ProcessLookupError):  # It was quick.
        os.setpriority(os.PRIO_PROCESS, process.pid, LOW_PRIORITY)
    try:
        _, complaint = await process.communicate()
    finally:
        if process.returncode is None:  # The waiting task was cancelled; its process ends with it.
            process.kill()
            await process.wait()
    return process.returncode or 0, complaint.decode(errors="replace").strip().rpartition("\n")[2]
