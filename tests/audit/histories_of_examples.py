"""The examples that stand beside each guarantee, as histories."""

from __future__ import annotations

from collections.abc import Iterator

from tests.guarantees.toy import Toy
from transis.audit.guarantees import PROPERTIES
from transis.audit.guarantees.property import Example
from transis.trace.events import History

EXAMPLES = {f"{one.name} {number}": (one, example) for one in PROPERTIES.values() for number, example in enumerate(one.examples)}


def history_of(example: Example) -> History:
    return Toy(example.text).history(closed=example.closed, engine=example.engine)


def histories() -> Iterator[tuple[str, History]]:
    for name, (_, example) in EXAMPLES.items():
        yield name, history_of(example)
