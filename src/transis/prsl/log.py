"""The log: the order as far as it is known here, the content of actions, and their colours.

    order:  |  trimmed   |  green, on disk  |  green, in memory  |     yellow     |          red: content without a place
            0         base.place        floor.place          green.place          end

1. Green actions keep their place for all time. Yellow ones are behind them, and may be replaced by an exchange; a yellow action
   that loses its place becomes red. `out` are the replica's own durable actions that were not delivered back yet (R7).
2. An action is *known* if its content is here or what is below the floor has it by number. Nothing is in the order whose content
   is not here (R2).
3. Memory does not grow with the log: below the *floor*, which is the newest checkpoint, everything is green and synced, and is
   read again from the disk (`History`) when somebody needs it. What was synced never changes, so that is no input: the same
   inputs still give the same outputs.
4. What a crash leaves is `Stored`: records applied one after the other, in the order in which they were written. It makes no
   difference between red and out: who starts folds all into red at its first view anyway.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Final, NamedTuple, Protocol

from transis.prsl.actions import Action, ActionId, batches
from transis.prsl.prefix import Base, Numbers, Prefix, next_digest
from transis.prsl.record import FOUNDING
from transis.prsl.votes import Voting
from transis.types.limits import RETRANSMITTED_MAX

DIGEST_STRIDE: Final = 64
"""A digest is kept for every so many places of the green order, to compare with those who are behind."""


class Marks(NamedTuple):
    """The small numbers that must survive: the last committed and the last attempted primary, the green line, what the
    application acknowledged (an offset), and for each replica how much it is known to have on disk, sorted."""

    committed: int = 0
    attempted: int = 0
    green: int = 0
    acked: int = 0
    lines: tuple[tuple[int, int], ...] = ()


class Snapshot(NamedTuple):
    """What goes with an application's snapshot: the prefix behind which it was taken, and the client keys that count there."""

    base: Base
    keys: tuple[tuple[bytes, int], ...] = ()
    evicted_to: int = 0


class Kept(NamedTuple):
    """The content of an action."""

    action: Action


class Placed(NamedTuple):
    """The order from `start` on is this, and nothing follows."""

    start: int
    ids: tuple[ActionId, ...]


class Trimmed(NamedTuple):
    """The order up to here is remembered as a base only; what the base has is dropped, wherever it was."""

    base: Base


class Taken(NamedTuple):
    """The newest snapshot that is complete and synced."""

    snapshot: Snapshot


class Checked(NamedTuple):
    """A checkpoint: where delivery stands. What is before it is not needed in memory, nor when the directory is opened."""

    checkpoint: Snapshot


class Ineffective(NamedTuple):
    """What is at this place has no effect: why, as an `Effect`. Readers leave it out."""

    place: int
    effect: int


StoreRecord = Kept | Placed | Trimmed | Taken | Checked | Ineffective | Marks | Voting


class Unreadable(Exception):
    """What is on the disk is not what was written; the text says what. If it is only the content of an action, which others have
    too, `place` and `action` say of which."""

    def __init__(self, why: str, place: int = -1, action: ActionId | None = None) -> None:
        super().__init__(why)
        self.place, self.action = place, action


class History(Protocol):
    """What is green and synced, from the base up to the newest checkpoint that was written. Raises `Unreadable`."""

    def actions(self, start: int, end: int) -> list[Action]:
        """From a place on, as many as one message may carry and can be read; at least one."""

    def digest_at(self, place: int) -> bytes:
        """The digest of the order up to a place."""

    def base_before(self, place: int, offset: int) -> Base | None:
        """The last checkpoint that is not behind the place, nor behind the offset."""


class Opened(NamedTuple):
    """What a replica finds when it starts. `order` and `content` are only what is behind the checkpoint."""

    base: Base
    checkpoint: Snapshot
    order: list[ActionId]
    content: dict[ActionId, Action]
    marks: Marks
    snapshot: Snapshot
    voting: Voting | None
    """With the ordering engine only."""
    history: History

    @property
    def end(self) -> int:
        return self.checkpoint.base.place + len(self.order)


class Stored:
    """What is on disk, in memory: all of it."""

    def __init__(self, base: Base) -> None:
        self.base = base
        self.order: list[ActionId] = []
        self.content: dict[ActionId, Action] = {}
        self.marks = Marks()
        self.voting: Voting | None = None
        self.snapshot = self.checkpoint = Snapshot(base)
        self.bases: list[Base] = []
        self.ineffective: dict[int, int] = {}

    def apply(self, record: StoreRecord) -> None:
        match record:
            case Kept(action):
                self.content[action.id] = action
            case Placed(start, ids):
                self.order[start - self.base.place :] = ids
            case Trimmed(base):
                self._trim(base)
            case Taken(snapshot):
                self.snapshot = snapshot
            case Checked(checkpoint):
                self.checkpoint = checkpoint
                self.bases.append(checkpoint.base)
            case Ineffective(place, effect):
                self.ineffective[place] = effect
            case Marks():
                self.marks = record
            case Voting():
                self.voting = record

    def _trim(self, base: Base) -> None:
        """Beyond the end of the order it is a snapshot of another replica: what follows, if anything, is placed again."""
        del self.order[: base.place - self.base.place]
        self.base = base
        self.bases = [one for one in self.bases if one.place > base.place]
        self.ineffective = {place: effect for place, effect in self.ineffective.items() if place >= base.place}
        numbers = Numbers(base.numbers)
        for action in [one for one in self.content if one in numbers]:
            del self.content[action]

    @property
    def end(self) -> int:
        return self.base.place + len(self.order)

    def opened(self) -> Opened:
        floor = self.checkpoint.base
        below = Numbers(floor.numbers)
        content = {one: action for one, action in self.content.items() if one not in below}
        order = self.order[floor.place - self.base.place :]
        return Opened(self.base, self.checkpoint, order, content, self.marks, self.snapshot, self.voting, self)

    # --- history ------------------------------------------------------------------------------------------------------

    def actions(self, start: int, end: int) -> list[Action]:
        assert self.base.place <= start < end <= self.end
        ids = self.order[start - self.base.place : min(end, start + RETRANSMITTED_MAX) - self.base.place]
        if ids[0] not in self.content:
            raise Unreadable(f"the content of place {start} is missing", start, ids[0])
        return next(batches([self.content[one] for one in takewhile(self.content.__contains__, ids)]))

    def digest_at(self, place: int) -> bytes:
        digest = self.base.digest
        for action in self.order[: place - self.base.place]:
            digest = next_digest(digest, action)
        return digest

    def base_before(self, place: int, offset: int) -> Base | None:
        """Places and offsets grow together."""
        count = min(
            bisect_right(self.bases, place, key=lambda base: base.place),
            bisect_right(self.bases, offset, key=lambda base: base.offset),
        )
        return self.bases[count - 1] if count else None


class Log:
    def __init__(self, opened: Opened) -> None:
        self.base = opened.base
        self.floor = opened.checkpoint.base
        self.below = Numbers(self.floor.numbers)
        """What is below the floor."""
        self._history: Final = opened.history
        self.order = list(opened.order)
        self.content = dict(opened.content)
        self.green = Prefix(self.floor)
        self.out: dict[ActionId, None] = {}
        placed = set(self.order)
        reds = sorted((one for one in self.content if one not in placed), key=lambda one: self.content[one].sort_key)
        self.red: dict[ActionId, None] = dict.fromkeys(reds)
        self.lts = max((action.lts for action in self.content.values()), default=0)
        self.lts = max(self.lts, self.floor.lts)
        self.highest = dict(self.below.highest)
        """Of each creator the highest number that is in the order or red: what an application may have seen."""
        for action in [*self.order, *self.red]:
            self._see(action)
        self.digests: dict[int, bytes] = {}
        self.advance(max(opened.marks.green, self.floor.place))

    @property
    def end(self) -> int:
        """The yellow line: how many actions have a place here."""
        return self.floor.place + len(self.order)

    def knows(self, action: ActionId) -> bool:
        return action in self.content or action in self.below

    def ids(self, start: int, end: int) -> list[ActionId]:
        assert start >= self.floor.place, f"place {start} is not in memory, which begins at {self.floor.place}"
        return self.order[start - self.floor.place : end - self.floor.place]

    def actions(self, start: int, end: int) -> list[Action]:
        return [self.content[one] for one in self.ids(start, end)]

    def batch(self, start: int, end: int) -> list[Action]:
        """Green actions from a place on, wherever they are: as many as one message may carry."""
        assert self.base.place <= start < end, f"place {start} is trimmed, the log begins at {self.base.place}"
        if start < self.floor.place:
            return self._history.actions(start, min(end, self.floor.place))
        return next(batches(self.actions(start, min(end, start + RETRANSMITTED_MAX))))

    def _see(self, action: ActionId) -> None:
        creator, lane, number = action
        if not lane and number > self.highest.get(creator, 0):
            self.highest[creator] = number

    # --- colours ------------------------------------------------------------------------------------------------------

    def post(self, action: Action) -> None:
        """An action of this replica: it stays apart until it is delivered or a view folds it in."""
        assert not self.knows(action.id)
        self.content[action.id] = action
        self.out[action.id] = None
        self.lts = max(self.lts, action.lts)

    def redden(self, action: Action) -> None:
        """The action came, and its place is not known yet."""
        assert not self.knows(action.id)
        self.content[action.id] = action
        self._make_red(action.id)
        self.lts = max(self.lts, action.lts)

    def came_back(self, action: ActionId) -> None:
        """One of our own was delivered, or is folded in at a view."""
        del self.out[action]
        self._make_red(action)

    def _make_red(self, action: ActionId) -> None:
        self.red[action] = None
        self._see(action)

    def append(self, action: ActionId) -> None:
        """The next yellow action."""
        assert action in self.content, f"{action} would have a place and no content"
        del self.red[action]
        self.order.append(action)

    def replace(self, start: int, ids: Sequence[ActionId]) -> int:
        """The order from `start` on becomes this; returns the first place that differs. What loses its place becomes red."""
        same = 0
        tail = self.ids(start, self.end)
        while same < min(len(tail), len(ids)) and tail[same] == ids[same]:
            same += 1
        first = start + same
        assert first >= self.green.place or first == start + len(ids) == self.end, f"green place {first} would change"
        del self.order[first - self.floor.place :]
        for action in tail[same:]:
            assert action != FOUNDING or action in ids, "the founding would lose its place"
            self.red[action] = None
        for action in ids[same:]:
            assert action in self.content, f"{action} would have a place and no content"
            self.red.pop(action, None)
            self.out.pop(action, None)
            self._see(action)
        self.order += ids[same:]
        return first

    def advance(self, place: int) -> None:
        """The green line moves up to here."""
        for action in self.actions(self.green.place, place):
            self.green.take(action)
            if self.green.place % DIGEST_STRIDE == 0:
                self.digests[self.green.place] = self.green.digest

    # --- digests, floor, base -----------------------------------------------------------------------------------------

    def digest_at(self, place: int) -> bytes | None:
        """The digest of the order up to a green place, None if that is trimmed."""
        if place == self.green.place:
            return self.green.digest
        if not self.base.place <= place < self.green.place:
            return None
        if place == self.base.place:
            return self.base.digest
        if place < self.floor.place:
            return self._history.digest_at(place)
        start = place - place % DIGEST_STRIDE
        if start not in self.digests:
            start = self.floor.place
        digest = self.digests.get(start, self.floor.digest)
        for action in self.ids(start, place):
            digest = next_digest(digest, action)
        return digest

    def base_before(self, place: int, offset: int) -> Base | None:
        return self._history.base_before(place, offset)

    def raise_floor(self, floor: Base) -> None:
        """What is below it is on disk, and leaves the memory."""
        self._forget(self.ids(self.floor.place, floor.place))
        del self.order[: floor.place - self.floor.place]
        self.floor, self.below = floor, Numbers(floor.numbers)
        self.digests = {place: digest for place, digest in self.digests.items() if place > floor.place}

    def trim(self, base: Base) -> None:
        self.base = base
        if base.place > self.floor.place:
            self.raise_floor(base)

    def load(self, base: Base, rest: Sequence[ActionId]) -> None:
        """A snapshot of another replica takes the place of all below it; `rest` of the order stays behind it."""
        stay = set(rest)
        old = [*(one for one in self.order if one not in stay), *self.red]
        self.base = self.floor = base
        self.below, self.green = Numbers(base.numbers), Prefix(base)
        self.order, self.digests = list(rest), {}
        self.red = dict.fromkeys(one for one in old if one not in self.below)
        self.out = dict.fromkeys(one for one in self.out if one not in self.below)
        self._forget([one for one in self.content if one in self.below])
        self.lts = max(self.lts, base.lts)
        for creator, number in self.below.highest.items():
            self.highest[creator] = max(number, self.highest.get(creator, 0))

    def _forget(self, ids: Iterable[ActionId]) -> None:
        for action in ids:
            del self.content[action]
