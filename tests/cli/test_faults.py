"""A cluster of `transis up --faults`, broken by hand: by commands with names of nodes, all refused whole or done whole."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.cli.running import Up, brought_up
from transis.cli.cluster_control import ClusterControl, ClusterFaults, CutRequest, KillRequest
from transis.cli.faults import parse_sides, states_in
from transis.cli.local_cluster import LocalCluster
from transis.net.listeners import bind_unix
from transis.types.errors import UsageError
from transis.types.paths import CLUSTER_SOCKET


@pytest.mark.slow
def test_nodes_are_killed_paused_cut_off_and_brought_back() -> None:
    with brought_up("--faults") as up:
        started = up.until("started")
        up.until("whole")

        assert up.run("cut", "n1,n2", "from", "n3")[:2] == (0, "n1 and n2 are cut off from n3\n")
        _until_views(up, {"n1": ["n1", "n2"], "n3": ["n3"]})
        assert up.run("heal")[:2] == (0, "every link is whole\n")
        _until_view(up, "n3", "n1", "n2", "n3")

        assert up.run("pause", "n2")[:2] == (0, "n2 is paused\n")
        _until_view(up, "n1", "n1", "n3")
        code, page, _ = up.run("monitor", "--once", "--no-probe", "--admin", started["directory"])
        assert code == 1
        assert "n2    paused" in page
        assert "n2 is paused: for that it must be running" in up.run("cut", "n1", "from", "n2")[2]
        assert up.run("resume", "n2")[0] == 0
        _until_view(up, "n2", "n1", "n2", "n3")

        assert up.run("cut", "n3")[:2] == (0, "n3 is cut off from n1 and n2\n")
        _until_view(up, "n3", "n3")
        assert up.run("kill", "n3")[:2] == (0, "n3 is killed\n")
        assert states_in(Path(started["directory"])) == {"n1": "running", "n2": "running", "n3": "killed"}
        assert up.run("restart", "n3")[:2] == (0, "n3 is started again\n")
        assert up.run("cut", "n1", "from", "n3")[0] == 0, "it answers as soon as it is started"
        assert up.run("heal")[0] == 0
        _until_view(up, "n3", "n1", "n2", "n3")
        assert up.run("restart", "n1")[0] == 0, "one that runs leaves first"
        _until_view(up, "n1", "n1", "n2", "n3")

        up.command.signal(2)
        assert up.command.ended()[0] == 0, "what was done by hand is no crash"


def _until_view(up: Up, node: str, *members: str) -> None:
    _until_views(up, {node: members})


def _until_views(up: Up, views: Mapping[str, Sequence[str]]) -> None:
    """In whatever order the nodes have them."""
    listed = {node: ", ".join(rf'"{name}/\d+"' for name in members) for node, members in views.items()}
    awaited = {rf'"node": "{node}", .*"members": \[{members}\]' for node, members in listed.items()}
    while awaited:
        said = up.command.out.until(rf'"event": "view", ({"|".join(sorted(awaited))})')
        awaited = {one for one in awaited if not re.search(one, said)}


@pytest.mark.slow
def test_a_paused_daemon_ends_with_its_cluster_and_one_without_faults_is_left_alone() -> None:
    with brought_up("--faults", "--nodes", "2") as up:
        up.until("whole")
        assert up.run("pause", "n2")[0] == 0
        up.command.signal(2)
        assert up.command.ended()[0] == 0
        assert not list(up.directory.glob("*.sock")), "nothing is left where clients look"
        code, _, errors = up.run("kill", "n1")
        assert (code, "start one with `transis up --faults`" in errors) == (2, True)
    with brought_up("--nodes", "1") as up:
        up.until("whole")
        code, _, errors = up.run("kill", "n1")
        assert (code, "start it again as `transis up --faults`" in errors) == (2, True)


def test_a_cluster_that_clients_do_not_find_is_named_by_its_directory(tmp_path: Path) -> None:
    control = ClusterControl(LocalCluster(tmp_path, ["n1"], {}), allowed=True, takes_default=False)
    assert [path.name for path in tmp_path.glob("*cluster.sock")] == [CLUSTER_SOCKET]
    control.close()
    assert not (tmp_path / CLUSTER_SOCKET).exists()
    assert states_in(tmp_path) == {}


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (KillRequest(["n1", "n9"]), "there is no node 'n9': there are n1, n2 and n3"),
        (KillRequest([]), "name at least one node: there are n1, n2 and n3"),
        (KillRequest(["n1"]), "n1 is not running: for that it must be running or paused"),
        (CutRequest(["n1"], ["n2"]), "n1 is not running: for that it must be running"),
    ],
)
def test_what_cannot_be_done_is_said(tmp_path: Path, request_: Any, why: str) -> None:
    faults = ClusterFaults(LocalCluster(tmp_path, ["n1", "n2", "n3"], {}))
    with pytest.raises(UsageError, match=why):
        faults.do(request_)


def test_a_socket_that_nobody_serves_has_no_states(tmp_path: Path) -> None:
    bind_unix(str(tmp_path / CLUSTER_SOCKET), 0o600).close()
    assert states_in(tmp_path) == {}


@pytest.mark.parametrize(
    ("words", "sides"),
    [
        (["n1,n2", "from", "n3"], (["n1", "n2"], ["n3"])),
        (["n1", "n2,", "from", "n3", "n4"], (["n1", "n2"], ["n3", "n4"])),
        (["n1"], (["n1"], [])),
    ],
)
def test_two_sides_are_read(words: list[str], sides: tuple[list[str], list[str]]) -> None:
    assert parse_sides(words) == sides


@pytest.mark.parametrize("words", [["from", "n1"], ["n1", "from"], ["n1", "from", "n2", "from", "n3"], [","]])
def test_sides_that_make_no_sense_are_refused(words: list[str]) -> None:
    with pytest.raises(typer.BadParameter, match="n1,n2 from n3"):
        parse_sides(words)
