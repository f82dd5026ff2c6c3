"""`transis up` as a person uses it: real daemons come up in one command, are looked after, and are gone with it."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.cli.running import brought_up
from transis.cli.admin import AdminConnection
from transis.cli.local_cluster import ClusterDirectory, ClusterError, LocalCluster, default_socket
from transis.cli.main import app
from transis.cli.up import connecting
from transis.net.listeners import bind_unix
from transis.settings.load import load_settings
from transis.types.errors import ConfigError


@pytest.mark.slow
def test_a_cluster_comes_up_loses_a_daemon_and_is_stopped(engine: str) -> None:
    with brought_up("--nodes", "3", "--engine", engine) as up:
        started = up.until("started")
        assert [daemon["node"] for daemon in started["daemons"]] == ["n1", "n2", "n3"]
        whole = up.until("whole")
        assert whole["socket"] == str(up.directory / "usual.sock")

        code, page, _ = up.run("status")
        assert code == 0
        assert re.search(rf"^engine +{engine}", page, re.MULTILINE)
        assert ("rotations a second" in page, "bursts a second" in page) == (engine == "totem", engine == "lansis")

        victim = started["daemons"][1]
        os.kill(victim["pid"], signal.SIGKILL)
        crashed = up.until("crashed")
        assert (crashed["node"], crashed["why"]) == ("n2", "it was ended by SIGKILL")
        assert any("clients at" in line for line in crashed["log"])
        up.command.out.until(r'"event": "view", "node": "n3", .*"members": \["n1/1", "n3/1"\]')

        code, page, errors = up.run("monitor", "--once", "--no-probe", "--admin", started["directory"])
        assert code == 1, "one of the three does not answer"
        assert "n1/1 n3/1, for" in page
        assert "n2-admin.sock" in errors

        up.command.signal(signal.SIGINT)
        code, out, errors = up.command.ended()
        assert code == 1, "a daemon was lost on the way"
        stopped = json.loads(out.strip().splitlines()[-1])
        assert stopped["exit_codes"] == {"n1": 0, "n2": -9, "n3": 0}
        assert f"stay in {started['directory']}" in errors
        assert Path(started["directory"], "n2.log").exists()


@pytest.mark.slow
def test_a_cluster_that_ends_well_leaves_nothing_behind() -> None:
    with brought_up("--nodes", "1", "--exit-after", "0.1") as up:
        started = up.until("started")
        code, _, errors = up.command.ended()
        assert (code, errors) == (0, "")
        assert not Path(started["directory"]).exists()
        assert not (up.directory / "usual.sock").exists()


@pytest.mark.slow
def test_daemons_go_when_the_one_that_owns_them_is_killed() -> None:
    with brought_up("--nodes", "2") as up:
        started = up.until("started")
        up.until("whole")
        with AdminConnection(Path(started["daemons"][1]["admin"]), None) as connection:
            up.command.signal(signal.SIGKILL)
            assert connection.wait_until_gone(60)


def test_what_cannot_come_up_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    (tmp_path / "n1").write_text("no directory")
    with brought_up("--nodes", "1", "--dir", str(tmp_path)) as up:
        crashed = up.until("crashed")
        assert crashed["exit_code"] == 2
        assert any("transis daemon: " in line for line in crashed["log"])
        assert up.command.ended()[0] == 2


def test_a_directory_that_leaves_no_room_for_sockets_is_refused(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    with pytest.raises(ClusterError, match="choose a shorter --dir"):
        LocalCluster(deep, ["n1"], {})


def test_a_directory_has_one_cluster_at_a_time(tmp_path: Path) -> None:
    ClusterDirectory(tmp_path / "cluster")
    with pytest.raises(ConfigError, match="another cluster runs there"):
        ClusterDirectory(tmp_path / "cluster")
    (tmp_path / "file").write_text("no directory")
    with pytest.raises(ConfigError, match=r"--dir = .*cannot be used"):
        ClusterDirectory(tmp_path / "file")


def test_settings_are_written_as_a_daemon_reads_them(tmp_path: Path) -> None:
    clients = tmp_path / "elsewhere" / "transis.sock"
    cluster = LocalCluster(tmp_path, ["n1", "n2"], {"admin": {"allow_faults": True}, "node": {"quorum": ["n1", "n2"]}}, clients)
    first, second = (load_settings(daemon.config) for daemon in cluster.daemons)
    assert (first.node.name, first.sessions.socket) == ("n1", str(clients))
    assert second.admin.allow_faults
    assert second.node.quorum == ["n1", "n2"]
    assert first.network == second.network, "they must meet"
    assert (tmp_path / "n1-admin.sock").readlink() == clients.with_name("transis-admin.sock")


def test_two_clusters_do_not_meet(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    networks = [load_settings(LocalCluster(place, ["n1"], {}).daemons[0].config).network for place in (one, two)]
    assert networks[0] != networks[1]


def test_the_usual_place_is_taken_only_if_it_is_free(tmp_path: Path) -> None:
    free = tmp_path / "made" / "transis.sock"
    assert default_socket({"TRANSIS_SOCKET": str(free)}) == free
    assert not free.exists(), "looking leaves nothing behind"
    taken = tmp_path / "file"
    taken.write_text("not ours")
    assert default_socket({"TRANSIS_SOCKET": str(taken)}) is None
    assert taken.read_text() == "not ours"


def test_traces_that_would_go_with_the_cluster_are_refused() -> None:
    outcome = CliRunner().invoke(app, ["up", "--trace"], env={"COLUMNS": "200"})
    assert outcome.exit_code == 2
    assert "give --dir DIR too" in outcome.stderr


def test_a_cluster_beside_another_says_why_its_socket_must_be_named(tmp_path: Path) -> None:
    usual = str(tmp_path / "usual.sock")
    with bind_unix(usual, 0o600) as taken:
        taken.listen()
        cluster = LocalCluster(tmp_path, ["n1"], {}, default_socket({"TRANSIS_SOCKET": usual}))
    (line, *_) = connecting(cluster, {"TRANSIS_SOCKET": usual})
    assert line == f"export TRANSIS_SOCKET={tmp_path}/n1.sock  # {usual}, where clients look, was not free"
