"""What the flight recorders had when a guarantee broke: developed into traces before it is overwritten, then audited.

1. Films last for minutes, so a violation is developed as soon as it is found; the audit, which takes longer, runs behind it.
2. Only films that can be read here are developed: those of nodes on other hosts stay there (`python -m transis.trace.develop`).
3. One violation at a time, in a thread of its own: neither the next batch nor the metric waits.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec

from transis.model.errors import TransisError
from transis.pipeline.follow.telling import ONE_SEQUENCE, REPLICAS, Divergence
from transis.pipeline.ingest import is_local, local_path
from transis.pipeline.jobs import Wish, audit
from transis.pipeline.steps import Steps
from transis.trace.develop import WHY, Wanted, develop

AROUND: Final = 1000
"""Messages before and behind the difference that are developed."""
KEPT_MAX: Final = 100
"""Violations of which evidence is kept: a cluster that is broken for long breaks the same again and again."""
EXACT: Final = (ONE_SEQUENCE, "total_order_6_1", "places", "no_duplicates")
"""What the audit of the evidence judges: what can be broken in a part of a trace."""


class Evidence:
    """Beside a ledger."""

    def __init__(self, directory: Path, inputs: Sequence[str], tell: Callable[[str], None]) -> None:
        self._directory = directory / "evidence"
        self._films = [Path(local_path(one)) for one in inputs if is_local(one)]
        self._tell = tell
        self._pool = ThreadPoolExecutor(1, "evidence")

    def keep(self, divergences: Sequence[Divergence]) -> None:
        """Develop now, for films are overwritten; explain later."""
        for divergence in divergences:
            if divergence.property != REPLICAS:
                self._pool.submit(self._keep, divergence)

    def close(self, patiently: bool) -> None:
        """Wait until everything is explained, or give up what has not begun."""
        self._pool.shutdown(wait=patiently, cancel_futures=not patiently)

    def _keep(self, divergence: Divergence) -> None:
        try:
            place = self._develop(divergence)
            if place is None:
                self._tell(f"no flight recorder has anything of {divergence.conf}: nothing is kept of it")
                return
            self._tell(f"evidence: {place}")
            self._explain(divergence, place)
        except (TransisError, OSError) as error:
            self._tell(f"the evidence of {divergence.conf} is not whole: {error}")

    def _develop(self, divergence: Divergence) -> Path | None:
        """Traces in a directory that appears when it is complete; None if there is nothing, or if enough is kept."""
        self._directory.mkdir(exist_ok=True)
        numbers = sorted(int(path.name[:6]) for path in self._directory.iterdir() if path.name[:6].isdigit())
        if len(numbers) >= KEPT_MAX:
            return None
        rep = quote(divergence.conf.rep.name, safe="")
        kind = "R" if divergence.conf.is_regular else "T"
        name = f"{(numbers or [0])[-1] + 1:06}-{divergence.property}-{kind}{divergence.conf.seq}-{rep}"
        aside = self._directory / f".{name}"
        shutil.rmtree(aside, ignore_errors=True)
        found = [path for films in self._films if films.is_dir() for path in develop(films, wanted_of(divergence), aside)]
        if not found:
            shutil.rmtree(aside, ignore_errors=True)
            return None
        (aside / WHY).write_bytes(_why(divergence, []))
        return aside.rename(self._directory / name)

    def _explain(self, divergence: Divergence, place: Path) -> None:
        """Have the exact audit say what happened, in the session that runs already."""
        content = audit(Wish((str(place),), only=EXACT), Steps())
        found = [{"property": one.property, "explanation": one.explanation} for one in content.violations]
        (place / WHY).write_bytes(_why(divergence, found))
        for one in found:
            self._tell(f"{one['property']}: {one['explanation']}")


def wanted_of(divergence: Divergence) -> Wanted:
    first, last = divergence.before + divergence.equal_at, divergence.before + divergence.differs_at
    return Wanted(regular=divergence.regular, first=max(0, first - AROUND), last=last + AROUND, why=divergence.explanation)


def _why(divergence: Divergence, found: list[dict[str, str]]) -> bytes:
    said: dict[str, Any] = divergence._asdict() | {"conf": str(divergence.conf), "regular": str(divergence.regular)}
    return msgspec.json.format(msgspec.json.encode(said | {"exactly": found}), indent=2)
