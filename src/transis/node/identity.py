"""Who may run under a name (protocols C4): probing at start, and supersession while running.

1. The incarnation is durable before any packet carries it.
2. At start a node asks for gather_min whether its name is taken; a live holder answers, and the newcomer stops. Of two that ask
   at once, the later life answers the other, and of two copies the one with the lower boot id. Only an answer stops a newcomer,
   never a question: an answer names the boot id that asked, so it is fresh, while a question may be replayed.
3. Later the newer incarnation wins, and an older one that hears it stops.
4. The same incarnation with another boot id means a copied state directory. A newcomer stops before it runs; if both run already
   (a partition hid them), the one with the higher boot id stops, and no answer stops the other: each answer names the life that
   its witness knows.
5. An incarnation below one that somebody knows means a lost or restored state directory; it is refused, with the remedy.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum
from typing import Final

from transis.types.ids import NodeId
from transis.types.limits import KNOWN_NAMES_MAX
from transis.types.outputs import NEVER
from transis.wire.control import ControlPacket, Probe, ProbeAnswer, introduces

PROBES: Final = 3
"""How often the question is asked during gather_min: two may be lost."""


class Stage(Enum):
    PERSISTING = "the incarnation is being written"
    PROBING = "asking who has the name"
    RUNNING = "running"
    REFUSED = "may not run"


_REMEDY: Final = {
    "taken": "a live node has this name: choose another name, or stop the other node first",
    "copied": "another life with this very incarnation is known, so this state directory is a copy, or was lost and made anew: "
    "give this node a directory and a name of its own",
    "stale": "a later life of this name is known, so this state directory was lost or restored from an old copy: "
    "start with a new name, or restore the newest directory",
}


class Identity:
    """Decides from control packets whether this node may go on, and what to answer to others."""

    def __init__(self, me: NodeId, address: str, probe_us: int) -> None:
        self.me = me
        self.stage = Stage.PERSISTING
        self.refusal = ""
        self._address = address
        self._probe_us = probe_us
        self._probe_at = NEVER
        self._run_at = NEVER
        self._known: OrderedDict[str, NodeId] = OrderedDict()

    # --- starting ---------------------------------------------------------------------------------------------------

    def durable(self, now: int) -> None:
        """The incarnation is on disk: packets may carry it from now on."""
        if self.stage is Stage.PERSISTING:
            self.stage = Stage.PROBING
            self._probe_at = now
            self._run_at = now + self._probe_us

    def deadline(self) -> int:
        return min(self._probe_at, self._run_at) if self.stage is Stage.PROBING else NEVER

    def wake(self, now: int) -> Probe | None:
        """A question to send now, if one is due. When the time is over, the stage becomes RUNNING."""
        if self.stage is not Stage.PROBING:
            return None
        if now >= self._run_at:
            self.stage = Stage.RUNNING
            return None
        if now >= self._probe_at:
            self._probe_at = now + self._probe_us // PROBES
            return Probe(self.me, self._address)
        return None

    # --- packets ----------------------------------------------------------------------------------------------------

    def inspect(self, packet: ControlPacket) -> tuple[bool, ProbeAnswer | None]:
        """Whether the engine should see the packet, and what to answer, if anything."""
        if isinstance(packet, Probe):
            return False, self._judge(packet.sender, probing=True)
        if isinstance(packet, ProbeAnswer):
            self._answered(packet)
            return False, None
        if introduces(packet):
            answer = self._judge(packet.sender, probing=False)
            return answer is None and packet.sender.name != self.me.name, answer
        return True, None

    def _judge(self, sender: NodeId, *, probing: bool) -> ProbeAnswer | None:
        """What a packet of `sender` means for me, and what I must tell it."""
        if sender == self.me or self.stage in (Stage.PERSISTING, Stage.REFUSED):
            return None
        if sender.name == self.me.name:
            return self._judge_namesake(sender, probing=probing)
        known = self._known.get(sender.name, sender) if probing else self._remember(sender)
        if _outranks(known, sender) or (probing and known.incarnation == sender.incarnation and known != sender):
            verdict = "copied" if known.incarnation == sender.incarnation else "stale"
            return ProbeAnswer(sender, self.me, verdict, known)
        return None

    def _judge_namesake(self, sender: NodeId, *, probing: bool) -> ProbeAnswer | None:
        copied = sender.incarnation == self.me.incarnation
        if probing:
            if self.stage is Stage.PROBING and not _outranks(self.me, sender):
                return None  # If it is alive, it answers our own question; a replayed question does not.
            return ProbeAnswer(sender, self.me, "copied" if copied else "taken", self.me)
        if sender.incarnation > self.me.incarnation:
            self._refuse(f"superseded by {sender}, a later life of this name")
        elif copied and sender.boot < self.me.boot:
            self._refuse(_REMEDY["copied"])
        return None

    def _answered(self, answer: ProbeAnswer) -> None:
        """A running node believes only a witness that knows a life that outranks it: somebody may have replayed its question, and
        the witness may know only the copy that has to stop."""
        if answer.about != self.me or self.stage not in (Stage.PROBING, Stage.RUNNING):
            return
        from_witness = answer.by.name != self.me.name and answer.verdict != "taken" and _outranks(answer.known, self.me)
        if from_witness or self.stage is Stage.PROBING:
            self._refuse(_REMEDY[answer.verdict])

    def _remember(self, sender: NodeId) -> NodeId:
        """Remember and return the newest known life of a name; if there are too many, forget the name heard longest ago."""
        known = self._known.get(sender.name, sender)
        newest = sender if _outranks(sender, known) else known
        self._known[sender.name] = newest
        self._known.move_to_end(sender.name)
        if len(self._known) > KNOWN_NAMES_MAX:
            self._known.popitem(last=False)
        return newest

    def _refuse(self, why: str) -> None:
        self.stage = Stage.REFUSED
        self.refusal = why

    def give_up(self) -> None:
        """The node leaves before it ran: it asks and answers no more."""
        self._refuse("left")


def _outranks(one: NodeId, other: NodeId) -> bool:
    """Of two lives of a name the later one outranks; of two copies of one life the one with the lower boot id (rule 4)."""
    return one.incarnation > other.incarnation or (one.incarnation == other.incarnation and one.boot < other.boot)
