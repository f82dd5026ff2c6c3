"""The child process of an embedded node: `python -m transis.embed.child`, started only by process.py.

1. It lives no longer than the program: when its standard input ends, or the system says that its parent is gone, it leaves
   gracefully and ends. It ignores Ctrl-C: the program decides what that means.
2. Sessions come in over a socket that only this user can open. Everything else is lines on standard input and output.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from transis.embed.process import (
    LINE_MAX,
    AskStatistics,
    BeginNode,
    LeaveNode,
    NodeEnded,
    NodeOpened,
    NodeStatistics,
    NodeViewed,
    Up,
    decode_down,
    encode_line,
    ended_by,
)
from transis.net.host import NodeHost
from transis.net.runtime import calm_the_collector, end_with_parent, fast_loop
from transis.settings.resolve import resolve
from transis.types.errors import TransisError


class Child:
    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._host: NodeHost

    async def run(self) -> NodeEnded:
        """Run the node to its end; returns the last line to send."""
        begin = decode_down(await self._reader.readline())
        assert isinstance(begin, BeginNode), "the first line says what to run"
        if not end_with_parent(begin.parent):
            return NodeEnded("the program ended before its node started")
        opening = replace(resolve(begin.settings), clients=Path(begin.socket))
        self._host = host = NodeHost(opening, on_view=lambda view: send(NodeViewed(view)))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, host.leave)
        try:
            await host.listen()
            obeying = asyncio.create_task(self._obey())
            host.start()
            await host.first_view()
            send(NodeOpened(host.id))
            why = await host.ended()
            obeying.cancel()
            return NodeEnded(why)
        finally:
            await host.close("its program has ended")
            with suppress(OSError):
                os.rmdir(os.path.dirname(begin.socket))  # A program that was killed cannot do it.

    async def _obey(self) -> None:
        while line := await self._reader.readline():
            match decode_down(line):
                case AskStatistics(number):
                    send(NodeStatistics(number, self._host.statistics()))
                case LeaveNode():
                    self._host.leave()
        self._host.leave()


def send(line: Up) -> None:
    """Nobody reads this once the program is gone; the end of standard input shows that."""
    with suppress(BrokenPipeError):
        sys.stdout.buffer.write(encode_line(line))
        sys.stdout.buffer.flush()


async def _run() -> None:
    reader = asyncio.StreamReader(LINE_MAX)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    try:
        send(await Child(reader).run())
    except TransisError as error:
        send(ended_by(error))
    except Exception as error:
        logging.getLogger("transis").exception("the node failed")
        send(ended_by(error))


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    calm_the_collector()
    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        runner.run(_run())
    os._exit(0)  # Standard output may be a pipe that nobody reads; everything was flushed.


if __name__ == "__main__":
    main()
