"""A replica as a process of its own: `python -m tests.replica.poster NAME SOCKET DIRECTORY`, on a daemon.

It posts `NAME.LIFE.NUMBER` as fast as it is accepted, and prints what was. When it is told to end (a line on its input), it posts
no more, waits until each replica's last word is ordered, and ends.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

import transis
from transis.types.errors import NotYet

REPLICAS = ["ann", "bob", "cid"]
LAST = b"the last of "


def say(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


async def until_told() -> None:
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


async def post(log: transis.ReplicaLog[bytes], name: str, end: asyncio.Event) -> None:
    number = 0
    while not end.is_set():
        receipts = await asyncio.gather(*(log.post(b"%s.%d.%d" % (name.encode(), log.life, number + one)) for one in range(5)))
        for receipt in receipts:
            say(f"accepted {log.life} {number}")
            number += 1
            assert receipt.outcome != "refused"
        with suppress(NotYet):
            await receipts[-1].ordered(timeout=0.1)
    await log.post(LAST + name.encode())


async def main(name: str, socket: str, directory: str) -> None:
    async with transis.replica(
        "accounts", me=name, replicas=REPLICAS, directory=directory, connect=lambda: transis.connect(socket)
    ) as log:
        end = asyncio.Event()
        posting = asyncio.ensure_future(post(log, name, end))
        await until_told()
        end.set()
        await posting
        missing = {LAST + one.encode() for one in REPLICAS}
        async for entry in log.read():
            missing.discard(entry.data)
            if not missing:
                break
        say("done")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
