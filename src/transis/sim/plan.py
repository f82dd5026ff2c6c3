"""A plan: everything that decides a run, as data that can be written down, read back, and made smaller.

1. Two runs of one plan are the same run.
2. The text holds only what differs from the defaults, one setting a line, so that a shrunk plan is short.
3. A scenario is the part of it that the command line chooses. Parsing a command must not load an engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Final, NamedTuple

from transis.sim.faults import Schedule, format_duration, parse, parse_duration
from transis.sim.world import Conditions
from transis.types.config import Config

# --- scenario ------------------------------------------------------------------------------------------------------------

PROMISED: Final = "promised"
JUDGES: Final = (PROMISED, "evs")
"""What a run is judged by: what its engine promises, or extended virtual synchrony, promised or not."""


class Scenario(NamedTuple):
    """Which engine runs, how it orders and what it promises; whether the network may partition; what the run is judged by: the
    engine's promises, or all of extended virtual synchrony; and whether there are replicas."""

    engine: str = "totem"
    order: str = "all-ack"
    mode: str = "evs"
    partitions: bool = True
    judge: str = PROMISED
    replicas: str = ""
    """How replicas order what they post; empty if there are none."""

    @property
    def options(self) -> str:
        """As on the command line, without defaults."""
        order = f" --order {self.order}" if self.order != TOTEM.order else ""
        mode = f" --mode {self.mode}" if self.mode != TOTEM.mode else ""
        judge = f" --judge {self.judge}" if self.judge != TOTEM.judge else ""
        replicas = f" --layer prsl --ordering {self.replicas}" if self.replicas else ""
        return f"--engine {self.engine}{order}{mode}{'' if self.partitions else ' --no-partitions'}{judge}{replicas}"


TOTEM: Final = Scenario()
ORDERINGS: Final = ("corel", "engine")
"""How replicas order."""


# --- plan -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Traffic:
    """What applications send. Sizes in bytes; `services` are weights of basic, causal, agreed, safe."""

    messages: int = 200
    """Messages of all nodes together in the safety phase."""
    interval_us: int = 5_000
    """The average time between two calls of one application."""
    batch: int = 8
    """The most messages in one call."""
    services: tuple[int, int, int, int] = (1, 1, 4, 4)
    size: int = 100
    large: int = 4_000
    large_permille: int = 20
    processes: int = 1
    senders_permille: int = 1000
    """The share of nodes that send at all."""


@dataclass(frozen=True, slots=True)
class ClientPlan:
    """Client processes and what they do. Without any, nodes run without groups."""

    processes: int = 0
    """The most that a node has at a time."""
    groups: int = 3
    wishes: int = 100
    """Connections, joins, leaves and disconnections of all nodes together in the safety phase."""
    interval_us: int = 20_000
    """The average time between two of these at one node."""
    gone_permille: int = 100
    """The share of these that disconnect; the others join or leave a group."""
    several_permille: int = 300
    """The share of messages for several groups."""
    private_permille: int = 100
    """The share of messages for processes, by their private names."""
    open_permille: int = 300
    """The share of messages for any group; the others go to groups that their sender is in, if it is in one."""
    quorum: int = 0
    """A primary configuration has a majority of the first `quorum` names."""
    changing: int = 0
    """With a quorum: so many of the last nodes have changed their list already, to one of only themselves."""
    waiting: int = 0
    """With a quorum: at so many of the first nodes applications wait for it, and at the others they would go on."""


@dataclass(frozen=True, slots=True)
class ReplicaPlan:
    """A replication group, one replica at each of the first nodes, and what its applications do. Times in microseconds."""

    count: int = 0
    """How many founders; without any there is no replication."""
    ordering: str = "corel"
    posts: int = 60
    """Actions of all replicas together in the safety phase."""
    interval_us: int = 20_000
    """The average time between two of them."""
    batch: int = 2
    """The most messages in one action."""
    size: int = 20
    """Bytes of a message."""
    retries_permille: int = 0
    """The share of actions that carry a client key, half of them one that was used before."""
    upkeep_us: int = 0
    """The average time between two snapshots, trims or acknowledgements of a replica; 0 if there are none."""
    lags_us: tuple[int, ...] = (20,)
    """How long a replica takes for a piece of news; each life draws one of these."""
    restart_us: int = 100_000
    """The longest time until a dead replica is started again."""
    power_permille: int = 500
    """How often a node that fails takes the replicas of its computer with it."""
    patience_us: int = 400_000
    """After so long a commit counts as hung."""
    silence_us: int = 2_000_000
    """After so long a replica that has not told its STATE counts as silent."""
    behind_max: int = 400
    tail_max: int = 1 << 20
    """So much of the green order a replica keeps in memory."""
    keep_places: int = -1
    """How many green actions stay when a log is trimmed; -1, all that some member lacks."""
    acks_of_all: bool = False
    explicit_ack: bool = False
    keys_max: int = 3


CONFIG: Final = Config(name="any")
CONDITIONS: Final = Conditions()
TRAFFIC: Final = Traffic()
CLIENTS: Final = ClientPlan()
REPLICAS: Final = ReplicaPlan()


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    names: tuple[str, ...]
    config: Config = CONFIG
    conditions: Conditions = CONDITIONS
    traffic: Traffic = TRAFFIC
    clients: ClientPlan = CLIENTS
    replicas: ReplicaPlan = REPLICAS
    schedule: Schedule = ()
    safety_us: int = 2_000_000
    """How long faults strike."""
    turns_max: int = 40_000
    """The event budget: turns of all nodes in the safety phase, after which it ends early."""
    stagger_us: int = 20_000
    """Nodes start within this time."""
    revive: bool = True
    """Nodes that are down when the faults end are started again."""
    rivalry: bool = False
    """At rest, some nodes saturate the ring while another has little to send."""
    sealed: bool = False
    foreign: bool = False
    """A node of another cluster talks on the same network."""
    one_component: bool = False
    """Nothing in the schedule cuts living nodes off from each other: then ToTo promises one order."""
    judge: str = PROMISED

    def __post_init__(self) -> None:
        assert self.names, "a plan needs a node"
        assert len(set(self.names)) == len(self.names), "names differ"

    def config_of(self, name: str) -> Config:
        clients = self.clients
        plain = replace(self.config, name=name, quorum=self.names[: clients.quorum])
        if plain.quorum and name in self.names[: clients.waiting]:
            plain = replace(plain, without_quorum="wait")
        ahead = self.names[len(self.names) - clients.changing :] if clients.quorum else ()
        return replace(plain, quorum=ahead, quorum_before=plain.quorum) if name in ahead else plain

    @property
    def has_groups(self) -> bool:
        return self.clients.processes > 0 or self.has_replicas

    @property
    def has_replicas(self) -> bool:
        return self.replicas.count > 0

    @property
    def scenario(self) -> Scenario:
        config, replicas = self.config, self.replicas.ordering if self.has_replicas else ""
        return Scenario(config.engine, config.order, config.mode, not self.one_component, self.judge, replicas)


def plan_text(plan: Plan) -> str:
    """The plan as lines `setting value`, and `at TIME FAULT` for its schedule."""
    default = Plan(plan.seed, plan.names)
    lines = [f"seed {plan.seed}", f"names {' '.join(plan.names)}"]
    for path, value in _settings(plan):
        if path not in ("seed", "names", "schedule") and value != _get(default, path):
            lines.append(f"{path} {_shown(value)}")
    lines += [f"at {format_duration(time_us)} {fault}" for time_us, fault in plan.schedule]
    return "\n".join(lines)


def parse_plan(text: str) -> Plan:
    """The plan that a text describes; ValueError names the line that was not understood."""
    plan = Plan(0, ("a",))
    schedule = []
    for line in filter(None, map(str.strip, text.splitlines())):
        setting, _, value = line.partition(" ")
        try:
            if setting == "at":
                time, _, fault = value.partition(" ")
                schedule.append((parse_duration(time), parse(fault)))
            elif setting == "names":
                plan = replace(plan, names=tuple(value.split()))
            else:
                plan = with_setting(plan, setting, value)
        except (ValueError, AttributeError) as error:
            raise ValueError(f"{line!r}: {error}") from error
    return replace(plan, schedule=tuple(schedule))


def with_setting(plan: Plan, path: str, text: str) -> Plan:
    """The plan with one setting, named by its dotted path, changed to what a text says."""
    changed = _set(plan, path, _read(text, _get(plan, path)))
    assert isinstance(changed, Plan)
    return changed


def _settings(part: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf with its dotted path."""
    for field in fields(part):
        value = getattr(part, field.name)
        if is_dataclass(value):
            yield from _settings(value, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", value


def _get(part: Any, path: str) -> Any:
    for name in path.split("."):
        if not hasattr(part, name):
            raise ValueError(f"{path!r} is not a setting of a plan: {name!r} is not there")
        part = getattr(part, name)
    return part


def _set(part: Any, path: str, value: Any) -> Any:
    name, _, rest = path.partition(".")
    return replace(part, **{name: _set(getattr(part, name), rest, value) if rest else value})


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _read(text: str, like: Any) -> Any:
    """The text as a value of the setting's type."""
    if isinstance(like, bool):
        return text == "True"
    if isinstance(like, int):
        return int(text)
    if isinstance(like, tuple):
        return tuple(map(int, text.split()))
    if isinstance(like, str):
        return text
    raise ValueError("this setting cannot be written in a text")


# --- paces ------------------------------------------------------------------------------------------------------------


def gathering_us(config: Config) -> int:
    """How long nodes wait for strangers before they propose a membership."""
    return config.timing.gather_min_us if config.engine == "totem" else config.pulse.alpha_us


def agreement_us(config: Config) -> int:
    """How long agreement on a membership may take before somebody is left out."""
    return config.timing.consensus_us if config.engine == "totem" else config.pulse.agree_us
