"""A process that belongs to a node: its event loop, its garbage collector, and whose child it is.

For processes that run nothing else (a daemon, the child of an embedded node, a benchmark's node). A node in a thread leaves
the program around it as it is.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import signal
import sys
from collections.abc import Callable
from typing import Final

PR_SET_PDEATHSIG: Final = 1
"""Linux: the signal to get when the parent is gone."""
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
    """Collect seldom, and never what was there at the start.

    A node makes few cycles, but with ten thousand groups one full collection stops it for longer than a token may be away, and
    the others would begin to suspect it. Call this when everything is imported.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 20, OLD_ROUNDS)


def end_with_parent(parent: int) -> bool:
    """Ask the system for SIGTERM when the process `parent` ends. False if it has ended already.

    For Linux the parent is the thread that started us, so that thread must live as long as its process wants us.
    """
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    return os.getppid() == parent
