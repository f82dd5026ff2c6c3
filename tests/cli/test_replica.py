"""`transis replica`: what a person and a program are shown of a directory, and the one sentence if it cannot be looked at."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.cli.running import Command, environment
from tests.replica.filled import damage, fill, filled, opened, said
from transis.cli.main import app
from transis.prsl.log import Kept, Placed
from transis.replication.schema import LOG


def told(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["replica", *map(str, arguments)], env={"COLUMNS": "200"})
    assert result.exit_code == code, result.output
    return result.output


def test_status_says_whose_it_is_and_who_lacks_what(tmp_path: Path) -> None:
    store = opened(tmp_path)
    fill(store)
    lines = told("status", tmp_path).splitlines()
    store.close()
    assert lines[:3] == [
        "bank at ann: running, opened 1 time",
        "37 messages in order, kept from offset 0",
        "actions: 21 green, 0 yellow, 1 red",
    ]
    assert [line.split() for line in lines[4:]] == [["ann", "1", "21"], ["bob", "2", "12", "9"], ["cyd", "3", "0", "21"]]


def test_status_for_programs(tmp_path: Path) -> None:
    found = json.loads(told("status", filled(tmp_path, trimmed=10), "--json"))
    assert (found["group"], found["replica"], found["running"], found["founded"]) == ("bank", "ann", False, True)
    assert (found["messages"], found["first_kept"], found["green"], found["yellow"], found["red"]) == (37, 16, 21, 0, 1)
    assert found["members"][1] == {"name": "bob", "number": 2, "synced": 12, "lacks": 9}


def test_log_shows_messages_and_changes_in_order(tmp_path: Path) -> None:
    lines = told("log", filled(tmp_path)).splitlines()
    assert lines[:2] == ["-- before 0: the group is founded; replicas: ann, bob", "0 ann 1970-01-01T00:00:01.000Z open 1"]
    assert lines[11] == "-- before 10: a replica is added; replicas: ann, bob, cyd"
    assert lines[12].startswith("12 ann ") and lines[-1] == "36 bob 1970-01-01T00:00:01.000Z last"


def test_log_from_an_offset_and_no_more_than_asked_for(tmp_path: Path) -> None:
    filled(tmp_path)
    assert [line.split()[0] for line in told("log", tmp_path, "--after", 20, "--limit", 3).splitlines()] == ["21", "22", "23"]
    assert told("log", tmp_path, "--after", 36) == ""
    (one,) = map(json.loads, told("log", tmp_path, "--after", 35, "--json").splitlines())
    assert one == {"offset": 36, "replica": "bob", "time": "1970-01-01T00:00:01.000Z", "text": "last"}


def test_log_follows(tmp_path: Path) -> None:
    store = opened(tmp_path)
    fill(store)
    command = [sys.executable, "-m", "transis", "replica", "log", str(tmp_path), "--after", "35", "--follow"]
    following = Command(command, environment())
    try:
        assert following.out.until("last").startswith("36 bob")
        more = said(2, 2, b"red")
        store.commit([Kept(more), Placed(21, (more.id,))], green=22)
        assert following.out.until("red").startswith("37 bob")
    finally:
        following.clean_up()
        store.close()


def test_verify_says_what_is_damaged_and_what_to_do(tmp_path: Path) -> None:
    filled(tmp_path)
    assert told("verify", tmp_path) == "21 actions in order with 37 messages, 1 other: all whole\n"
    damage(tmp_path, "update actions set data = 'x' where number = 4")
    first, last = told("verify", tmp_path, code=1).splitlines()
    assert first.startswith("the content of action 1:4 is damaged, at place 4. The replica gets it from another one")
    assert last.endswith(": 1 problem")
    assert len(json.loads(told("verify", tmp_path, "--json", code=1))["problems"]) == 1


@pytest.mark.parametrize("command", ["status", "log", "verify"])
def test_what_is_no_replica_is_one_sentence(tmp_path: Path, command: str) -> None:
    assert "no such directory" in told(command, tmp_path / "nowhere", code=2)
    assert f"not a replica's directory: it has no {LOG}" in told(command, tmp_path, code=2)
    filled(tmp_path)
    damage(tmp_path, "update meta set value = 2 where key = 'version'")
    assert "install a newer one" in told(command, tmp_path, code=2)


def test_a_trimmed_offset_is_one_sentence(tmp_path: Path) -> None:
    assert "messages before offset 16 were trimmed: read from there" in told(
        "log", filled(tmp_path, trimmed=10), "--after", 3, code=2
    )
