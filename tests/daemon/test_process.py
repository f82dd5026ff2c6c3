"""Real daemons: they start, answer, meet, leave with a word, come back after kill -9, and refuse what cannot work."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import time
import tomllib
import urllib.request
from collections.abc import Iterator

import pytest

from tests.daemon.running import PATIENCE_S, RunningDaemon, Site, opened_site
from transis import Node
from transis.client import Message, connect
from transis.daemon.metrics import COUNTERS, GAUGES, LABELLED
from transis.net.state import key_text, new_key, write_key
from transis.net.transport import Group
from transis.sessions.frames import NODE_FRAMES, SESSION_VERSION, FrameReader, Hello, Join, Joined, Welcome, encode_frame
from transis.types.errors import ConnectError
from transis.types.ids import Service
from transis.types.paths import USER_KEY


@pytest.fixture
def site() -> Iterator[Site]:
    with opened_site() as site:
        yield site


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# --- one daemon ---------------------------------------------------------------------------------------------------------


def test_it_starts_answers_and_leaves(site: Site) -> None:
    ann = site.start("ann").ready()
    found = ann.ask("status")
    assert (found["node"], found["state"], found["incarnation"]) == ("ann", "Operational", 1)
    assert found["view"]["members"] == ["ann/1"]
    shown = site.run("status", "--socket", str(ann.clients))
    assert shown.returncode == 0
    assert "Operational" in shown.stdout
    parsed = json.loads(site.run("status", "--admin", str(ann.admin), "--json").stdout)
    assert parsed["statistics"]["gso"]
    told = site.run("leave", "--admin", str(ann.admin))
    assert (told.returncode, told.stdout) == (0, "ann has left\n")
    code, said = ann.ended()
    assert code == 0
    assert "ended: left" in said
    assert not ann.admin.exists()
    assert not ann.clients.exists()
    gone = site.run("status", "--admin", str(ann.admin))
    assert gone.returncode == 2
    assert gone.stderr.count("\n") == 1
    assert str(ann.admin) in gone.stderr


def test_only_its_user_reaches_the_admin_socket_and_clients_reach_theirs(site: Site) -> None:
    ann = site.start("ann", sessions='mode = "0606"\n').ready()
    assert ann.admin.stat().st_mode & 0o777 == 0o600
    assert ann.clients.stat().st_mode & 0o777 == 0o606


def test_a_client_connects_joins_and_shows_in_the_status(site: Site) -> None:
    ann = site.start("ann").ready()
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(30)
        client.connect(str(ann.clients))
        client.sendall(encode_frame(Hello(SESSION_VERSION, "till 7", 1 << 20)) + encode_frame(Join("orders")))
        reader = FrameReader(NODE_FRAMES)
        frames: list[object] = []
        while not any(isinstance(frame, Joined) for frame in frames):
            got = reader.feed(client.recv(65_536))
            assert isinstance(got, list)
            frames += got
        assert isinstance(frames[0], Welcome)
        ann.log.until("session .*connected")
        (session,) = ann.ask("sessions")["sessions"]
        assert (session["label"], session["groups"]) == ("till 7", ["orders"])
        assert ann.ask("groups")["groups"] == [{"name": "orders", "members": 1, "here": 1}]
        assert "orders" in site.run("groups", "--admin", str(ann.admin)).stdout
        assert ann.ask("status")["sessions"] == 1
    assert "ended" in ann.log.until("session .*ended")


def test_a_daemon_and_a_node_in_a_program_of_its_user_meet_sealed(site: Site) -> None:
    """Neither was given a key: they find the same one, wherever they have their state."""
    ann = site.start("ann").ready()
    network = tomllib.loads(site.settings("ann"))["network"]
    group = Group(network["group"], network["data_port"], network["control_port"])

    async def meet() -> None:
        async with Node("bob", group=group, state=site.directory / "program" / "bob") as bob:
            while bob.view is None or len(bob.view.members) < 2:
                await asyncio.wait([asyncio.ensure_future(bob.ended())], timeout=0.01)

    asyncio.run(asyncio.wait_for(meet(), PATIENCE_S))
    ann.sees("ann", "bob")
    assert ann.ask("status")["sealed"] is True


def test_a_users_key_that_others_may_read_is_told_before_anything_is_opened(site: Site) -> None:
    key = site.directory / "transis" / USER_KEY
    key.parent.mkdir()
    key.write_text(key_text(new_key()))
    key.chmod(0o644)
    code, said = site.start("ann", env={"XDG_STATE_HOME": str(site.directory)}).ended()
    assert code == 2
    assert f"others may read or write it (mode 0644): chmod 600 {key}" in said
    assert "Traceback" not in said
    assert not (site.directory / "ann").exists()


def test_a_client_on_another_host_needs_the_key(site: Site) -> None:
    """Over TCP everything is sealed: with the key it is the same session, with another one it is none."""
    key, port = new_key(), free_port()
    write_key(site.directory / "key", key)
    security = f'key_file = "{site.directory / "key"}"\n'
    site.start("ann", security=security, sessions=f'tcp = "127.0.0.1:{port}"\n').ready()

    async def talk() -> bytes:
        async with connect(host=f"127.0.0.1:{port}", key=key) as session, session.join("orders") as group:
            await (await group.send(b"from afar", Service.SAFE))
            async for event in group:
                if isinstance(event, Message):
                    return bytes(event.data)
        raise AssertionError("the stream ended before the message came")

    async def try_another_key() -> None:
        await connect(host=f"127.0.0.1:{port}", key=new_key()).open()

    assert asyncio.run(asyncio.wait_for(talk(), PATIENCE_S)) == b"from afar"
    with pytest.raises(ConnectError, match="key"):
        asyncio.run(asyncio.wait_for(try_another_key(), PATIENCE_S))


def test_the_service_manager_is_told(site: Site) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(site.directory / "manager"))
        manager.settimeout(30)
        env = {"NOTIFY_SOCKET": str(site.directory / "manager"), "WATCHDOG_USEC": "30000000"}
        ann = site.start("ann", env=env)
        told = {line for _ in range(3) for line in manager.recv(4096).decode().splitlines()}
        assert {"READY=1", "WATCHDOG=1", "STATUS=1 members: ann"} <= told
        ann.signal(signal.SIGTERM)
        while "STOPPING=1" not in told:
            told |= set(manager.recv(4096).decode().splitlines())
        assert ann.ended()[0] == 0


AFTER_TRAFFIC = {"transis_synchrony_agreed_milli", "transis_synchrony_safe_milli"}
"""What is told only once there was a message."""


def served(site: Site, name: str, engine: str) -> str:
    """What Prometheus gets from a daemon that is alone."""
    port = free_port()
    node, trace = f'quorum = ["{name}"]\nengine = "{engine}"\n', f'directory = "{site.directory}/t"\n'
    daemon = site.start(name, metrics=f'listen = "{port}"\n', node=node, trace=trace).ready()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text: str = answer.read().decode()
    daemon.signal(signal.SIGTERM)
    assert daemon.ended()[0] == 0
    assert re.search(rf'^transis_members\{{cluster="transis",node="{name}"\}} 1\.0$', text, flags=re.MULTILINE)
    return text


def test_metrics_are_served_under_their_names(site: Site) -> None:
    """Some are of one engine only, none is of no engine."""
    ring, dag = served(site, "ann", "totem"), served(site, "bob", "lansis")
    names = set(re.findall(r"^# TYPE (\w+) ", ring + dag, flags=re.MULTILINE))
    wanted = {f"transis_{name}_total" for name in (*COUNTERS, *LABELLED)} | {f"transis_{name}" for name in GAUGES}
    assert names == wanted - AFTER_TRAFFIC
    assert re.search(r'^transis_tokens_lost_total\{.*state="operational"\} 0\.0$', ring, flags=re.MULTILINE)


def test_json_lines_are_json(site: Site) -> None:
    ann = site.start("ann", log="json = true\n").ready()
    ann.signal(signal.SIGINT)
    code, said = ann.ended()
    lines = [json.loads(line) for line in said.splitlines() if line]
    assert code == 0
    assert {"starting", "view", "leaving", "ended"} <= {line["event"] for line in lines}


def test_the_level_of_the_log_is_changed_while_it_runs(site: Site) -> None:
    ann = site.start("ann", log='level = "error"\n').ready()
    assert ann.ask("status")["log_level"] == "error"
    assert ann.ask("log", level="debug")["level"] == "debug"
    ann.signal(signal.SIGTERM)
    _, said = ann.ended()
    assert "view R0@ann/1" not in said
    assert "ended: left" in said


def test_a_second_signal_ends_at_once(site: Site) -> None:
    """The other one is stopped while it has the token, so that a graceful leave has to wait for it, for a minute."""
    ann, bob = (
        site.start(
            "ann", timing="leave_ms = 60000\ntoken_loss_ms = 600000\nconsensus_ms = 600000\nfail_to_receive_ms = 600000\n"
        ),
        site.start("bob"),
    )
    ann.sees("ann", "bob")
    bob.signal(signal.SIGSTOP)
    patience = time.monotonic() + PATIENCE_S
    while not ann.ask("statistics")["statistics"]["tokens_sent_again"]:
        assert time.monotonic() < patience, "bob was stopped, and the token came back"
    ann.signal(signal.SIGTERM)
    ann.log.until("leaving gracefully")
    ann.signal(signal.SIGTERM)
    code, said = ann.ended()
    assert code == 1
    assert "told twice" in said


# --- several --------------------------------------------------------------------------------------------------------------


def test_a_daemon_that_is_told_to_end_leaves_with_a_word(site: Site) -> None:
    ann, bob = site.start("ann"), site.start("bob")
    ann.sees("ann", "bob")
    bob.sees("ann", "bob")
    bob.signal(signal.SIGTERM)
    assert bob.ended()[0] == 0
    assert ann.sees("ann").endswith("left: bob/1 (bob/1 left on purpose)")
    assert ann.ask("statistics")["statistics"]["tokens_lost_operational"] == 0


def test_a_daemon_that_is_killed_is_missed_and_comes_back_as_a_new_life(site: Site) -> None:
    ann, bob = site.start("ann"), site.start("bob")
    ann.sees("ann", "bob")
    bob.sees("ann", "bob")
    bob.signal(signal.SIGKILL)
    bob.ended()
    assert ann.sees("ann").endswith("left: bob/1 (token loss noticed by ann/1, without bob/1)")
    assert ann.ask("statistics")["statistics"]["tokens_lost_operational"] >= 1
    again = site.start("bob").ready()
    ann.sees("ann", "bob")
    again.sees("ann", "bob")
    lives = {member["name"]: member["incarnation"] for member in ann.ask("members")["members"]}
    assert lives == {"ann": 1, "bob": 2}


def test_engines_do_not_mix_and_both_sides_are_told_what_to_make_equal(site: Site) -> None:
    ann, bob = site.start("ann"), site.start("bob", node='engine = "lansis"\n')
    told = bob.log.until("ann/1 cannot be a member")
    assert "engine, order, mode or datagram" in told
    assert "(engine lansis, order all-ack, mode evs, datagram " in told
    assert "(engine totem, datagram " in ann.log.until("bob/1 cannot be a member")
    assert any(warning.endswith("version differs: bob/1") for warning in ann.ask("status")["warnings"])


def test_links_are_cut_and_healed_between_three(site: Site) -> None:
    daemons = [
        site.start(name, admin="allow_faults = true\n", node='quorum = ["ann", "bob", "cid"]\n') for name in ("ann", "bob", "cid")
    ]
    ann, bob, cid = daemons
    for daemon in daemons:
        daemon.sees("ann", "bob", "cid")
    cut_off(cid, ann, bob)
    for daemon in (ann, bob):
        daemon.sees("ann", "bob")
        becomes_primary(daemon)
    cid.sees("cid")
    found = cid.ask("status")
    assert found["view"]["primary"] is False
    assert any("links are cut on purpose" in warning for warning in found["warnings"])
    for daemon in daemons:
        daemon.ask("heal")
    for daemon in daemons:
        daemon.sees("ann", "bob", "cid")


def test_daemons_whose_quorum_lists_differ_say_so_and_neither_side_of_a_cut_is_primary(site: Site) -> None:
    both, own = 'quorum = ["ann", "bob"]\n', 'quorum = ["bob"]\n'
    ann = site.start("ann", admin="allow_faults = true\n", node=both)
    bob = site.start("bob", admin="allow_faults = true\n", node=own)
    doubt = "quorum lists differ: ann bob at ann; bob at bob"
    for daemon in (ann, bob):
        daemon.log.until(f"{doubt}: no view is primary")
        view = daemon.ask("status")["view"]
        assert (view["primary"], view["doubt"]) == (False, doubt)
        assert doubt in daemon.ask("status")["warnings"]
    assert f"no: {doubt}" in site.run("status", "--admin", str(ann.admin)).stdout
    cut_off(ann, bob)
    for daemon in (ann, bob):
        daemon.sees(daemon.name)
        assert daemon.ask("status")["view"]["primary"] is False


def becomes_primary(daemon: RunningDaemon) -> None:
    """Its view is primary when all members have told each other their lists, which is after the view."""
    ends = time.monotonic() + PATIENCE_S
    while not daemon.ask("status")["view"]["primary"]:
        assert time.monotonic() < ends, f"{daemon.name} is not primary: {daemon.ask('status')['warnings']}"


def cut_off(one: RunningDaemon, *others: RunningDaemon) -> None:
    """On both sides, for a multicast cannot leave anybody out."""
    one.ask("cut", peers=[other.name for other in others])
    for other in others:
        other.ask("cut", peers=[one.name])


# --- what is refused ------------------------------------------------------------------------------------------------------


def refusal(daemon: RunningDaemon) -> str:
    """It ended with code 2 and one sentence."""
    code, said = daemon.ended()
    assert code == 2
    assert "Traceback" not in said
    return said


def test_a_second_daemon_on_a_state_directory_is_refused(site: Site) -> None:
    ann = site.start("ann").ready()
    second = site.start("two", site.settings("ann").replace("ann.sock", "two.sock"))
    assert "another process uses the state directory" in refusal(second)
    assert ann.ask("status")["state"] == "Operational"


@pytest.mark.parametrize("which", ["sessions", "admin"])
def test_a_socket_in_use_is_refused(site: Site, which: str) -> None:
    ann = site.start("ann").ready()
    sections = {"sessions": site.settings("bob").replace("bob.sock", "ann.sock") + '[admin]\nsocket = "/tmp/transis-unused"\n'}
    sections["admin"] = site.settings("bob", admin=f'socket = "{ann.admin}"\n')
    said = refusal(site.start("bob", sections[which]))
    assert said.startswith(f"transis daemon: {which}.socket = ")
    assert "another server listens there" in said
    assert ann.ask("status")["state"] == "Operational"


def test_the_socket_of_a_killed_daemon_is_taken_over(site: Site) -> None:
    ann = site.start("ann").ready()
    ann.signal(signal.SIGKILL)
    ann.ended()
    assert ann.clients.exists()
    assert site.start("ann").ready().ask("status")["incarnation"] == 2


def test_a_name_that_is_taken_is_refused_with_the_remedy(site: Site) -> None:
    ann = site.start("ann").ready()
    other = site.settings("two").replace('name = "two"', 'name = "ann"')
    said = refusal(site.start("two", other))
    assert "ended: " in said
    assert "name of its own" in said or "choose another name" in said
    assert ann.ask("status")["state"] == "Operational"


def test_a_port_in_use_is_refused(site: Site) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        said = refusal(site.start("ann", network=f"port = {taken.getsockname()[1]}\n"))
    assert "cannot be opened" in said
    assert said.strip().count("\n") == 0


def test_a_port_of_the_group_that_somebody_keeps_for_himself_is_told_by_its_name(site: Site) -> None:
    settings = site.settings("ann")
    group, port = (re.search(pattern, settings) for pattern in ('group = "(.*)"', "data_port = (.*)"))
    assert group is not None
    assert port is not None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind((group[1], int(port[1])))
        said = refusal(site.start("ann", settings))
    assert f"network.data_port = {port[1]}: cannot be opened (Address already in use)" in said


def test_a_wrong_setting_is_one_sentence(site: Site) -> None:
    said = refusal(site.start("ann", log='level = "loud"\n'))
    assert (
        said.strip()
        == f"transis daemon: {site.directory}/ann.toml: log.level = 'loud': must be one of debug, info, warning, error"
    )


def test_checking_opens_nothing(site: Site) -> None:
    config = site.directory / "ann.toml"
    config.write_text(site.settings("ann", trace=f'directory = "{site.directory}/traces"\n'))
    checked = site.run("daemon", "--config", str(config), "--check")
    assert checked.returncode == 0
    assert "The settings are fine." in checked.stdout
    assert str(site.directory / "ann") in checked.stdout
    assert sorted(path.name for path in site.directory.iterdir()) == ["ann.toml"]


def test_the_example_is_printed_and_can_be_checked(site: Site) -> None:
    printed = site.run("daemon", "--example")
    (site.directory / "e.toml").write_text(printed.stdout)
    assert site.run("daemon", "--config", str(site.directory / "e.toml"), "--check").returncode == 0
