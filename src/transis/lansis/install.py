"""Installation: one local step without communication, from the view that ends to the one that all have flushed.

1. What anybody who goes on with me had delivered is delivered in the regular view. 2. The transitional view. 3. The rest of Pre.
4. The new regular view. What is above Pre is forgotten with the old view: nobody who goes on with me has it counted.
"""

from __future__ import annotations

from collections.abc import Callable

from transis.engine.presence import Mercy, Quarantine
from transis.lansis.agreeing import Agreeing
from transis.lansis.alive import Heartbeat
from transis.lansis.core import Core
from transis.lansis.delivery import Delivery
from transis.lansis.detector import BROKEN, LAGS, Detector
from transis.lansis.packets import Statement
from transis.lansis.proposal import Parting, Proposal, part
from transis.lansis.states import Event, State
from transis.lansis.traps import Trap
from transis.lansis.view import BroadcastView
from transis.types.ids import ViewId, ViewKind
from transis.types.outputs import Configure, Lane, Phase
from transis.types.views import Member, View

FOREIGN_VIEW = "foreign view"
"""The cause of a change that the beacon of another view began."""


class Installing:
    def __init__(
        self,
        core: Core,
        agreeing: Agreeing,
        delivery: Delivery,
        heartbeat: Heartbeat,
        detector: Detector,
        quarantine: Quarantine,
    ) -> None:
        self._core = core
        self._agreeing = agreeing
        self._delivery = delivery
        self._heartbeat = heartbeat
        self._detector = detector
        self._quarantine = quarantine
        self.work: Callable[[], None] = _not_wired
        """What was held up while the view changed may go on."""
        self.keep_after_install: Callable[[], None] | None = None
        """The mode `transis` sorts out what it keeps of the change that is over."""

    def install(self, proposal: Proposal) -> None:
        core = self._core
        self._agreeing.hurry_statement()
        self._end(proposal)
        core.shift(State.OPERATIONAL, "installed")
        self._sentence(proposal)
        self._enter(proposal)
        self._configure(self._regular_view(proposal))
        core.arm(Event.BEACON_SEND, core.config.timing.beacon_us)
        self._detector.begin_view()
        self._heartbeat.begin_view()
        self.work()

    def _end(self, proposal: Proposal) -> None:
        """Steps 1 to 3, in the view that ends."""
        core, old = self._core, self._core.view
        parting = part(proposal, old.id, old.members)
        pre = [parting.pre[node] for node in old.members]
        self._delivery.finish(pre, parting.delivered, Phase.REGULAR)
        core.emit(Configure(self._transitional_view(proposal, parting)))
        self._delivery.finish(pre, None, Phase.TRANSITIONAL)

    def _enter(self, proposal: Proposal) -> None:
        core = self._core
        members, expected = proposal.members, proposal.expected()
        core.view = BroadcastView(proposal.id, proposal.tag, members, core.me, proposal.base, expected, core.config, core.now)
        assert expected[core.view.rank] == core.counter + 1 or core.flows, "nothing was sent since my statement"
        core.counter = core.view.expected[core.view.rank] - 1
        core.view_seq = max(core.view_seq, proposal.id.seq)
        core.observe(proposal.base)
        self._delivery.thaw()
        self._agreeing.installed()
        if self.keep_after_install is not None:
            self.keep_after_install()
        core.forget_strangers(members)
        core.addresses |= {said.sender: said.address for said in proposal.statements}

    def _configure(self, view: View) -> None:
        """Nothing bound to another view may be sent in this one, and the application lane waits for the stack."""
        core = self._core
        if core.outbox.restart((Lane.CONTROL,) if core.flowed else tuple(Lane)):
            core.trap(Trap.HALF_SENT)
        core.outbox.hold(Lane.APPLICATION)
        core.emit(Configure(view))
        core.refuse(core.outbox.drop_bound(view.id), "the view changed first")

    def _transitional_view(self, proposal: Proposal, parting: Parting) -> View:
        members = tuple(_member(said) for said in parting.trans)
        return View(
            parting.transitional_id(proposal),
            self._core.view.view_id,
            members,
            proposal.cause,
            proposal.base,
            self._core.config.guarantees,
        )

    def _regular_view(self, proposal: Proposal) -> View:
        members = tuple(_member(said) for said in proposal.statements)
        return View(proposal.view_id, proposal.view_id, members, proposal.cause, proposal.base, self._core.config.guarantees)

    def _sentence(self, proposal: Proposal) -> None:
        """Whom this change left out although they live, and what would bring each back early.

        The silent, the departed and the reborn are not among them: they may come at any time.
        """
        core, agreeing = self._core, self._agreeing
        left_out = dict.fromkeys(agreeing.heard_at, Mercy.HEARING)
        cause = core.cause
        if cause.what == FOREIGN_VIEW and cause.accuser is not None and cause.accuser not in agreeing.heard_at:
            left_out[cause.accuser] = Mercy.ANSWER
        if cause.what in (LAGS, BROKEN):
            left_out |= dict.fromkeys(cause.accused, Mercy.NONE)
        names = {node.name: node.incarnation for node in proposal.members}
        waiting = {
            node: mercy
            for node, mercy in left_out.items()
            if node not in agreeing.left and node.incarnation > names.get(node.name, -1)
        }
        self._quarantine.installed(proposal.members, waiting, core.now)


def _member(said: Statement) -> Member:
    return Member(said.sender, said.address, _regular(said), said.info)


def _regular(said: Statement) -> ViewId:
    return ViewId(ViewKind.REGULAR, said.view.seq, said.view.rep)


def _not_wired() -> None:
    raise AssertionError("the engine connects installation to the work of a view before it starts")
