"""State transfer between members of a group, without I/O: who has the state, who gives it to whom, and from where on.

Members with state are also in a *companion group* of their group, whose views are therefore about them alone; everything
below happens in its order, which is one with that of the group (docs/groups.md, promise 1). Rules:
1. A member without the state multicasts Request. The place of the Request is the **cut**: what the group delivered before it is
   in the snapshot, what it delivers behind it is the joiner's own business.
2. At that place all holders know the same set of holders, and the lowest of them that was not tried in vain provides. The set
   travels with the snapshot; Ready adds to it, Request takes away, views shrink it; whoever came in by a merge is unknown
   until it said Ready again. After a merge two may provide at once: the joiner takes the first and refuses the other.
3. If everybody in the regular view asked since the view began, nobody has the state: one of them founds it. Those who had it and
   asked for another (`has_state`) come first, then the lowest.
4. Who waits for a provider asks again, with a new attempt, at every regular view (the provider may be gone, and rule 3 wants
   everybody's word), when somebody else founded, when a holder asked itself (`renounces`), and when the only holder invites.
5. Chunks and acknowledgements are private messages: they do not disturb the others and belong to no place.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Final, NamedTuple

import msgspec

from transis.types.errors import Rejection
from transis.types.ids import ProcessId, ViewKind
from transis.types.views import Address, GroupId, GroupView, group_id, private_name

COMPANION_SUFFIX: Final = " ⟨state⟩"
"""The companion of the group `orders` is the group `orders ⟨state⟩`; applications cannot join or address such names."""

TRANSFER_MARK: Final = group_id("\u2063state transfer")
"""An extra group in the address of private messages of a transfer. Its name is not printable, so it is nobody's group."""

_Text = Annotated[str, msgspec.Meta(max_length=4096)]


def companion_of(name: str) -> str:
    return name + COMPANION_SUFFIX


def transfer_address(process: ProcessId) -> Address:
    return Address((TRANSFER_MARK,), (private_name(process),))


# --- what is said -------------------------------------------------------------------------------------------------------------


class _TransferMessage(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Fields travel by position; tags are only ever appended."""


class StateRequest(_TransferMessage, frozen=True, tag=1):
    """In the companion group: give me the state as it is at this place. `tried` tried to, and failed.

    `has_state`: I have one, and want another. `renounces`: until here I was a holder, and may leave Requests unanswered.
    """

    attempt: int
    has_state: bool
    renounces: bool
    tried: tuple[ProcessId, ...]


class StateReady(_TransferMessage, frozen=True, tag=2):
    """In the companion group: I have the state. An invitation says also: and nobody else, ask again."""

    invitation: bool = False


class StateBegin(_TransferMessage, frozen=True, tag=3):
    """To the joiner: chunks of this attempt follow. `holders` is the set at the cut."""

    group: int
    attempt: int
    holders: tuple[ProcessId, ...]


class StateChunks(_TransferMessage, frozen=True, tag=4):
    group: int
    attempt: int
    chunks: list[bytes]


class StateEnd(_TransferMessage, frozen=True, tag=5):
    group: int
    attempt: int


class StateFailed(_TransferMessage, frozen=True, tag=6):
    """To the joiner: not from me. `final`: nor from anybody else."""

    group: int
    attempt: int
    why: _Text
    final: bool


class ChunksTaken(_TransferMessage, frozen=True, tag=7):
    """To the provider: one more Chunks was taken by `load`."""

    group: int
    attempt: int


class StateRefused(_TransferMessage, frozen=True, tag=8):
    """To the provider: no more of this attempt."""

    group: int
    attempt: int


PublicMessage = StateRequest | StateReady
PrivateMessage = StateBegin | StateChunks | StateEnd | StateFailed | ChunksTaken | StateRefused
TransferMessage = PublicMessage | PrivateMessage

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(TransferMessage)


def encode_transfer(message: TransferMessage) -> bytes:
    return _encoder.encode(message)


def decode_transfer(data: bytes) -> TransferMessage | Rejection:
    try:
        message: TransferMessage = _decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        return Rejection("transfer", str(error))
    return message


# --- who has it ---------------------------------------------------------------------------------------------------------------


class HolderTable:
    """Rules 2 and 3 as a function of the companion's order, from any regular view or cut on.

    A member keeps one at the place that its application reached, where it provides, and one at the place that has arrived, where
    it only looks for views and founders, as it may not know the holders there.
    """

    def __init__(self) -> None:
        self.members: tuple[ProcessId, ...] = ()
        self.present: frozenset[ProcessId] = frozenset()
        self.holders: set[ProcessId] = set()
        self.asking: dict[ProcessId, bool] = {}

    def copy(self) -> HolderTable:
        twin = HolderTable()
        twin.members, twin.present = self.members, self.present
        twin.holders, twin.asking = set(self.holders), dict(self.asking)
        return twin

    def heeds(self, sender: ProcessId) -> bool:
        """Words of those who left may come after them, as groups are open; they mean nothing then."""
        return sender in self.present

    def view(self, view: GroupView) -> None:
        self.present = frozenset(view.members)
        self.holders.intersection_update(view.members)
        if view.kind is ViewKind.REGULAR:
            self.holders.difference_update(view.joined)
            self.members = view.members
            self.asking = {}

    def request(self, sender: ProcessId, has_state: bool) -> ProcessId | None:
        """Who founds the state at this place, if anybody does."""
        assert self.heeds(sender)
        self.holders.discard(sender)
        self.asking[sender] = has_state
        if not self.members or not self.asking.keys() >= set(self.members):
            return None
        founder = min(self.members, key=lambda member: (not self.asking[member], member))
        self.holders, self.asking = {founder}, {}
        return founder

    def ready(self, sender: ProcessId) -> None:
        assert self.heeds(sender)
        self.holders.add(sender)
        self.asking.pop(sender, None)

    def provider(self, tried: tuple[ProcessId, ...]) -> ProcessId | None:
        return min(self.holders.difference(tried), default=None)


# --- the one who wants it -----------------------------------------------------------------------------------------------------


class TransferPhase(Enum):
    WAITING = "for a regular view"
    ASKING = "for its own Request to come to its place"
    CUT = "for a provider"
    LOADING = "for the chunks"
    DONE = "for nothing"


class SendRequest(NamedTuple):
    request: StateRequest


class MarkCut(NamedTuple):
    """Here. What arrived before is worth nothing once the snapshot of this attempt is loaded."""

    attempt: int


class LoadFrom(NamedTuple):
    provider: ProcessId
    attempt: int
    holders: tuple[ProcessId, ...]


class InterruptLoad(NamedTuple):
    """The chunks that were being loaded will not come to an end."""

    why: str


class DeclineOffer(NamedTuple):
    provider: ProcessId
    attempt: int


class FoundState(NamedTuple):
    """This member has the state because nobody else does. If a Request of its own is still on its way, Ready must follow it."""

    is_asking: bool


class GiveUp(NamedTuple):
    why: str


Action = SendRequest | MarkCut | LoadFrom | InterruptLoad | DeclineOffer | FoundState | GiveUp


class Acquisition:
    """One member on its way to the state, seen from what *arrives*: the application does not iterate meanwhile."""

    def __init__(self, me: ProcessId, has_state: bool, attempt: int) -> None:
        self.phase = TransferPhase.WAITING
        self.attempt = attempt
        self.provider: ProcessId | None = None
        self._me = me
        self._has_state = has_state
        self._renounces = has_state
        self._tried: tuple[ProcessId, ...] = ()

    def ask(self) -> list[Action]:
        self.phase, self.provider = TransferPhase.ASKING, None
        self.attempt += 1
        request = StateRequest(self.attempt, self._has_state, self._renounces, self._tried)
        self._renounces = False
        return [SendRequest(request)]

    def view(self, view: GroupView) -> list[Action]:
        lost = self.phase is TransferPhase.LOADING and self.provider not in view.members
        actions: list[Action] = [InterruptLoad(f"{self.provider}, who gave it, is gone")] if lost else []
        if lost:
            self.phase, self.provider = TransferPhase.WAITING, None
        if view.kind is ViewKind.REGULAR and self.phase in (TransferPhase.WAITING, TransferPhase.CUT):
            actions += self.ask()
        return actions

    def request(self, sender: ProcessId, request: StateRequest, founder: ProcessId | None) -> list[Action]:
        """`founder` is what the arrived table made of it."""
        if self.phase in (TransferPhase.LOADING, TransferPhase.DONE):
            return []
        mine = sender == self._me and request.attempt == self.attempt and self.phase is TransferPhase.ASKING
        if mine:
            self.phase = TransferPhase.CUT
        if founder == self._me:
            is_asking = self.phase is TransferPhase.ASKING
            self.phase = TransferPhase.DONE
            return [FoundState(is_asking)]
        unanswered = founder is not None or (request.renounces and sender != self._me)
        if self.phase is TransferPhase.CUT and unanswered:
            return self.ask()
        return [MarkCut(self.attempt)] if mine else []

    def ready(self, ready: StateReady) -> list[Action]:
        return self.ask() if ready.invitation and self.phase is TransferPhase.CUT else []

    def begin(self, sender: ProcessId, begin: StateBegin) -> list[Action]:
        if self.phase is not TransferPhase.CUT or begin.attempt != self.attempt:
            return [DeclineOffer(sender, begin.attempt)]
        self.phase, self.provider = TransferPhase.LOADING, sender
        return [LoadFrom(sender, begin.attempt, begin.holders)]

    def failed(self, sender: ProcessId, failed: StateFailed) -> list[Action]:
        if failed.attempt != self.attempt or self.phase not in (TransferPhase.CUT, TransferPhase.LOADING):
            return []
        if self.phase is TransferPhase.LOADING and sender != self.provider:
            return []
        if failed.final:
            self.phase = TransferPhase.DONE
            return [GiveUp(failed.why)]
        interrupted: list[Action] = [InterruptLoad(failed.why)] if self.phase is TransferPhase.LOADING else []
        self._tried += (sender,)
        return interrupted + self.ask()

    def is_from_provider(self, sender: ProcessId, attempt: int) -> bool:
        return self.phase is TransferPhase.LOADING and sender == self.provider and attempt == self.attempt

    def loaded(self) -> None:
        assert self.phase is TransferPhase.LOADING
        self.phase = TransferPhase.DONE


def group_of(message: PrivateMessage) -> GroupId:
    return GroupId(message.group)
