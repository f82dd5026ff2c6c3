"""Control packets of Lansis <-> bytes, by the rules of wire/control.py.

Encoding is canonical, and more depends on it than on the ring: machines know that they agree by a digest over the bytes of
statements (lansis/proposal.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, Final

import msgspec

from transis.types.ids import NodeId, RingId, RingTag
from transis.types.limits import MEMBERS_MAX
from transis.wire.causes import cause_layout, cause_of, require_signature
from transis.wire.control import Role, register
from transis.wire.lansis_packets import Attempt, Faults, Flushed, Joining, Query, Statement
from transis.wire.layouts import CauseLayout, Layout, Nodes
from transis.wire.nodetable import NodeTable, require, require_about_node, require_counters, require_node

KIND_ATTEMPT: Final = 11
KIND_JOINING: Final = 12
KIND_FAULTS: Final = 13
KIND_FLUSHED: Final = 14
KIND_QUERY: Final = 15

PROPOSAL_SIZE: Final = 16
"""Bytes of the digest that names a proposal: two of them never meet by chance."""
_BOOT_END: Final = 1 << 64


class StatementLayout(Layout, frozen=True):
    nodes: Nodes
    sender: int
    address: str
    info: bytes
    version: int
    view: tuple[int, int]
    view_seq: int
    j: bytes
    f_before: bytes
    f_after: bytes
    recv: Annotated[tuple[tuple[int, int], ...], msgspec.Meta(max_length=MEMBERS_MAX)]
    delivered: int
    clock: int
    cause: CauseLayout
    leaving: bool
    digest: bytes
    versions: tuple[int, int]


class FlushedLayout(Layout, frozen=True):
    sender: NodeId
    address: str
    view: tuple[int, NodeId]
    proposal: bytes
    next_view: tuple[int, NodeId]


class QueryLayout(Layout, frozen=True):
    sender: NodeId
    address: str
    tag: tuple[int, int]
    is_reply: bool


def _statement_layout(said: Statement) -> StatementLayout:
    table = NodeTable.of(_named(said), said.j, said.f_before, said.f_after)
    return StatementLayout(
        table.nodes,
        table.rank(said.sender),
        said.address,
        said.info,
        said.version,
        (said.view.seq, table.rank(said.view.rep)),
        said.view_seq,
        table.bitmap(said.j),
        table.bitmap(said.f_before),
        table.bitmap(said.f_after),
        tuple((table.rank(node), counter) for node, counter in said.recv),
        said.delivered,
        said.clock,
        cause_layout(said.cause, table),
        said.leaving,
        said.digest,
        said.versions,
    )


def _named(said: Statement) -> Iterable[NodeId]:
    yield from (said.sender, said.view.rep, *said.cause.accused)
    yield from (node for node, _ in said.recv)
    if said.cause.accuser is not None:
        yield said.cause.accuser


def _statement_decoder(kind: type[Statement]) -> Callable[[bytes], Any]:
    def decode(body: bytes) -> Statement:
        layout = _STATEMENT_DECODER.decode(memoryview(body)[1:])
        table = NodeTable.received(layout.nodes)
        require_about_node(layout.address, layout.info)
        require_counters(layout.version, layout.view_seq, layout.delivered, layout.clock)
        require_signature(layout.digest, layout.versions)
        return kind(
            table.node(layout.sender),
            layout.address,
            layout.info,
            layout.version,
            _view(layout.view, table),
            layout.view_seq,
            table.members(layout.j),
            table.members(layout.f_before),
            table.members(layout.f_after),
            _recv(layout.recv, table),
            layout.delivered,
            layout.clock,
            cause_of(layout.cause, table),
            layout.leaving,
            layout.digest,
            layout.versions,
        )

    return decode


def _view(view: tuple[int, int], table: NodeTable) -> RingId:
    require_counters(view[0])
    return RingId(view[0], table.node(view[1]))


def _recv(recv: tuple[tuple[int, int], ...], table: NodeTable) -> tuple[tuple[NodeId, int], ...]:
    ranks = [rank for rank, _ in recv]
    require(all(map(int.__lt__, ranks, ranks[1:])), "recv", "what was received is not sorted by node")
    require_counters(0, *(counter for _, counter in recv))
    return tuple((table.node(rank), counter) for rank, counter in recv)


def _flushed_layout(flushed: Flushed) -> FlushedLayout:
    view, next_view = flushed.view, flushed.next_view
    return FlushedLayout(flushed.sender, flushed.address, (view.seq, view.rep), flushed.proposal, (next_view.seq, next_view.rep))


def _decode_flushed(body: bytes) -> Flushed:
    layout = _FLUSHED_DECODER.decode(memoryview(body)[1:])
    require_about_node(layout.address, b"")
    require_counters(layout.view[0], layout.next_view[0])
    require(len(layout.proposal) == PROPOSAL_SIZE, "digest", f"a proposal named by {len(layout.proposal)} bytes")
    view = RingId(layout.view[0], require_node(layout.view[1]))
    next_view = RingId(layout.next_view[0], require_node(layout.next_view[1]))
    return Flushed(require_node(layout.sender), layout.address, view, layout.proposal, next_view)


def _query_layout(query: Query) -> QueryLayout:
    return QueryLayout(query.sender, query.address, (query.tag.seq, query.tag.boot), query.is_reply)


def _decode_query(body: bytes) -> Query:
    layout = _QUERY_DECODER.decode(memoryview(body)[1:])
    require_about_node(layout.address, b"")
    require_counters(layout.tag[0])
    require(0 <= layout.tag[1] < _BOOT_END, "tag", "a boot id out of range")
    return Query(require_node(layout.sender), layout.address, RingTag(*layout.tag), layout.is_reply)


_STATEMENT_DECODER: Final = msgspec.msgpack.Decoder(StatementLayout)
_FLUSHED_DECODER: Final = msgspec.msgpack.Decoder(FlushedLayout)
_QUERY_DECODER: Final = msgspec.msgpack.Decoder(QueryLayout)

register(Attempt, KIND_ATTEMPT, _statement_layout, _statement_decoder(Attempt), Role.ASKS)
register(Joining, KIND_JOINING, _statement_layout, _statement_decoder(Joining), Role.ASKS)
register(Faults, KIND_FAULTS, _statement_layout, _statement_decoder(Faults), Role.ANNOUNCES)
register(Flushed, KIND_FLUSHED, _flushed_layout, _decode_flushed, Role.ANNOUNCES)
register(Query, KIND_QUERY, _query_layout, _decode_query, Role.INTRODUCES)
