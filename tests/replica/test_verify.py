"""`verify` names everything that is damaged, and nothing else, with what to do."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from tests.replica.filled import damage, fill, filled, opened
from transis.prsl.actions import ActionId, Lane
from transis.replication.schema import LOG, REPLACE, SAVE_PLACE, place_row
from transis.replication.verify import FETCHED, Verification, Verified
from transis.types.errors import StoreError


def problems(directory: Path) -> list[tuple[str, str]]:
    return [(one.what, one.remedy) for one in Verification(directory).problems()]


@pytest.mark.parametrize("trimmed", [0, 10])
def test_a_whole_one_is_whole_also_while_it_is_written(tmp_path: Path, trimmed: int) -> None:
    store = opened(tmp_path)
    fill(store, trimmed)
    verification = Verification(tmp_path)
    assert list(verification.problems()) == []
    actions = 21 - trimmed
    assert verification.verified[:2] == (actions, 37 if not trimmed else 21) and verification.verified.others == 1
    store.close()
    assert problems(tmp_path) == []


@pytest.mark.parametrize(
    ("statement", "what", "remedy"),
    [
        ("update actions set data = 'x' where number = 4", "the content of action 1:4 is damaged, at place 4", FETCHED),
        ("delete from actions where number = 4", "the content of action 1:4 at place 4 is missing", FETCHED),
        (
            "update actions set data = 'x' where creator = 2 and lane = 0 and number = 1",
            "the content of action 2:1 is damaged, at place 20",
            REPLACE,
        ),
        (
            "update actions set data = 'x' where creator = 2 and number = 2",
            "the content of action 2:2 is damaged, which has no place yet",
            REPLACE,
        ),
        ("update places set number = 3 where place = 9", "place 9 of the order is damaged", REPLACE),
        ("delete from places where place = 9", "place 9 of the order is missing", REPLACE),
        ("delete from places where place in (8, 9)", "places 8 to 9 of the order are missing", REPLACE),
        ("delete from places where place > 18", "places 19 to 20 of the order are missing", REPLACE),
        ("update bases set content = x'00' where place = 10", "the base at place 10 is damaged", REPLACE),
        ("update meta set value = x'00' where key = 'marks'", "'marks' in the table meta is damaged", REPLACE),
    ],
)
def test_damage_is_named_with_its_remedy(tmp_path: Path, statement: str, what: str, remedy: str) -> None:
    filled(tmp_path)
    damage(tmp_path, statement)
    assert problems(tmp_path) == [(what, remedy)]


def test_a_write_ahead_log_that_was_taken_away_is_named(tmp_path: Path) -> None:
    store = opened(tmp_path / "running")
    fill(store)
    store.tidy()
    shutil.copytree(tmp_path / "running", tmp_path / "left", ignore=shutil.ignore_patterns("*-wal", "*-shm"))
    store.close()
    found = Verification(tmp_path / "left").problems()
    assert next(found) == (f"{LOG}-wal is missing, and with it the newest commits", REPLACE)


def test_a_row_that_is_whole_but_of_another_order_is_named(tmp_path: Path) -> None:
    """Only the digests tell."""
    filled(tmp_path)
    with closing(sqlite3.connect(tmp_path / LOG)) as database:
        offset, digest = database.execute("select offset, digest from places where place = 9").fetchone()
        database.execute(f"replace {SAVE_PLACE.partition(' ')[2]}", place_row(9, offset, ActionId(1, Lane.MESSAGES, 4), digest))
        database.commit()
    assert problems(tmp_path) == [("place 9 of the order does not continue what is before it", REPLACE)]


def test_a_flipped_byte_anywhere_is_named_or_changes_nothing(tmp_path: Path) -> None:
    filled(tmp_path)
    whole, random = (tmp_path / LOG).read_bytes(), Random(3)
    expected = Verification(tmp_path)
    assert list(expected.problems()) == []
    named = 0
    filled_bytes = [place for place, byte in enumerate(whole) if byte]
    for place in random.choices(filled_bytes, k=100):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << random.randrange(8)
        (tmp_path / LOG).write_bytes(flipped)
        named += not _is_as(tmp_path, expected.verified)
    assert named > 70


def _is_as(directory: Path, expected: Verified) -> bool:
    verification = Verification(directory)
    try:
        found = list(verification.problems())
    except StoreError:
        return False
    assert found or verification.verified == expected
    return not found
