"""Writes the second half of docs/guarantees.md, from what stands beside the checker of every guarantee:

python -m tests.house.guarantees docs/guarantees.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from transis.audit.guarantees import GROUP_PROPERTIES, HARNESS_MEANINGS, NODE_PROPERTIES, PROPERTIES, REPLICA_PROPERTIES
from transis.audit.guarantees.property import BROKEN, HELD, MODES, PENDING, Example, Property

BEGIN: Final = "## What checks each\n"
"""Behind this heading everything is generated."""

INTRODUCTION: Final = """
Each has a file in `src/transis/audit/guarantees/`: the predicate, a checker over recorded histories, SQL for the audit, and
examples, which both are held against. An example is a history of a few events: `R4{a,b}` installs regular configuration 4 with
two members, `T6{a}` a transitional one, `s1` sends message 1, `d1` delivers it, `x` is a crash; the language is
described in `tests/guarantees/toy.py`. Each example stands behind its verdict, and a broken one has its explanation below.

This part of the page is written by `python -m tests.house.guarantees docs/guarantees.md`.
"""

OF_REPLICAS: Final = """
### Of replicas, where their steps are recorded

Each life of a replica's directory has a trace of its own ([replication.md](replication.md)). In the examples `.o3` opens a
directory with an order of three actions, `.p1:2` posts the second action of replica 1, `.a1:2` accepts it, `.d1:2=5` hands it
over at place 5, `.R6` comes to rest behind it (`tests/guarantees/toy_replicas.py`).
"""

BY_THE_SIMULATOR: Final = """
### What a trace alone cannot show

The simulator and the demo see more than a trace, and judge it (`sim/run.py`, `sim/liveness.py`):
"""


def page() -> str:
    """Everything behind the heading."""
    parts = [INTRODUCTION, "\n### Of nodes\n", *map(_section, NODE_PROPERTIES), "\n### Of groups, on nodes that have them\n"]
    parts += [*map(_section, GROUP_PROPERTIES), OF_REPLICAS, *map(_section, REPLICA_PROPERTIES), BY_THE_SIMULATOR, "\n"]
    return "".join(parts) + "".join(f"- `{name}`: {meaning}\n" for name, meaning in HARNESS_MEANINGS.items())


def _section(name: str) -> str:
    return "\n".join(_lines(PROPERTIES[name])) + "\n"


def _lines(one: Property[Any]) -> Iterator[str]:
    yield f"\n#### `{one.name}`: {one.meaning}\n"
    yield f"{one.predicate} {_source(one)}\n"
    for says in (BROKEN, HELD, PENDING):
        for example in _chosen(one, says):
            yield f"- {says}: `{example.text}`{_circumstances(example)}" + (f"  \n  {example.says}" if example.says else "")


def _source(one: Property[Any]) -> str:
    file = f"{one.check.__module__.rpartition('.')[2]}.py"
    parts = [one.paper] if one.paper else []
    parts += [f"[{file}](../src/transis/audit/guarantees/{file})"]
    unpromised = [f"`{mode}`" for mode in MODES if mode not in one.promised_in]
    parts += [f"not promised by views with {', '.join(unpromised)}"] if unpromised else []
    return f"({'; '.join(parts)})"


def _chosen(one: Property[Any], verdict: str) -> list[Example]:
    return [example for example in one.examples if example.verdict == verdict]


def _circumstances(example: Example) -> str:
    notes = [] if example.engine == "totem" else [f"on {example.engine}"]
    notes += [] if example.closed else ["while the run goes on"]
    return f", {' and '.join(notes)}" if notes else ""


def main() -> None:
    (file,) = map(Path, sys.argv[1:])
    by_hand, begin, _ = file.read_text(encoding="utf-8").partition(BEGIN)
    file.write_text(by_hand + begin + page(), encoding="utf-8")


if __name__ == "__main__":
    main()
