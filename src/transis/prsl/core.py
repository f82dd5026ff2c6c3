"""What the parts of a replica share: its log and journal, the view it is in, and what it hands out.

The journal is the W-rule: `write` collects records, `then` says what follows when all written so far is synced. While a commit is
under way the replica goes on taking events; only what depends on the commit waits. `durable` is how far the order on disk is the
order in memory: an action is handed to the application only below it (R6), and only that much is acknowledged.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Final, Literal, NamedTuple

from transis.prsl.actions import Action, ActionId
from transis.prsl.log import Checked, Kept, Log, Marks, Opened, Placed, Snapshot, StoreRecord, Trimmed, Unreadable
from transis.prsl.messages import BulkMessage, Message, State, encode
from transis.prsl.outputs import Append, Bulk, Multicast, Output, Stopped
from transis.prsl.plan import Plan
from transis.prsl.prefix import Base, Numbers
from transis.prsl.record import Record
from transis.types.ids import ProcessId
from transis.types.limits import PENDING_MAX


class Config(NamedTuple):
    """`founders` is empty for a newcomer, which waits until a JOIN or REPLACE names its directory."""

    name: str
    directory: bytes
    founders: tuple[str, ...]
    life: int = 1
    behind_max: int = 8 << 20
    """Bytes of green actions that an exchange waits for; who lacks more is behind (R3)."""
    out_max: int = 256 << 20
    """Bytes of own actions that are not green; more are refused."""
    keys_max: int = 100_000
    """Client keys that are remembered: the same at all replicas."""
    keep_places: int | None = None
    """Trim all but so many green actions, even if members lack them; None: trim only what is on every member's disk."""
    acks_of_all: bool = False
    """Green needs the acknowledgement of every member in the view, not only of a majority."""
    explicit_ack: bool = False
    """Keep what this application has not acknowledged."""
    tail_max: int = 1 << 20
    """Bytes of delivered actions that stay in memory; what is older is read from the disk."""
    is_replayed: bool = True
    """The application begins at its newest snapshot again. Else it goes on where delivery stood, somewhat earlier: at the newest
    checkpoint."""
    ordering: Literal["corel", "engine"] = "corel"
    """Who may give places, and when they are final: the same at all replicas (corel.py, engine.py)."""
    servers_min: int = 1
    """engine: how many of the last primary's servers a view needs at least, so that a primary does not shrink below it."""
    line_stride: int = 256
    """engine: a replica that says nothing tells after so many places that they are on its disk."""


class Stage(IntEnum):
    """How far a view has come."""

    STATES = 0
    CONTENT = 1
    MINORITY = 2
    ATTEMPT = 3
    PRIMARY = 4


class Round:
    """One regular view of the replicas' group.

    1. `order` is the view's order behind the plan's green place, by ids, carried on alike by all, also by those that are behind
       (R22). Who has entered the primary has it in the log, and remembers only its `length`.
    2. `seen` has all that is green by the plan or in the view's order: whether an action is new or complete is asked of it.
    """

    def __init__(self, tag: int, members: Sequence[ProcessId]) -> None:
        self.tag: Final = tag
        self.members = set(members)
        self.stage = Stage.STATES
        self.is_over = False
        self.states: dict[ProcessId, State] = {}
        self.pending: dict[ActionId, Action] = {}
        self.plan: Plan | None = None
        self.wanted: set[ActionId] = set()
        self.wanted_places: set[int] = set()
        self.greens: dict[int, Action] = {}
        self.is_behind = False
        self.seen: Numbers | None = None
        self.order: list[ActionId] = []
        self.length = 0
        self.record: Record | None = None
        self.counting: list[Record] = []
        self.attempts: set[int] = set()
        self.primary = 0
        self.is_committed = False
        self.acks: dict[int, int] = {}
        self.acked = 0
        self.may_acknowledge = False
        self.attempting: frozenset[int] = frozenset()
        self.caught_up: set[int] = set()
        self.providers: list[ProcessId] = []

    def wait(self, action: Action) -> None:
        """Until what it depends on comes. Beyond the limit it is dropped, by all alike; its creator tells it again."""
        if len(self.pending) < PENDING_MAX:
            self.pending[action.id] = action

    def take_pending(self) -> list[Action]:
        """Something new is known: look at all of them again."""
        waiting = list(self.pending.values())
        self.pending.clear()
        return waiting

    @property
    def numbers(self) -> set[int]:
        return {state.number for state in self.states.values()}

    def by_number(self) -> dict[int, State]:
        return {state.number: state for state in self.states.values()}


class Peer:
    """What is known of a replica: the part of its order that is synced and green (line), and what it told last."""

    __slots__ = ("acked", "green", "line")

    def __init__(self, line: int = 0) -> None:
        self.line, self.green, self.acked = line, 0, 0


class Journal:
    def __init__(self, durable: int) -> None:
        self.durable = durable
        self.ticket = 0
        self._records: list[StoreRecord] = []
        self._after: list[Callable[[], None]] = []
        self._open: deque[tuple[int, list[Callable[[], None]]]] = deque()
        self._ends: dict[int, int] = {}

    def write(self, record: StoreRecord) -> None:
        self._records.append(record)

    def then(self, act: Callable[[], None]) -> None:
        self._after.append(act)

    def cap(self, place: int) -> None:
        """The order on disk is no longer that in memory from this place on, until what is written next is synced."""
        self.durable = min(self.durable, place)
        for ticket, end in self._ends.items():
            self._ends[ticket] = min(end, place)

    def close(self, end: int) -> Append | None:
        """What was written since the last call becomes one transaction; the order then goes up to `end`."""
        if not self._records:
            return None
        self.ticket += 1
        append = Append(self.ticket, tuple(self._records))
        self._open.append((self.ticket, self._after))
        self._ends[self.ticket] = end
        self._records, self._after = [], []
        return append

    def ready(self) -> list[Callable[[], None]]:
        """What waits for nothing: nothing was written, and everything before is synced."""
        if not self._after:
            return []
        if self._open:
            self._open[-1][1].extend(self._after)
            self._after = []
            return []
        now, self._after = self._after, []
        return now

    def persisted(self, ticket: int) -> list[Callable[[], None]]:
        found, after = self._open.popleft()
        assert found == ticket, f"ticket {ticket} was persisted before {found}"
        self.durable = max(self.durable, self._ends.pop(ticket))
        return after

    @property
    def is_clean(self) -> bool:
        return not self._open and not self._records


class Core:
    def __init__(self, config: Config, opened: Opened) -> None:
        self.config: Final = config
        self.log: Final = Log(opened)
        self.journal: Final = Journal(opened.end)
        self.outputs: list[Output] = []
        self.round: Round | None = None
        self.committed = opened.marks.committed
        self.attempted = opened.marks.attempted
        self.voting = opened.voting
        self.acked = self.acked_synced = opened.marks.acked
        self.peers: dict[int, Peer] = {number: Peer(line) for number, line in opened.marks.lines}
        self.number = 0
        self.is_hung = False
        self.is_stopped = False
        self.trouble = ""
        self.why = ""
        self.waits_for: frozenset[int] = frozenset()
        self.told: dict[int, int] = {}
        """What the last own action depended on, with all before it."""
        self.rejections: Counter[str] = Counter()
        self.damaged: dict[int, ActionId] = {}
        """Green places whose content cannot be read here (repair.py)."""
        self.find_number()

    def find_number(self) -> None:
        """Which replica this is, by its own green record."""
        self.number = self.log.green.record.number_of(self.config.name, self.config.directory)

    def peer(self, number: int) -> Peer:
        return self.peers.setdefault(number, Peer())

    def lines(self) -> tuple[tuple[int, int], ...]:
        """How much of the order is known to be on the disk of each replica, as far as it is green here."""
        return tuple(sorted((number, peer.line) for number, peer in self.peers.items() if peer.line))

    # --- what goes out ------------------------------------------------------------------------------------------------

    def send(self, message: Message, *, is_safe: bool = False) -> None:
        self.outputs.append(Multicast(encode(message), is_safe))

    def send_to(self, process: ProcessId, message: BulkMessage) -> None:
        self.outputs.append(Bulk(process, encode(message)))

    def stop(self, why: str) -> None:
        if not self.is_stopped:
            self.is_stopped = True
            self.round = None
            self.outputs.append(Stopped(why))

    def then(self, round_: Round, act: Callable[[], None]) -> None:
        """When all that is written is synced, unless the regular view is over by then."""
        self.journal.then(lambda: act() if self.round is round_ and not round_.is_over else None)

    def acknowledge(self, offset: int) -> None:
        """The application needs nothing before the offset; others are told when that is synced."""
        self.acked = offset
        self.write_marks()
        self.journal.then(lambda: self._acknowledged(offset))

    def _acknowledged(self, offset: int) -> None:
        self.acked_synced = offset

    @property
    def synced_line(self) -> int:
        """How much of the order is green and on this disk."""
        return min(self.journal.durable, self.log.green.place)

    def write_marks(self) -> None:
        self.journal.write(Marks(self.committed, self.attempted, self.log.green.place, self.acked, self.lines()))

    # --- the log, in memory and on disk ---------------------------------------------------------------------------------

    @property
    def held_from(self) -> int:
        """From which place on others may count on this replica's content."""
        return max([self.log.base.place, *(place + 1 for place in self.damaged)])

    def batch(self, start: int, end: int) -> list[Action]:
        """Green actions from a place on, as many as one message may carry; none if the first cannot be read."""
        if start in self.damaged:
            return []
        try:
            return self.log.batch(start, end)
        except Unreadable as error:
            self.found(error)
            return []

    def digest_at(self, place: int) -> bytes | None:
        try:
            return self.log.digest_at(place)
        except Unreadable as error:
            self.found(error)
            return None

    def base_before(self, place: int, offset: int) -> Base | None:
        try:
            return self.log.base_before(place, offset)
        except Unreadable as error:
            self.found(error)
            return None

    def trim(self, base: Base) -> None:
        self.damaged = {place: action for place, action in self.damaged.items() if place >= base.place}
        self.log.trim(base)
        self.journal.write(Trimmed(base))
        self.write_marks()

    def found(self, error: Unreadable) -> None:
        """Damage on the disk. Others have the content; an order cannot be guessed."""
        if error.action is not None:
            self.damaged[error.place] = error.action
        else:
            self.stop(f"{error}: keep the directory aside, and have this replica replaced by a new one")

    def keep(self, action: Action) -> None:
        """Have the content, as red if it has no place. Our own comes back."""
        if action.id in self.log.out:
            self.log.came_back(action.id)
        elif not self.log.knows(action.id):
            self.log.redden(action)
            self.journal.write(Kept(action))

    def replace(self, start: int, ids: Sequence[ActionId]) -> None:
        first = self.log.replace(start, ids)
        self.journal.cap(first)
        self.journal.write(Placed(first, tuple(ids[first - start :])))

    def append(self, action: ActionId) -> None:
        self.log.append(action)
        self.journal.write(Placed(self.log.end - 1, (action,)))

    def check(self, checkpoint: Snapshot) -> None:
        """Everything before it is delivered, so it is synced: it leaves the memory."""
        self.log.raise_floor(checkpoint.base)
        self.journal.write(Checked(checkpoint))

    def replace_loaded(self, snapshot: Snapshot, rest: Sequence[ActionId]) -> None:
        """A snapshot was loaded: on disk, too, all before it is gone, and this follows."""
        self.journal.write(Checked(snapshot))
        self.journal.write(Trimmed(snapshot.base))
        self.journal.write(Placed(snapshot.base.place, tuple(rest)))

    def cap_lines(self) -> None:
        """When a view ends, what a replica has beyond green may be replaced (R17)."""
        for peer in self.peers.values():
            peer.line = min(peer.line, self.log.green.place)
