"""Replicas for programs without an event loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.embed.party import Cluster
from tests.replica.accounts import Accounts, NotEnough
from transis import Json, blocking, once, within
from transis.types.errors import NoPrimary, NotYet, UsageError


@pytest.fixture
def node(tmp_path: Path) -> Iterator[blocking.Node]:
    cluster = Cluster(tmp_path)
    with blocking.Node("ann", cluster="tests", state=tmp_path / "node", group=cluster.group) as node:
        yield node


def test_a_log(tmp_path: Path, node: blocking.Node) -> None:
    with blocking.replica(
        "log", me="ann", replicas=["ann"], directory=tmp_path / "log", connect=node.connect, codec=Json(int)
    ) as log:
        receipt = log.post(1)
        assert receipt.ordered(timeout=30) == 0
        receipt.stable(timeout=30)
        assert receipt.outcome == "stable" and receipt.offset == 0 and receipt.count == len(receipt.actions) == 1
        assert log.post_many([2, 3, 4]).ordered(30) == 1
        entries = log.read()
        assert [entries.next(30).data for _ in range(4)] == [1, 2, 3, 4]
        with pytest.raises(TimeoutError):
            entries.next(timeout=0.01)
        log.post(5).ordered(30)
        assert next(entries).data == 5
        assert [len(batch) for _, batch in zip(range(2), log.read(after=0).batches(), strict=False)] == [3, 1]
        assert (log.group, log.me, log.end) == ("log", "ann", 5)
        assert log.status().is_primary
    with pytest.raises(UsageError, match="is closed"):
        log.post(6)


def test_an_object(tmp_path: Path, node: blocking.Node) -> None:
    given = {"me": "ann", "directory": tmp_path / "log", "connect": node.connect}
    with blocking.replica("bank", replicas=["ann"], machine=Accounts(), **given) as bank:  # type: ignore[call-overload]
        bank.open("7", 100)
        assert bank.move("7", "9", 30) == 70
        assert bank.call(Accounts.move, "7", "9", 10) == 60
        assert bank.of("9") == bank.ask(Accounts.of, "9") == bank.read("local").of("9") == bank.read("dirty").of("9") == 40
        assert bank.read(at_least=2).of("9") == 40
        assert bank.post(Accounts.move, "9", "7", 1).result(30) == 39
        for _ in range(2):
            with once("transfer 17", at=0):
                assert bank.move("9", "7", 1) == 38
        with pytest.raises(NotEnough):
            bank.move("7", "9", 1000)
        with pytest.raises(NotYet), within(0.01):
            bank.read(at_least=100).of("9")


def test_a_minority(tmp_path: Path) -> None:
    with ExitStack() as stack:
        bank = stack.enter_context(
            blocking.replica("bank", me="ann", replicas=["ann", "bob"], directory=tmp_path / "log", machine=Accounts())
        )
        with pytest.raises(NoPrimary), within(0.05):
            bank.move("7", "9", 30)
