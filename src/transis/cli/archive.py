"""`transis archive`: join a group and write its stream to Parquet files; with --publish, publish what dead archivers left."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeVar

import typer
from rich.live import Live
from rich.text import Text

from transis.archive.archiver import set_within
from transis.cli.admin import complete_group
from transis.cli.messages import HostOption, KeyOption, SocketOption, connection_to
from transis.cli.options import PROBLEM, UNABLE, complain, printable, say, stdout
from transis.client.link import wall_clock_us
from transis.types.errors import JoinRefused, MissingExtra, TransisError, UsageError

if TYPE_CHECKING:
    from transis.archive.archiver import Archiver
    from transis.archive.publish import PublishOutcome


# --- archive ----------------------------------------------------------------------------------------------------------

ARCHIVE_EXAMPLES = """Examples:
  transis archive orders --to /data/archive
  transis archive orders --to /data/archive --name second --socket /run/two.sock [dim]# a second one, on another daemon[/dim]
  transis archive orders --to /data/archive --json | jq .lag_ms [dim]# one line a second[/dim]
  transis archive --publish /data/archive [dim]# publish what dead archivers left; needs no daemon[/dim]
"""

T = TypeVar("T")

LINE_S: Final = 10
"""Seconds between two lines if stdout is not a terminal."""


def archive(
    group: Annotated[
        str | None, typer.Argument(metavar="GROUP", autocompletion=complete_group, help="The group to join.", show_default=False)
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="PATH", help="Directory of the archive. Several archivers may share it.")
    ] = None,
    publish: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Only publish what dead archivers left in PATH. Needs no daemon."),
    ] = None,
    name: Annotated[
        str, typer.Option(metavar="TEXT", help="Name of this archiver; by default the name of its node.", show_default=False)
    ] = "",
    segment_mb: Annotated[int, typer.Option(min=1, max=4096, metavar="N", help="Publish a file once it has N MB.")] = 128,
    segment_s: Annotated[float, typer.Option(min=0.1, metavar="S", help="Publish a file once it is S seconds old.")] = 60,
    sync_s: Annotated[float, typer.Option(min=0, metavar="S", help="Sync rows to disk every S seconds, against power cuts.")] = 1,
    free_mb: Annotated[
        int, typer.Option(min=0, metavar="N", help="Leave the group when less than N MB are free on the disk.")
    ] = 256,
    seconds: Annotated[float | None, typer.Option(min=0, metavar="S", help="Stop after S seconds.")] = None,
    json_lines: Annotated[
        bool, typer.Option("--json", help="Print one JSON object a second; with --publish, a single one.")
    ] = False,
    socket: SocketOption = None,
    host: HostOption = None,
    key_file: KeyOption = None,
) -> None:
    """Join a group and write its messages and views to Parquet files, in order. Ctrl-C publishes what came, and leaves.

    What was acknowledged is in the archive, whatever happens to this process or to the power. When the session is lost,
    the archiver connects again. What it missed is a gap, which the archive shows unless another archiver was there.

    Exit code: 0; 1 if it was removed from the group or --publish could not publish everything; 2 if it could not start.
    """
    limits = (segment_mb << 20, segment_s, sync_s, free_mb << 20)
    try:
        if publish is not None:
            code = _publish_left(publish, group, to, json_lines)
        else:
            code = asyncio.run(_run(_options(group, to, name, limits, seconds), json_lines, (socket, host, key_file)))
    except (KeyboardInterrupt, asyncio.CancelledError):
        code = PROBLEM
    except TransisError as error:
        complain("archive", error)
        code = PROBLEM if isinstance(error, JoinRefused) else UNABLE
    raise typer.Exit(code)


class ArchiveOptions(NamedTuple):
    group: str
    to: str
    name: str
    limits: tuple[int, float, float, int]
    seconds: float | None


def _options(
    group: str | None, to: str | None, name: str, limits: tuple[int, float, float, int], seconds: float | None
) -> ArchiveOptions:
    if group is None or to is None:
        raise UsageError("name a group and a directory: transis archive GROUP --to PATH")
    return ArchiveOptions(group, to, name, limits, seconds)


def _publish_left(directory: str, group: str | None, to: str | None, as_json: bool) -> int:
    if group is not None or to is not None:
        raise UsageError("--publish PATH publishes for all groups in PATH and joins none: leave out GROUP and --to")

    return publish_and_report(directory, as_json)


async def _run(options: ArchiveOptions, json_lines: bool, where: tuple[Path | None, str | None, Path | None]) -> int:
    """Run until a signal: the first one ends the archiver in order, the second one at once."""
    archiver = _make(options, where)
    loop, working = asyncio.get_running_loop(), asyncio.create_task(archiver.run())

    def end() -> None:
        loop.add_signal_handler(signal.SIGTERM, working.cancel)
        loop.add_signal_handler(signal.SIGINT, working.cancel)
        archiver.stop()

    loop.add_signal_handler(signal.SIGTERM, end)
    loop.add_signal_handler(signal.SIGINT, end)
    if options.seconds is not None:
        loop.call_later(options.seconds, end)
    with _printer(json_lines) as show:
        is_over = asyncio.Event()
        reporting = asyncio.create_task(_report_progress(options.group, archiver, show, is_over))
        try:
            await working
            is_over.set()
            await asyncio.wait({reporting})  # It may have ended already if nobody reads any more, as with `| head`.
        finally:
            reporting.cancel()
            await asyncio.gather(reporting, return_exceptions=True)
    return 0


def _make(options: ArchiveOptions, where: tuple[Path | None, str | None, Path | None]) -> Archiver:
    try:
        from transis.archive.archiver import WINDOW, Archiver, ArchiverContext
        from transis.archive.directory import local_directory
        from transis.archive.life import ArchiveLimits
    except ImportError as error:
        raise MissingExtra("transis archive", "archive") from error
    world = ArchiverContext(
        partial(connection_to, "transis archive", *where, window=WINDOW),
        BlockingThread("writes"),
        BlockingThread("publishes"),
        time.monotonic,
        wall_clock_us,
        partial(complain, "archive"),
    )
    return Archiver(options.group, local_directory(options.to), options.name, ArchiveLimits(*options.limits), world)


class BlockingThread:
    """Runs blocking calls one after the other in a thread of its own."""

    def __init__(self, what: str) -> None:
        self._thread = ThreadPoolExecutor(1, f"transis archive {what}")

    def __call__(self, work: Callable[[], T]) -> Awaitable[T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work)


# --- progress -------------------------------------------------------------------------------------------------------

Printer = Callable[[dict[str, Any], str, bool], None]
"""Gets the figures of the last second, the same as text, and whether they are the last ones."""


async def _report_progress(group: str, archiver: Archiver, show: Printer, end: asyncio.Event) -> None:
    """Show progress every second, and once more at the end."""
    rows, at = 0, time.monotonic()
    is_last = False
    while not is_last:
        is_last = await set_within(end, 1)
        figures, now = await archiver.statistics(), time.monotonic()
        figures["rows_per_s"] = round((figures["rows"] - rows) / (now - at))
        rows, at = figures["rows"], now
        show(figures, progress_text(group, figures), is_last)


def progress_text(group: str, figures: dict[str, Any]) -> str:
    acknowledged = figures["acknowledged"]
    upto = f"acknowledged to {acknowledged['position']}" if acknowledged else "nothing acknowledged yet"
    return (
        f"{group}: {figures['rows']:,} rows, {figures['rows_per_s']:,} a second, {upto}, lag {figures['lag_ms'] / 1000:.1f} s, "
        f"{figures['files']} files, {figures['bytes'] / 1e6:.0f} MB"
    )


@contextmanager
def _printer(json_lines: bool) -> Iterator[Printer]:
    console = stdout()
    if json_lines:
        yield lambda figures, *_: _line(json.dumps(figures))
    elif console.is_terminal:
        with Live(Text(""), console=console, auto_refresh=False) as live:
            yield lambda _, line, *__: live.update(Text(line), refresh=True)
    else:
        yield _SparseLines().show


def _line(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class _SparseLines:
    def __init__(self) -> None:
        self._seen = 0

    def show(self, figures: dict[str, Any], line: str, is_last: bool) -> None:
        if is_last or self._seen % LINE_S == 0:
            _line(line)
        self._seen += 1


# --- publish ----------------------------------------------------------------------------------------------------------


def publish_and_report(directory: str, as_json: bool) -> int:
    try:
        from transis.archive.directory import local_directory
        from transis.archive.publish import publish_directory
    except ImportError as error:
        raise MissingExtra("transis archive", "archive") from error
    path = local_directory(directory)
    found = publish_directory(path)
    if as_json:
        print(json.dumps({"archive": str(path), "archivers": [one.as_json() for one in found]}))
    else:
        for one in found:
            say(stdout(), printable(journals_text(one)))
        if not found:
            say(stdout(), f"no journal waits in {path / 'open'}")
    for one in found:
        _complain_of(one)
    return 0 if all(one.is_fine for one in found) else PROBLEM


def journals_text(one: PublishOutcome) -> str:
    who = f"{one.group}, archived by {one.archiver}: {one.journals} journal{'' if one.journals == 1 else 's'}"
    if one.left is None:
        return f"{who}, left alone: that archiver runs"
    files = f"{one.files} file{'' if one.files == 1 else 's'}, {one.size / 1e6:.1f} MB"
    return f"{who}, of which {len(one.left.published)} published as {files}"


def _complain_of(one: PublishOutcome) -> None:
    for journal in one.damaged:
        complain(
            "archive", f"part of {journal} cannot be read: its rows are a gap; move the file away when you have dealt with it"
        )
    for error in one.refused:
        complain("archive", f"journals of {one.archiver} were not published: {error}")
