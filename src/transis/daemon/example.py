"""The settings file with all fields, their meaning and their defaults: what `transis daemon --example` prints.

Every field is commented out, so that the file says nothing until somebody takes a comment sign away.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, NamedTuple, get_type_hints

from transis.daemon.loading import PULSE_NAMES, TIMING_NAMES
from transis.daemon.settings import SECTIONS, Section, default_of
from transis.net.host import REAL_WINDOW
from transis.types.config import LAN, LAN_PULSE, MS


class Field(NamedTuple):
    name: str
    default: str
    """As the file spells it."""
    description: str


def fields_of(section: type[Section]) -> list[Field]:
    hints = get_type_hints(section, include_extras=True)
    return [Field(name, as_toml(default_of(section, name)), _description(kind)) for name, kind in hints.items()]


def timing_fields() -> list[Field]:
    """The keys of [timing] with the defaults of the profile `lan`."""
    values = asdict(LAN)
    return [Field(name, as_toml(values[field] / MS), "") for name, field in TIMING_NAMES.items()]


def pulse_fields() -> list[Field]:
    """The keys of [pulse], likewise."""
    values = asdict(LAN_PULSE)
    return [Field(name, as_toml(values[field] / MS), "") for name, field in PULSE_NAMES.items()]


def window_fields() -> list[Field]:
    return [Field(name, as_toml(value), "") for name, value in asdict(REAL_WINDOW).items()]


def example() -> str:
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# Settings of a transis daemon. Every field is optional; what stands here are the defaults."
    for name, section in SECTIONS.items():
        yield from ("", f"# {section.__doc__}", f"[{name}]")
        for field in fields_of(section):
            yield from (f"# {field.description}", f"# {field.name} = {field.default}")
        if name == "node":
            yield from _further("timing", "Milliseconds; differences from the profile (these are those of lan).", timing_fields())
            yield from _further("pulse", "Milliseconds, for the engine lansis; differences from the profile.", pulse_fields())
            yield from _further("window", "Flow control, in datagrams unless a name says bytes.", window_fields())


def _further(name: str, title: str, fields: list[Field]) -> Iterator[str]:
    yield from ("", f"# {title}", f"[{name}]")
    yield from (f"# {field.name} = {field.default}" for field in fields)


def _description(kind: Any) -> str:
    """Of the descriptions along a field's type, the outermost: the others belong to the type."""
    found = [one.description for one in kind.__metadata__ if one.description]
    assert found, "every setting says what it is for"
    return str(found[-1])


def as_toml(value: object) -> str:
    """Strings, numbers, booleans and lists of strings are spelt alike in JSON and TOML."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value)
