"""Statements for tests, spelled by the letters of their nodes: said("b", j="abc", f="c")."""

from __future__ import annotations

from tests.engine.hand import node_id
from tests.lansis.hand import config
from transis.lansis.packets import Faults, Flushed, Joining, Statement
from transis.types.ids import NodeId, RingId
from transis.types.views import Cause
from transis.wire.control import config_digest

DIGEST = config_digest(config("a").digest_fields())
VIEW = RingId(8, node_id("a"))


def nodes(letters: str) -> frozenset[NodeId]:
    return frozenset(map(node_id, letters))


def said(
    sender: str,
    *,
    j: str = "abc",
    f: str = "",
    f_after: str = "",
    version: int = 1,
    view: RingId = VIEW,
    view_seq: int = 8,
    recv: str = "",
    delivered: int = 0,
    clock: int = 5,
    leaving: bool = False,
    kind: type[Statement] | None = None,
    incarnation: int = 1,
) -> Statement:
    """`recv` is like "a3 b5"; a statement is a JOIN unless all of `j` are a, b or c."""
    held = tuple(sorted((node_id(word[0]), int(word[1:])) for word in recv.split()))
    kind = kind or (Faults if set(j) <= set("abc") else Joining)
    return kind(
        node_id(sender, incarnation), f"{sender}:1", b"", version, view, view_seq, nodes(j), nodes(f), nodes(f_after), held,
        delivered, clock, Cause("test"), leaving, DIGEST, (1, 1),
    )  # fmt: skip


def flushed(sender: str, proposal: bytes, seq: int, rep: str = "a", view: RingId = VIEW) -> Flushed:
    return Flushed(node_id(sender), f"{sender}:1", view, proposal, RingId(seq, node_id(rep)))
