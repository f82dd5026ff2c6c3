"""The membership record: effective changes, void ones, and who is a majority."""

from __future__ import annotations

import pytest

from transis.prsl.actions import Action, ActionId, Kind, Lane
from transis.prsl.record import Change, Entry, Record, What, configurations, encode_change, fold, founders, founding

FOUNDED = fold(
    founders(["cyd", "ann", "bob"]),
    founding([Entry(n, name, bytes([n]) * 16) for n, name in enumerate(("ann", "bob", "cyd"), 1)]),
)


def changing(change: Change, number: int = 1) -> Action:
    return Action(ActionId(1, Lane.CHANGES, number), Kind.CHANGE, 1, (), (), encode_change(change))


def entry(name: str, digit: int) -> tuple[Entry, ...]:
    return (Entry(0, name, bytes([digit]) * 16),)


def test_founders_are_numbered_by_name_and_count_only_all_together() -> None:
    record = founders(["cyd", "ann", "bob"])
    assert [(one.number, one.name) for one in record.entries] == [(1, "ann"), (2, "bob"), (3, "cyd")]
    assert not record.is_founded and not record.has_majority({1, 2}) and record.has_majority({1, 2, 3})
    assert FOUNDED.is_founded and FOUNDED.has_majority({1, 3}) and not FOUNDED.has_majority({2})


def test_a_newcomer_takes_the_founders_as_they_are() -> None:
    assert fold(Record(0, (), ()), founding(FOUNDED.entries)) == FOUNDED


@pytest.mark.parametrize(
    ("change", "members"),
    [
        (Change(What.JOIN, 1, 0, entry("dan", 9)), (1, 2, 3, 4)),
        (Change(What.LEAVE, 1, 2), (1, 3)),
        (Change(What.REPLACE, 1, 3, entry("cyd", 9)), (1, 2, 4)),
    ],
    ids=["join", "leave", "replace"],
)
def test_an_effective_change(change: Change, members: tuple[int, ...]) -> None:
    after = fold(FOUNDED, changing(change))
    assert after.members == members and after.version == 2 and after.is_well_formed()
    assert fold(after, changing(change)) is after, "it is based on a version that is past"


@pytest.mark.parametrize(
    "change",
    [
        Change(What.JOIN, 0, 0, entry("dan", 9)),
        Change(What.JOIN, 1, 0, entry("bob", 9)),
        Change(What.JOIN, 1, 0, entry("dan", 2)),
        Change(What.JOIN, 1, 0, ()),
        Change(What.JOIN, 1, 0, (Entry(0, "dan", b"short"),)),
        Change(What.LEAVE, 1, 4),
        Change(What.REPLACE, 1, 4, entry("cyd", 9)),
        Change(What.REPLACE, 1, 3, entry("ann", 9)),
        Change(What.FOUND, 1, 0, FOUNDED.entries),
    ],
    ids=["version", "name", "directory", "nobody", "short", "unknown", "unknown too", "another's name", "founded"],
)
def test_a_void_change(change: Change) -> None:
    assert fold(FOUNDED, changing(change)) is FOUNDED


def test_the_last_member_stays() -> None:
    alone = fold(fold(FOUNDED, changing(Change(What.LEAVE, 1, 2))), changing(Change(What.LEAVE, 2, 3)))
    assert alone.members == (1,)
    assert fold(alone, changing(Change(What.LEAVE, 3, 1))) is alone


def test_every_configuration_on_the_way_counts() -> None:
    changes = [
        changing(Change(What.LEAVE, 1, 2), 1),
        changing(Change(What.LEAVE, 1, 3), 2),
        changing(Change(What.LEAVE, 2, 1), 3),
    ]
    assert [record.members for record in configurations(FOUNDED, changes)] == [(1, 2, 3), (1, 3), (3,)]


def test_a_replaced_name_has_a_new_number() -> None:
    after = fold(FOUNDED, changing(Change(What.REPLACE, 1, 3, entry("cyd", 9))))
    assert after.number_of("cyd", bytes([9]) * 16) == 4 and after.number_of("cyd", bytes([3]) * 16) == 3
    assert after.number_of("cyd", bytes([8]) * 16) == 0
