"""Reading the settings file. Every mistake is one sentence: the file, the field, what was given, what is allowed.

A name that does not exist is answered with the nearest one that does: a misspelt timeout that is silently ignored costs a night.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec

from transis.net.host import REAL_WINDOW
from transis.settings.schema import PULSE_NAMES, SECTIONS, TIMING_NAMES, Settings
from transis.types.config import MS, Pulse, Timing, Window, profile, pulse_profile
from transis.types.errors import ConfigError

FILE_BYTES_MAX: Final = 1 << 20
SHOWN_MAX: Final = 60
"""Letters of a wrong value that an error repeats."""

WINDOW_NAMES: Final = tuple(field.name for field in fields(Window))
NUMBERS: Final[dict[str, tuple[type, ...]]] = {"timing": (int, float), "pulse": (int, float), "window": (int,)}
"""Sections that are made of numbers only, and of which kinds."""

KINDS: Final = {
    "str": 'text in quotes, like "ann"',
    "int": "a whole number",
    "bool": "true or false",
    "array": 'a list, like ["ann"]',
}
"""What msgspec calls the kinds of values, in words."""

_PATH: Final = re.compile(r"(?P<what>.*?)(?: - at `\$\.?(?P<path>[^`]*)`)?", re.DOTALL)


class SettingsError(ConfigError):
    """A mistake in a settings file, told with the file."""

    def __init__(self, file: str, error: ConfigError) -> None:
        Exception.__init__(self, f"{file}: {error}")
        self.field = error.field


def renamed(error: ConfigError, name: str, in_words: Callable[[str], str] = str) -> ConfigError:
    """The same complaint about the field as the file calls it, and of the rest what `in_words` makes of it."""
    renamed = ConfigError(name, None, "")
    renamed.args = (f"{name} = {in_words(str(error).partition(' = ')[2])}",)
    return renamed


def load_settings(path: Path | None) -> Settings:
    """The settings of a file, or the defaults without one."""
    if path is None:
        return Settings()
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError("--config", str(path), f"the file cannot be read ({error.strerror})") from error
    return read_settings(content, str(path))


def read_settings(content: bytes, file: str) -> Settings:
    try:
        return _settings(_tables(content))
    except ConfigError as error:
        raise SettingsError(file, error) from error


def _tables(content: bytes) -> dict[str, Any]:
    if len(content) > FILE_BYTES_MAX:
        raise ConfigError("size", len(content), f"a settings file has at most {FILE_BYTES_MAX} bytes: is this the right file?")
    try:
        return tomllib.loads(content.decode())
    except UnicodeDecodeError as error:
        raise ConfigError("text", f"byte {error.start}", "the file must be UTF-8") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError("text", str(error), "the file must be TOML: compare `transis daemon --example`") from error


def _settings(tables: dict[str, Any]) -> Settings:
    _check_names(tables)
    try:
        settings = msgspec.convert(tables, Settings)
    except msgspec.ValidationError as error:
        raise _wrong_value(tables, str(error)) from error
    timing_of(settings)
    pulse_of(settings)
    window_of(settings)
    return settings


# --- names ----------------------------------------------------------------------------------------------------------


def _check_names(tables: Mapping[str, Any]) -> None:
    known: dict[str, Iterable[str]] = {name: get_type_hints(section) for name, section in SECTIONS.items()}
    known |= {"timing": TIMING_NAMES, "pulse": PULSE_NAMES, "window": WINDOW_NAMES}
    for section, content in tables.items():
        if section not in known:
            raise _unknown(section, content, known, _misplaced(section, known))
        if not isinstance(content, dict):
            raise ConfigError(
                section, _shown(content), f"this is a section: write [{section}] on a line of its own, then its fields"
            )
        for name, value in content.items():
            if name not in known[section]:
                raise _unknown(f"{section}.{name}", value, known[section], _misplaced(name, known))
            if section in NUMBERS and (isinstance(value, bool) or not isinstance(value, NUMBERS[section])):
                kind = "a number" if float in NUMBERS[section] else "a whole number"
                raise ConfigError(f"{section}.{name}", _shown(value), f"must be {kind}")


def _misplaced(name: str, known: Mapping[str, Iterable[str]]) -> str:
    homes = [section for section, names in known.items() if name in names]
    return f"; it belongs into [{homes[0]}]" if homes else ""


def _unknown(path: str, given: object, known: Iterable[str], hint: str) -> ConfigError:
    name, possible = path.rpartition(".")[2], sorted(known)
    near = get_close_matches(name, possible, 1)
    if not hint:
        hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(possible)}"
    return ConfigError(path, _shown(given), f"there is no such setting{hint}")


# --- values ---------------------------------------------------------------------------------------------------------


def _wrong_value(tables: Mapping[str, Any], message: str) -> ConfigError:
    """msgspec's words with the value that was given, and for a choice with what there is to choose from."""
    match = _PATH.fullmatch(message)
    assert match is not None, "the pattern takes any text"
    path = match["path"] or ""
    given: Any = tables
    for part in re.findall(r"[^.\[\]]+", path):
        if isinstance(given, Mapping):
            given = given.get(part)
        elif isinstance(given, list) and part.isdigit():
            given = given[int(part)]
    choices = _choices(path)
    allowed = f"must be one of {', '.join(choices)}" if choices else _in_plain_words(match["what"])
    return ConfigError(path, _shown(given), allowed)


def _in_plain_words(what: str) -> str:
    """Who writes a settings file need not know what Python calls things."""
    if "matching regex" in what:
        return 'must be three octal digits as text, like "0660"'
    expected = what.partition(", got")[0].replace("Expected", "must be")
    return re.sub("`([a-z]+)`", lambda kind: KINDS.get(kind[1], kind[0]), expected)


def _choices(path: str) -> tuple[str, ...]:
    section, _, name = path.partition(".")
    if section not in SECTIONS:
        return ()
    kind = get_type_hints(SECTIONS[section]).get(name)
    return get_args(kind) if get_origin(kind) is Literal else ()


def profile_of(settings: Settings, *, loopback: bool) -> str:
    """The profile by name; nobody's choice is slow to suspect on one machine, where the scheduler is the network."""
    chosen = settings.node.profile
    return chosen if chosen != "auto" else "local" if loopback else "lan"


def timing_of(settings: Settings, *, loopback: bool = False) -> Timing:
    """The profile's timing with the file's differences; the relations between them are checked by Config."""
    base = profile(profile_of(settings, loopback=loopback))
    return replace(base, **_in_us("timing", settings.timing, TIMING_NAMES))


def pulse_of(settings: Settings, *, loopback: bool = False) -> Pulse:
    """The same for the pulse of lansis."""
    base = pulse_profile(profile_of(settings, loopback=loopback))
    return replace(base, **_in_us("pulse", settings.pulse, PULSE_NAMES))


def _in_us(section: str, given_ms: Mapping[str, float], names: Mapping[str, str]) -> dict[str, int]:
    changes: dict[str, int] = {}
    for name, value_ms in given_ms.items():
        if not 0.001 <= value_ms <= 3_600_000:
            raise ConfigError(f"{section}.{name}", value_ms, "must be from 0.001 to 3600000 milliseconds")
        changes[names[name]] = round(value_ms * MS)
    return changes


def window_of(settings: Settings) -> Window:
    """What a node on real sockets uses, with the file's differences."""
    return replace(REAL_WINDOW, **settings.window)


def _shown(given: object) -> object:
    """A value as an error repeats it: not a novel, and never the content of a key."""
    return (
        _short(given) if isinstance(given, str) else given if isinstance(given, int | float) else _Verbatim(_short(repr(given)))
    )


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "..."


class _Verbatim(str):
    """Text that is shown as it is, without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)
