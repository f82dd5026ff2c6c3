"""A replica without I/O: it takes the stream of its process group, and hands out what to write, to say and to deliver.

    group stream:  view  message  lost            disk:  persisted  hung          application:  post  acknowledge  admin
    host:          bulk  snapshot_written  snapshot_received  silent  take_snapshot  bring_up

1. Every method is an input; what follows from it is in `take()`, to be carried out in order (outputs.py).
2. A message before its sender's STATE in the view, with the tag of another view, or of a process that is no replica, is dropped.
3. What is bad is counted in `rejections` and dropped. What a caller asks for in vain is answered by a `Rejection`, which names
   why.
"""

from __future__ import annotations

from typing import NamedTuple

from transis.prsl.actions import KEY_SIZE, Action, ActionId, Kind, Lane, wrong_with
from transis.prsl.base import Ordering
from transis.prsl.catchup import CatchUp
from transis.prsl.core import Config, Core, Round, Stage
from transis.prsl.corel import Corel
from transis.prsl.delivery import Delivery
from transis.prsl.engine import Engine
from transis.prsl.exchange import Exchange
from transis.prsl.log import Kept, Opened, Snapshot, Unreadable
from transis.prsl.messages import (
    Ack,
    Attempt,
    CaughtUp,
    Exclude,
    GreenPlaces,
    Message,
    Posted,
    Retransmission,
    State,
    decode_bulk,
    decode_message,
    view_tag,
)
from transis.prsl.outputs import Accepted, JoinGroup, LeaveGroup, Output
from transis.prsl.prefix import Base, beginning
from transis.prsl.record import Change, Entry, Record, What, configurations, encode_change, fold, founders
from transis.prsl.repair import Repair
from transis.types.errors import Rejection
from transis.types.ids import ProcessId
from transis.types.limits import ACTION_BYTES_MAX, ACTION_MESSAGES_MAX, MESSAGE_MAX
from transis.types.views import GroupView


class Status(NamedTuple):
    """What a person wants to know. `missing` are members that are not in the view, by name."""

    stage: Stage | None
    is_behind: bool
    number: int
    record: Record
    missing: tuple[str, ...]
    green: int
    yellow: int
    red: int
    out: int
    stable: int
    offset: int
    trimmed: int
    committed: int
    counting: tuple[Record, ...]
    """The configurations of which a majority is needed: the one at the green line, and those that yellow changes make."""
    here: frozenset[int]
    lines: tuple[tuple[int, int], ...]
    """For each member the place up to which it is known to have the order on its disk."""
    untold: tuple[ProcessId, ...]
    """Processes in the view that have not told their STATE."""
    stopped: bool
    size: int
    """Bytes of the green actions that are kept here."""
    trouble: str
    state: str
    """How far the view is, in the words of the ordering."""
    why: str
    """Why the ordering engine orders nothing here."""
    waits_for: tuple[str, ...]
    """Without whom it cannot go on: one or some of them would do, and all of them are enough."""

    @property
    def is_primary(self) -> bool:
        return self.stage == Stage.PRIMARY


def first_base(config: Config) -> Base:
    """What a new directory holds: nothing, and the list of founders. A newcomer's list is empty."""
    return beginning(founders(config.founders))


class Machine:
    def __init__(self, config: Config, opened: Opened) -> None:
        self._core = Core(config, opened)
        self._delivery = Delivery(self._core, opened)
        self._exchange = Exchange(self._core, self._settle)
        make = Engine if config.ordering == "engine" else Corel
        self._ordering: Ordering = make(self._core, self._exchange, self._delivery.deliver)
        self._repair = Repair(self._core)
        self._catchup = CatchUp(self._core, self._delivery, self._ordering.complete)
        self._me: ProcessId | None = None
        self._posted: dict[int, int] = {}
        self._is_away = False

    def take(self) -> list[Output]:
        outputs, self._core.outputs = self._core.outputs, []
        return outputs

    def start(self) -> None:
        """Deliver again what is behind the newest snapshot, and join the group if this is a member."""
        wrong = _wrong_directory(self._core)
        if wrong:
            self._core.stop(wrong)
            return
        self._ordering.start()
        self._delivery.deliver()
        if self._core.number:
            self._core.outputs.append(JoinGroup())
        self._finish()

    # --- the group's stream -------------------------------------------------------------------------------------------

    def view(self, view: GroupView, me: ProcessId) -> None:
        core = self._core
        self._me = me
        if core.is_stopped:
            return
        if not view.id.configuration.is_regular:
            if core.round is not None:
                core.round.is_over = True
            return
        core.trouble, core.why, core.waits_for = "", "", frozenset()
        if core.is_hung:
            self._go_away()
            return
        if core.round is not None:
            self._ordering.leave(core.round)
        self._exchange.enter(Round(view_tag(view.id), view.members))
        self._finish()

    def message(self, sender: ProcessId, payload: bytes) -> None:
        core, round_ = self._core, self._core.round
        if core.is_stopped or round_ is None:
            return
        message = decode_message(payload)
        if isinstance(message, Rejection):
            core.rejections[message.field] += 1
        elif message.view == round_.tag:
            if isinstance(message, State):
                self._stop_if_copied(sender, message)
                self._exchange.state(round_, sender, message)
            elif sender in round_.states:
                self._hear(round_, round_.states[sender].number, message)
        self._finish()

    def _stop_if_copied(self, sender: ProcessId, state: State) -> None:
        """Two copies of one directory would vote twice: whoever hears of the other stops. Started again, it has a higher life."""
        config = self._core.config
        is_twin = (state.name, state.directory, state.life) == (config.name, config.directory, config.life)
        if is_twin and sender != self._me:
            self._core.stop(
                f"the directory of {config.name!r} was copied, and two processes run from it: delete the copy, start the other"
            )

    def _hear(self, round_: Round, number: int, message: Message) -> None:
        match message:
            case Posted():
                self._ordering.posted(round_, number, message)
            case Ack():
                self._ordering.ack(round_, number, message)
            case Attempt():
                self._ordering.attempt(round_, number)
            case CaughtUp():
                self._ordering.caught_up(round_, number)
            case Retransmission():
                self._exchange.retransmission(round_, message.actions)
            case GreenPlaces():
                self._exchange.places(round_, message)
            case Exclude() if self._me is not None:
                self._exchange.exclude(round_, self._me, message)
            case _:
                self._core.rejections["state"] += 1

    def _settle(self, round_: Round) -> None:
        if self._ordering.settle(round_) and round_.is_behind:
            self._catchup.begin(round_)

    def lost(self) -> None:
        """The session is gone. That is not a view: corel's view is over, and the next one begins a new exchange (R9)."""
        self._core.round = None
        self._core.cap_lines()

    def silent(self, processes: tuple[ProcessId, ...]) -> None:
        """The host has waited long enough for the STATE of these."""
        core, round_ = self._core, self._core.round
        if round_ is not None and round_.stage == Stage.STATES and self._me in round_.states and not round_.is_over:
            core.send(Exclude(round_.tag, tuple(sorted(set(processes) & round_.members - set(round_.states)))))

    def bulk(self, sender: ProcessId, payload: bytes) -> None:
        message = decode_bulk(payload)
        if isinstance(message, Rejection):
            self._core.rejections[message.field] += 1
        elif not self._core.is_stopped:
            if not self._repair.heard(sender, message):
                self._catchup.bulk(sender, message)
            self._finish()

    def bring_up(self, provider: ProcessId) -> None:
        """A newcomer starts to ask this replica; the host names another one when it says nothing."""
        if not self._core.number:
            self._catchup.bring_up(provider)
            self._finish()

    # --- the disk -----------------------------------------------------------------------------------------------------

    def persisted(self, ticket: int) -> None:
        core = self._core
        for act in core.journal.persisted(ticket):
            act()
        self._delivery.deliver()
        if core.round is not None:
            self._ordering.synced(core.round)
        self._finish()

    def damaged(self, error: Unreadable) -> None:
        """The host looked through the log, and found this."""
        self._core.found(error)
        self._finish()

    def hung(self, is_hung: bool) -> None:
        """A commit has taken longer than patience, or goes on again. An exchange would wait for its STATE (R16), and a primary in
        which all must acknowledge, or all must be safe, for this replica."""
        core, round_ = self._core, self._core.round
        core.is_hung = is_hung
        waits = core.config.acks_of_all or self._ordering.needs_everybody
        if is_hung and round_ is not None and (round_.stage in (Stage.STATES, Stage.CONTENT) or waits):
            self._go_away()
        elif not is_hung and self._is_away and not core.is_stopped:
            self._is_away = False
            core.outputs.append(JoinGroup())

    def _go_away(self) -> None:
        self.lost()
        self._is_away = True
        self._core.outputs.append(LeaveGroup("the disk of this replica does not answer"))

    # --- the application ----------------------------------------------------------------------------------------------

    def post(
        self, messages: list[bytes], *, kind: Kind = Kind.DATA, key: bytes = b"", at: int = 0, posted: int = 0
    ) -> ActionId | Rejection:
        """Give messages a number and write them; they are accepted when that is synced, in every partition."""
        size = sum(map(len, messages))
        why = self._why_not(size) or _wrong_messages(messages, size, key)
        if why is not None:
            return why
        core = self._core
        lane = Lane.MESSAGES
        action_id = ActionId(core.number, lane, self._next_number(lane))
        lengths = tuple(map(len, messages))
        action = Action(action_id, kind, core.log.lts + 1, self._dependencies(), lengths, b"".join(messages), key, at, posted)
        assert not wrong_with(action), wrong_with(action)
        self._accept(action)
        return action_id

    def admin(self, what: What, *, name: str = "", directory: bytes = b"", number: int = 0) -> ActionId | Rejection:
        """Ask for a change of membership. Another one that gets its place first makes it void, which `Ordered` says."""
        core = self._core
        record = core.log.green.record
        entries = (Entry(0, name, directory),) if what in (What.JOIN, What.REPLACE) else ()
        change = Change(what, record.version, number, entries)
        action_id = ActionId(core.number, Lane.CHANGES, self._next_number(Lane.CHANGES))
        action = Action(action_id, Kind.CHANGE, core.log.lts + 1, (), (), encode_change(change))
        why = self._why_not(action.size)
        if why is not None:
            return why
        if fold(record, action) is record:
            return Rejection("change", f"{what.name} of {name or number} changes nothing: members are {_names(record)}")
        self._accept(action)
        return action_id

    def _why_not(self, size: int) -> Rejection | None:
        core = self._core
        if core.is_stopped or self._delivery.left_at:
            return Rejection("stopped", "this replica is not a member any more")
        if not core.number:
            return Rejection("member", f"{core.config.name!r} is not a member yet: add it at one of the members")
        if core.is_hung:
            return Rejection("disk", "the disk of this replica does not answer")
        waiting = self._delivery.own_waiting
        if waiting + size > core.config.out_max:
            return Rejection("full", f"{waiting} bytes wait to be ordered already: post again when a majority is together")
        return None

    def _next_number(self, lane: Lane) -> int:
        """Dense over all lives: every action that was ever synced is in the log or in its base."""
        core = self._core
        last = self._posted.get(lane)
        if last is None:
            below = core.log.below
            known = [action.number for action in core.log.content if action.creator == core.number and action.lane == lane]
            known += [number for creator, number in below.changes if creator == core.number and lane == Lane.CHANGES]
            known += [below.highest.get(core.number, 0)] if lane == Lane.MESSAGES else []
            last = max(known, default=0)
        self._posted[lane] = last + 1
        return last + 1

    def _dependencies(self) -> tuple[tuple[int, int], ...]:
        """What the application may have seen of others since the last action: in the order here, or red."""
        core = self._core
        told, highest = core.told, core.log.highest
        grown = [(creator, number) for creator, number in highest.items() if number > told.get(creator, 0)]
        core.told = dict(highest)
        return tuple(sorted(pair for pair in grown if pair[0] != core.number))

    def _accept(self, action: Action) -> None:
        core, round_ = self._core, self._core.round
        core.log.post(action)
        self._delivery.own_waiting += action.size
        core.journal.write(Kept(action))
        core.journal.then(lambda: core.outputs.append(Accepted((action.id,))))
        settled = round_ is not None and round_.stage in (Stage.MINORITY, Stage.PRIMARY) and not round_.is_over
        if round_ is not None and settled and not round_.is_behind:
            self._ordering.send(round_, action.id)
        self._finish()

    def deliver_more(self) -> None:
        """The host has done with what it was handed before `MoreToDeliver`."""
        self._delivery.deliver_more()
        self._finish()

    def acknowledge(self, offset: int) -> None:
        """The application has done with everything before this offset. At most one message a commit tells it."""
        core, round_ = self._core, self._core.round
        if not core.acked < offset <= self._delivery.prefix.offset:
            return
        core.acknowledge(offset)
        if round_ is not None and round_.may_acknowledge and not round_.is_over:
            core.then(round_, lambda: self._ordering.acknowledge(round_))
        self._finish()

    def tell_line(self) -> None:
        """engine: tell the others what is on this disk, if they do not know. The host says so now and then, when it is idle."""
        round_ = self._core.round
        if round_ is not None and round_.may_acknowledge and not round_.is_over and self._core.synced_line > round_.acked:
            self._ordering.acknowledge(round_)

    # --- snapshots ----------------------------------------------------------------------------------------------------

    def take_snapshot(self) -> None:
        self._delivery.take_snapshot()

    def snapshot_written(self, place: int) -> None:
        self._delivery.snapshot_written(place)
        self._finish()

    def snapshot_received(self, snapshot: Snapshot) -> None:
        """One that another replica sent is on this disk, complete."""
        self._catchup.loaded(snapshot)
        self._finish()

    def trim(self) -> None:
        self._delivery.trim()
        self._finish()

    # --- looking ------------------------------------------------------------------------------------------------------

    @property
    def rejections(self) -> dict[str, int]:
        return dict(self._core.rejections)

    @property
    def number(self) -> int:
        return self._core.number

    @property
    def kept_from(self) -> int:
        """The offset of the first message that was not trimmed here."""
        return self._core.log.base.offset

    @property
    def record(self) -> Record:
        """The membership at the green line."""
        return self._core.log.green.record

    @property
    def primary(self) -> tuple[int, int] | None:
        """Which primary this replica is in, and the tag of its view; None if it is in none."""
        round_ = self._core.round
        return (round_.primary, round_.tag) if round_ is not None and round_.stage == Stage.PRIMARY else None

    def dirty(self) -> list[Action]:
        """What is known here and was not delivered yet: in the order as it may become, then what has no place."""
        log = self._core.log
        reds = sorted((log.content[action] for action in log.red), key=lambda action: action.sort_key)
        start, known = max(self._delivery.prefix.place, log.base.place), list[Action]()
        while start < log.floor.place and (batch := self._core.batch(start, log.floor.place)):
            known += batch
            start += len(batch)
        return known + log.actions(max(start, log.floor.place), log.end) + reds

    def status(self) -> Status:
        core, log, round_ = self._core, self._core.log, self._core.round
        record = log.green.record
        here = round_.numbers if round_ is not None else set()
        entries = [record.entries[number - 1] for number in record.members if number not in here]
        return Status(
            round_.stage if round_ is not None else None,
            round_ is not None and round_.is_behind,
            core.number,
            record,
            tuple(entry.name for entry in entries),
            log.green.place,
            log.end - log.green.place,
            len(log.red),
            len(log.out),
            self._delivery.white_line(),
            self._delivery.prefix.offset,
            log.base.place,
            core.committed if core.voting is None else core.voting.primary.index,
            tuple(configurations(record, log.actions(log.green.place, log.end))),
            frozenset(here),
            tuple((number, core.peer(number).line) for number in record.members),
            tuple(sorted(round_.members - set(round_.states))) if round_ is not None else (),
            core.is_stopped,
            log.green.size - log.base.size,
            core.trouble,
            self._ordering.state(round_),
            core.why,
            tuple(entry.name for entry in record.entries if entry.number in core.waits_for),
        )

    def _finish(self) -> None:
        """What was written becomes one transaction; what waits for nothing is done at once, and may write again."""
        core = self._core
        left_at = self._delivery.left_at
        if left_at and not core.is_stopped:
            if self._ordering.is_free(left_at):
                self._delivery.stop()
            else:
                self._ordering.look_on()
        self._repair.ask()
        while True:
            append = core.journal.close(core.log.end)
            if append is not None:
                core.outputs.append(append)
            ready = core.journal.ready()
            if not ready:
                return
            for act in ready:
                act()


def _wrong_directory(core: Core) -> str:
    """One ordering's promises mean nothing to the other."""
    wanted = core.config.ordering
    found = "engine" if core.voting is not None else "corel" if core.attempted else wanted
    return "" if found == wanted else f"this directory was ordered by {found}, not {wanted}: start it with the ordering {found}"


def _wrong_messages(messages: list[bytes], size: int, key: bytes) -> Rejection | None:
    if len(messages) > ACTION_MESSAGES_MAX:
        return Rejection("messages", f"{len(messages)} messages in one action, at most {ACTION_MESSAGES_MAX}")
    if size > (ACTION_BYTES_MAX if len(messages) > 1 else MESSAGE_MAX):
        return Rejection("messages", f"{size} bytes in one action: at most {ACTION_BYTES_MAX}, or one message of {MESSAGE_MAX}")
    if key and len(key) != KEY_SIZE:
        return Rejection("key", f"a key of {len(key)} bytes, not {KEY_SIZE}")
    return None


def _names(record: Record) -> str:
    return ", ".join(f"{record.entries[number - 1].name} ({number})" for number in record.members)
