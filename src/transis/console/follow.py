"""`transis audit --follow`: the guarantees of a cluster that runs, from digests that its nodes seal every few seconds."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from json import dumps
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from transis.cli.admin import unable
from transis.cli.options import local_directory, plain_table, printable, say, stdout, wrong
from transis.console.tables import COLOURS
from transis.model.guarantees import ALL_MEANINGS, BROKEN
from transis.types.errors import PipelineError, TransisError

if TYPE_CHECKING:
    from transis.pipeline.follow.follower import Batch
    from transis.pipeline.follow.job import Outcome

EVERY_S: Final = 15
EVERY_MAX: Final = 3600
BAD: Final = 1


def followed(
    inputs: tuple[str, ...],
    follow: bool,
    ledger: Path | None,
    every: int | None,
    metrics: str | None,
    once: bool,
    master: str | None,
    as_json: bool,
    apart: Mapping[str, object],
) -> int:
    """The exit code: 1 if anything is broken, now or earlier, 2 if nothing could be judged. `apart` are options of an audit
    that looks back, with what was given for them."""
    every_s = EVERY_S if every is None else every
    _require_fitting(follow, ledger, every_s, apart)
    assert ledger is not None
    endpoint = _endpoint(metrics) if metrics is not None else None
    told = _Telling(as_json)
    try:
        from transis.pipeline.failures import require_spark

        require_spark()
        from transis.pipeline.follow.job import FollowWish
        from transis.pipeline.follow.job import follow as run

        with _ended_by_signals() as (enough, listen):
            outcome = run(FollowWish(inputs, ledger, every_s, endpoint, once, master), told, enough, listen)
        told.end(outcome, ledger)
        if outcome.lacking is not None and not outcome.is_broken:
            raise PipelineError(outcome.lacking)
    except TransisError as error:
        raise unable("audit", error) from None
    return BAD if outcome.is_broken else 0


def _require_fitting(follow: bool, ledger: Path | None, every: int, apart: Mapping[str, object]) -> None:
    if not follow:
        raise wrong("--ledger, --every, --metrics, --once", "without --follow", "they belong to --follow, so give that too")
    for option, given in apart.items():
        if given:
            raise wrong(option, "with --follow", f"--follow keeps a ledger and judges all that it can: leave {option} out")
    if ledger is None:
        raise wrong("--ledger", "nothing", "--follow needs a directory for what it finds, such as --ledger kept")
    local_directory("--ledger", str(ledger))
    if not 1 <= every <= EVERY_MAX:
        raise wrong("--every", every, f"must be 1 to {EVERY_MAX}")


def _endpoint(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise wrong("--metrics", repr(text), "must be HOST:PORT, such as 127.0.0.1:9478")
    return host.strip("[]"), int(port)


@contextmanager
def _ended_by_signals() -> Iterator[tuple[Event, Callable[[], None]]]:
    """Ctrl-C and a supervisor's SIGTERM end it politely, with what it found, from the very beginning: a Java process whose start
    is interrupted would stay behind. Also how to listen again."""
    enough = Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def listen() -> None:
        for number in before:
            signal.signal(number, lambda _number, _frame: enough.set())

    listen()
    try:
        yield enough, listen
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass
class _Telling:
    """What a person, or a machine with --json, reads while it runs: a line for every batch that changed something."""

    as_json: bool
    out: Console = field(default_factory=stdout)
    words: dict[tuple[str, str], str] = field(default_factory=dict)

    def __call__(self, what: Batch | str) -> None:
        if isinstance(what, str):
            self._line({"note": what}, f"{_now()} {what}")
            return
        changed = [one for one in what.verdicts if self.words.get((one.cluster, one.property)) != one.verdict]
        self.words |= {(one.cluster, one.property): one.verdict for one in what.verdicts}
        if self.as_json:
            self._line(_as_dict(what), "")
            return
        for one in changed:
            say(
                self.out,
                printable(f"{_now()} {one.cluster}: {one.property} {one.verdict}, {one.checked:,} checks"),
                COLOURS[one.verdict],
            )
        for divergence in what.divergences:
            say(
                self.out,
                printable(f"{_now()} {divergence.cluster}: {divergence.property}: {divergence.explanation}"),
                COLOURS[BROKEN],
            )
        for trouble in what.troubles:
            say(self.out, printable(f"{_now()} {trouble.why}"), "yellow")

    def _line(self, found: dict[str, Any], words: str) -> None:
        if self.as_json:
            print(dumps(found, ensure_ascii=False), flush=True)
        else:
            say(self.out, printable(words))

    def end(self, outcome: Outcome, ledger: Path) -> None:
        """The verdict, whether anything was new or not."""
        if self.as_json:
            self._line(_timed() | {"ledger": str(ledger), "verdicts": [one._asdict() for one in outcome.verdicts]}, "")
            return
        table = plain_table(
            "cluster", "guarantee", "verdict", "checks made", "violations", "pending", title="Verdict per guarantee"
        )
        table.add_column("in words")
        for one in outcome.verdicts:
            counts = (f"{count:,}" if count else "" for count in (one.checked, one.violations, one.pending))
            table.add_row(one.cluster, one.property, one.verdict, *counts, ALL_MEANINGS.get(one.property, ""))
        self.out.print(table)
        say(self.out, f"The ledger: {ledger}")


def _as_dict(batch: Batch) -> dict[str, Any]:
    return _timed() | {
        "batch": batch.number,
        "files": batch.files,
        "seconds": round(batch.seconds, 3),
        "verdicts": [one._asdict() for one in batch.verdicts],
        "violations": [one._asdict() | {"conf": str(one.conf), "regular": str(one.regular)} for one in batch.divergences],
        "unreadable": [one._asdict() for one in batch.troubles],
    }


def _timed() -> dict[str, Any]:
    return {"time": datetime.now(UTC).isoformat(timespec="milliseconds")}


def _now() -> str:
    return datetime.now().strftime("%H:%M:%S")
