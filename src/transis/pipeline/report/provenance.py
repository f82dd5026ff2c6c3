"""How the report was computed: versions, inputs, steps. Nothing of the machine, its user or its network is told."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from transis.drawing.html import folded, row, table, tag, words
from transis.drawing.svg import escaped
from transis.pipeline.report.content import Computed, Content

RUNS_LISTED: Final = 500
_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")


def provenance_section(content: Content) -> str:
    facts = [tag("div", words("dt", what), words("dd", value)) for what, value in _facts(content.computed) if value]
    return tag(
        "section",
        words("h2", "How it was computed"),
        tag("dl", *facts, class_="facts"),
        _steps(content.computed),
        _runs(content),
        _inputs(content),
        id="computed",
    )


def kind_of_master(master: str) -> str:
    """Where Spark ran, without any address."""
    if re.fullmatch(r"local(\[.*\])?", master):
        return "Spark on the machine itself"
    kinds = {"spark": "a standalone Spark cluster", "yarn": "YARN", "k8s": "Kubernetes", "sc": "Spark Connect"}
    return kinds.get(master.partition(":")[0], "a Spark cluster") if master else ""


def _facts(computed: Computed) -> Iterator[tuple[str, str]]:
    yield "transis", computed.transis
    yield "Python", computed.python
    yield "PySpark", computed.pyspark
    yield "Java", computed.java
    yield "ran on", kind_of_master(computed.master)
    yield "inputs", f"{computed.files:,} trace files, {size(computed.bytes)}" if computed.files else ""
    yield "digest of the inputs", computed.digest


def size(count: int) -> str:
    value, unit = float(count), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{count:,} bytes" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def _steps(computed: Computed) -> str:
    if not computed.steps:
        return ""
    rows = (row([words("td", what), words("td", f"{seconds:.1f} s", class_="n")]) for what, seconds in computed.steps)
    return table(["step", "#took"], rows)


def _runs(content: Content) -> str:
    rows = [
        row(
            [
                words("th", run.name, scope="row"),
                *(words("td", value) for value in (run.cluster, run.engine, run.mode, run.seed, ", ".join(run.builds))),
                *(words("td", f"{count:,}", class_="n") for count in (run.nodes, run.files)),
                words("td", size(run.bytes), class_="n"),
                words("td", "yes" if run.closed else "no"),
            ]
        )
        for run in sorted(content.runs, key=lambda run: (run.cluster, run.name))[:RUNS_LISTED]
    ]
    headings = ["run", "cluster", "engine", "mode", "seed", "builds", "#nodes", "#files", "#size", "came to rest"]
    more = len(content.runs) - RUNS_LISTED
    rest = words("p", f"{more:,} more runs are not listed.", class_="note") if more > 0 else ""
    return folded(escaped(f"Runs ({len(content.runs):,})"), table(headings, rows), rest, class_="apart")


def _inputs(content: Content) -> str:
    """Which inputs each run's verdicts were made from."""
    digests = sorted({(one.run, one.inputs) for one in content.verdicts if one.inputs})
    if not digests:
        return ""
    rows = (row([words("th", run, scope="row"), tag("td", words("code", digest))]) for run, digest in digests[:RUNS_LISTED])
    return folded(
        escaped(f"Digests of the inputs of the verdicts ({len(digests):,})"), table(["run", "digest"], rows), class_="apart"
    )
