"""The DAG of one view: bursts as nodes, acknowledgements as edges (lansis-1992 3.1).

A node is one whole burst. It enters the DAG when all of it is here and everything that it follows is in the DAG: what it
acknowledges, and its sender's previous burst, which it follows implicitly. So the DAG is always closed under causes.

Words. `inserted` is the paper's recv: how far each member's bursts are in the DAG. `named` is the highest counter that anybody
claims to exist. A *leaf* is a node that nothing in the DAG follows and that I have not acknowledged. The `past` of a node has,
for each member, the last counter that the node follows, or its own. Collected nodes count as followed: they are stable, and all
that they follow was collected before them.

Counters of a member are dense throughout its life; those of this view begin with `expected`. A member whose bytes make no sense
is `broken`: nothing more is accepted from it, and nothing that it sent can raise an exception.

An order key is `(timestamp - base of the view) << 7 | rank`. A burst is stamped when it is sent, so its place in the order is
born with it and does not depend on what anybody receives (F9a). A place also names the datagram within the burst. Timestamps
are counted from the base of the view because a place may take 43 bits in a trace: 28 of timestamp, 7 of rank, 8 of datagram.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from operator import le
from typing import Final

from transis.engine.core import DatagramStore
from transis.lansis.packets import FENCE, Acks, Nack, decode_acks
from transis.types.ids import DatagramClass
from transis.types.limits import BURST_DATAGRAMS_MAX, MEMBERS_MAX, SEQ_JUMP_MAX
from transis.wire.burst import DATA_HEADER_SIZE, Burst
from transis.wire.items import Incomplete

# --- keys -------------------------------------------------------------------------------------------------------------

RANK_BITS: Final = 7
DATAGRAM_BITS: Final = 8
TIMESTAMP_ROOM: Final = 1 << 28
"""A view's timestamps stay below its base plus this: receivers accept no others."""
RENEWAL_ROOM: Final = TIMESTAMP_ROOM - (1 << 20)
"""A view is renewed this far above its base, long before the room is used up."""

assert MEMBERS_MAX <= 1 << RANK_BITS
assert BURST_DATAGRAMS_MAX <= 1 << DATAGRAM_BITS


def order_key(above_base: int, rank: int) -> int:
    """A key that compares as (timestamp, rank) does, among bursts of one view."""
    return above_base << RANK_BITS | rank


def place_seq(key: int, index: int) -> int:
    """`Place.seq` of a datagram: the key of its burst, and its index in the burst."""
    assert index < BURST_DATAGRAMS_MAX, f"datagram {index} of a burst"
    return key << DATAGRAM_BITS | index


# --- node -------------------------------------------------------------------------------------------------------------


class DagNode:
    """One burst in the DAG. Immutable but for `delivered`."""

    __slots__ = ("delivered", "dep", "first", "is_fence", "key", "klass", "last", "past", "pieces", "rank", "size", "ts")

    def __init__(self, base: int, rank: int, pieces: tuple[Burst, ...], dep: int, past: list[int]) -> None:
        header = pieces[0].header
        self.rank = rank
        self.first = pieces[0].first_seq
        self.last = pieces[-1].last_seq
        self.klass = header.klass
        self.is_fence = header.round == FENCE and header.klass >= DatagramClass.ORDERED
        self.ts = header.timestamp
        self.key = order_key(header.timestamp - base, rank)
        self.dep = dep
        self.pieces = pieces
        self.past = past
        self.size = sum(piece.size for piece in pieces)
        self.delivered = False

    def __repr__(self) -> str:
        return f"Node({self.klass.name} of {self.rank}, {self.first}..{self.last}, at {self.ts})"

    @property
    def is_ordered(self) -> bool:
        return self.klass >= DatagramClass.ORDERED

    def follows(self, other: DagNode) -> bool:
        """Whether it follows the other node; every node follows itself."""
        return self.past[other.rank] >= other.last


# --- dag --------------------------------------------------------------------------------------------------------------

GAPS_MAX: Final = 32
"""Gaps of one member that are requested at a time; the others follow when these are filled."""


class Dag:
    def __init__(self, me: int, expected: Sequence[int], base: int, reach: int = SEQ_JUMP_MAX) -> None:
        """Datagrams more than `reach` ahead of the DAG are not kept: a member that follows the protocol sends none."""
        starts = [first - 1 for first in expected]
        self._me = me
        self._reach = reach
        self._base = base
        self.stores = [DatagramStore(start) for start in starts]
        self.inserted = list(starts)
        self.named = list(starts)
        self.confirmed = list(starts)
        """The highest counter that two different members named in their data: what is missing up to it is lost, not just late."""
        self.leaves: dict[int, int] = {}
        """Rank of a leaf: its last counter."""
        self.lacking: set[int] = set()
        """Ranks of members of whose datagrams some are named but not held."""
        self.held_bytes = 0
        self.held_datagrams = 0
        """Datagrams of all nodes in the DAG."""
        self._claimed = list(starts)
        """The highest counter of each member that any data named, and in `_claimed_by` the rank whose data did."""
        self._claimed_by = list(range(len(starts)))
        self._collected = list(starts)
        self._nodes: deque[DagNode] = deque()
        self._ends: list[dict[int, DagNode]] = [{} for _ in starts]
        self._pasts = [list(starts) for _ in starts]
        self.stamped = [base] * len(starts)
        """The timestamp of each member's last node."""
        self._heads: dict[tuple[int, int], Acks] = {}
        self._ripe: deque[int] = deque()
        """Ranks whose next node may have become insertable."""
        self._blocked: list[set[int]] = [set() for _ in starts]
        """For each rank, the ranks whose next node waits for one of its nodes."""
        self._asked: list[tuple[int, Sequence[Nack]]] = []
        self._limbo: dict[int, int] = {}
        """Rank of a faulty member: its last counter that a node in the DAG follows."""
        self._broken: dict[int, str] = {}
        self._news: list[tuple[int, str]] = []
        self._is_checked = False

    # --- from datagrams to nodes ------------------------------------------------------------------------------------

    def receive(self, burst: Burst, *, own: bool = False) -> list[Burst]:
        """Keep the new datagrams of a burst and return them. My own bursts are not accepted from the network."""
        rank = burst.header.sender
        if (rank == self._me) != own or not self._is_plausible(burst):
            return []
        store = self.stores[rank]
        fresh = store.insert(burst)
        self._is_checked = False
        for part in fresh:
            if part.header.index == 0:
                self._read_head(part)
        if fresh:
            self._named_in_data(rank, burst.last_seq, rank)
            if store.aru >= self.named[rank]:
                self.lacking.discard(rank)
            self._ripe.append(rank)
        return fresh

    def _is_plausible(self, burst: Burst) -> bool:
        """Could a member that follows the protocol have sent it?"""
        header = burst.header
        return (
            0 < header.timestamp - self._base < TIMESTAMP_ROOM
            and header.index + len(burst) <= BURST_DATAGRAMS_MAX
            and burst.last_seq <= self.inserted[header.sender] + self._reach
            and not header.encapsulated
            and header.sender not in self._broken
        )

    def _read_head(self, part: Burst) -> None:
        """Read acknowledgements as soon as they are here: what they name may be missing."""
        rank, first = part.header.sender, part.first_seq
        head = decode_acks(memoryview(part.datagram(first))[DATA_HEADER_SIZE:])
        if isinstance(head, Acks):
            self._take_head(rank, first, head)
        elif not isinstance(head, Incomplete):
            self._break(rank, head.why)

    def _take_head(self, rank: int, first: int, head: Acks) -> None:
        for acked, counter in head.acks:
            if acked >= len(self.stores) or acked == rank or counter > self._farthest(acked):
                self._break(rank, f"acknowledges {counter} of rank {acked}")
                return
        self._heads[rank, first] = head
        if head.nacks and rank != self._me:
            self._asked.append((rank, head.nacks))
        for acked, counter in head.acks:
            self._named_in_data(acked, counter, rank)

    def _farthest(self, rank: int) -> int:
        """Up to where anybody may hold something of it. How many I have sent only I know."""
        return self.stores[rank].highest if rank == self._me else self.inserted[rank] + SEQ_JUMP_MAX

    def take_asked(self) -> list[tuple[int, Sequence[Nack]]]:
        """Requests in data since the last call, with who made them. A burst that waits for what I lost must not hide what its
        sender lost: otherwise two members that miss each other's datagrams would wait forever."""
        asked, self._asked = self._asked, []
        return asked

    def _named_in_data(self, rank: int, counter: int, by: int) -> None:
        """One member's data does not overtake its own, so what the data of two members names was sent well before."""
        self.name(rank, counter)
        claimed = self._claimed[rank]
        if by != self._claimed_by[rank]:
            self.confirmed[rank] = max(self.confirmed[rank], min(counter, claimed))
        if counter > claimed:
            self._claimed[rank], self._claimed_by[rank] = counter, by

    def name(self, rank: int, counter: int) -> None:
        """Somebody says that this counter exists. For my own datagrams, what I have sent counts."""
        if counter <= self.named[rank]:
            return
        self._is_checked = False
        if rank == self._me:
            self.named[rank] = self.stores[rank].highest
        elif counter <= self.inserted[rank] + SEQ_JUMP_MAX:
            self.named[rank] = counter
            if counter > self.stores[rank].aru:
                self.lacking.add(rank)

    def insert_ready(self) -> list[DagNode]:
        """All nodes that have become insertable, in the order in which they entered the DAG."""
        entered: list[DagNode] = []
        ripe = self._ripe
        while ripe:
            rank = ripe.popleft()
            while (node := self._next_node(rank)) is not None:
                self._insert(node)
                entered.append(node)
                ripe.extend(sorted(self._blocked[rank]))
                self._blocked[rank].clear()
        return entered

    def _next_node(self, rank: int) -> DagNode | None:
        """The next burst of a member as a node, if all of it is here and it follows only what is in the DAG."""
        first = self.inserted[rank] + 1
        if first > self.stores[rank].aru or rank in self._broken or first > self._limbo.get(rank, first):
            return None
        pieces = self._pieces(rank, first)
        if pieces is None:
            return None
        head = self._head(rank, pieces)
        if head is None or self._is_blocked(rank, head):
            return None
        past = self._past(rank, head)
        if past is None or not self._is_stamped_well(rank, pieces[0], head):
            self._break(rank, f"{pieces[0]!r} follows what it cannot follow")
            return None
        past[rank] = pieces[-1].last_seq
        return DagNode(self._base, rank, pieces, head.dep, past)

    def _pieces(self, rank: int, first: int) -> tuple[Burst, ...] | None:
        """The datagrams of the burst that begins at `first`, up to its last one; None if any is missing."""
        store = self.stores[rank]
        piece = store.at(first)
        assert piece is not None, "everything up to aru is held"
        if piece.header.index != 0:
            self._break(rank, f"{piece!r} begins in the middle of a burst")
            return None
        pieces = [piece]
        while not piece.ends_visit:
            after = store.at(piece.last_seq + 1)
            if after is None:
                return None
            if not _continues(piece, after):
                self._break(rank, f"{after!r} does not go on with {piece!r}")
                return None
            pieces.append(after)
            piece = after
        return tuple(pieces)

    def _head(self, rank: int, pieces: tuple[Burst, ...]) -> Acks | None:
        """The ACKS at the head of a whole burst; None if it does not begin with ACKS."""
        first = pieces[0].first_seq
        if (rank, first) not in self._heads:
            head = decode_acks(b"".join(body for piece in pieces for body in piece.bodies()))
            if not isinstance(head, Acks):
                self._break(rank, "a burst that ends within its acknowledgements")
                return None
            self._take_head(rank, first, head)
        return self._heads.get((rank, first))

    def _is_blocked(self, rank: int, head: Acks) -> bool:
        for acked, counter in head.acks:
            if self.inserted[acked] < counter:
                self._blocked[acked].add(rank)
                self._require(acked, counter)
                return True
        return False

    def put_in_limbo(self, rank: int) -> None:
        """Further bursts of a faulty member wait outside the DAG until a node that belongs in it follows them."""
        self._limbo.setdefault(rank, self.inserted[rank])

    def _require(self, rank: int, counter: int) -> None:
        """A node that belongs in the DAG follows this burst."""
        if counter > self._limbo.get(rank, counter):
            self._limbo[rank] = counter
            self._ripe.append(rank)

    def _past(self, rank: int, head: Acks) -> list[int] | None:
        """What a node with these acknowledgements follows; None if one of them does not name the end of a burst."""
        past = list(self._pasts[rank])
        for acked, counter in head.acks:
            node = self._ends[acked].get(counter)
            if node is not None:
                past = list(map(max, past, node.past))
            elif counter <= self._collected[acked]:
                past[acked] = max(past[acked], counter)
            else:
                return None
        return past

    def _is_stamped_well(self, rank: int, piece: Burst, head: Acks) -> bool:
        """Lamport's rule: is it later than everything that it follows and everything that its sender had delivered?"""
        ts = piece.header.timestamp
        if ts <= self.stamped[rank] or head.dep >= order_key(ts - self._base, rank):
            return False
        nodes = (self._ends[acked].get(counter) for acked, counter in head.acks)
        return all(node is None or node.ts < ts for node in nodes)

    def _insert(self, node: DagNode) -> None:
        rank, past = node.rank, node.past
        self._heads.pop((rank, node.first), None)
        self._nodes.append(node)
        self._ends[rank][node.last] = node
        self._pasts[rank] = past
        self.stamped[rank] = node.ts
        self.inserted[rank] = node.last
        self.held_bytes += node.size
        self.held_datagrams += node.last - node.first + 1
        for leaf in [leaf for leaf, last in self.leaves.items() if past[leaf] >= last]:
            del self.leaves[leaf]
        if rank != self._me:
            self.leaves[rank] = node.last

    def _break(self, rank: int, why: str) -> None:
        if rank not in self._broken:
            self._broken[rank] = why
            self._news.append((rank, why))

    def distrust(self, rank: int, why: str) -> None:
        """What it says beside its data makes no sense either."""
        self._break(rank, why)

    def is_broken(self, rank: int) -> bool:
        return rank in self._broken

    def take_broken(self) -> list[tuple[int, str]]:
        """Members found broken since the last call, and why: each is reported once."""
        news, self._news = self._news, []
        return news

    # --- what the others need ---------------------------------------------------------------------------------------

    @property
    def latest(self) -> int:
        """The highest timestamp in the DAG."""
        return max(self.stamped)

    @property
    def nodes(self) -> Sequence[DagNode]:
        """The nodes that are not collected, in the order of insertion: causes before effects."""
        return self._nodes

    def acks(self) -> tuple[tuple[int, int], ...]:
        """What my next burst acknowledges: all leaves. Inserting that burst ends their being leaves, so each goes out once."""
        return tuple(sorted(self.leaves.items()))

    def missing(self) -> Iterator[tuple[int, int, int]]:
        """(rank, first, last) of what is named and not held, in the order of ranks; only the lowest gaps of each."""
        for rank in sorted(self.lacking):
            for first, last in self.stores[rank].missing(self.named[rank], GAPS_MAX):
                yield rank, first, last

    def get(self, rank: int, first: int, last: int) -> Iterator[Burst]:
        """What is held of these datagrams, to be sent again."""
        return self.stores[rank].between(first, last)

    def holds_all(self, upto: Sequence[int]) -> bool:
        """Is everything up to these counters in the DAG?"""
        return all(have >= want for have, want in zip(self.inserted, upto, strict=True))

    def collect(self, stable: Sequence[int]) -> int:
        """Forget nodes that everybody has and that were delivered here, causes before effects; return how many."""
        count = 0
        nodes = self._nodes
        while nodes and nodes[0].delivered and nodes[0].last <= stable[nodes[0].rank]:
            node = nodes.popleft()
            self._is_checked = False
            del self._ends[node.rank][node.last]
            self._collected[node.rank] = node.last
            self.stores[node.rank].discard(node.last)
            self.held_bytes -= node.size
            self.held_datagrams -= node.last - node.first + 1
            count += 1
        return count

    @property
    def parked(self) -> int:
        """Datagrams that are held but not in the DAG yet: something before them is missing."""
        return sum(len(burst) for store, last in zip(self.stores, self.inserted, strict=True) for burst in store.after(last))

    def check(self) -> None:
        """Assert the invariants, unless nothing changed since the last call: most packets leave the DAG as it is."""
        if self._is_checked:
            return
        self._is_checked = True
        assert not self._ripe, "whatever was received was looked at"
        assert self.held_bytes == sum(node.size for node in self._nodes)
        assert self.held_datagrams == sum(node.last - node.first + 1 for node in self._nodes)
        assert sum(map(len, self._ends)) == len(self._nodes)
        for rank, store in enumerate(self.stores):
            store.check()
            assert self._collected[rank] <= self.inserted[rank] <= store.aru, "the DAG is made of what is held"
            assert store.highest <= self.named[rank]
            assert (rank in self.lacking) == (store.aru < self.named[rank])
        assert self._me not in self.leaves, "nobody acknowledges itself"
        for rank, last in self.leaves.items():
            assert self.inserted[rank] >= last
        for past in self._pasts:
            assert all(map(le, past, self.inserted)), "what a node in the DAG follows is in the DAG"


def _continues(before: Burst, after: Burst) -> bool:
    """Do the datagrams of `after` continue `before`: next in number, and equal in all that the datagrams of a burst share?"""
    expected = before.header._replace(seq=after.first_seq, index=before.header.index + len(before), last=after.header.last)
    return after.header == expected
