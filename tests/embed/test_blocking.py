"""The blocking twin of an embedded node."""

from __future__ import annotations

from pathlib import Path

import pytest

import transis
from tests.embed.party import PATIENCE_S, Cluster
from transis.types.errors import IdentityError, SessionLost, UsageError


def blocking_node(cluster: Cluster, name: str, run: str) -> transis.blocking.Node:
    return transis.blocking.Node(name, cluster="tests", state=cluster.directory / name, group=cluster.group, run=run)


@pytest.mark.parametrize("run", ["thread", "process"])
def test_a_script_embeds_a_node(tmp_path: Path, run: str, engine: str) -> None:
    cluster = Cluster(tmp_path, engine)
    node = blocking_node(cluster, "ann", run)
    with pytest.raises(UsageError, match="not running"):
        node.statistics()
    with node, node.connect(timeout=PATIENCE_S) as session, session.join("x", timeout=PATIENCE_S) as group:
        confirmation = group.send(b"one", transis.Service.SAFE).wait(PATIENCE_S)
        events = [group.next(PATIENCE_S), group.next(PATIENCE_S)]
        assert isinstance(events[0], transis.View)
        assert isinstance(events[1], transis.Message)
        assert events[1].data == b"one"
        assert (confirmation.phase, confirmation.view) == (events[1].phase, events[1].view) == ("regular", events[1].view)
        assert node.statistics(PATIENCE_S)["state"] == "Operational"
        assert node.view is not None
        assert node.view.nodes == (node.id,)
        with pytest.raises(IdentityError):
            blocking_node(cluster, "ann", run).open(PATIENCE_S)
        node.leave()
        with pytest.raises(SessionLost):
            group.next(PATIENCE_S)
    node.leave()
