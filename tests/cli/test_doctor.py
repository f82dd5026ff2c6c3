"""`transis doctor`: what is wrong is found, with a remedy; two that look for each other meet, and see what differs."""

from __future__ import annotations

import fcntl
import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.cli.running import Command, environment
from transis import __version__
from transis.cli.doctor import OK, PROBLEM, WARNING, Diagnosis, examine, judge_meeting
from transis.cli.doctor_network import Heard, Meeting, hears_its_multicast, hears_itself
from transis.cli.main import app
from transis.net.host import Opening
from transis.net.interfaces import choose_interface
from transis.net.state import StateDirectory, key_text, new_key
from transis.net.transport import Group
from transis.settings.load import load_settings
from transis.settings.resolve import resolve_daemon

KEY, OTHER_KEY = b"k" * 32, b"o" * 32


def settings_file(directory: Path, more: str = "", name: str = "ann") -> Path:
    """On loopback, with a group and ports of its own."""
    config = directory / f"{name}.toml"
    config.write_text(
        f'[node]\nname = "{name}"\nstate = "{directory / name}"\n'
        '[network]\ninterface = "127.0.0.1"\ngroup = "239.193.7.7"\ndata_port = 15610\ncontrol_port = 15611\n'
        f'[sessions]\nsocket = "{directory / name}.sock"\n{more}',
        encoding="utf-8",
    )
    return config


def found(config: Path) -> dict[str, Diagnosis]:
    return {one.subject: one for one in examine(config)}


def test_a_machine_that_is_fine_has_no_problem(tmp_path: Path) -> None:
    findings = found(settings_file(tmp_path))
    assert [one for one in findings.values() if one.level == PROBLEM] == []
    assert {"unicast", "multicast", "interface", "name", "node.state", "key"} <= findings.keys()
    assert all(one.remedy for one in findings.values() if one.level != OK), "what could be better says how"
    assert not (tmp_path / "ann").exists(), "it only looks"


def test_settings_that_do_not_fit_are_a_problem(tmp_path: Path) -> None:
    findings = found(settings_file(tmp_path, '[trace]\nsegment_mb = 900\nkeep_mb = 100\ndirectory = "t"\n'))
    assert findings["settings"].level == PROBLEM
    assert "segment_mb" in findings["settings"].found


def test_a_node_that_runs_without_an_answer_is_noticed(tmp_path: Path) -> None:
    config = settings_file(tmp_path)
    directory = StateDirectory(tmp_path / "ann", "ann")
    finding = found(config)["name"]
    assert (finding.level, str(tmp_path / "ann" / "lock") in finding.remedy) == (WARNING, True)
    directory.close()
    assert found(config)["name"].level == OK
    with (tmp_path / "ann" / "lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # Nothing was left locked.


def test_a_key_is_seen(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.touch(0o600)
    key.write_text(key_text(new_key()))
    assert found(settings_file(tmp_path, f'[security]\nkey_file = "{key}"\n'))["key"].level == OK


def test_a_machine_hears_itself_and_a_group_that_is_none_is_no_traceback() -> None:
    loopback = choose_interface("127.0.0.1")
    assert hears_itself(loopback)
    assert hears_its_multicast(loopback, Group("239.193.7.7"))
    assert not hears_its_multicast(loopback, Group("127.0.0.9"))


def test_json_is_for_programs_and_the_exit_code_for_scripts(tmp_path: Path) -> None:
    config = settings_file(tmp_path)
    outcome = CliRunner().invoke(app, ["doctor", "--config", str(config), "--json"])
    assert outcome.exit_code == 0
    assert {"subject", "level", "found", "remedy"} == json.loads(outcome.stdout)["findings"][0].keys()
    config.write_text(config.read_text().replace("239.193.7.7", "198.18.0.1"))
    assert CliRunner().invoke(app, ["doctor", "--config", str(config)]).exit_code == 1
    assert CliRunner().invoke(app, ["doctor", "--config", str(tmp_path / "none.toml")]).exit_code == 2


def test_two_machines_meet(tmp_path: Path) -> None:
    commands = [
        Command(
            [
                sys.executable,
                "-m",
                "transis",
                "doctor",
                "--config",
                str(settings_file(tmp_path, name=name)),
                "--meet",
                "6",
                "--json",
            ],
            environment(),
        )
        for name in ("ann", "bob")
    ]
    for command, other in zip(commands, ("bob", "ann"), strict=True):
        code, out, errors = command.ended()
        assert (code, errors) == (0, "")
        (meeting,) = (one for one in json.loads(out)["findings"] if one["subject"] == "meeting")
        assert meeting["level"] == OK
        assert meeting["found"].startswith(f"{other} at 127.0.0.1: heard both ways")


# --- what two machines say ----------------------------------------------------------------------------------------------


def exchanged(one: Meeting, other: Meeting, *, unicast: bool = True) -> None:
    for _ in range(2):
        for speaker, hearer in ((one, other), (other, one)):
            run = hearer.take(speaker.hello(), "198.18.0.2")
            assert run is not None
            if unicast:
                assert speaker.take(hearer.hello(answers=run), "198.18.0.2") is None, "an answer is not answered"


def judged(tmp_path: Path, one: Meeting) -> list[tuple[str, str]]:
    return [(finding.level, finding.found) for finding in judge_meeting(opened(tmp_path), list(one.heard.values()), 5)]


def opened(tmp_path: Path) -> Opening:
    return resolve_daemon(load_settings(settings_file(tmp_path)), {})


def test_one_key_two_names_both_ways(tmp_path: Path) -> None:
    ann, bob = Meeting("ann", KEY), Meeting("bob", KEY)
    exchanged(ann, bob)
    ((level, sentence),) = judged(tmp_path, ann)
    assert (level, "heard both ways" in sentence) == (OK, True)


@pytest.mark.parametrize(("mine", "theirs"), [(KEY, OTHER_KEY), (None, KEY), (KEY, None)])
def test_another_key_is_a_problem(tmp_path: Path, mine: bytes | None, theirs: bytes | None) -> None:
    ann, bob = Meeting("ann", mine), Meeting("bob", theirs)
    exchanged(ann, bob)
    assert (PROBLEM, "bob at 198.18.0.2 has another key, or none") in judged(tmp_path, ann)


def test_a_name_twice_is_a_problem(tmp_path: Path) -> None:
    ann, twin = Meeting("ann", KEY), Meeting("ann", KEY)
    exchanged(ann, twin)
    assert (PROBLEM, "ann at 198.18.0.2 has the name of this node") in judged(tmp_path, ann)


def test_unicasts_that_do_not_arrive_are_a_problem(tmp_path: Path) -> None:
    ann, bob = Meeting("ann", KEY), Meeting("bob", KEY)
    exchanged(ann, bob, unicast=False)
    assert (PROBLEM, "bob at 198.18.0.2 is heard by multicast, and its unicasts do not arrive") in judged(tmp_path, ann)


def test_nobody_and_another_version(tmp_path: Path) -> None:
    ((level, sentence),) = judged(tmp_path, Meeting("ann", KEY))
    assert (level, sentence) == (PROBLEM, "nobody was heard within 5 s")
    old = Heard("bob", "198.18.0.2", "0.0.1", True, 0.0, answers=True, hears_us=True)
    levels = [finding.level for finding in judge_meeting(opened(tmp_path), [old], 5)]
    assert levels == [WARNING, OK], f"this is {__version__}"


@pytest.mark.parametrize("junk", [b"", b"\xff" * 100, b"[" * 9_000, b'{"transis":"doctor"}', b'{"transis":"x","name":1}'])
def test_what_is_no_hello_is_nobody(junk: bytes) -> None:
    ann = Meeting("ann", KEY)
    assert ann.take(junk, "198.18.0.2") is None
    assert ann.heard == {}


def test_own_hellos_come_back_and_are_nobody() -> None:
    ann = Meeting("ann", KEY)
    assert ann.take(ann.hello(), "198.18.0.2") is None
    assert ann.heard == {}
