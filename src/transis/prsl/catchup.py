"""Catching up beside the traffic: a replica that is behind asks one that is ahead, privately, chunk by chunk (R3).

1. Each chunk is green: it is logged, synced and delivered as it comes. Which primary was committed last is *not* taken over
   before the order is complete up to the plan's green place (R20): half of an order must not vote for the whole.
2. Own yellow stays behind the chunk while it agrees, and becomes red where it does not.
3. A provider that trimmed what is asked for sends its newest snapshot, outside the machine; one that has neither says so, and the
   next is asked. A provider that dies is a new view.
4. A newcomer asks in the same way from outside the group (view 0), until its own JOIN is green here: with no primary of its own
   (R21), nothing red and nothing out, it joins the group then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from transis.prsl.actions import COUNTER_MAX, Action
from transis.prsl.core import Core, Round
from transis.prsl.delivery import Delivery
from transis.prsl.log import Snapshot
from transis.prsl.messages import Ask, BulkMessage, Chunk, Unable
from transis.prsl.outputs import JoinGroup, SendSnapshot
from transis.prsl.prefix import next_digest
from transis.types.ids import ProcessId

OUTSIDE: Final = 0
"""The view of bulk messages between a replica and a newcomer, who is in no view yet."""


class CatchUp:
    def __init__(self, core: Core, delivery: Delivery, complete: Callable[[Round], None]) -> None:
        self._core = core
        self._delivery = delivery
        self._complete: Final = complete
        self._provider: ProcessId | None = None

    @property
    def _view(self) -> int:
        return self._core.round.tag if self._core.round is not None else OUTSIDE

    # --- asking -------------------------------------------------------------------------------------------------------

    def begin(self, round_: Round) -> None:
        """Behind by the plan: ask the lowest of those that are ahead."""
        self._provider = round_.providers[0]
        self._ask()

    def bring_up(self, provider: ProcessId) -> None:
        """A newcomer asks whom the host names."""
        self._provider = provider
        self._ask()

    def _ask(self) -> None:
        core = self._core
        if self._provider is not None:
            end = COUNTER_MAX - 1 if core.round is None or core.round.plan is None else core.round.plan.green.place
            core.send_to(self._provider, Ask(self._view, core.log.green.place, end))

    def _ask_next(self, sender: ProcessId) -> None:
        """The next of those that are ahead; after the last one nothing comes before the next view."""
        round_ = self._core.round
        providers = round_.providers if round_ is not None else []
        later = providers[providers.index(sender) + 1 :] if sender in providers else []
        self._provider = later[0] if later else None
        self._ask()

    # --- taking -------------------------------------------------------------------------------------------------------

    def bulk(self, sender: ProcessId, message: BulkMessage) -> None:
        if isinstance(message, Ask):
            if message.view in (OUTSIDE, self._view):
                self._provide(sender, message)
        elif message.view == self._view and sender == self._provider and self._is_wanted():
            if isinstance(message, Chunk):
                self._take(sender, message)
            elif message.place == self._core.log.green.place:
                self._ask_next(sender)

    def _is_wanted(self) -> bool:
        round_ = self._core.round
        return self._core.number == 0 if round_ is None else round_.is_behind

    def _take(self, sender: ProcessId, chunk: Chunk) -> None:
        core = self._core
        log = core.log
        if chunk.place != log.green.place or not chunk.actions:
            return
        digest = log.green.digest
        for action in chunk.actions:
            digest = next_digest(digest, action.id)
        if digest != chunk.digest:
            core.rejections["digest"] += 1
            self._ask_next(sender)
            return
        self._adopt(chunk)
        self._go_on()

    def _adopt(self, chunk: Chunk) -> None:
        core = self._core
        log = core.log
        ids = [action.id for action in chunk.actions]
        own = log.ids(log.green.place, log.end)
        agrees = own[: len(ids)] == ids[: len(own)]
        for action in chunk.actions:
            core.keep(action)
        core.replace(log.green.place, [*ids, *(own[len(ids) :] if agrees else [])])
        log.advance(chunk.place + len(ids))
        core.write_marks()

    def loaded(self, snapshot: Snapshot) -> None:
        """The host has a snapshot from a provider, on its disk."""
        if snapshot.base.place > self._core.log.green.place and self._is_wanted():
            self._delivery.load(snapshot)
            self._go_on()

    def _go_on(self) -> None:
        round_, core = self._core.round, self._core
        self._delivery.deliver()
        core.find_number()
        if round_ is None:
            self._join_if_member()
        elif round_.plan is not None and core.log.green.place >= round_.plan.green.place:
            self._provider = None
            self._complete(round_)
        else:
            self._ask()

    def _join_if_member(self) -> None:
        core = self._core
        if core.number:
            core.journal.then(lambda: core.outputs.append(JoinGroup()))
            self._provider = None
        else:
            self._ask()

    # --- providing ----------------------------------------------------------------------------------------------------

    def _provide(self, sender: ProcessId, ask: Ask) -> None:
        """What is green and synced here, as much as fits into one chunk."""
        core = self._core
        log = core.log
        end = min(ask.end, log.green.place, core.journal.durable)
        snapshot = self._delivery.snapshot
        if ask.place < log.base.place and snapshot.base.place > ask.place:
            core.outputs.append(SendSnapshot(sender, snapshot))
        elif ask.place < log.base.place or ask.place >= end:
            core.send_to(sender, Unable(ask.view, ask.place))
        else:
            self._send_chunk(sender, ask, core.batch(ask.place, end))

    def _send_chunk(self, sender: ProcessId, ask: Ask, batch: list[Action]) -> None:
        digest = self._core.digest_at(ask.place + len(batch)) if batch else None
        if digest is None:
            self._core.send_to(sender, Unable(ask.view, ask.place))
        else:
            self._core.send_to(sender, Chunk(ask.view, ask.place, tuple(batch), digest))
