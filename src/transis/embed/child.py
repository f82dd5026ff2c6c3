"""The child process of an embedded node: `python -m transis.embed.child`, started by process.py and by nobody else.

1. It lives no longer than the program: when its standard input ends, or the system says that its parent is gone, it leaves
   gracefully and ends. Ctrl-C is for the program, which then decides.
2. Sessions come in over a socket that only this user can open. Everything else is lines on standard input and output.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from contextlib import suppress
from typing import Final

from transis.embed.hosting import HostedNode
from transis.embed.process import (
    LINE_MAX,
    Ask,
    Begin,
    Ended,
    Figures,
    Leave,
    Opened,
    Up,
    Viewed,
    decode_down,
    encode_line,
    ended_by,
)
from transis.net.runtime import calm_the_collector, end_with_parent, fast_loop
from transis.types.errors import TransisError
from transis.types.views import View

OWNER_ONLY: Final = 0o600


class Child:
    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._node: HostedNode
        self._leaving: asyncio.Task[bool] | None = None

    async def run(self) -> Ended:
        """The last line."""
        begin = decode_down(await self._reader.readline())
        assert isinstance(begin, Begin), "the first line says what to run"
        if not end_with_parent(begin.parent):
            return Ended("the program was gone before its node began")
        self._node = HostedNode(begin.settings, self._see)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._leave)
        try:
            await self._node.server.listen_unix(begin.socket, OWNER_ONLY)
            obeying = asyncio.create_task(self._obey())
            await self._node.start()
            tell(Opened(self._node.id))
            why = await self._node.driver.ended()
            obeying.cancel()
            return Ended(why)
        finally:
            await self._node.close("its program went")
            with suppress(OSError):
                os.rmdir(os.path.dirname(begin.socket))  # A program that was killed cannot do it.

    async def _obey(self) -> None:
        while line := await self._reader.readline():
            match decode_down(line):
                case Ask(number):
                    tell(Figures(number, self._node.statistics()))
                case Leave():
                    self._leave()
        self._leave()

    def _leave(self) -> None:
        if self._leaving is None:
            self._leaving = asyncio.get_running_loop().create_task(self._node.driver.leave())

    def _see(self, view: View) -> None:
        tell(Viewed(view))


def tell(line: Up) -> None:
    """A program that is gone does not read; the end of standard input tells us so."""
    with suppress(BrokenPipeError):
        sys.stdout.buffer.write(encode_line(line))
        sys.stdout.buffer.flush()


async def _run() -> None:
    reader = asyncio.StreamReader(LINE_MAX)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    try:
        tell(await Child(reader).run())
    except TransisError as error:
        tell(ended_by(error))
    except Exception as error:
        logging.getLogger("transis").exception("the node failed")
        tell(ended_by(error))


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    calm_the_collector()
    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        runner.run(_run())
    os._exit(0)  # Standard output may be a pipe that nobody reads; what was to be said was flushed.


if __name__ == "__main__":
    main()
