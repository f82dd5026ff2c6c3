"""The flush barrier: who promised to install which proposal, and which one this machine may install (W18).

Pure. FLUSHED says: I hold all that the proposal needs, and whatever I state from now on covers it. Deviations: (M7) only the
proposal that was flushed *last* may be installed, because who flushed a later one has left the earlier for good (without this
W18 is not enough: a late packet of the earlier view would split the members of the later one); (M8) who has flushed a proposal
and hears anything of its view installs it at once, because its sender had the FLUSHED of all (W1, W6).
"""

from __future__ import annotations

from transis.lansis.packets import Flushed
from transis.lansis.proposal import Proposal
from transis.types.ids import NodeId, RingTag


class Barrier:
    def __init__(self) -> None:
        self.assented: Proposal | None = None
        """What everybody in it stated, and I try to hold all of; nothing while sets still grow."""
        self.flushed: Proposal | None = None
        """The only one that I may install."""
        self._said: dict[NodeId, tuple[int, bytes]] = {}

    def flush(self, me: NodeId) -> None:
        """All of what was assented to is held here. An earlier promise is abandoned by this one."""
        assert self.assented is not None
        self.flushed = self.assented
        self._said[me] = self.flushed.id.seq, self.flushed.digest

    def heard(self, said: Flushed) -> None:
        """It may come before my own assent. Of each machine only the last promise counts; later ones have no lower numbers."""
        if said.next_view.seq >= self._said.get(said.sender, (0, b""))[0]:
            self._said[said.sender] = said.next_view.seq, said.proposal

    def has_flushed(self, node: NodeId, proposal: Proposal) -> bool:
        return self._said.get(node, (0, b""))[1] == proposal.digest

    def lacking(self, proposal: Proposal) -> list[NodeId]:
        return [node for node in proposal.members if not self.has_flushed(node, proposal)]

    def installable(self) -> Proposal | None:
        """The proposal that I flushed last, if all of its members have flushed it."""
        return self.flushed if self.flushed is not None and not self.lacking(self.flushed) else None

    def hearsay(self, tag: RingTag) -> Proposal | None:
        """Somebody is in the view of this tag. Is it the one that I promised to install?"""
        return self.flushed if self.flushed is not None and tag == self.flushed.tag else None
