"""Worked examples as text: a block of commands, a line `----`, and what they print.

    cluster a b c
    settle
    ----
    at rest in R8{a,b,c}

1. Blocks are separated by an empty line; lines that start with # are prose and stay where they are.
2. A block's commands run one after the other in the same cluster; what they print is its outcome.
3. Every fault's line (faults.py) is a command. The others are in COMMANDS, explained at their functions. Some let time pass
   (run, until, settle), some act on packets (drop, duplicate, keep, record, release, pass, watch), some make client processes
   act, and the rest show what happened: these read what was recorded and change nothing. Counts are of the whole
   run unless a function says otherwise.
4. A cluster has client processes if it is given `clients=1`. Each node has one: `connect p` makes it, and once the node had a
   turn it can enter groups and send. A process is shown by the name of its node, its messages as `p#1.1`, `p#1.2` and so on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from transis.audit.guarantees.clients import ClientHistory, Got, Step
from transis.audit.guarantees.history import LaidHistory
from transis.audit.guarantees.property import HELD, PENDING, Report
from transis.sim.cluster import ALWAYS, SimulatedCluster, grouped, show_message, show_node, show_view, show_view_id
from transis.sim.faults import COPY_SUFFIX, SEND_SIZE, names_in, parse_duration
from transis.sim.faults import parse as parse_fault
from transis.sim.host import Host
from transis.sim.life import FIRST, ActionKind, ClientAction, SimulatedLife, Submission
from transis.sim.liveness import judged
from transis.sim.network import WireLog
from transis.sim.plan import Plan, parse_plan, with_setting
from transis.sim.run import RunOutcome, simulate
from transis.trace.events import ClientLeft, Conf, Delivery, Event, GroupConf, NoteEvent, Refuse, Sent
from transis.types.config import profile, pulse_profile
from transis.types.ids import MessageId, Service
from transis.types.views import Address, GroupView, group_id
from transis.wire.items import encode_address

# --- reading ----------------------------------------------------------------------------------------------------------


def awaited(cluster: SimulatedCluster, name: str, what: str) -> Callable[[], bool]:
    """Tells whether the node of a host is in a protocol state, or came to it or to a view such as R8 since it was first asked.

    A node may pass through a state within one turn, so being there is not enough to go by.
    """
    host = cluster.world.hosts[name]
    fresh = _Fresh(host, skip=True)
    return lambda: host.state == what or any(_arrival(event) == what for event in fresh.events())


def _arrival(event: Event) -> str:
    """The state or the view to which an event brought its node."""
    match event:
        case NoteEvent(what="state"):
            return str(dict(event.detail)["to"])
        case Conf():
            return show_view_id(event.view.id)
        case _:
            return ""


def delivering(cluster: SimulatedCluster, name: str, message: str) -> Callable[[], bool]:
    """Tells whether the node of a host has delivered a message such as a3."""
    fresh = _Fresh(cluster.world.hosts[name], skip=False)
    return lambda: any(message in _delivered_in(event) for event in fresh.events() if isinstance(event, Delivery))


def _delivered_in(event: Delivery) -> list[str]:
    return [show_message(MessageId(event.process, event.first + i)) for i in range(event.count)]


class _Fresh:
    """The events of a host's present life that nobody has asked for yet: asked at every instant, so each is given once."""

    def __init__(self, host: Host, *, skip: bool) -> None:
        self._host = host
        self._life = host.life
        self._given = len(host.life.recorder.events) if skip and host.life is not None else 0

    def events(self) -> Sequence[Event]:
        life = self._host.life
        if life is not self._life:
            self._life, self._given = life, 0
        if life is None:
            return ()
        fresh = life.recorder.events[self._given :]
        self._given += len(fresh)
        return fresh


def causes(cluster: SimulatedCluster) -> str:
    """Why each regular view was made, as its members saw it; first views have no cause worth showing."""
    lines: dict[str, None] = {}
    for life in cluster.lives():
        views = [event.view for event in life.recorder.events if isinstance(event, Conf) and event.view.id.is_regular]
        for view in views[1:]:
            lines[f"{show_view_id(view.id)}{{{','.join(map(show_node, view.nodes))}}}: {view.cause.in_words(show_node)}"] = None
    return "\n".join(sorted(lines, key=_by_number))


def _by_number(line: str) -> tuple[int, str]:
    return int(line[1 : line.index("{")]), line


def totals(cluster: SimulatedCluster) -> str:
    """How many messages each life delivered, by sender."""
    return grouped([(show_node(life.id), _counted(_delivered_of(life))) for life in cluster.lives()])


def _delivered_of(life: SimulatedLife) -> Counter[str]:
    count: Counter[str] = Counter()
    for event in life.recorder.events:
        if isinstance(event, Delivery):
            count[show_node(event.process.node)] += event.count
    return count


def sent(cluster: SimulatedCluster) -> str:
    """How many messages each life originated, that is, gave a place in the order."""
    lines = []
    for life in cluster.lives():
        count = sum(event.count for event in life.recorder.events if isinstance(event, Sent))
        lines.append((show_node(life.id), str(count)))
    return grouped(lines)


def refused(cluster: SimulatedCluster) -> str:
    """Messages that were accepted and then not sent, with the reason."""
    lines = []
    for life in cluster.lives():
        refusals = [event for event in life.recorder.events if isinstance(event, Refuse)]
        lines += [f"{show_node(life.id)}: {event.count} from {event.first} on: {event.why}" for event in refusals]
    return "\n".join(lines) or "nothing"


def endings(cluster: SimulatedCluster) -> str:
    """Nodes that stopped by themselves or were not allowed to start, and why."""
    found = [text for _, text in cluster.world.log if " stopped: " in text or " may not start: " in text]
    return "\n".join(found) or "nobody"


def notes(cluster: SimulatedCluster, what: str) -> str:
    """What each life noted and how often, such as `retransmitted`; without a name, everything but states.

    A note with a count of its own, such as of datagrams sent again, counts as that many.
    """
    lines = []
    for life in cluster.lives():
        count: Counter[str] = Counter()
        for event in life.recorder.events:
            if isinstance(event, NoteEvent) and event.what != "state" and what in ("", event.what):
                count[event.what] += int(dict(event.detail).get("count", 1))
        if count:
            lines.append((show_node(life.id), _counted(count)))
    return grouped(lines) or f"nobody noted {what or 'anything'}"


def packets(cluster: SimulatedCluster, kinds: Sequence[str]) -> str:
    """How many packets of each kind, or of these, were carried to a host since `watch`."""
    seen = cluster.tally.seen
    return _counted(Counter({kind: seen[kind] for kind in kinds or seen})) or "nothing"


def _counted(count: Counter[str]) -> str:
    return ", ".join(f"{name} {count[name]}" for name in sorted(count)) or "nothing"


# --- client processes -------------------------------------------------------------------------------------------------


def connect(cluster: SimulatedCluster, words: list[str]) -> str:
    """connect p q r"""
    for name in words:
        cluster.world.hosts[name].submit(ClientAction(ActionKind.CONNECT))
    return ""


def enter(cluster: SimulatedCluster, words: list[str]) -> str:
    """enter p G H"""
    host = _with_process(cluster, words[0])
    for group in words[1:]:
        host.submit(ClientAction(ActionKind.TOGGLE, FIRST, group))
    return ""


def tell(cluster: SimulatedCluster, words: list[str]) -> str:
    """tell p H causal, tell p G,H agreed"""
    name, groups, service = words
    address = Address(tuple(map(group_id, groups.split(","))))
    submission = Submission(Service[service.upper()], (SEND_SIZE,), FIRST, encode_address(address))
    _with_process(cluster, name).submit(submission)
    return ""


def _with_process(cluster: SimulatedCluster, name: str) -> Host:
    host = cluster.world.hosts[name]
    if host.life is None or host.life.clients is None or FIRST not in host.life.clients.wanted:
        raise ValueError(f"{name} has no process: give the cluster clients=1, `connect {name}`, and let time pass")
    return host


def streams(cluster: SimulatedCluster) -> str:
    """What each process got since the last call: views of its groups, messages, and the ends of its memberships."""
    lines = []
    for client in ClientHistory(LaidHistory(cluster.history())).clients:
        new = client.steps[cluster.shown_steps.get(client.id, 0) :]
        cluster.shown_steps[client.id] = len(client.steps)
        if new:
            lines.append((show_node(client.node), " ".join(map(_show_step, new))))
    return grouped(lines)


def _show_step(step: Step) -> str:
    match step:
        case GroupConf():
            return _show_group_view(step.view)
        case Got(run=run) if run is not None:
            return " ".join(show_message(MessageId(run.process, run.first + i)) for i in range(run.count))
        case ClientLeft():
            return f"out of {step.name}"
        case _:
            return "something unknown"


def _show_group_view(view: GroupView) -> str:
    """`G{p,q}`, or `G-transitional{p,q}`."""
    kind = "" if view.id.configuration.is_regular else "-transitional"
    return f"{view.name}{kind}{{{','.join(show_node(member.node) for member in view.members)}}}"


# --- scripts ----------------------------------------------------------------------------------------------------------

SEPARATOR: Final = "----"

SHORT: Final = {"engine": "config.engine", "order": "config.order", "mode": "config.mode", "clients": "clients.processes"}
"""Settings that a cluster may be given by a short name."""


class Block(NamedTuple):
    prose: tuple[str, ...]
    commands: tuple[str, ...]
    expected: str

    def text(self) -> str:
        return "\n".join((*self.prose, *self.commands, *((SEPARATOR, self.expected) if self.commands else ()))).rstrip()


def parse_script(text: str) -> list[Block]:
    return [_block(chunk) for chunk in text.strip().split("\n\n") if chunk.strip()]


def _block(chunk: str) -> Block:
    before, _, expected = chunk.partition(f"\n{SEPARATOR}")
    lines = before.strip("\n").split("\n")
    prose = tuple(line for line in lines if line.startswith("#"))
    return Block(prose, tuple(line for line in lines if not line.startswith("#")), expected.strip("\n"))


def run_script(text: str, engine: str = "totem") -> str:
    """The script with every expected outcome replaced by what happened. Clusters that name no engine get this one."""
    player = Player(engine)
    return "\n\n".join(block._replace(expected=player.play(block)).text() for block in parse_script(text)) + "\n"


@dataclass(slots=True)
class Player:
    """Runs blocks; the cluster lives from block to block."""

    engine: str = "totem"
    cluster: SimulatedCluster | None = None
    outcome: RunOutcome | None = None
    """Of the last `simulate`."""
    wire: WireLog = field(default_factory=WireLog)
    """Of the last cluster or run."""

    def play(self, block: Block) -> str:
        if block.commands and block.commands[0] == "simulate":
            plan = parse_plan("\n".join(block.commands[1:]))
            self.wire = WireLog()
            self.outcome = simulate(plan.seed, plan, watchers=(self.wire,))
            return verdict_text(self.outcome.report) if self.outcome.report.broken else HELD
        outputs = (self._command(line) for line in block.commands)
        return "\n".join(output for output in outputs if output)

    def _command(self, line: str) -> str:
        verb, _, rest = line.partition(" ")
        if verb == "cluster":
            self.cluster = _cluster(rest.split(), self.engine)
            self.wire = WireLog()
            self.cluster.world.network.watchers.append(self.wire)
            return ""
        if self.cluster is None:
            raise ValueError(f"{line!r}: a script starts with a cluster")
        command = COMMANDS.get(verb)
        try:
            if command is not None:
                return command(self.cluster, rest.split())
            fault = parse_fault(line)
            named = {name.removesuffix(COPY_SUFFIX) for name in names_in(fault)}
            if unknown := named - {"*"} - self.cluster.world.hosts.keys():
                raise KeyError(min(unknown))
            self.cluster.strike(fault)
        except LookupError:
            known = " ".join(sorted(self.cluster.world.hosts))
            raise ValueError(f"{line!r} leaves something out, or names a node that is not there; there are {known}") from None
        return ""


def _cluster(words: list[str], engine: str) -> SimulatedCluster:
    """cluster a b c later=c seed=7 engine=lansis profile=wan config.window.window=10"""
    names = tuple(word for word in words if "=" not in word)
    if not names or len(set(names)) < len(names):
        raise ValueError("a cluster needs nodes with names that differ, as in: cluster a b c")
    plan = with_setting(replace(Plan(0, names), stagger_us=0), "config.engine", engine)
    later: list[str] = []
    for word in words:
        setting, equals, value = word.partition("=")
        if setting == "later":
            later = value.split(",")
        elif setting == "profile":
            plan = replace(plan, config=replace(plan.config, timing=profile(value), pulse=pulse_profile(value)))
        elif equals:
            plan = with_setting(plan, SHORT.get(setting, setting), value.replace(",", " "))
    plan.config_of(names[0]).validated()
    return SimulatedCluster(plan, later)


def _run(cluster: SimulatedCluster, words: list[str]) -> str:
    """run 50ms"""
    cluster.run(parse_duration(words[0]))
    return ""


def _start(cluster: SimulatedCluster, words: list[str]) -> str:
    """start c"""
    for name in words:
        cluster.start(name)
    return ""


def _until(cluster: SimulatedCluster, words: list[str]) -> str:
    """until b Recovery, until b Stage 2, until b R8, until b delivers a3"""
    name, what = words[0], " ".join(words[1:]).removeprefix("delivers ")
    reached = delivering(cluster, name, what) if words[1] == "delivers" else awaited(cluster, name, what)
    return "" if cluster.until(reached) else f"{name} never came to {what}"


Selection = tuple[str, str, str, int, int]


def _packets(words: list[str]) -> Selection:
    """a->b data 2 after=3: three data packets from a to b pass, then two are chosen; without a number, all of them."""
    source, _, target = words[0].partition("->")
    counts = [word for word in words[2:] if "=" not in word]
    skips = [word.removeprefix("after=") for word in words[2:] if "=" in word]
    return words[1], source, target, int(counts[0]) if counts else ALWAYS, int(skips[0]) if skips else 0


def _drop(cluster: SimulatedCluster, words: list[str]) -> str:
    """drop a->b data 2"""
    cluster.drop_next(*_packets(words))
    return ""


def _duplicate(cluster: SimulatedCluster, words: list[str]) -> str:
    """duplicate *->* commit"""
    cluster.duplicate(*_packets(words))
    return ""


def _keep(cluster: SimulatedCluster, words: list[str]) -> str:
    """keep a->b data 1: it arrives at `release` and not before"""
    cluster.keep(*_packets(words))
    return ""


def _record(cluster: SimulatedCluster, words: list[str]) -> str:
    """record a->b commit1 1: it arrives, and once more at `release`"""
    cluster.copy(*_packets(words))
    return ""


def _release(cluster: SimulatedCluster, words: list[str]) -> str:
    count = cluster.release()
    return f"released {count}"


def _pass(cluster: SimulatedCluster, words: list[str]) -> str:
    cluster.let_pass()
    return ""


def _watch(cluster: SimulatedCluster, words: list[str]) -> str:
    cluster.watch()
    return ""


def _settle(cluster: SimulatedCluster, words: list[str]) -> str:
    restless = cluster.settle()
    if restless:
        return f"not at rest: {restless}"
    lives = judged(cluster.world)
    return f"at rest in {show_view(lives[0].view)}" if lives and lives[0].view is not None else "nobody is alive"


def _check(cluster: SimulatedCluster, words: list[str]) -> str:
    """check, or check evs: judged by all of extended virtual synchrony, promised or not"""
    mishaps = [f"{mishap.property}: {mishap.explanation}" for mishap in cluster.world.mishaps]
    return "\n".join((*mishaps, verdict_text(cluster.check(words == ["evs"]))))


def verdict_text(report: Report) -> str:
    """`held`, or what broke and why; what is still open is named."""
    if report.broken:
        return "\n".join(f"{violation.property}: {violation.explanation}" for violation in report.violations)
    pending = [name for name, verdict in report.verdicts.items() if verdict.verdict == PENDING]
    return f"held, pending {', '.join(pending)}" if pending else HELD


COMMANDS: Final[dict[str, Callable[[SimulatedCluster, list[str]], str]]] = {
    "run": _run,
    "start": _start,
    "until": _until,
    "drop": _drop,
    "duplicate": _duplicate,
    "keep": _keep,
    "record": _record,
    "release": _release,
    "pass": _pass,
    "watch": _watch,
    "settle": _settle,
    "views": lambda cluster, words: cluster.views(),
    "deliveries": lambda cluster, words: cluster.deliveries(),
    "states": lambda cluster, words: cluster.states(),
    "causes": lambda cluster, words: causes(cluster),
    "totals": lambda cluster, words: totals(cluster),
    "sent": lambda cluster, words: sent(cluster),
    "refused": lambda cluster, words: refused(cluster),
    "endings": lambda cluster, words: endings(cluster),
    "notes": lambda cluster, words: notes(cluster, " ".join(words)),
    "packets": packets,
    "check": _check,
    "connect": connect,
    "enter": enter,
    "tell": tell,
    "streams": lambda cluster, words: streams(cluster),
}
