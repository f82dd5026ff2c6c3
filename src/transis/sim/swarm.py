"""A seed draws a swarm: how many nodes, which faults and how hard, which traffic, and how small every limit is.

1. Each kind of fault is on or off for the whole run, so that runs differ in kind and not only in detail; a kind that
   is on strikes in episodes, and an episode has an end.
2. Tiny datagrams, windows and queues make fragments, full windows and refusals common and cheap.
3. Timers are scaled to the drawn delays, so that a run is as long as it needs to be in rotations, not in seconds.
4. Each engine has streams of its own: what one draws never changes what another does.
5. With groups, components merge, and something breaks just while their daemons exchange who is in which group. That
   takes a rotation or two after a view is installed, so strikes wait in ambush for that moment and fall within a few hops. Some
   announcements are lost first, so that those who stay get them only in the transitional configuration, or never.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from transis.sim.episodes import Draft, draw_last_words, draw_schedule
from transis.sim.faults import (
    ActAsClients,
    Ambush,
    CrashNode,
    CutLink,
    HealNetwork,
    InjectedFault,
    PartitionNetwork,
    RestartNode,
    Schedule,
    SendMessages,
    Weather,
)
from transis.sim.host import Machine
from transis.sim.liveness import ALIVE_SHARE
from transis.sim.network import LinkQuality
from transis.sim.plan import TOTEM, ClientPlan, Plan, Scenario, Traffic, agreement_us
from transis.sim.streams import RandomStream, Streams
from transis.sim.world import Conditions
from transis.types.config import MS, SECOND, Config, Pulse, Timing, Window
from transis.types.ids import Service
from transis.types.limits import DATAGRAM_MIN, MEMBERS_MAX
from transis.types.outputs import Port

# --- group episodes ---------------------------------------------------------------------------------------------------

STRIKES: Final = (0, 2, 4, 8)
"""How many exchanges of a run are struck."""


def draw_strikes(stream: RandomStream, names: tuple[str, ...], config: Config, safety_us: int) -> Schedule:
    """Strikes at exchanges; a cluster of one has nothing to exchange."""
    draft = Draft(stream, names, config, safety_us, [])
    for _ in range(stream.pick(STRIKES) if len(names) > 1 else 0):
        _strike(draft)
    return tuple(draft.faults)


def _strike(draft: Draft) -> None:
    stream, detection_us = draft.stream, draft.detection_us
    time = draft.moment()
    draft.add(time, PartitionNetwork(draft.components()))
    time += stream.between(2, 8) * detection_us
    draft.add(time, HealNetwork())
    watched = draft.name()
    for name in stream.some(draft.names, stream.between(0, min(2, len(draft.names)))):
        draft.add(time, Ambush(watched, "Operational", SendMessages(name, Service.BASIC, stream.between(1, 4), 40)))
    for name in stream.some(draft.names, stream.between(0, min(3, len(draft.names)))):
        draft.add(time, Ambush(watched, "Operational", ActAsClients(name, stream.between(1, 12))))
    for fault in _losses(draft):
        draft.add(time, Ambush(watched, "Operational", fault))
    victim = draft.name()
    later_us = stream.between(0, 3 * len(draft.names) * draft.timing.hop_us)
    blow = stream.pick((PartitionNetwork(draft.components()), PartitionNetwork(draft.components()), CrashNode(victim)))
    draft.add(time, Ambush(watched, "Operational", blow, later_us))
    end = time + stream.between(4, 10) * detection_us
    draft.add(end, Weather("loss", 0))
    draft.add(end, HealNetwork())
    draft.add(end, RestartNode(victim))


def _losses(draft: Draft) -> list[InjectedFault]:
    """What makes announcements miss somebody: nothing, loss of one sender's data, or of a bit of everybody's."""
    stream = draft.stream
    source = draft.name()
    targets = [name for name in draft.names if name != source]
    cuts: list[InjectedFault] = [
        CutLink(source, target, Port.DATA) for target in stream.some(targets, stream.between(1, len(targets)))
    ]
    weather: list[InjectedFault] = [Weather("loss", stream.between(100, 500))]
    return stream.pick(([], cuts, weather))


# --- swarm ------------------------------------------------------------------------------------------------------------

SMALL_SIZES: Final = (1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 5, 5, 5, 5, 6, 6, 7, 7)
"""How many nodes 90 % of the runs have; three to five meet every case soonest."""

TURNS_MAX: Final = 18_000
"""The event budget of the safety phase."""

TURNS_MAX_OF_LANSIS: Final = (26_000, 45_000)
"""The same, of up to seven nodes and of more: a turn is cheaper than on the ring, and there are more of them."""


MANY: Final = 50
"""No seed draws more nodes by itself."""

TURNS_MAX_OF_MANY: Final = 1_000_000


SERVICES: Final = {
    "totem": ((1, 1, 4, 4), (0, 0, 1, 0), (0, 0, 0, 1), (0, 0, 3, 1), (0, 1, 1, 4), (4, 1, 1, 1)),
    "lansis": ((1, 2, 4, 4), (0, 0, 1, 0), (0, 0, 0, 1), (0, 3, 3, 1), (0, 2, 1, 4), (4, 3, 1, 1), (0, 1, 0, 0)),
}
"""Weights of basic, causal, agreed, safe. On the ring causal messages are agreed ones; on Lansis they have their own order."""


WAITING_PERMILLE: Final = 300
"""Runs in which applications wait for a quorum, if there is one."""


CROWDED_PERMILLE: Final = 250
CROWDED_MESSAGES_MAX: Final = 400
"""ToTo runs in which many messages wait for votes at once: how many runs are of this kind, and their messages at most."""


def draw(seed: int, nodes: int | None = None, scenario: Scenario = TOTEM) -> Plan:
    """The plan of a seed; `nodes` overrides how many."""
    streams = Streams(seed)
    stream = streams[_concern("swarm", scenario)]
    drawn = _node_count(stream)
    names = node_names(drawn if nodes is None else nodes)
    conditions = _conditions(stream, len(names))
    config = _config(stream, len(names), conditions, scenario)
    safety_us = _safety_us(stream, len(names), config)
    sealed = stream.chance(50)
    traffic = _traffic(stream, len(names), config, safety_us)
    if scenario.order == "toto":
        traffic = _crowded(streams["candidates"], traffic, _hop_us(conditions))
    schedule = draw_schedule(streams[_concern("faults", scenario)], names, config, safety_us, sealed, scenario.partitions)
    if scenario.engine == "lansis":
        schedule = _merged(schedule, draw_last_words(streams["last words"], names, config, safety_us, scenario.partitions))
    return Plan(
        seed=seed,
        names=names,
        config=config,
        conditions=conditions,
        traffic=traffic,
        schedule=schedule,
        safety_us=safety_us,
        turns_max=_turns_max(len(names), scenario),
        stagger_us=stream.pick((0, 10 * MS, 100 * MS)),
        revive=stream.chance(700),
        rivalry=len(names) <= 7 and config.window.window <= 30 and stream.chance(250),
        sealed=sealed,
        foreign=stream.chance(50),
        one_component=not scenario.partitions,
        judge=scenario.judge,
    )


def _concern(what: str, scenario: Scenario) -> str:
    return what if scenario.engine == "totem" else f"{what} {scenario.engine}"


def draw_groups(seed: int, nodes: int | None = None, scenario: Scenario = TOTEM) -> Plan:
    """The plan of a seed with client processes: the same cluster, traffic and faults, and more that strike at exchanges."""
    plan = draw(seed, nodes, scenario)
    streams = Streams(seed)
    stream = streams["crowd"]
    small = len(plan.names) <= 7
    wishes = stream.stretched(40, 640) if small else stream.stretched(40, 320)
    clients = ClientPlan(
        processes=stream.pick((1, 2, 2, 3, 5)) if small else stream.pick((1, 2)),
        groups=stream.pick((1, 2, 3, 5, 12)),
        wishes=wishes,
        interval_us=max(100, plan.safety_us * len(plan.names) // wishes),
        gone_permille=stream.pick((0, 50, 200)),
        several_permille=stream.pick((0, 300, 700)),
        private_permille=stream.pick((0, 100, 400)),
        open_permille=stream.pick((0, 300, 1000)),
        quorum=stream.pick((0, len(plan.names), stream.between(1, len(plan.names)))),
        changing=stream.pick((0, 0, stream.between(1, len(plan.names)))),
    )
    if plan.config.mode == "evs" and stream.chance(WAITING_PERMILLE):
        waiting = stream.pick((len(plan.names), len(plan.names), stream.between(1, len(plan.names))))
        clients = replace(clients, waiting=waiting)
    if len(plan.names) > MANY:
        return replace(_for_many(plan), clients=clients)
    if plan.one_component:
        return replace(plan, clients=clients)
    strikes = draw_strikes(streams["exchanges"], plan.names, plan.config, plan.safety_us)
    return replace(plan, clients=clients, schedule=_merged(plan.schedule, strikes))


def _merged(schedule: Schedule, more: Schedule) -> Schedule:
    return tuple(sorted(schedule + more, key=lambda entry: entry[0]))


def _for_many(plan: Plan) -> Plan:
    """A ring of a hundred forms slowly, and its Joins cost most of a run: they are coalesced, and a single partition must do."""
    timing = replace(plan.config.timing, join_coalesce_us=plan.config.timing.join_us, gather_min_us=50 * MS)
    halves = (plan.names[::2], plan.names[1::2])
    parted: Schedule = ((plan.safety_us // 2, PartitionNetwork(halves)), (plan.safety_us * 3 // 4, HealNetwork()))
    schedule = () if plan.one_component else parted
    return replace(plan, config=replace(plan.config, timing=timing), schedule=schedule, turns_max=TURNS_MAX_OF_MANY)


def node_names(count: int) -> tuple[str, ...]:
    """a, b, c ... as long as letters last, then n00, n01 ..."""
    if count <= 26:
        return tuple("abcdefghijklmnopqrstuvwxyz"[:count])
    return tuple(f"n{i:02}" for i in range(count))


def _node_count(stream: RandomStream) -> int:
    roll = stream.below(100)
    if roll < 90:
        return stream.pick(SMALL_SIZES)
    return 50 if roll == 99 else stream.between(8, 20)


def _conditions(stream: RandomStream, nodes: int) -> Conditions:
    """Delays are longer in a small ring, so that a rotation takes about as long in any run, and runs have as many events."""
    base = stream.stretched(150, 1_000) if nodes <= 7 else stream.stretched(60, 250)
    delays = (base * stream.between(2, 6) // 2, base * stream.between(2, 4) // 2, base)
    climate = LinkQuality(delay_us=delays, jitter_us=stream.pick((0, base // 10, base // 2, 2 * base)))
    machine = Machine(turn_us=stream.between(5, 60), datagram_us=stream.between(0, 4))
    return Conditions(
        climate=climate,
        machine=machine,
        offset_us=stream.pick((0, 1 * SECOND, 1_000 * SECOND)),
        drift_ppm=stream.pick((0, 50, 500, 20_000)),
        sync_us=stream.pick(((100, 500), (500, 10_000), (5_000, 80_000), (20_000, 300_000))),
        kept_permille=stream.pick((0, 500, 1000)),
    )


def _hop_us(conditions: Conditions) -> int:
    climate = conditions.climate
    return climate.delay_us[Port.TOKEN] + climate.jitter_us + 2 * conditions.machine.turn_us


def _config(stream: RandomStream, nodes: int, conditions: Conditions, scenario: Scenario) -> Config:
    window = _window(stream)
    datagram = stream.pick((DATAGRAM_MIN, DATAGRAM_MIN, 700, 1_400))
    timing = _timing(stream, nodes, _hop_us(conditions))
    config = Config(name="any", datagram=datagram, timing=timing, window=window)
    if scenario.engine != "totem":
        pulse = _pulse(stream, nodes, _hop_us(conditions))
        config = replace(config, engine=scenario.engine, order=scenario.order, mode=scenario.mode, pulse=pulse)
    return config.validated()


def _pulse(stream: RandomStream, nodes: int, hop_us: int) -> Pulse:
    """Scaled to the time that a packet takes; now and then acknowledgements are so late that others wait for them. All members
    hear each other's Alives, so in a large view each member sends it less often, or a run would consist of little else."""
    crowd, share = max(1, nodes // 3), max(1, nodes // ALIVE_SHARE)
    alive = stream.between(4, 10) * hop_us * crowd // share
    silence = stream.between(4, 8) * alive * share
    ack_lag = stream.between(2, 4) * silence
    alpha = stream.pick((2 * hop_us, silence, 50 * MS))
    return Pulse(
        alive_us=alive,
        prompt_us=stream.pick((max(1, hop_us // 4), hop_us, 4 * hop_us)) * crowd,
        nack_us=stream.between(hop_us, 2 * hop_us),
        silence_us=silence,
        probe_us=2 * hop_us,
        ack_lag_us=ack_lag,
        alpha_us=alpha,
        repeat_us=min(max(2 * MS, 2 * hop_us), (alpha + ack_lag) // 3),
        coalesce_us=stream.pick((500, 2 * MS)),
        agree_us=alpha + ack_lag,
    )


def _timing(stream: RandomStream, nodes: int, hop_us: int) -> Timing:
    """Derived as in the profiles, from a token loss time of several rotations; sometimes of so few that sound rings break."""
    factor = stream.pick((stream.between(4, 8), stream.between(8, 16), stream.between(8, 16)))
    loss = max(10 * MS, nodes * hop_us * factor)
    return Timing(
        token_loss_us=loss,
        token_retransmit_us=loss * 10 // 42,
        token_hold_us=loss // 5,
        hop_us=hop_us,
        retransmission_pace_us=stream.pick((200, 1 * MS)),
        join_us=max(2 * MS, loss // 4),
        join_coalesce_us=stream.pick((500, 2 * MS)),
        consensus_us=loss * 12 // 10,
        gather_min_us=stream.pick((5 * MS, loss, 50 * MS)),
        beacon_us=stream.stretched(40 * MS, 200 * MS),
        fail_to_receive_us=2 * loss,
        leave_us=500 * MS,
        quarantine_us=stream.stretched(100 * MS, 1 * SECOND),
        quarantine_max_us=stream.pick((1 * SECOND, 4 * SECOND)),
    )


def _window(stream: RandomStream) -> Window:
    window = stream.pick((stream.between(2, 12), stream.between(10, 60), stream.between(60, 300)))
    visit_max = window if stream.chance(300) else stream.between(1, window)
    return Window(
        window=window,
        visit_max=visit_max,
        gap_max=window + MEMBERS_MAX + stream.pick((0, 0, 200, 4_000)),
        outbox_bytes=stream.pick((16 * 1024, 64 * 1024, 1 << 20)),
        accelerated=stream.between(1, visit_max) if stream.chance(333) else 0,
        fail_to_receive_rotations=stream.pick((5, 20, 50)),
        unicast_retries=stream.pick((0, 1, 2, 2)),
    )


def _safety_us(stream: RandomStream, nodes: int, config: Config) -> int:
    """A multiple of the time in which a failure is noticed, which also paces the faults. On Lansis, where all hear everybody, no
    longer than the budget of turns lasts, or most faults would come after the end."""
    losses = stream.between(50, 180) if nodes <= 7 else stream.between(20, 50) if nodes <= 20 else 12
    wanted = min(10 * SECOND, losses * (config.detection_us + agreement_us(config)) // 2)
    if config.engine == "totem":
        return wanted
    alive_us = config.pulse.alive_us * max(1, nodes // ALIVE_SHARE)
    return min(wanted, TURNS_MAX_OF_LANSIS[nodes > 7] * alive_us * 2 // (3 * nodes * nodes))


def _turns_max(nodes: int, scenario: Scenario) -> int:
    return TURNS_MAX if scenario.engine == "totem" else TURNS_MAX_OF_LANSIS[nodes > 7]


def _traffic(stream: RandomStream, nodes: int, config: Config, safety_us: int) -> Traffic:
    messages = stream.stretched(100, 4_000) if nodes <= 7 else stream.stretched(40, 600)
    batch = stream.pick((1, 4, 30))
    interval = max(100, safety_us * nodes * (batch + 1) // (2 * messages))
    return Traffic(
        messages=messages,
        interval_us=interval,
        batch=batch,
        services=stream.pick(SERVICES[config.engine]),
        size=stream.pick((20, 100, 400, config.datagram)),
        large=stream.pick((2, 4, 10)) * config.datagram,
        large_permille=stream.pick((0, 20, 200)),
        processes=stream.pick((1, 1, 3)),
        senders_permille=stream.pick((1000, 1000, 500, 200)),
    )


def _crowded(stream: RandomStream, traffic: Traffic, hop_us: int) -> Traffic:
    """Now and then everybody sends before anything arrives: votes matter only where there are several candidates at a time."""
    if not stream.chance(CROWDED_PERMILLE):
        return traffic
    messages = min(traffic.messages, CROWDED_MESSAGES_MAX)
    return replace(
        traffic, messages=messages, interval_us=max(50, hop_us // 2), batch=1, services=(0, 0, 1, 0), senders_permille=1000
    )
