"""One ring as one of its members sees it: the members in token order, the store, and the token's local state.

The names are those of TOCS95 section 4 (protocols 1.2): `token_seq` is my_token_seq *as received* (F6), `safe_upto` the
highest number known to be everywhere, `high_delivered` my_high_delivered.
"""

from __future__ import annotations

from transis.engine.store import Store
from transis.types.ids import NodeId, RingId, ViewId, ViewKind


class Ring:
    def __init__(self, ring_id: RingId, members: tuple[NodeId, ...], me: NodeId) -> None:
        assert members[0] == ring_id.rep, "the representative is first in token order"
        assert len(set(members)) == len(members)
        self.id = ring_id
        self.tag = ring_id.tag
        self.members = members
        self.member_set = frozenset(members)
        self.rank = members.index(me)
        self.store = Store()
        self.token_seq = 0
        self.token_at = 0
        self.seq_seen = 0
        """seq of the token at my previous visit: what is missing up to here is asked for (D6)."""
        self.last_aru_sent = 0
        self.safe_upto = 0
        self.high_delivered = 0
        self.early: set[int] = set()
        """Basic datagrams delivered on receipt, ahead of their place."""
        self.my_last = 0
        self.my_last_backlog = 0
        self.last_fcc = 0
        """Datagrams of the last rotation and bytes queued at everybody, as the token said when it left here."""
        self.last_backlog = 0
        self.last_missing = 0
        self.own_seq = 0
        """The last sequence number that I assigned on this ring."""
        self.aru_still = 0
        self.aru_still_id = 0
        self.aru_still_since = 0
        self.idle_visits = 0
        self.forwarded_idle = False

    @property
    def view_id(self) -> ViewId:
        return ViewId(ViewKind.REGULAR, self.id.seq, self.id.rep)

    @property
    def successor(self) -> int:
        return (self.rank + 1) % len(self.members)

    @property
    def predecessor(self) -> int:
        return (self.rank - 1) % len(self.members)

    @property
    def is_singleton(self) -> bool:
        return len(self.members) == 1

    @property
    def i_represent(self) -> bool:
        return self.rank == 0

    def check(self) -> None:
        self.store.check()
        assert self.high_delivered <= self.store.aru, "delivered only what is contiguous"
        assert self.store.discarded <= self.high_delivered
        assert self.store.discarded <= max(self.safe_upto, 0)
        assert self.safe_upto <= self.store.aru, "safe means that I have it too"
