"""The story of the demonstration, played by five real daemons on loopback with a client each.

There is traffic in every service, kill -9 of one daemon, a partition, a heal and a restart.

1. A scene is a paragraph for a person and what happens in it.
2. Every wait is for an event of a client's stream, a view or messages, and is bounded.
3. The traces are read while the cluster is at rest: nobody has anything left to send or to deliver, so every guarantee can be
   judged to the last message. A killed daemon's trace cannot say that it was killed; we saw it, and add it.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.status import Status
from rich.table import Table
from rich.text import Text

from transis.audit.guarantees import check
from transis.audit.guarantees.property import Findings, Report, Verdict
from transis.cli.admin import AdminConnection
from transis.cli.local_cluster import ClusterError, LocalCluster
from transis.cli.options import plain_table
from transis.client.connection import connect
from transis.client.events import Batch, View
from transis.client.group import Group
from transis.client.sending import Receipt
from transis.client.session import Session
from transis.net.runtime import boottime_us
from transis.sim.cluster import show_node
from transis.sim.words import print_outcome, print_step
from transis.trace.events import Delivery, End, Event, History, NodeTrace, Sent
from transis.trace.reader import STILL_OPEN, Finding, read_trace
from transis.trace.recovery import record_end
from transis.types.errors import ConnectError, SessionLost
from transis.types.ids import MessageId, NodeId, Service
from transis.types.views import PROCESSES_MAX

# --- cluster ------------------------------------------------------------------------------------------------------------

NAMES: Final = ("a", "b", "c", "d", "e")
GROUP: Final = "orders"
PATIENCE_S: Final = 30.0
"""For one thing to happen on a busy machine; on an idle one it takes a second or less."""
RETRY_S: Final = 0.05

SETTINGS: Final[dict[str, dict[str, object]]] = {
    "admin": {"allow_faults": True},
    # On a crowded machine a daemon may wait long for a processor; the others must not suspect it for that.
    "timing": {
        "token_loss_ms": 400,
        "token_retransmit_ms": 90,
        "token_hold_ms": 20,
        "consensus_ms": 480,
        "fail_to_receive_ms": 800,
    },
    "pulse": {"silence_ms": 400, "probe_ms": 60, "ack_lag_ms": 1_000, "agree_ms": 1_100},
}


class ClientStay(NamedTuple):
    """A client's time in one view of its group."""

    view: View
    messages: list[int]


class DemoClient:
    """The client of one daemon: sends messages, and keeps what it sees."""

    def __init__(self, name: str, session: Session[bytes], group: Group[bytes], pulse: Callable[[], None]) -> None:
        self.name = name
        self.node = session.process.node
        self.stays: list[ClientStay] = []
        self.heard: dict[MessageId, bytes] = {}
        self.said: dict[MessageId, bytes] = {}
        self.receipts: list[Receipt] = []
        self.lost = ""
        self._session = session
        self._group = group
        self._pulse = pulse
        self._task = asyncio.create_task(self._listen())

    @property
    def company(self) -> str:
        """The nodes of its last view, if that is a regular one."""
        if not self.stays or not self.stays[-1].view.id.configuration.is_regular:
            return ""
        return "".join(sorted({member.node.name for member in self.stays[-1].view.members}))

    async def say(self, count: int, service: Service) -> Receipt:
        payloads = [f"{self.name} says {number} of {count}, {service.name.lower()}".encode() for number in range(1, count + 1)]
        receipt = await self._group.send_many(payloads, service)
        self.receipts.append(receipt)
        for number, payload in enumerate(payloads):
            self.said[MessageId(receipt.id.process, receipt.first + number)] = payload
        return receipt

    async def _listen(self) -> None:
        try:
            async for event in self._group.batches():
                if isinstance(event, Batch):
                    self.heard |= {message.id: message.data for message in event}
                    self.stays[-1].messages.append(len(event))
                else:
                    self.stays.append(ClientStay(event, []))
                self._pulse()
        except SessionLost as error:
            self.lost = str(error)
            self._pulse()

    async def go(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._session.close()


class DemoCluster:
    """`async with DemoCluster(directory, engine)`: the daemons end with it, whatever happens inside."""

    def __init__(self, directory: Path, engine: str) -> None:
        self._traces = directory / "trace"
        node: dict[str, object] = {"quorum": list(NAMES), "engine": engine}
        trace: dict[str, object] = {"directory": str(self._traces), "free_mb": 0}
        self.cluster = LocalCluster(directory, NAMES, SETTINGS | {"node": node, "trace": trace})
        self.began_us = boottime_us()
        self.log: list[tuple[int, str]] = []
        """What was done to the cluster, and when."""
        self.clients: dict[str, DemoClient] = {}
        self.past: list[DemoClient] = []
        """Clients whose daemon was killed."""
        self._killed: list[tuple[NodeId, int]] = []
        self._news = asyncio.Event()

    async def __aenter__(self) -> DemoCluster:
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await asyncio.gather(*(client.go() for client in [*self.past, *self.clients.values()]), return_exceptions=True)
        finally:
            await asyncio.to_thread(self.cluster.stop)

    def now_us(self) -> int:
        return boottime_us() - self.began_us

    # --- doing ------------------------------------------------------------------------------------------------------

    async def start(self, names: str) -> None:
        for name in names:
            self.cluster[name].start()
        await asyncio.gather(*map(self._enter, names))

    async def _enter(self, name: str) -> None:
        async with _Deadline(f"a client joins by way of {name}"):
            session = await self._connected(name)
            group = await session.join(GROUP).open()
        self.clients[name] = DemoClient(name, session, group, self._news.set)

    async def _connected(self, name: str) -> Session[bytes]:
        """Connect as soon as the daemon listens."""
        daemon = self.cluster[name]
        while True:
            try:
                return await connect(str(daemon.clients), label=f"client of {name}").open()
            except ConnectError:
                if daemon.crashed:
                    raise ClusterError(f"{name} did not come up: {daemon.last_words()}\n{daemon.tail()}") from None
            await asyncio.sleep(RETRY_S)

    def kill(self, name: str) -> None:
        """kill -9, without a word to anybody."""
        client = self.clients.pop(name)
        self.cluster[name].end(signal.SIGKILL)
        self.past.append(client)
        self._killed.append((client.node, boottime_us()))
        self._strike(f"crash {name}")

    async def restart(self, name: str) -> None:
        self._strike(f"restart {name}")
        await self.start(name)

    def part(self, *sides: str) -> None:
        """Every daemon stops hearing, and talking to, those on the other sides."""
        self._strike(f"partition {' | '.join(' '.join(side) for side in sides)}")
        for side in sides:
            others = [name for other in sides if other != side for name in other]
            for name in side:
                self._ask(name, "cut", peers=others)

    def heal(self) -> None:
        self._strike("heal")
        for name in self.clients:
            self._ask(name, "heal")

    def _ask(self, name: str, what: str, **more: object) -> None:
        with AdminConnection(self.cluster[name].admin, None) as connection:
            connection.ask(what, **more)

    def _strike(self, words: str) -> None:
        self.log.append((self.now_us(), words))

    async def say(self, names: str, count: int, service: Service) -> list[Receipt]:
        return list(await asyncio.gather(*(self.clients[name].say(count, service) for name in names)))

    # --- waiting ----------------------------------------------------------------------------------------------------

    async def together(self, *sides: str) -> None:
        """Wait until each side is a view of its own, at all of its members."""
        wanted = {name: side for side in sides for name in side}
        await self._until(
            lambda: all(self.clients[name].company == side for name, side in wanted.items()), f"views of {' and '.join(sides)}"
        )

    async def heard(self, names: str, receipts: Sequence[Receipt]) -> None:
        """Wait until these messages are delivered where they were sent, and all of these clients have them."""
        async with _Deadline("messages are delivered where they were sent"):
            for receipt in receipts:
                await receipt
        last = [MessageId(receipt.id.process, receipt.first + receipt.count - 1) for receipt in receipts]
        ears = [self.clients[name].heard for name in names]
        await self._until(lambda: all(message in heard for heard in ears for message in last), "everybody hears everybody")

    async def talk(self, names: str, count: int, service: Service) -> None:
        """They send, and wait until all of them have received everything."""
        await self.heard(names, await self.say(names, count, service))

    async def lost(self, client: DemoClient) -> None:
        await self._until(lambda: bool(client.lost), f"the client of {client.name} learns that its daemon is gone")

    async def _until(self, reached: Callable[[], bool], what: str) -> None:
        async with _Deadline(what):
            while not reached():
                self._news.clear()
                await self._news.wait()

    # --- evidence ---------------------------------------------------------------------------------------------------

    def history(self, *, closed: bool) -> tuple[History, list[Finding]]:
        """What the traces say so far, with times from the beginning, and what is wrong with them; open segments are not wrong."""
        reading = read_trace(self._traces)
        ends = dict(self._killed)
        nodes = [self._trace(trace, ends.get(trace.node)) for trace in reading.history.nodes]
        findings = [finding for finding in reading.findings if finding.what != STILL_OPEN]
        return reading.history._replace(nodes=nodes, closed=closed), findings

    def testify(self) -> None:
        """At the end, record the ends that killed daemons could not, so that the traces alone hold the whole story."""
        for node, _ in self._killed:
            record_end(self._traces, node, "failed")

    def _trace(self, trace: NodeTrace, killed_us: int | None) -> NodeTrace:
        events: list[Event] = [event._replace(time_us=event.time_us - self.began_us) for event in trace.events]
        if killed_us is not None and not isinstance(events[-1], End):
            events.append(End(events[-1].lseq + 1, max(events[-1].time_us, killed_us - self.began_us), "failed"))
        return NodeTrace(trace.node, events)

    def integrity(self) -> Verdict:
        """What clients received is what clients sent, byte for byte."""
        findings = Findings("integrity")
        clients = [*self.past, *self.clients.values()]
        said = {message: payload for client in clients for message, payload in client.said.items()}
        for client in clients:
            for message, payload in client.heard.items():
                findings.checked += 1
                if said.get(message) != payload:
                    findings.broken(
                        f"the client of {client.name} heard {payload!r} as {message}, which was {said.get(message)!r}"
                    )
        return findings.verdict()


class _Deadline:
    """Bounds a wait; its error says what did not happen."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._timeout = asyncio.timeout(PATIENCE_S)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            await self._timeout.__aexit__(kind, error, trace)  # type: ignore[arg-type]  # It is a traceback.
        except TimeoutError:
            raise ClusterError(f"this did not happen within {PATIENCE_S:.0f} s: {self._what}") from None


# --- scenes -----------------------------------------------------------------------------------------------------------


class Scene(NamedTuple):
    heading: str
    paragraph: str
    act: Callable[[DemoCluster], Awaitable[None]]


async def _start(demo: DemoCluster) -> None:
    await demo.start("abcde")
    await demo.together("abcde")


async def _send(demo: DemoCluster) -> None:
    receipts = await demo.say("abcde", 2, Service.AGREED)
    receipts += await demo.say("ace", 1, Service.CAUSAL)
    receipts += await demo.say("bd", 2, Service.SAFE)
    await demo.say("ab", 1, Service.BASIC)
    await demo.heard("abcde", receipts)


async def _kill(demo: DemoCluster) -> None:
    """In the middle of traffic: some of c's last messages may have reached nobody."""
    receipts = await demo.say("abde", 3, Service.SAFE)
    await demo.say("c", 3, Service.SAFE)
    victim = demo.clients["c"]
    demo.kill("c")
    await demo.lost(victim)
    await demo.together("abde")
    await demo.heard("abde", receipts)
    await demo.talk("ae", 2, Service.AGREED)


async def _part(demo: DemoCluster) -> None:
    """In the middle of traffic too; then each side talks to itself."""
    await demo.say("abde", 1, Service.SAFE)
    demo.part("ab", "de")
    await demo.together("ab", "de")
    await demo.talk("ab", 2, Service.AGREED)
    await demo.talk("de", 2, Service.AGREED)


async def _heal(demo: DemoCluster) -> None:
    demo.heal()
    await demo.together("abde")
    await demo.talk("abde", 1, Service.AGREED)


async def _restart(demo: DemoCluster) -> None:
    await demo.restart("c")
    await demo.together("abcde")
    await demo.talk("abcde", 1, Service.AGREED)
    await demo.talk("abcde", 1, Service.SAFE)


SCENES: Final = (
    Scene(
        "Five daemons start, and a client of each joins the group orders",
        "Five processes on loopback, each alone at first, in a view of one (R0). They hear each other's beacons, agree on who is "
        "there, and install one view of five. A client connects to each over its Unix socket and joins a process group. The "
        "cluster is told its quorum, so views say whether they hold a majority of the five.",
        _start,
    ),
    Scene(
        "Everybody sends",
        "Agreed messages have one place in one order everywhere; causal ones come after whatever caused them; safe ones are "
        "delivered only when every member is known to have them; basic ones come when they come.",
        _send,
    ),
    Scene(
        "kill -9 of the daemon c",
        "c dies in the middle of traffic, without a word. Its client is told that the session is lost, and that of its last "
        "messages nobody knows whether they were sent. The others notice, agree who is left, and recover what "
        "any of them has of the old view. A transitional view (T) tells them: what you deliver in it is certain only among "
        "these. Then a view of four begins.",
        _kill,
    ),
    Scene(
        "The network is cut: a and b here, d and e there",
        "Neither side can know whether the other died. Both go on, each in a view of two, each with its own order: what is sent "
        "now is delivered only on the side where it was sent. Neither side has three of the five, so both say that they are not "
        "primary: an application that must not diverge stops there, and one that may goes on.",
        _part,
    ),
    Scene(
        "The cut heals",
        "The sides hear each other's beacons and form one view again. Each member says from which view it comes, so an "
        "application knows with whom it shares its past and with whom it must exchange state.",
        _heal,
    ),
    Scene(
        "c is started again",
        "From its own state directory, as a new incarnation, c/2: nothing it said in its first life can be mistaken for what it "
        "says now. Its new client joins the group.",
        _restart,
    ),
)


# --- real demo --------------------------------------------------------------------------------------------------------


class DemoResult(NamedTuple):
    """What the demonstration leaves: the evidence, and how it was judged."""

    history: History
    report: Report
    verdicts: list[Verdict]
    findings: list[Finding]
    log: list[tuple[int, str]]
    clients: Table
    seconds: float


async def play_real(console: Console | None, directory: Path, engine: str) -> DemoResult:
    """Without a console nothing is printed."""
    async with DemoCluster(directory, engine) as demo:
        if console is not None:
            console.print(
                f"Transis: five daemons on this machine, real processes on real sockets, ordered by {engine}.", style="bold"
            )
        for number, scene in enumerate(SCENES, 1):
            since_us, lost = demo.now_us(), len(demo.past)
            await _act(console, demo, number)
            if console is not None:
                print_step(console, number, scene.heading, scene.paragraph, (since_us, demo.now_us()))
                print_outcome(console, demo.history(closed=False)[0], since_us)
                for client in demo.past[lost:]:
                    _print_lost(console, client)
        result = _played(demo)
    demo.testify()
    return result


async def _act(console: Console | None, demo: DemoCluster, number: int) -> None:
    scene = SCENES[number - 1]
    if console is None or not console.is_terminal:
        await scene.act(demo)
        return
    with Status(f"{number}. {scene.heading} ...", console=console):
        await scene.act(demo)


def _print_lost(console: Console, client: DemoClient) -> None:
    doubt = sum(receipt.count for receipt in client.receipts if receipt.outcome == "in doubt")
    words = f"  The client of {client.name} was told: {client.lost}. {doubt} of its messages are in doubt."
    console.print(Text(words, style="dim"), soft_wrap=True)


def _played(demo: DemoCluster) -> DemoResult:
    history, findings = demo.history(closed=True)
    report = check(history)
    verdicts = [*report.verdicts.values(), demo.integrity()]
    clients = _client_table([*demo.past, *demo.clients.values()])
    return DemoResult(history, report, verdicts, findings, demo.log, clients, demo.now_us() / 1e6)


def drawn(history: History) -> History:
    """Without the daemons' own messages: a picture has room for the story only."""
    nodes = [NodeTrace(trace.node, list(filter(_is_drawn, trace.events))) for trace in history.nodes]
    return history._replace(nodes=nodes)


def _is_drawn(event: object) -> bool:
    if isinstance(event, Sent):
        return event.process < PROCESSES_MAX
    return not isinstance(event, Delivery) or event.process.number < PROCESSES_MAX


def _client_table(clients: Sequence[DemoClient]) -> Table:
    """What each client saw: its views of the group, and how many messages it got in each."""
    headings = ("client of", "views, and messages got in each (~: transitional, !: not primary)")
    table = plain_table(*headings, title=f"What clients of the group {GROUP} saw")
    table.columns[1].justify = "left"
    for client in sorted(clients, key=lambda client: client.node):
        stays = (_stay(client, index) for index in range(len(client.stays)))
        table.add_row(show_node(client.node), " → ".join(stays) + (" → session lost" if client.lost else ""))
    return table


def _stay(client: DemoClient, index: int) -> str:
    view, messages = client.stays[index]
    names = ",".join(sorted(show_node(member.node) for member in view.members))
    sign = "!" if view.primary is False else ""
    kind = "" if view.id.configuration.is_regular else "~"
    return f"{kind}{sign}{{{names}}} {sum(messages)}"
