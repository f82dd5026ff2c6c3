"""Settings from a TOML file, or from the arguments of a program's node. Every mistake is one sentence.

The sentence names the file, the field, what was given and what is allowed. For an unknown name it suggests the nearest known one:
a misspelt timeout that is silently ignored costs a night.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from difflib import get_close_matches
from pathlib import Path
from types import NoneType
from typing import Any, Final, Literal, Unpack, get_args, get_origin, get_type_hints
from urllib.parse import quote

import msgspec
from msgspec.structs import replace as with_fields

from transis.net.transport import Group
from transis.sessions.host import SessionPolicy
from transis.settings.schema import (
    CLASSES,
    KEYWORDS,
    PULSE_NAMES,
    SECTIONS,
    TIMING_NAMES,
    WINDOW_NAMES,
    NodeArguments,
    Settings,
)
from transis.types.config import MS, Pulse, Timing, Window
from transis.types.errors import ConfigError

FILE_BYTES_MAX: Final = 1 << 20
SHOWN_MAX: Final = 60
"""Characters of a wrong value that an error repeats."""

NUMBERS: Final[dict[str, tuple[type, ...]]] = {"timing": (int, float), "pulse": (int, float), "window": (int,)}
"""Sections that hold only numbers, and the kinds of these."""

KINDS_IN_WORDS: Final = {
    "str": 'text in quotes, like "ann"',
    "int": "a whole number",
    "bool": "true or false",
    "array": 'a list, like ["ann"]',
}
"""Msgspec's names for kinds of values, in words."""

_PATH: Final = re.compile(r"(?P<what>.*?)(?: - at `\$\.?(?P<path>[^`]*)`)?", re.DOTALL)


class SettingsError(ConfigError):
    """A mistake in a settings file; its text begins with the name of the file."""

    def __init__(self, file: str, error: ConfigError) -> None:
        Exception.__init__(self, f"{file}: {error}")
        self.field = error.field


def renamed(error: ConfigError, name: str, in_words: Callable[[str], str] = str) -> ConfigError:
    """The same error under the name that the reader knows, with the rest of the text passed through `in_words`."""
    renamed, (_, given, rest) = ConfigError(name, None, ""), str(error).partition(" = ")
    renamed.args = (f"{name} = {in_words(rest)}" if given else name + str(error).removeprefix(error.field),)
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
        raise _no_toml(str(error)) from error


def _no_toml(complaint: str) -> ConfigError:
    """What Python says of a file that is not TOML ends with the place."""
    reason, _, place = complaint.rpartition(" (at ")
    where = place.removesuffix(")") if reason else "somewhere"
    error = ConfigError("text", None, "")
    error.args = (f"{where}: {reason or complaint}; this is not TOML: compare `transis daemon --example`",)
    return error


def _settings(tables: dict[str, Any]) -> Settings:
    _check_names(tables)
    try:
        settings = msgspec.convert(tables, Settings)
    except msgspec.ValidationError as error:
        raise _wrong_value(tables, str(error)) from error
    for section, given_ms in (("timing", settings.timing), ("pulse", settings.pulse)):
        for name, value_ms in given_ms.items():
            if not 0.001 <= value_ms <= 3_600_000:
                raise ConfigError(f"{section}.{name}", value_ms, "must be from 0.001 to 3600000 milliseconds")
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
    return f" here; it belongs in [{homes[0]}]" if homes else ""


def _unknown(path: str, given: object, known: Iterable[str], hint: str) -> ConfigError:
    name, possible = path.rpartition(".")[2], sorted(known)
    near = get_close_matches(name, possible, 1)
    if not hint:
        hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(possible)}"
    return ConfigError(path, _shown(given), f"there is no such setting{hint}")


# --- values ---------------------------------------------------------------------------------------------------------


def _wrong_value(tables: Mapping[str, Any], message: str) -> ConfigError:
    """Msgspec's error with the value that was given and, for a choice, the possible values."""
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
    """Msgspec's error without Python's names for things."""
    if "matching regex" in what:
        return 'must be three octal digits as text, like "0660"'
    expected = what.partition(", got")[0].replace("Expected", "must be")
    return re.sub("`([a-z]+)`", lambda kind: KINDS_IN_WORDS.get(kind[1], kind[0]), expected)


def _choices(path: str) -> tuple[str, ...]:
    section, _, name = path.partition(".")
    if section not in CLASSES:
        return ()
    kind = get_type_hints(CLASSES[section]).get(name)
    return get_args(kind) if get_origin(kind) is Literal else ()


def _shown(given: object) -> object:
    """A value as an error repeats it: shortened, and numbers as they are."""
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


# --- arguments of a node ----------------------------------------------------------------------------------------------

KINDS: Final[dict[str, tuple[type, ...]]] = {
    "profile": (str, Timing),
    "window": (Window,),
    "group": (Group,),
    "policy": (SessionPolicy,),
    "pulse": (Pulse, NoneType),
}
"""Arguments that are not just a text or a number; a wrong one would fail far from here."""
GROUP_NAMES: Final = {"address": "group", "data_port": "data_port", "control_port": "control_port", "hops": "hops"}
MAY_BE_NONE: Final = ("key", "trace", "pulse")
CHOSEN_HERE: Final = ("transport", "run")
"""Choices that are checked here; the protocol's configuration checks the others."""


def settings_of(name: str, **arguments: Unpack[NodeArguments]) -> Settings:
    """The settings that the arguments of `transis.Node` stand for. Raises ConfigError for the first wrong one."""
    given: dict[str, Any] = {"name": name, **arguments}
    if unknown := [keyword for keyword in given if keyword not in KEYWORDS]:
        raise TypeError(f"Node.__init__() got an unexpected keyword argument {unknown[0]!r}")
    if given.get("state") is None:
        given["state"] = default_state(given.get("cluster", Settings().node.cluster), name)
    settings = Settings()
    for keyword, value in given.items():
        _check_kind(keyword, value)
        for path, filled in _filled(keyword, value).items():
            settings = _with(settings, path, filled)
    return settings


def _with(settings: Settings, path: str, value: object) -> Settings:
    """The settings with one of them replaced, or a whole section that has no fields of its own."""
    section, _, field = path.partition(".")
    return with_fields(settings, **{section: with_fields(getattr(settings, section), **{field: value}) if field else value})


def _check_kind(keyword: str, value: object) -> None:
    kinds = KINDS.get(keyword)
    if kinds is not None and not isinstance(value, kinds):
        allowed = " or ".join(kind.__name__.replace("NoneType", "None") for kind in kinds)
        raise ConfigError(keyword, value, f"must be {allowed}")
    if keyword in CHOSEN_HERE and value not in (choices := _choices(KEYWORDS[keyword])):
        raise ConfigError(keyword, value, f"must be one of {', '.join(choices)}")


def _filled(keyword: str, value: Any) -> dict[str, Any]:
    """The settings that an argument fills, by their path."""
    path = KEYWORDS[keyword]
    match value:
        case None if keyword in MAY_BE_NONE:
            return {}
        case bytes() if keyword == "key":
            return {"program.key": value}
        case Group():
            return {f"network.{GROUP_NAMES[field]}": one for field, one in value._asdict().items()}
        case Timing():
            return {"timing": _in_ms(value, TIMING_NAMES)}
        case Pulse():
            return {path: _in_ms(value, PULSE_NAMES)}
        case Window():
            return {path: asdict(value)}
        case Path():
            return {path: str(value)}
        case _ if keyword in ("seeds", "quorum", "quorum_before"):
            return {path: _texts(keyword, value)}
        case _:
            return {path: value}


def _in_ms(times: Timing | Pulse, names: Mapping[str, str]) -> dict[str, float]:
    return {name: getattr(times, field) / MS for name, field in names.items()}


def _texts(name: str, given: Sequence[str]) -> tuple[str, ...]:
    """Refuse a single text: it is also a sequence of texts, its letters, which is never meant."""
    if isinstance(given, str | bytes) or not all(isinstance(one, str) for one in given):
        raise ConfigError(name, given, 'must be a list of texts, such as ["ann", "bob", "cid"]')
    return tuple(given)


def default_state(cluster: str, name: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Under the user's own directory for state; one directory per node, as an identity has one owner."""
    home = environment.get("XDG_STATE_HOME") or str(Path(environment.get("HOME") or "~").expanduser() / ".local" / "state")
    return Path(home) / "transis" / _file_name(cluster) / _file_name(name)


def _file_name(text: str) -> str:
    """A file name that cannot lead to another directory: no slash, and no dot in front."""
    quoted = quote(text, safe="")
    return "%2E" + quoted[1:] if quoted.startswith(".") else quoted
