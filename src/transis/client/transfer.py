"""State transfer between members of a group, without I/O: who has the state, who provides it to whom, and from which place on.

Members of a group with state also join its *companion group*, whose views are therefore about them alone. Everything below
happens in the order of the companion, which is the same as that of the group (docs/groups.md, promise 1).

1. A member without the state multicasts a request. The place of the request is the **cut**: the snapshot holds what the group
   delivered before it; what is delivered after it, the joiner applies itself.
2. At that place all holders know the same set of holders. The lowest that the joiner has not already tried provides the state.
   The set travels with the snapshot. Ready adds a member to it, a request removes one, views shrink it; members that came by a
   merge are not holders until they say Ready again. After a merge two may provide at once: the joiner takes the first and refuses
   the other.
3. If every member of the regular view has asked since the view began, nobody has the state, and one of them founds it: first
   those that had a state and asked for another (`has_state`), then the lowest.
4. A member that waits for a provider asks again, with a new attempt: at every regular view (the provider may be gone, and rule 3
   needs a request from everybody), when another member founds the state, when a holder asks itself (`renounces`), and when the
   only holder invites it.
5. Chunks and acknowledgements are private messages: they have no place in the order and do not disturb the other members.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Final, NamedTuple

import msgspec

from transis.types.errors import Rejection
from transis.types.ids import ProcessId, ViewKind
from transis.types.views import Address, GroupId, GroupView, group_id, private_name

COMPANION_SUFFIX: Final = " ⟨state⟩"
"""The companion of group `orders` is `orders ⟨state⟩`; applications cannot join or address such names."""

TRANSFER_MARK: Final = group_id("\u2063state transfer")
"""An extra group in the address of a transfer's private messages. Its name is not printable, so nobody else uses it."""

_Text = Annotated[str, msgspec.Meta(max_length=4096)]


def companion_of(name: str) -> str:
    return name + COMPANION_SUFFIX


def transfer_address(process: ProcessId) -> Address:
    return Address((TRANSFER_MARK,), (private_name(process),))


# --- messages ---------------------------------------------------------------------------------------------------------


class _TransferMessage(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Fields are encoded by position; new tags are only ever appended."""


class StateRequest(_TransferMessage, frozen=True, tag=1):
    """In the companion group: send me the state as it is at this place. The members in `tried` have failed to.

    `has_state`: I have a state and want another. `renounces`: I was a holder until here and may leave requests unanswered.
    """

    attempt: int
    has_state: bool
    renounces: bool
    tried: tuple[ProcessId, ...]


class StateReady(_TransferMessage, frozen=True, tag=2):
    """In the companion group: I have the state. As an invitation also: I am the only holder, ask again."""

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
    """To the joiner: I cannot provide it. `final`: nobody else can."""

    group: int
    attempt: int
    why: _Text
    final: bool


class ChunksTaken(_TransferMessage, frozen=True, tag=7):
    """To the provider: `load` took one more message of chunks."""

    group: int
    attempt: int


class StateRefused(_TransferMessage, frozen=True, tag=8):
    """To the provider: stop sending this attempt."""

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


# --- holders ----------------------------------------------------------------------------------------------------------


class HolderTable:
    """Rules 2 and 3 as a function of the companion's order, starting from any regular view or cut.

    A member keeps two of them: one at the place its application has reached, where it provides the state, and one at the place
    that has arrived, where it only looks for views and founders, because it may not know the holders there.
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
        """Groups are open, so messages of members that left may still come; they are ignored."""
        return sender in self.present

    def view(self, view: GroupView) -> None:
        self.present = frozenset(view.members)
        self.holders.intersection_update(view.members)
        if view.kind is ViewKind.REGULAR:
            self.holders.difference_update(view.joined)
            self.members = view.members
            self.asking = {}

    def request(self, sender: ProcessId, has_state: bool) -> ProcessId | None:
        """The member that founds the state at this place, if one does."""
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


# --- acquisition ------------------------------------------------------------------------------------------------------


class TransferPhase(Enum):
    WAITING = "waits for a regular view"
    ASKING = "waits for its own request to arrive"
    CUT = "waits for a provider"
    LOADING = "waits for chunks"
    DONE = "done"


class SendRequest(NamedTuple):
    request: StateRequest


class MarkCut(NamedTuple):
    """The cut is here: the snapshot of this attempt will contain what arrived before."""

    attempt: int


class LoadFrom(NamedTuple):
    provider: ProcessId
    attempt: int
    holders: tuple[ProcessId, ...]


class InterruptLoad(NamedTuple):
    """The chunks being loaded will not be complete."""

    why: str


class DeclineOffer(NamedTuple):
    provider: ProcessId
    attempt: int


class FoundState(NamedTuple):
    """This member founds the state, because nobody has one. If its own request is still on its way, Ready must follow it."""

    is_asking: bool


class GiveUp(NamedTuple):
    why: str


Action = SendRequest | MarkCut | LoadFrom | InterruptLoad | DeclineOffer | FoundState | GiveUp


class Acquisition:
    """One member acquiring the state, driven by what *arrives*: its application does not iterate meanwhile."""

    def __init__(self, me: ProcessId, has_state: bool, attempt: int) -> None:
        self.phase: TransferPhase = TransferPhase.WAITING
        self.attempt: int = attempt
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
        actions: list[Action] = [InterruptLoad(f"its provider {self.provider} is gone")] if lost else []
        if lost:
            self.phase, self.provider = TransferPhase.WAITING, None
        if view.kind is ViewKind.REGULAR and self.phase in (TransferPhase.WAITING, TransferPhase.CUT):
            actions += self.ask()
        return actions

    def request(self, sender: ProcessId, request: StateRequest, founder: ProcessId | None) -> list[Action]:
        """`founder` is the outcome of this request in the table of what has arrived."""
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
