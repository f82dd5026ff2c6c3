"""One audit of all the histories that several modules draw: each is a run of its own, and planning an audit takes longer than
judging a few hundred small runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from tests.audit import (
    histories_of_causal,
    histories_of_examples,
    histories_of_groups,
    histories_of_messages,
    histories_of_replicas,
    histories_of_views,
)
from tests.audit.frames import tables_of_histories, write_histories
from transis.audit.plans.finding import Result
from transis.audit.plans.judge import audited
from transis.audit.plans.lay import Tables, lay_out
from transis.spark.inputs import coalesced
from transis.spark.progress import StepTimer
from transis.trace.events import History

DRAWN: Final[dict[str, Callable[[], Iterator[tuple[str, History]]]]] = {
    "views": histories_of_views.histories,
    "views in segments": histories_of_views.in_segments,
    "messages": histories_of_messages.histories,
    "groups": histories_of_groups.histories,
    "causal apart": histories_of_causal.histories,
    "replicas": histories_of_replicas.histories,
    "examples": histories_of_examples.histories,
}

SEGMENTS: Final = 3


@cache
def histories_for(part: str) -> dict[str, History]:
    """By the name of their run, which begins with that of the part."""
    return {f"{part}: {name}": history for name, history in DRAWN[part]()}


def audited_together(spark: SparkSession, directory: Path) -> Result:
    """What all properties found in all of them."""
    write_histories(histories_for("views in segments"), directory, SEGMENTS)
    whole = {name: one for part in DRAWN if part != "views in segments" for name, one in histories_for(part).items()}
    tables = Tables(tables_of_histories(spark, whole, directory).events, coalesced)
    return audited(lay_out(tables, coalesced), coalesced, StepTimer())
