"""Failure detection: members that are silent or do not keep up (L9; Lifeguard for this node's own health).

1. Silence: nothing new from a member for silence_us. It is asked by unicast three times; if it does not answer, it is accused.
2. Lag: a member acknowledges nothing new for ack_lag_us although it lacks something. It is accused even if it answers: a member
   whose multicast is dead would answer questions forever.
3. Nonsense: what a member sent cannot be read, or follows what it cannot follow. Nothing more is accepted from it, so nothing
   behind it could ever be delivered.
4. Withholding: what a member says that it has sent does not come for twice as long as lag takes. Nothing is delivered in order
   before it is here, so one false word would stop everybody for good.
5. A node that was away itself, which shows in its timers, forgives everybody once and becomes slower to accuse (D29).
"""

from __future__ import annotations

from typing import Final

from transis.engine.core import Health
from transis.lansis.membership import MembershipChange
from transis.lansis.packets import Query
from transis.lansis.states import Event, State
from transis.lansis.view import LansisCore
from transis.types.ids import NodeId
from transis.types.outputs import Port, Send
from transis.types.views import Cause

SILENT = "silent"
LAGS = "does not keep up"
"""The cause whose accused hear and are heard, yet hold up every view they are in."""
BROKEN = "broken data"
QUESTIONS: Final = 3
TICKS: Final = 4
WITHHELD_LAGS: Final = 2


class Detector:
    def __init__(self, core: LansisCore, membership: MembershipChange, health: Health) -> None:
        self._core = core
        self._membership = membership
        self._health = health
        self._asked: dict[int, int] = {}
        self._behind_since: dict[int, int] = {}
        self._withheld: dict[int, tuple[int, int]] = {}
        """Rank of a member that owes data that it claims: how far its data is here, and since when."""
        self.queries = 0
        self.breaks_silence = 0
        self.breaks_lag = 0

    def begin_view(self) -> None:
        self._asked.clear()
        self._behind_since.clear()
        self._withheld.clear()
        if self._core.view.is_singleton:
            self._core.timers.cancel(Event.WATCH)
        else:
            self._core.arm(Event.WATCH, max(1, self._core.view.silence_us // TICKS))

    def watch(self) -> None:
        core = self._core
        self._health.went_well()
        others = [rank for rank in range(len(core.view)) if rank != core.view.rank]
        lagging = [rank for rank in others if self._lags(rank)]
        silent = [rank for rank in others if self._is_gone(rank)]
        broken = [rank for rank in others if core.view.dag.is_broken(rank) or self._withholds(rank)]
        self.breaks_lag += len(lagging)
        self.breaks_silence += len(silent)
        core.arm(Event.WATCH, core.config.pulse.probe_us if self._asked else max(1, core.view.silence_us // TICKS))
        if broken:
            self._accuse(BROKEN, broken)
        elif silent:
            self._accuse(SILENT, silent)
        elif lagging:
            self._accuse(LAGS, lagging)

    def _accuse(self, what: str, ranks: list[int]) -> None:
        accused = tuple(map(self._core.view.node, ranks))
        self._membership.break_with(accused, Cause(what, self._core.me, accused, Event.WATCH.value))

    # --- silence ----------------------------------------------------------------------------------------------------

    def _is_gone(self, rank: int) -> bool:
        """Has it been asked often enough without an answer? If not, ask again."""
        core = self._core
        if core.now - core.view.heard_at[rank] <= core.view.silence_us * (1 + self._health.score):
            self._asked.pop(rank, None)
            return False
        asked = self._asked.get(rank, 0)
        if asked >= QUESTIONS:
            return True
        self._asked[rank] = asked + 1
        self.queries += 1
        self._say(core.view.node(rank), is_reply=False)
        return False

    def _say(self, node: NodeId, *, is_reply: bool) -> None:
        core = self._core
        packet = core.packet(Query(core.me, core.config.address, core.view.tag, is_reply))
        core.emit(Send(node, Port.TOKEN, packet))

    def query(self, query: Query) -> None:
        """Answer a question, or note an answer. Only members of the same view count: one in another view is as good as gone."""
        core = self._core
        rank = core.view.rank_of(query.sender)
        if rank is None or query.tag != core.view.tag:
            return
        if query.is_reply:
            core.view.heard_at[rank] = core.now
        else:
            self._say(query.sender, is_reply=True)

    # --- lag --------------------------------------------------------------------------------------------------------

    def _lags(self, rank: int) -> bool:
        core, stability = self._core, self._core.view.stability
        if stability.is_closed(rank) or not stability.is_behind(rank):
            self._behind_since.pop(rank, None)
            return False
        since = max(self._behind_since.setdefault(rank, core.now), stability.progress_at[rank])
        return core.now - since > core.config.pulse.ack_lag_us * (1 + self._health.score)

    def _withholds(self, rank: int) -> bool:
        core, store = self._core, self._core.view.dag.stores[rank]
        if max(core.view.claimed[rank], store.highest) <= store.aru:
            self._withheld.pop(rank, None)
            return False
        have, since = self._withheld.setdefault(rank, (store.aru, core.now))
        if have < store.aru:
            self._withheld[rank] = (store.aru, core.now)
            return False
        return core.now - since > WITHHELD_LAGS * core.config.pulse.ack_lag_us * (1 + self._health.score)

    # --- my own health ----------------------------------------------------------------------------------------------

    def fired_late(self, late_us: int) -> bool:
        """Did a timer fire so late that this node was away, and not its peers?"""
        return self._health.fired_late(late_us, max(1, self._core.view.silence_us // 2))

    def forgive(self) -> None:
        """This node was away: nobody counts as silent or lagging for the time in which it did not listen."""
        core = self._core
        if core.state in (State.OPERATIONAL, State.STAGE_1):
            core.view.heard_at = [core.now] * len(core.view)
            self._behind_since.clear()
            self._withheld.clear()

    def statistics(self) -> dict[str, int]:
        return {
            "queries": self.queries,
            "breaks_silence": self.breaks_silence,
            "breaks_lag": self.breaks_lag,
            "health": self._health.score,
        }
