"""What must not change while the house is rebuilt: computed here, kept in `lock.json` and `locked/`, compared by `test_lock.py`.

    python -m tests.house.lock                   # what differs from what is kept
    python -m tests.house.lock --write           # keep what is there now
    python -m tests.house.lock --write names     # of these parts only

1. `lock.json` holds digests: of simulated runs, seed by seed, and of the texts. `locked/` holds the texts themselves, so that a
   difference can be read.
2. Whoever changes the lock says why in the subject of the commit.
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests.house.audits import audits, reconciled
from tests.house.golden import golden_bytes
from tests.house.surface import surface
from tests.house.tables import schemas, write_segments
from tests.house.wordings import errors_of_settings, example_of_settings, helps
from transis.sim.plan import Scenario
from transis.sim.run import simulate
from transis.sim.sweep import sweep

HERE: Final = Path(__file__).parent
VALUES: Final = HERE / "lock.json"
TEXTS: Final = HERE / "locked"

# --- simulated runs -----------------------------------------------------------------------------------------------------

FAMILIES: Final[dict[str, dict[str, Any]]] = {
    "totem": {},
    "totem groups": {"groups": True},
    "lansis": {"scenario": Scenario(engine="lansis")},
    "lansis groups": {"groups": True, "scenario": Scenario(engine="lansis")},
    "toto": {"scenario": Scenario(engine="lansis", order="toto")},
    "mode transis": {"scenario": Scenario(engine="lansis", mode="transis")},
}
SEEDS: Final = 40
SEEDS_IN_SHORT: Final = 5
DIGITS: Final = 16

SEED: Final = 7
"""Of the runs that are locked whole: the digest with all its digits, and the bytes of their traces."""


def digests(family: str, seeds: int) -> list[str]:
    """The canonical digests of the first runs of a family, none of which breaks a guarantee."""
    summary = sweep(range(seeds), 1, digests=True, **FAMILIES[family])
    assert summary.violations == 0, f"{family}: {summary.failing}"
    return [digest for _, digest in summary.digests]


def of_family(found: list[str]) -> str:
    """All digests of a family in one."""
    return _sha256("\n".join(f"{seed} {digest}" for seed, digest in enumerate(found)))[:DIGITS]


def in_short(found: list[str]) -> list[str]:
    return [digest[:DIGITS] for digest in found]


def of_one_run(groups: bool) -> dict[str, str]:
    """A run and the segments in which it is recorded."""
    outcome = simulate(SEED, groups=groups)
    with TemporaryDirectory() as place:
        write_segments(outcome.history, directory := Path(place) / "traces")
        segments = {path.name: sha256(path.read_bytes()).hexdigest() for path in directory.iterdir()}
    return {"digest": outcome.digest(), "segments": _sha256(json.dumps(segments, sort_keys=True))[:DIGITS]}


# --- texts --------------------------------------------------------------------------------------------------------------

PARTS: Final[dict[str, tuple[str, Callable[[], str]]]] = {
    "names": ("names.txt", surface),
    "helps": ("helps.txt", helps),
    "example": ("daemon.toml", example_of_settings),
    "errors": ("errors.txt", errors_of_settings),
    "schemas": ("schemas.txt", schemas),
    "golden": ("golden.txt", golden_bytes),
}
"""The texts by name: the file in which each is kept, and what makes it."""

ON_SPARK: Final[dict[str, tuple[str, Callable[[], str]]]] = {
    "audits": ("audits.json", audits),
    "reconciled": ("reconciled.json", reconciled),
}
"""Texts that take a minute; tests/audit/test_lock.py compares them, where Spark is running already."""

TEXTS_BY_NAME: Final = PARTS | ON_SPARK

RUNS: Final = "runs"
"""The part that is no text."""


def kept_text(part: str) -> str:
    """A file that was changed by hand is no lock."""
    text = (TEXTS / TEXTS_BY_NAME[part][0]).read_text(encoding="utf-8")
    assert _sha256(text) == kept()["texts"][part], f"{TEXTS_BY_NAME[part][0]} is not the text whose digest is in {VALUES.name}"
    return text


def difference(part: str, found: str) -> str:
    """What is there now against what is kept; nothing if they are equal."""
    name = TEXTS_BY_NAME[part][0]
    before, after = kept_text(part).splitlines(), found.splitlines()
    return "\n".join(difflib.unified_diff(before, after, f"locked/{name}", "now", n=2, lineterm=""))


def kept() -> dict[str, Any]:
    values: dict[str, Any] = json.loads(VALUES.read_text(encoding="utf-8"))
    return values


def _sha256(text: str) -> str:
    return sha256(text.encode()).hexdigest()


# --- the command ----------------------------------------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.house.lock", description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join((RUNS, *TEXTS_BY_NAME))}; all if none is named")
    parser.add_argument("--write", action="store_true", help="keep what is there now")
    given = parser.parse_args(arguments)
    parts = given.parts or [RUNS, *TEXTS_BY_NAME]
    if unknown := set(parts) - {RUNS, *TEXTS_BY_NAME}:
        parser.error(f"there is no part {' '.join(sorted(unknown))}")
    if given.write:
        write(parts)
        return 0
    differences = [line for part in parts for line in _differences(part)]
    print("\n".join(differences) or "Nothing differs from the lock.")
    return 1 if differences else 0


def write(parts: Iterable[str]) -> None:
    values = kept() if VALUES.exists() else {"runs": {}, "texts": {}}
    for part in parts:
        if part == RUNS:
            values["runs"] = _runs()
            continue
        name, make = TEXTS_BY_NAME[part]
        text = make()
        (TEXTS / name).write_text(text, encoding="utf-8")
        values["texts"][part] = _sha256(text)
    VALUES.write_text(json.dumps(values, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _runs() -> dict[str, Any]:
    found = {name: digests(name, SEEDS) for name in FAMILIES}
    families = {name: {"all": of_family(found[name]), "seeds": in_short(found[name])} for name in FAMILIES}
    return {"families": families, "without groups": of_one_run(False), "with groups": of_one_run(True)}


def _differences(part: str) -> Iterator[str]:
    if part == RUNS:
        yield from _different_values(kept()["runs"], _runs(), RUNS)
    elif found := difference(part, TEXTS_BY_NAME[part][1]()):
        yield found


def _different_values(before: Any, after: Any, where: str) -> Iterator[str]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in sorted(before.keys() | after.keys()):
            yield from _different_values(before.get(name), after.get(name), f"{where}: {name}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _different_values(one, other, f"{where} {number}")
    elif before != after:
        yield f"{where}: {before} is kept, {after} is there now"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
