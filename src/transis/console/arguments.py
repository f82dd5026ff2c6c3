"""What a person typed, turned into what a command needs, or into one sentence that says what is allowed."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import typer

from transis.sim.broken import DEFECTS, defects_of
from transis.sim.tried import JUDGES, TOTEM, Tried
from transis.types.config import ENGINES, MODES, ORDERS
from transis.types.limits import MEMBERS_MAX

SEED_MAX: Final = (1 << 63) - 1
SEEDS_AT_ONCE: Final = 10_000_000
"""Of one call: each is remembered while it runs."""
SUFFIXES: Final = (".html", ".svg")

_SEEDS: Final = re.compile(r"(\d{1,19}):(\d{1,19})")


def wrong(option: str, given: object, allowed: str) -> typer.BadParameter:
    """The error of one option; typer prints it with the command's usage and ends with code 2."""
    return typer.BadParameter(f"{given} is not possible: {allowed}", param_hint=option)


def tried_of(engine: str, order: str, mode: str, partitions: bool, judge: str) -> Tried:
    """The engine and what it is asked to do; only Lansis has a choice there."""
    tried = Tried(
        one_of("--engine", engine, ENGINES),
        one_of("--order", order, ORDERS),
        one_of("--mode", mode, MODES),
        partitions,
        one_of("--judge", judge, JUDGES),
    )
    if engine != "lansis" and (order, mode) != (TOTEM.order, TOTEM.mode):
        option, given = ("--order", order) if order != TOTEM.order else ("--mode", mode)
        raise wrong(option, repr(given), "only the engine lansis has a choice, so give --engine lansis too")
    if order == "toto" and mode == "transis":
        raise wrong("--order", repr(order), "toto needs the mode evs")
    return tried


def one_of(option: str, name: str, known: tuple[str, ...]) -> str:
    if name not in known:
        raise wrong(option, repr(name), f"must be one of {', '.join(known)}")
    return name


def seeds_of(seed: int | None, seeds: str | None) -> range:
    """The seeds to run: one, or A to B-1."""
    if seed is not None and seeds is not None:
        raise wrong("--seeds", repr(seeds), "give --seed or --seeds, not both")
    if seeds is not None:
        return _range_of(seeds)
    first = 0 if seed is None else seed
    if not 0 <= first <= SEED_MAX:
        raise wrong("--seed", first, f"must be 0 to {SEED_MAX}")
    return range(first, first + 1)


def _range_of(text: str) -> range:
    match = _SEEDS.fullmatch(text)
    if match is None:
        raise wrong("--seeds", repr(text), "must be A:B, such as 0:2000 for the seeds 0 to 1999")
    first, end = map(int, match.groups())
    if not first < end <= SEED_MAX:
        raise wrong("--seeds", repr(text), "A must be less than B, and the seeds run from A to B-1")
    if end - first > SEEDS_AT_ONCE:
        raise wrong("--seeds", repr(text), f"at most {SEEDS_AT_ONCE} are allowed in one call, and these are {end - first}")
    return range(first, end)


def local_directory(option: str, text: str) -> Path:
    """A directory of this machine, which need not be there yet."""
    path = Path(text)
    try:
        is_file = path.exists() and not path.is_dir()
    except OSError as error:
        raise wrong(option, repr(text), f"cannot be used ({error.strerror}): name another directory") from None
    if "://" in text or is_file:
        raise wrong(option, repr(text), "must be a local or mounted directory")
    return path


def nodes_of(nodes: int | None) -> int | None:
    if nodes is not None and not 1 <= nodes <= MEMBERS_MAX:
        raise wrong("--nodes", nodes, f"must be 1 to {MEMBERS_MAX}")
    return nodes


def jobs_of(jobs: int | None) -> int:
    if jobs is None:
        return max(1, os.cpu_count() or 1)
    if jobs < 1:
        raise wrong("--jobs", jobs, "must be at least 1")
    return jobs


def broken_of(name: str, tried: Tried) -> str:
    known = defects_of(tried.engine)
    if name in DEFECTS and name not in known:
        others = " and ".join(DEFECTS[name].engines)
        raise wrong("--broken", repr(name), f"this is a defect of {others}; {tried.engine} has {', '.join(known)}")
    if name.startswith("toto") and name in DEFECTS and tried.order != "toto":
        raise wrong("--broken", repr(name), "this defect is one of toto, so give --order toto too")
    return one_of("--broken", name, tuple(known)) if name else name


def picture_file(path: Path | None, option: str, suffixes: Sequence[str] = SUFFIXES) -> Path | None:
    """A file that a diagram can be written to; looked at before the run, for afterwards it would be lost."""
    if path is None:
        return None
    if path.suffix.lower() not in suffixes:
        raise wrong(option, repr(str(path)), f"the name must end in {' or '.join(suffixes)}")
    if not path.parent.is_dir():
        raise wrong(option, repr(str(path)), f"there is no directory {path.parent}")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise wrong(option, repr(str(path)), "it is a directory" if path.is_dir() else "it may not be written")
    return path


def trace_directory(path: Path | None, option: str = "--trace") -> Path | None:
    """A directory for traces: new or empty, because traces of two runs in one directory cannot be told apart."""
    if path is None:
        return None
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise wrong(option, repr(str(path)), "must be a directory that is new or empty")
    return path


def complete_engine(incomplete: str) -> list[str]:
    return [name for name in ENGINES if name.startswith(incomplete)]


def complete_order(incomplete: str) -> list[str]:
    return [name for name in ORDERS if name.startswith(incomplete)]


def complete_mode(incomplete: str) -> list[str]:
    return [name for name in MODES if name.startswith(incomplete)]


def complete_judge(incomplete: str) -> list[str]:
    return [name for name in JUDGES if name.startswith(incomplete)]


def complete_broken(incomplete: str) -> list[tuple[str, str]]:
    return [(name, defect.why) for name, defect in DEFECTS.items() if name.startswith(incomplete)]
