"""One node of `transis bench failover`: it tells the time of every change of state and of every view, and sends if asked.

    python -m transis.bench.witness      (started by the benchmark, told what to do on standard input)

Times are of CLOCK_BOOTTIME, which all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from typing import Final

import msgspec

from transis.bench.machines import next_order, open_orders, tell
from transis.net.driver import Event
from transis.net.host import NodeHost
from transis.net.runtime import boottime_us, calm_the_collector, end_with_parent, fast_loop
from transis.net.transport import Group
from transis.settings.load import settings_of
from transis.settings.resolve import resolve
from transis.types.ids import Service
from transis.types.outputs import Configure, Note

PAYLOAD: Final = bytes(64)
TICK_S: Final = 0.005


class WitnessSpec(msgspec.Struct, kw_only=True):
    """What one witness is to do. `rate` is how many messages it sends a second."""

    name: str
    parent: int
    cluster: str
    group: str
    group_port: int
    state: str
    profile: str
    engine: str
    rate: float


class Witness:
    def __init__(self, spec: WitnessSpec) -> None:
        self._spec = spec
        group = Group(spec.group, spec.group_port, spec.group_port + 1)
        settings = settings_of(
            spec.name,
            cluster=spec.cluster,
            plaintext=True,
            group=group,
            state=spec.state,
            profile=spec.profile,
            engine=spec.engine,
            flight=False,
        )
        self.host = NodeHost(resolve(settings), on_events=self._hear, on_note=self._note)

    def _note(self, note: Note) -> None:
        if note.what == "state":
            tell({"state": dict(note.detail)["to"], "at": boottime_us()})

    def _hear(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, Configure) and event.view.id.is_regular:
                names = [node.name for node in event.view.nodes]
                tell({"view": str(event.view.id), "at": boottime_us(), "members": names, "cause": str(event.view.cause)})

    async def speak(self) -> None:
        """At its rate, as long as the ring takes it: a ring that is being formed takes nothing."""
        began, sent = boottime_us(), 0
        while self._spec.rate:
            due = int((boottime_us() - began) / 1e6 * self._spec.rate) - sent
            sent += due
            if due and self.host.driver.view is not None:
                self.host.driver.submit(Service.AGREED, [PAYLOAD] * due)
            await asyncio.sleep(TICK_S)


async def _run() -> None:
    orders = await open_orders()
    spec = msgspec.convert(await next_order(orders), WitnessSpec)
    end_with_parent(spec.parent)
    witness = Witness(spec)
    witness.host.start()
    speaking = asyncio.create_task(witness.speak())
    await next_order(orders)
    speaking.cancel()
    await witness.host.close("the benchmark is over")


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    calm_the_collector()
    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        runner.run(_run())


if __name__ == "__main__":
    main()
