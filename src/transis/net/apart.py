"""Work that is heavy and in no hurry runs in a process of its own, and ends with whoever waits for it."""

from __future__ import annotations

import asyncio
import sys


async def run_apart(module: str, *arguments: str) -> tuple[int, str]:
    """Run a module of this package; its exit code, and the last line of what it complained about."""
    command = (sys.executable, "-m", module, *arguments)
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        _, complaint = await process.communicate()
    finally:
        if process.returncode is None:  # Whoever waits ends, and what it waits for ends with it.
            process.kill()
            await process.wait()
    return process.returncode or 0, complaint.decode(errors="replace").strip().rpartition("\n")[2]
