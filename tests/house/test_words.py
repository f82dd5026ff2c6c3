"""The words of the house: docs/glossary.md is true, and what replaced the old vocabulary stays replaced."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.house.sources import PACKAGE, ROOT, python_files, shown, tree

PAGE: Final = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
ENTRIES: Final = re.findall(r"^- \*\*(.+?)\*\*: (.+?) ?`([\w/.]+\.py)`$", PAGE, re.MULTILINE | re.DOTALL)

BANNED: Final = re.compile(
    "(Agreeing|Crowd|Door|Film|Forming|Gathering|Handing|Hearing|Inlet|Installing|Judged|Mending|Mishap|Obituary|Organ|Outgoing"
    "|Parcel|Passage|Recovering|Seat|Shortened|Showing|Strand|Surroundings|Talker|Telling|Told|Tried|Wish)s?"
)
"""Words of our own that say nothing to anybody else. A class is named with the glossary's nouns and plain English."""

ING: Final = frozenset({"blocking", "finding", "passing", "receiving", "ring", "sending", "testing"})
"""Modules are nouns; these are nouns, the papers' words, or other people's."""

PUZZLES: Final = {
    r"\bstops? to (?!a\b)\w+": 0,  # It says the opposite: who stops to send, sends.
    r"\bby hand of\b": 0,
    r"\bwhat (?:it|that|this) is of\b": 0,
    r"\bat all that\b": 0,
    r"\bfor ever\b": 1,
    r'""" ?Who(?:se)? (?:is|has|does|was)\b': 0,
    r"\bby who\b": 0,
    r"\bworked off\b": 0,
    r"\bin so many words\b": 0,
    r"\b(?:wait|listen)s? so long\b": 0,
    r"\btold (?:of its|a digest|by its)\b": 0,
}
"""Phrases that puzzle a reader, and how often they may occur in the package and its documents. Lower these, never raise them."""


def parts(name: str) -> list[str]:
    """The words of a name in camel case."""
    return re.findall(r"[A-Z][a-z0-9]*|[a-z0-9]+", name)


def banned_in(name: str) -> list[str]:
    return [part for part in parts(name) if BANNED.fullmatch(part)]


def class_names() -> Iterator[tuple[str, str]]:
    """Top-level classes, with the file of each."""
    for path in python_files("src"):
        yield from ((shown(path), node.name) for node in tree(path).body if isinstance(node, ast.ClassDef))


def place_of(path: str) -> Path:
    return ROOT / path if path.startswith("tests/") else PACKAGE / path


def test_the_glossary_is_read() -> None:
    assert len(ENTRIES) == PAGE.count("\n- **") >= 50


@pytest.mark.parametrize(("word", "meaning", "path"), ENTRIES, ids=[word for word, _, _ in ENTRIES])
def test_every_word_of_the_glossary_is_used_where_it_lives(word: str, meaning: str, path: str) -> None:
    text = place_of(path).read_text(encoding="utf-8").replace("_", " ")
    forms = rf"{re.escape(word)}(?:s|es)?" if not word.endswith("y") else rf"{re.escape(word[:-1])}(?:y|ies)"
    assert re.search(rf"\b{forms}\b|{word.title().replace(' ', '')}", text, re.IGNORECASE), f"{path} does not speak of {word!r}"
    assert meaning.rstrip().endswith("."), f"{word}: a sentence ends with a stop"


def test_each_word_is_explained_once() -> None:
    words = [word.lower() for word, _, _ in ENTRIES]
    assert sorted(set(words)) == sorted(words)


def test_banned_words_are_found_in_names() -> None:
    assert banned_in("FilmWriter") == ["Film"]
    assert banned_in("_ToldOnce") == ["Told"]
    assert banned_in("Doors") == ["Doors"]
    assert banned_in("Filmography") == banned_in("SendBuffer") == []


@pytest.mark.parametrize(("phrase", "limit"), PUZZLES.items(), ids=list(PUZZLES))
def test_phrases_that_puzzle_become_fewer(phrase: str, limit: int) -> None:
    texts = [*python_files("src"), *(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    found = [
        f"{shown(path)}:{number}"
        for path in texts
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(phrase, line, re.IGNORECASE)
    ]
    assert len(found) <= limit, found


def test_phrases_that_puzzle_are_seen() -> None:
    assert all(
        any(re.search(phrase, line, re.IGNORECASE) for phrase in PUZZLES)
        for line in (
            "a machine stops to send",
            "for ever",
            "done by hand of a tool",
            '"""Who is silent."""',
            "called by who has both",
            "until it is worked off",
            "unlocked in so many words",
            "wait so long for a request",
            "an application told of its state",
        )
    )


def test_classes_have_plain_names() -> None:
    assert [f"{path} {name}" for path, name in class_names() if banned_in(name)] == []


def test_modules_are_nouns() -> None:
    found = {shown(path) for path in python_files("src") if path.stem.endswith("ing") and path.stem not in ING}
    assert found == set()
