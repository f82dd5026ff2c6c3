"""`transis send` and `transis recv` against real daemons: two terminals, one order."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.cli.running import Up, brought_up
from tests.daemon.running import opened_site
from transis.cli.admin import complete_service

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with brought_up("--nodes", "2") as cluster:
        started = cluster.until("started")
        cluster.until("whole")
        cluster.env["SECOND"] = started["daemons"][1]["socket"]
        yield cluster


def test_what_is_sent_at_one_daemon_is_received_at_the_other(up: Up) -> None:
    receiving = up.start("recv", "orders", "--count", "3", TRANSIS_SOCKET=up.env["SECOND"])
    receiving.out.until("-- orders: 1 member: n2/1#")
    assert up.run("send", "orders", "new", "order")[0] == 0
    code, told, _ = up.run("send", "orders", "--service", "safe", "--lines", "one", "two")
    assert code == 0
    assert "2 safe messages to orders: delivered (n1/1#" in told
    code, out, errors = receiving.ended()
    assert (code, errors) == (0, "")
    messages = [line.partition(": ")[2] for line in out.splitlines() if line.startswith("n1/1#")]
    assert messages == ["new order", "one", "two"]


def test_lines_of_stdin_are_messages_and_what_is_no_text_is_shown_safely(up: Up) -> None:
    receiving = up.start("recv", "lines", "--count", "3", "--no-views")
    seeing = up.start("recv", "lines", "--count", "3", "--json", TRANSIS_SOCKET=up.env["SECOND"])
    seeing.out.until('"members": .*"n1/1#.*"n2/1#')
    code, told, _ = up.run("send", "lines", "--json", stdin=b"plain\n\x1b[2J\xff\nlast without an end")
    assert code == 0
    assert json.loads(told)["delivered"] == 3
    _, out, _ = receiving.ended()
    assert [line.partition(": ")[2] for line in out.splitlines() if line] == ["plain", r"\x1b[2J\xff", "last without an end"]
    objects = [json.loads(line) for line in seeing.ended()[1].splitlines() if line]
    assert [one.get("text", one.get("base64")) for one in objects if one["type"] == "message"] == [
        "plain",
        "G1sySv8=",
        "last without an end",
    ]


def test_keys_and_headers_go_along(up: Up) -> None:
    """To the other daemon, and shown where programs read."""
    receiving = up.start("recv", "keyed", "--count", "4", "--json", TRANSIS_SOCKET=up.env["SECOND"])
    receiving.out.until('"members": .*"n2/1#')
    assert (
        up.run("send", "keyed", "--lines", "one", "two", "--key", "seat 12", "--header", "source=web", "--header", "x=a=b")[0]
        == 0
    )
    assert up.run("send", "keyed", "three")[0] == 0
    assert up.run("send", "keyed", "four", "--time", "1999-12-31T23:59:00+01:00")[0] == 0
    lines = [json.loads(line) for line in receiving.ended()[1].splitlines() if line]
    objects = [one for one in lines if one["type"] == "message"]
    headers = {"source": {"text": "web"}, "x": {"text": "a=b"}}
    assert [(one["text"], one["key"], one["headers"]) for one in objects] == [
        ("one", {"text": "seat 12"}, headers),
        ("two", {"text": "seat 12"}, headers),
        ("three", None, {}),
        ("four", None, {}),
    ]
    times = [datetime.fromisoformat(one["time"]) for one in objects]
    assert timedelta(0) <= datetime.now(UTC) - times[0] < timedelta(minutes=5)
    assert times[0] <= times[1] <= times[2]
    assert times[3] == datetime(1999, 12, 31, 22, 59, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (("x",), "--header: 'x' is not possible: must be NAME=VALUE"),
        (("=x",), "--header: '=x' is not possible: must be NAME=VALUE"),
        (("a=1", "a=2"), "--header: 'a=2' is not possible: give each name once"),
    ],
)
def test_a_header_that_is_none_is_named(up: Up, header: tuple[str, ...], said: str) -> None:
    code, _, errors = up.run("send", "keyed", "text", *(word for one in header for word in ("--header", one)))
    assert code == 2
    assert said in " ".join(errors.split())


@pytest.mark.parametrize(
    ("time", "said"),
    [
        ("noon", "--time: 'noon' is not possible: must be like 2026-11-19T12:30:00Z"),
        ("2026-11-19T12:30:00", "must have a zone, as in 2026-11-19T12:30:00Z, and be after 1970"),
        ("1969-01-01T00:00:00Z", "must have a zone, as in 2026-11-19T12:30:00Z, and be after 1970"),
    ],
)
def test_a_time_that_is_none_is_named(up: Up, time: str, said: str) -> None:
    code, _, errors = up.run("send", "keyed", "text", "--time", time)
    assert code == 2
    assert said in " ".join(errors.replace("│", "").split())


def test_a_key_that_is_too_long_is_named(up: Up) -> None:
    code, _, errors = up.run("send", "keyed", "text", "--key", "k" * 1025)
    assert (code, errors) == (
        2,
        "transis send: key has 1025 bytes: at most 1024 are allowed; put what is longer into the data\n",
    )


def test_one_message_to_two_groups_comes_once(up: Up) -> None:
    receiving = up.start("recv", "here", "there", "--count", "2", "--json")
    receiving.out.until('"group": "there"')
    assert up.run("send", "here", "--also", "there", "both")[0] == 0
    assert up.run("send", "there", "--whole", stdin=b"a\nb\n")[0] == 0
    objects = [json.loads(line) for line in receiving.ended()[1].splitlines() if line]
    messages = [(one["groups"], one["text"]) for one in objects if one["type"] == "message"]
    assert messages == [(["here", "there"], "both"), (["there"], "a\nb\n")]


def test_ctrl_c_leaves_the_group_cleanly(up: Up) -> None:
    staying = up.start("recv", "cleanly")
    staying.out.until("1 member")
    going = up.start("recv", "cleanly", TRANSIS_SOCKET=up.env["SECOND"])
    going.out.until("2 members")
    going.signal(signal.SIGINT)
    code, _, errors = going.ended()
    assert (code, errors) == (0, "")
    assert re.search(r"; left: (n2/1#\d+) \(\1 left\)", staying.out.until("; left: n2/1#"))
    staying.signal(signal.SIGTERM)
    assert staying.ended()[0] == 0


def test_too_few_messages_in_time_are_a_problem(up: Up) -> None:
    code, _, errors = up.run("recv", "silence", "--count", "1", "--timeout", "0.2")
    assert code == 1
    assert errors == "transis recv: 0 of 1 messages came within 0.2 s\n"
    assert up.run("recv", "silence", "--timeout", "0.2")[0] == 0


def test_a_mistake_is_one_sentence(up: Up) -> None:
    code, _, errors = up.run("send", "orders", "x", "--service", "best")
    assert code == 2
    assert "must be one of basic, causal, agreed, safe" in errors
    code, _, errors = up.run("send", "bad\nname", "x")
    assert code == 2
    assert "is not a group name" in errors
    code, _, errors = up.run("recv", "orders", TRANSIS_SOCKET="/nowhere/transis.sock")
    assert code == 2
    assert errors.startswith("transis recv: no node listens")
    assert "transis up" in errors


def test_the_tab_key_knows_groups_and_services(up: Up) -> None:
    staying = up.start("recv", "tabulated")
    staying.out.until("1 member")
    completing = {"_TRANSIS_COMPLETE": "complete_bash", "COMP_CWORD": "2"}
    assert up.run(COMP_WORDS="transis send tab", **completing)[1].split() == ["tabulated"]
    assert up.run(COMP_WORDS="transis recv nosuch", **completing)[1].split() == []
    assert [name for name, _ in complete_service("")] == ["basic", "causal", "agreed", "safe"]
    assert [name for name, _ in complete_service("s")] == ["safe"]


def test_monitor_measures_and_counts(up: Up) -> None:
    code, out, _ = up.run("monitor", "--once", "--json")
    assert code == 0
    found = json.loads(out)
    assert found["node"] == "n1"
    assert found["view"]["members"] == ["n1/1", "n2/1"]
    assert set(found["latency_ms"]) == {"agreed", "safe"}
    lines = up.start("monitor", "--json", "--every", "0.1", "--no-probe")
    first, second = (json.loads(lines.out.until('"node": "n1"')) for _ in range(2))
    assert second["statistics"]["rotations"] >= first["statistics"]["rotations"]
    lines.signal(signal.SIGINT)
    assert lines.ended()[0] == 0


def test_what_a_killed_daemon_leaves_open_is_in_doubt() -> None:
    with brought_up("--nodes", "1") as alone:
        daemon = alone.until("started")["daemons"][0]
        alone.until("whole")
        listening = alone.start("recv", "orders")
        listening.out.until("1 member")
        sending = alone.start("send", "orders", "--json", stdin=b"one\n")
        listening.out.until(": one$")
        os.kill(daemon["pid"], signal.SIGSTOP)
        assert sending.process.stdin is not None
        sending.process.stdin.write(b"two\n")
        sending.process.stdin.flush()
        os.kill(daemon["pid"], signal.SIGKILL)
        code, out, _ = sending.ended()
        assert code == 1
        found = json.loads(out)
        assert found["delivered"] == 1
        assert found["in doubt"] <= 1, "or it was not taken any more"
        assert found["why"]


def test_a_daemon_elsewhere_is_reached_with_the_key(tmp_path: Path) -> None:
    with opened_site() as site, socket.create_server(("127.0.0.1", 0)) as probe:
        key = tmp_path / "key"
        assert site.run("keygen", "--out", str(key)).returncode == 0
        port = probe.getsockname()[1]
        probe.close()
        site.start("ann", security=f'key_file = "{key}"\n', sessions=f'tcp = "127.0.0.1:{port}"\n').ready()
        where = ("send", "orders", "hello", "--host", f"127.0.0.1:{port}")
        found = site.run(*where, "--key-file", str(key))
        assert found.returncode == 0, found.stderr
        found = site.run(*where)
        assert (found.returncode, found.stdout) == (2, "")
        assert "--host needs --key-file" in found.stderr


def test_a_daemon_that_goes_is_told_in_a_sentence() -> None:
    with brought_up("--nodes", "1") as alone:
        alone.until("whole")
        receiving = alone.start("recv", "orders")
        receiving.out.until("1 member")
        alone.command.signal(signal.SIGTERM)
        code, _, errors = receiving.ended()
        assert code == 1
        assert errors.startswith("transis recv: the session with the node at ")


def test_a_process_is_reached_by_its_name(up: Up) -> None:
    """From the other daemon, over real sockets; views, lists and the Tab key show the name. It is free when its process ends."""
    watching = up.start("groups", "--watch", "--json")
    assert json.loads(watching.out.until('"type": "list"').splitlines()[-1])["why"] is None
    receiving = up.start("recv", "named", "--name", "billing", "--count", "2", TRANSIS_SOCKET=up.env["SECOND"])
    receiving.out.until("-- named: 1 member: billing@n2; joined: billing@n2")
    watching.out.until('"name": "billing@n2", "process": "n2/1#')
    watching.out.until('"group": "named", "members": 1')
    code, _, errors = up.run("recv", "--name", "billing", TRANSIS_SOCKET=up.env["SECOND"])
    assert code == 2
    assert "is called 'billing' already" in errors
    assert "billing@n2" in up.run("groups")[1]
    completing = {"_TRANSIS_COMPLETE": "complete_bash", "COMP_CWORD": "2"}
    assert up.run(COMP_WORDS="transis send bil", **completing)[1].split() == ["billing@n2"]
    assert up.run("send", "billing@n2", "to you alone")[0] == 0
    assert up.run("send", "named", "to all")[0] == 0
    code, out, errors = receiving.ended()
    assert (code, errors) == (0, "")
    assert {line.partition(": ")[2] for line in out.splitlines() if line.startswith("n1/1#")} == {"to you alone", "to all"}
    watching.out.until('"name": "billing@n2", "process": null')
    code, _, errors = up.run("send", "billing@n2", "too late")
    assert code == 1
    assert "is called 'billing@n2'" in errors
    watching.signal(signal.SIGINT)
    assert watching.ended()[0] == 0


def test_recv_needs_a_group_or_a_name(up: Up) -> None:
    code, _, errors = up.run("recv")
    assert code == 2
    assert "name a group to join, or give --name" in errors
