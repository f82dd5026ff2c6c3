"""Work that is heavy and in no hurry runs in a process of its own, and ends with whoever waits for it."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from typing import Final

LOW_PRIORITY: Final = 10
"""Against a node that is busy it gets a tenth of a core. At the lowest, a hundredth, it would not end on a busy machine."""


async def run_apart(module: str, *arguments: str) -> tuple[int, str]:
    """Run a module of this package; its exit code, and the last line of what it complained about."""
    command = (sys.executable, "-m", module, *arguments)
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    with suppress(ProcessLookupError):  # It was quick.
        os.setpriority(os.PRIO_PROCESS, process.pid, LOW_PRIORITY)
    try:
        _, complaint = await process.communicate()
    finally:
        if process.returncode is None:  # Whoever waits ends, and what it waits for ends with it.
            process.kill()
            await process.wait()
    return process.returncode or 0, complaint.decode(errors="replace").strip().rpartition("\n")[2]
