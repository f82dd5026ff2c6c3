"""What the flight recorders had when a guarantee broke: exported into traces before it is overwritten, then audited.

1. Ring files last for minutes, so a violation is exported as soon as it is found. The audit, which takes longer, runs behind
   it, and no violation waits for the audit of another.
2. Only ring files that can be read here are exported: those of nodes on other hosts stay there (`python -m
   transis.trace.export`). They may be copied here a little later. Where nothing was found the follower looks again, less and
   less often, while the ledger counts the violation as recent.
3. All of it happens in threads of its own: neither the next batch nor the metric waits. What a follower had no time for when it
   ended, the next one on its ledger does: an export is there under its name, and has `"exactly": null` until it is explained.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec

from transis.audit.follow.divergence import ONE_SEQUENCE, REPLICAS, Divergence
from transis.audit.job import AuditRequest, audit
from transis.spark.progress import StepTimer
from transis.trace.export import WHY, ExportRequest, export_wanted
from transis.trace.files import publish, replace_durably
from transis.types.errors import TransisError

AROUND: Final = 1000
"""Messages before and after the difference that are exported."""
KEPT_MAX: Final = 100
"""Violations of which evidence is kept: a cluster that stays broken breaks the same again and again."""
EXACT: Final = (ONE_SEQUENCE, "total_order_6_1", "places", "no_duplicates")
"""What the audit of the evidence judges: guarantees that can be seen broken in a part of a trace."""
EXACTLY: Final = "exactly"
"""In why.json: what that audit found; null until it has ended."""
AGAIN_S: Final = 60.0
"""If no ring file has anything, the follower looks again after this time, then after twice as long, and so on."""

Findings = list[dict[str, str]]


def audited(place: Path) -> Findings:
    """What the exact audit finds in the evidence, in the Spark session that already runs."""
    content = audit(AuditRequest((str(place),), only=EXACT), StepTimer())
    return [{"property": one.property, "explanation": one.explanation} for one in content.violations]


class EvidenceExport:
    """The evidence beside a ledger."""

    def __init__(
        self,
        directory: Path,
        directories: Sequence[str],
        tell: Callable[[str], None],
        explain: Callable[[Path], Findings] = audited,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory / "evidence"
        self._ring_files = [Path(one) for one in directories]
        self._tell = tell
        self._explained_by = explain
        self._now_s = now_s
        self._due_s: dict[str, float] = {}
        """By violation, when to look for ring files again; never, if it is done or under way."""
        self._waited_s: dict[str, float] = {}
        self._exporting = ThreadPoolExecutor(1, "exporting")
        self._explaining = ThreadPoolExecutor(1, "explaining")

    def keep(self, divergences: Sequence[Divergence]) -> None:
        """Export now, because ring files are overwritten; explain later. Call it again with recent violations: those already
        kept are not kept again."""
        for divergence in divergences:
            if divergence.property != REPLICAS and self._due_s.get(_key(divergence), 0.0) <= self._now_s():
                self._due_s[_key(divergence)] = inf
                self._later(self._exporting, self._keep, divergence)

    def explain_what_is_left(self) -> None:
        """Explain what an earlier follower exported and had no time to explain."""
        for place, why in self._exported():
            if why.get(EXACTLY) is None:
                self._later(self._explaining, self._explain, place)

    def close(self, patiently: bool) -> None:
        """Wait until everything is explained, or give up what has not begun."""
        self._exporting.shutdown(wait=patiently, cancel_futures=not patiently)
        self._explaining.shutdown(wait=patiently, cancel_futures=not patiently)

    def _later(self, pool: ThreadPoolExecutor, work: Callable[..., None], *what: object) -> None:
        """Do it in a thread, or never, if this was closed meanwhile: the next follower on this ledger does what is left."""
        with suppress(RuntimeError):
            pool.submit(work, *what)

    def _keep(self, divergence: Divergence) -> None:
        with self._errors_reported(str(divergence.conf)):
            if any(_is_of(why, divergence) for _, why in self._exported()):
                return
            if len(self._numbers()) >= KEPT_MAX:
                self._tell(f"evidence is kept of {KEPT_MAX} violations already, so none of {divergence.conf}")
                return
            place = self._export(divergence)
            if place is None:
                self._look_again(divergence)
                return
            self._tell(f"evidence: {place}")
            self._later(self._explaining, self._explain, place)

    def _look_again(self, divergence: Divergence) -> None:
        key = _key(divergence)
        waited_s = self._waited_s.get(key, 0.0)
        self._waited_s[key] = max(AGAIN_S, 2 * waited_s)
        self._due_s[key] = self._now_s() + self._waited_s[key]
        if not waited_s:
            nothing = f"no flight recorder has anything of {divergence.conf}"
            self._tell(f"{nothing}: no evidence is kept, unless ring files come soon")

    def _exported(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        """The evidence that there is, and what is known about it."""
        for path in sorted(self._directory.glob(f"[0-9]*/{WHY}")):
            with suppress(OSError, msgspec.MsgspecError):
                yield path.parent, msgspec.json.decode(path.read_bytes(), type=dict[str, Any])

    def _numbers(self) -> list[int]:
        return sorted(int(path.name[:6]) for path in self._directory.glob("[0-9]*") if path.name[:6].isdigit())

    def _export(self, divergence: Divergence) -> Path | None:
        """Export traces to a directory that appears when it is complete; None if there is nothing."""
        self._directory.mkdir(exist_ok=True)
        name = f"{(self._numbers() or [0])[-1] + 1:06}-{_name_of(divergence)}"
        aside = self._directory / f".{name}"
        shutil.rmtree(aside, ignore_errors=True)
        if not export_wanted(self._ring_files, wanted_of(divergence), aside):
            shutil.rmtree(aside, ignore_errors=True)
            return None
        (aside / WHY).write_bytes(_written(_why(divergence)))
        return publish(aside, self._directory / name)

    def _explain(self, place: Path) -> None:
        """Let the exact audit explain it, once, though it may be asked for twice while a follower starts."""
        with self._errors_reported(place.name):
            why = msgspec.json.decode((place / WHY).read_bytes(), type=dict[str, Any])
            if why.get(EXACTLY) is not None:
                return
            found = self._explained_by(place)
            replace_durably(place / WHY, _written(why | {EXACTLY: found}))
            for one in found:
                self._tell(f"{one['property']}: {one['explanation']}")

    @contextmanager
    def _errors_reported(self, what: str) -> Iterator[None]:
        try:
            yield
        except (TransisError, OSError) as error:
            self._tell(f"the evidence of {what} is not whole: {error}")


def wanted_of(divergence: Divergence) -> ExportRequest:
    first, last = divergence.before + divergence.equal_at, divergence.before + divergence.differs_at
    return ExportRequest(
        regular=divergence.regular,
        first=max(0, first - AROUND),
        last=last + AROUND,
        why=divergence.explanation,
        around=f"{divergence.property} in {divergence.conf}",
    )


def _key(divergence: Divergence) -> str:
    return f"{divergence.cluster}\n{divergence.explanation}"


def _name_of(divergence: Divergence) -> str:
    kind = "R" if divergence.conf.is_regular else "T"
    return f"{divergence.property}-{kind}{divergence.conf.seq}-{quote(divergence.conf.rep.name, safe='')}"


def _is_of(why: dict[str, Any], divergence: Divergence) -> bool:
    return (why.get("cluster"), why.get("explanation")) == (divergence.cluster, divergence.explanation)


def _why(divergence: Divergence) -> dict[str, Any]:
    return divergence._asdict() | {"conf": str(divergence.conf), "regular": str(divergence.regular), EXACTLY: None}


def _written(why: dict[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(why), indent=2)
