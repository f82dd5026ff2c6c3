"""The tree of errors is the one drawn at the head of its file, and what a person reads in them is enough to act."""

from __future__ import annotations

import re

import pytest

from transis.types import errors
from transis.types.errors import ConfigError, MissingExtra, TransisError


def drawn() -> dict[str, str]:
    """child -> parent, from the drawing; four columns are one level."""
    lineage: list[str] = []
    tree: dict[str, str] = {}
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"    ([│ ]*)(├── |└── |)([A-Z]\w+)", line)
        if found is None:
            continue
        depth = len(found[1]) // 4 + bool(found[2])
        lineage[depth:] = [found[3]]
        tree[found[3]] = lineage[depth - 1] if depth else "Exception"
    return tree


def test_the_drawing_is_the_code() -> None:
    written = {
        name: kind.__bases__[0].__name__
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, Exception)
    }
    assert drawn() == written
    assert len(written) == 30


@pytest.mark.parametrize("name", drawn())
def test_one_except_catches_them_all(name: str) -> None:
    assert issubclass(getattr(errors, name), TransisError)


def test_a_config_error_names_field_value_and_what_is_allowed() -> None:
    error = ConfigError("window.window", 0, "must be from 1 to 9")
    assert (str(error), error.field) == ("window.window = 0: must be from 1 to 9", "window.window")


def test_a_missing_extra_says_what_to_install() -> None:
    assert "pip install 'transis[trace]'" in str(MissingExtra("reading Parquet", "trace"))
