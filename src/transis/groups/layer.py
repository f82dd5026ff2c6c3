"""Process groups above one ordered stream (docs/groups.md has the contract).

In come the configurations and runs of an engine, in its order, and the requests of local processes. Out come group views and runs
for local processes, and control messages for the engine's control lane.

1. The table changes only at places of the order. A local request changes nothing here until it comes back in the order; one that
   is impossible is refused at once (`LocalProcesses`).
2. When no exchange is under way, a request in a regular configuration takes effect and shows at its place. In a transitional
   one it takes effect at its place and shows in the next regular view. During an exchange it waits, and is replayed when the
   round is complete; if the round fails, each daemon replays its own processes' requests and announces the outcome.
3. Application runs reach nobody during an exchange: ordered ones cannot come, as their sender's lane is held, and basic ones
   wait (trap 40).
4. Nothing that the order carries can break this file: a peer's bytes are decoded, or rejected and counted.
5. Work on all groups is done in slices, one for each `go_on`: with ten thousand groups it takes longer than a token may be away,
   so the node attends to its ring in between. Nothing else may be handed in before it is done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from transis.groups.exchange import (
    WAITING_BYTES_MAX,
    Exchange,
    ExchangeAbandoned,
    HeldBack,
    WaitingRequest,
    announce,
    announce_names,
    choose_in_force,
)
from transis.groups.messages import (
    Announcement,
    DisconnectRequest,
    JoinRequest,
    LeaveRequest,
    NameRequest,
    ProcessNames,
    QuorumLists,
    Request,
    decode_control,
    encode_control,
)
from transis.groups.quorum import NO_LIST, KnownLists, QuorumList, QuorumVerdict
from transis.groups.table import (
    ChangeLog,
    GroupState,
    Identify,
    LocalProcesses,
    Router,
    Table,
    fingerprint,
    next_regular,
    next_transitional,
)
from transis.types.errors import Rejection
from transis.types.ids import NodeId, Place, ProcessId, Service, ViewId
from transis.types.outputs import (
    Configure,
    Delivered,
    GroupDelivered,
    GroupLeft,
    GroupOutput,
    GroupRefused,
    GroupsChanged,
    GroupViewInstalled,
)
from transis.types.views import (
    AT_CONFIGURATION,
    GroupCause,
    GroupId,
    GroupViewId,
    View,
    group_id,
)
from transis.wire.items import CONTROL_ADDRESS

# --- layer ------------------------------------------------------------------------------------------------------------

CONTROL_PROCESS: Final = (1 << 32) - 1
"""The sender of control messages. No client's process has this number."""

SLICE_GROUPS: Final = 64
"""Groups in a slice, after which the node may attend to its ring: a few milliseconds of work, with all that their views cause."""

Steps = Iterator[None]
"""Work that pauses between its slices."""

_DONE: Final = object()


class ControlMessage(NamedTuple):
    """A message for the control lane, bound to a configuration if it means nothing in any other."""

    payload: bytes
    bound_to: ViewId | None


class Settled(NamedTuple):
    """The exchange of this configuration is over, if it needed one: its application lane may be opened, unless it is `held`,
    because a quorum is needed first. `lacks` says what is missing for one."""

    view: ViewId
    lacks: str = ""
    held: bool = False


LayerOutput = GroupOutput | Configure | ControlMessage | Settled


class _Change(NamedTuple):
    """What the requests of one datagram did to a group, at the place of the last of them.

    Requests in one datagram show as one change: otherwise a thousand processes that join at once would see a thousand views, each
    with up to a thousand names.
    """

    group: GroupState
    place: Place
    cause: GroupCause


class _Because(NamedTuple):
    cause: GroupCause
    primary: bool | None
    held: bool


def _never_exchanged(view: View) -> bool:
    """Members of one configuration have exchanged everything; those of none, which have just started, have not."""
    previous = {member.previous for member in view.members}
    return len(previous) > 1 or (None in previous and len(view.members) > 1)


class GroupLayer:
    """`_view` is the last regular configuration, `_transitional` the one after it while that is in force, `_exchange` the
    round that is under way, `_waiting` what came during the round. `_lacks` says what the last regular configuration that is
    settled lacks to be primary, and `_held` whether nothing goes on in it.
    """

    def __init__(
        self,
        me: NodeId,
        quorum: QuorumList = NO_LIST,
        identify: Identify = group_id,
        slice_groups: int = SLICE_GROUPS,
        waiting_bytes: int = WAITING_BYTES_MAX,
    ) -> None:
        self.me = me
        self.table = Table()
        self.changes = ChangeLog()
        self.rejections: Counter[str] = Counter()
        self._handed = 0
        self._lists = KnownLists(me, quorum)
        self._lacks, self._held = "", False
        self._identify = identify
        self._router = Router(me)
        self._local = LocalProcesses(self._router, identify)
        self._view: View | None = None
        self._transitional: View | None = None
        self._exchange: Exchange | None = None
        self._waiting = HeldBack(waiting_bytes)
        self._slice = slice_groups
        self._steps: Steps | None = None
        self._out: list[LayerOutput] = []

    # --- what local processes ask for -------------------------------------------------------------------------------

    def connect(self, process: int) -> None:
        """A process may send and join from now on."""
        self._local.connect(process)

    def require_free_name(self, name: str) -> None:
        """Raises UsageError with the reason if no further process of this node can have this name."""
        self._local.require_free_name(name)

    def name(self, process: int, name: str) -> None:
        """Give a process that was just connected a name; it has no answer."""
        self._ask(self._local.name(process, name))

    def join(self, process: int, name: str) -> GroupId:
        """Ask to join; the answer is the first view with this process in it, or GroupRefused."""
        group, request = self._local.join(process, name)
        self._ask(request)
        return group

    def leave(self, process: int, name: str) -> None:
        """Ask to leave; GroupLeft says when it is done."""
        self._ask(self._local.leave(process, name))

    def disconnect(self, process: int) -> None:
        """The process is gone: it gets nothing more, and leaves all its groups when its request comes in the order."""
        self._ask(self._local.disconnect(process))

    def _ask(self, request: Request) -> None:
        self._out.append(ControlMessage(encode_control(request), None))

    def is_connected(self, process: int) -> bool:
        return self._local.is_connected(process)

    # --- what the order brings --------------------------------------------------------------------------------------

    def configure(self, view: View) -> None:
        """A new configuration. It is passed on among the outputs, between the group views before it and after it."""
        self._router.forget()
        if view.id.is_regular:
            self._begin(self._configure_regular(view))
        else:
            assert self._view is not None
            assert view.regular == self._view.id
            self._transitional = view
            self._out.append(Configure(view))
            if self._exchange is None:
                self._begin(self._lose(AT_CONFIGURATION))

    @property
    def is_busy(self) -> bool:
        """Whether the work on what was handed in last is not finished."""
        return self._steps is not None

    def _begin(self, steps: Steps) -> None:
        assert self._steps is None, "one thing after the other"
        self._steps = steps
        self.go_on()

    def go_on(self) -> None:
        """Do one more slice of what is under way."""
        if self._steps is not None and next(self._steps, _DONE) is _DONE:
            self._steps = None

    def _configure_regular(self, view: View) -> Steps:
        """Members that come from one configuration with a complete exchange have equal tables and need no new exchange."""
        unfinished = self._exchange is not None
        if unfinished:
            if self._transitional is not None:
                yield from self._lose(AT_CONFIGURATION)
            self._give_up_exchange()
        self._view, self._transitional = view, None
        self._out.append(Configure(view))
        if unfinished or _never_exchanged(view):
            self._exchange = Exchange(view, self._identify)
            self._lists.begin()
            if (lists := self._lists.statement(view.id)) is not None:
                self._out.append(ControlMessage(encode_control(lists), view.id))
            self._out.extend(ControlMessage(part, view.id) for part in announce_names(self.table.names, self.me, view.id))
            self._out.extend(ControlMessage(part, view.id) for part in announce(self.table, self.me, view.id))
            return
        self._stand(view)
        for group in self.table.in_order():
            self._dismiss(group, group.members, "left")
        yield from self._install_due(self.table.in_order(), AT_CONFIGURATION, self._because(view).cause)
        self._out.append(Settled(view.id, self._lacks, self._held))

    def delivered(self, run: Delivered) -> None:
        """A run at its place, or a basic one before it."""
        assert self._steps is None, "one thing after the other"
        assert self._view is not None
        assert run.view == self._view.id
        if run.process.number == CONTROL_PROCESS:
            self._begin(self._control_run(run))
        elif run.address and self._exchange is None:
            self._route(run)
        elif run.address:
            self._wait(run)

    def statistics(self) -> dict[str, int]:
        """How many groups there are, and how many messages this node's processes were given."""
        return {"groups": len(self.table.groups), "handed_messages": self._handed}

    def take_outputs(self) -> list[LayerOutput]:
        if self.changes.is_watched and self.changes.told_at != self.changes.at:
            self.changes.told_at = self.changes.at
            self._out.append(GroupsChanged(self.changes.at))
        outputs, self._out = self._out, []
        return outputs

    # --- control messages -------------------------------------------------------------------------------------------

    def _control_run(self, run: Delivered) -> Steps:
        if run.address != CONTROL_ADDRESS or run.service is Service.BASIC:
            self._reject(Rejection("control", "a control message that is not addressed or ordered as one"))
            return
        for part in run.parts():
            yield from self._control_part(part)

    def _control_part(self, run: Delivered) -> Steps:
        """The requests that end in one datagram make one view of a group: nodes get a run in different pieces, but must agree."""
        changed: dict[GroupId, _Change] = {}
        for index, payload in enumerate(run.payloads, run.place.index):
            message = decode_control(payload)
            if isinstance(message, Rejection):
                self._reject(message)
            elif isinstance(message, QuorumLists):
                self._heard_lists(run.process.node, message)
            elif isinstance(message, ProcessNames):
                self._heard_names(run.process.node, message)
            elif isinstance(message, Announcement):
                yield from self._announced(run.process.node, message, Place(run.place.seq, index))
            else:
                self._requested(ProcessId(run.process.node, message.process), message, Place(run.place.seq, index), changed)
        for change in sorted(changed.values(), key=lambda change: (change.place, change.group.id)):
            yield from self._show(change)

    def _requested(self, process: ProcessId, request: Request, place: Place, changed: dict[GroupId, _Change]) -> None:
        if self._exchange is not None:
            self._keep(process, request)
            return
        if self._transitional is not None and process.node not in self._transitional.nodes:
            return  # A request from a lost node would leave a ghost member (trap 2).
        touched = self._apply(process, request)
        if self._transitional is None:
            for group in touched:
                cause = GroupCause(_SEVERAL) if group.id in changed else GroupCause(_WORDS[type(request)], process)
                changed[group.id] = _Change(group, place, cause)
        else:
            self.table.forget_finished(touched)

    def _keep(self, process: ProcessId, request: Request) -> None:
        if self._waiting.keep(process, request):
            return
        if isinstance(request, JoinRequest):
            self._refuse(process, self._identify(request.name), request.name, "too many joins wait for a change to end")
        else:
            self._reject(Rejection("name", "too many names wait for a change to end"))

    def _apply(self, process: ProcessId, request: Request) -> list[GroupState]:
        """Change the table; return the groups that changed. A request for what is so already changes none."""
        if isinstance(request, NameRequest):
            self._give_name(process, request.name)
            return []
        if isinstance(request, DisconnectRequest):
            if name := self.table.names.take_back(process):
                self.changes.nameless(process, name)
            touched = self.table.memberships(process)
            for group in touched:
                self.table.leave(process, group)
            return [self.table.groups[group] for group in touched]
        group = self._identify(request.name)
        member = self.table.is_member(process, group)
        if isinstance(request, LeaveRequest):
            if not member or self.table.groups[group].name != request.name:
                return []
            self.table.leave(process, group)
        else:
            why = self.table.refusal(group, request.name)
            if why:
                self._refuse(process, group, request.name, why)
            if why or member:
                return []
            self.table.join(process, group, request.name)
        return [self.table.groups[group]]

    def _give_name(self, process: ProcessId, name: str) -> None:
        if self.table.names.give(process, name):
            self.changes.named(process, name)
        else:
            self._reject(Rejection("name", "a process or a name twice, or too many"))

    def _show(self, change: _Change) -> Steps:
        group, place, cause = change
        self._dismiss(group, group.members, "left")
        yield from self._install_due([group], place, cause)

    # --- the exchange -----------------------------------------------------------------------------------------------

    def _announced(self, node: NodeId, part: Announcement, place: Place) -> Steps:
        if self._exchange is None:
            self._reject(Rejection("stale", "an announcement that nobody waits for"))
            return
        rejection = self._exchange.feed(node, part)
        if rejection is not None:
            self._reject(rejection)
        elif self._exchange.is_complete:
            yield from self._complete(self._exchange, place)

    def _heard_lists(self, node: NodeId, lists: QuorumLists) -> None:
        if self._exchange is not None and lists.configuration == self._exchange.view:
            self._lists.hear(node, lists)
        else:
            self._reject(Rejection("stale", "quorum lists that nobody waits for"))

    def _heard_names(self, node: NodeId, names: ProcessNames) -> None:
        if self._exchange is None:
            self._reject(Rejection("stale", "names that nobody waits for"))
        elif (rejection := self._exchange.hear_names(node, names)) is not None:
            self._reject(rejection)

    def _complete(self, exchange: Exchange, place: Place) -> Steps:
        """Adopt what all have announced, replay the requests that came meanwhile, and show each changed group once."""
        assert self._view is not None
        before, self._exchange = self.table, None
        self._lists.complete(self._view.nodes)
        self._stand(self._view)
        merged = exchange.merge()
        self.table = merged.table
        self.changes.merged()
        for one in merged.dismissed:
            self._dismissed_by_name(one, before)
        self._replay(self._waiting.take_requests())
        yield
        choose_in_force(merged, before, self._view.cause)
        yield
        for group in before.in_order():
            self._dismiss_from_old(group)
        yield from self._install_due(self.table.in_order(), place, self._because(self._view).cause)
        if self._transitional is None:
            self._out.append(Settled(self._view.id, self._lacks, self._held))
        else:
            yield from self._lose(place)
        for run in self._waiting.take_basics():
            self._route(run)

    def _give_up_exchange(self) -> None:
        """The configuration ended before the exchange. Replay my own processes' requests only: other daemons announce theirs."""
        self._exchange = None
        self._replay([one for one in self._waiting.take_requests() if one.process.node == self.me])
        self.rejections["basic of an unfinished exchange"] += len(self._waiting.take_basics())

    def _replay(self, waiting: list[WaitingRequest]) -> None:
        for process, request in waiting:
            self.table.forget_finished(self._apply(process, request))

    def _dismissed_by_name(self, one: ExchangeAbandoned, before: Table) -> None:
        """Refuse a newcomer to the losing group; a process that had a view of it is told by `_dismiss_from_old`."""
        process, group, name = one
        if process.node != self.me:
            return
        known = before.groups[group].in_force if group in before.groups else None
        if known is None or process not in known.members:
            self._refuse(process, group, name, _SAME_HASH)
        self._local.no_longer_in(process.number, group)

    def _dismiss_from_old(self, before: GroupState) -> None:
        now = self.table.groups.get(before.id)
        if now is None or now.name == before.name:
            self._dismiss(before, {} if now is None else now.members, "left")
        else:
            self._dismiss(before, {}, _SAME_HASH)

    def _wait(self, run: Delivered) -> None:
        if run.service is not Service.BASIC:
            self._reject(Rejection("unsettled", "an ordered message before the exchange was complete"))
        elif not self._waiting.keep_basic(run):
            self._reject(Rejection("basic beyond the limit", "more basic messages than may wait for an exchange"))

    # --- views ------------------------------------------------------------------------------------------------------

    def _lose(self, place: Place) -> Steps:
        """A transitional configuration: groups that lose members get a view of those that remain; for the others nothing changes.

        While an exchange is open this waits for its end. The exchange may complete in the transitional configuration, and then
        the views of the regular one come first: they are the same for all daemons that came from it, wherever they went, so
        nobody may have left the announced views before. No group message is delivered meanwhile.
        """
        view = self._transitional
        assert view is not None
        nodes = frozenset(view.nodes)
        self.table.drop_lost(nodes)
        for process, name in self.table.names.drop_lost(nodes):
            self.changes.nameless(process, name)
        cause, primary, held = self._because(view)
        groups = self.table.in_order()
        for number, group in enumerate(groups, 1):
            due = next_transitional(group, nodes, GroupViewId(view.id, self._place_of_loss(group, place)), cause, primary, held)
            if due is not None:
                group.enter_transitional(due)
                self._emit_view(group)
            if number % self._slice == 0:
                yield
        self._router.forget()
        self.table.forget_finished(groups)

    def verdict(self) -> QuorumVerdict:
        """Whether the configuration in force is primary, as far as is known now, and how quorum lists differ if they do."""
        view = self._transitional or self._view
        return QuorumVerdict(None) if view is None else self._lists.judge(view.nodes)

    def _stand(self, view: View) -> None:
        """All lists of a configuration are known: whether it is primary, and goes on."""
        verdict = self._lists.judge(view.nodes)
        self._lacks, self._held = verdict.lacks, verdict.held

    def _judged(self, view: View) -> QuorumVerdict:
        """For group views: the members of one configuration agree, so nobody judges before all have exchanged."""
        verdict = self._lists.judge(view.nodes)
        return verdict if self._exchange is None or verdict.primary is None else QuorumVerdict(False)

    def _because(self, view: View) -> _Because:
        """Why the configuration's group views exist, and whether they are primary: if lists differ, the cause says so."""
        primary, doubt, *_ = self._judged(view)
        told = view.cause._replace(what=f"{view.cause.what}; {doubt}") if doubt else view.cause
        return _Because(GroupCause("configuration", None, told), primary, self._held and self._exchange is None)

    def _place_of_loss(self, group: GroupState, place: Place) -> Place:
        """If the exchange was not completed, daemons of one transitional configuration may have different views of a group in
        force. The views that follow from these must not have one id, or their members would pass for members that never
        parted."""
        if self._exchange is None or group.in_force is None:
            return place
        return Place(AT_CONFIGURATION.seq, fingerprint(group.in_force.id))

    def _install_due(self, groups: list[GroupState], place: Place, cause: GroupCause) -> Steps:
        view = self._view
        assert view is not None
        primary = self._judged(view).primary
        for number, group in enumerate(groups, 1):
            due = next_regular(group, self.table.names, GroupViewId(view.id, place), cause, primary, self._held)
            if due is not None:
                group.install(due)
                self._emit_view(group)
            if number % self._slice == 0:
                yield
        self._router.forget()
        self.table.forget_finished(groups)

    def _emit_view(self, group: GroupState) -> None:
        view = group.in_force
        assert view is not None
        self.changes.installed(view)
        processes = self._router.local(view.members)
        if processes:
            self._out.append(GroupViewInstalled(view, tuple(processes)))

    def _dismiss(self, before: GroupState, members: dict[ProcessId, GroupViewId | None], why: str) -> None:
        """Tell local processes that were in the view in force and no longer belong to the group."""
        if before.in_force is None:
            return
        gone = tuple(member for member in before.in_force.members if member not in members)
        self._out.extend(GroupLeft(number, before.id, before.name, why) for number in self._router.local(gone))

    def _refuse(self, process: ProcessId, group: GroupId, name: str, why: str) -> None:
        if process.node == self.me and self.is_connected(process.number):
            self._local.no_longer_in(process.number, group)
            self._out.append(GroupRefused(process.number, group, name, why))

    # --- messages ---------------------------------------------------------------------------------------------------

    def _route(self, run: Delivered) -> None:
        """Nobody sends in a configuration that waits for a quorum, as the lanes are shut; what comes all the same is dropped."""
        if self._held:
            self._reject(Rejection("no quorum", "a message for applications in a configuration without a quorum"))
            return
        recipients = self._router.recipients(run.address, self.table)
        if isinstance(recipients, Rejection):
            self._reject(recipients)
        elif recipients:
            self._handed += len(run.payloads) * len(recipients)
            self._out.append(GroupDelivered(run, recipients))

    def _reject(self, rejection: Rejection) -> None:
        self.rejections[rejection.field] += 1

    # --- looking in -------------------------------------------------------------------------------------------------

    @property
    def current(self) -> ViewId | None:
        """The regular configuration in force, or None before the first and in a transitional one."""
        return None if self._view is None or self._transitional is not None else self._view.id

    @property
    def configuration(self) -> View | None:
        """The configuration in force, regular or transitional."""
        return self._transitional or self._view

    @property
    def is_settled(self) -> bool:
        return self._view is not None and self._exchange is None

    def check(self) -> None:
        """Assert the invariants, which hold when nothing is under way."""
        if self.is_busy:
            return
        self.table.check()
        if self._view is not None and self.is_settled:
            nodes = frozenset((self._transitional or self._view).nodes)
            for group in self.table.groups.values():
                assert all(member.node in nodes for member in group.members), "no ghosts"
        assert self._exchange is not None or not self._waiting


_SEVERAL: Final = "joins and leaves"
_WORDS: Final = {JoinRequest: "join", LeaveRequest: "leave", DisconnectRequest: "disconnect"}
_SAME_HASH: Final = "another group has the same hash and came first by name: choose another name"
