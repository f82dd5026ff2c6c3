"""docs/architecture.md is true: its tree, its arrows, and every file that its walks name."""

from __future__ import annotations

from tests.house.architecture import HALVES, PAGE, folders, missing, sentences, walked_files, written
from tests.house.sources import rooms

TEXT = PAGE.read_text(encoding="utf-8")


def test_tree_and_arrows_are_those_of_the_code() -> None:
    assert written(TEXT) == TEXT, "write them anew: .venv/bin/python -m tests.house.architecture --write"


def test_every_room_is_shown() -> None:
    assert sorted(room for names in HALVES.values() for room in names.split()) == rooms()


def test_every_room_has_a_sentence() -> None:
    assert sorted(sentences(TEXT)) == sorted(folders())
    assert [room for room, sentence in sentences(TEXT).items() if not sentence.endswith(".")] == []


def test_the_walks_name_files_that_exist() -> None:
    assert len(walked_files(TEXT)) > 40
    assert missing(TEXT) == []


def test_a_file_that_does_not_exist_is_seen() -> None:
    assert missing("## The seven walks\n`node/node` → `stack/node`") == ["stack/node"]
