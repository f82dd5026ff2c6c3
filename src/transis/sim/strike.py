"""Carrying out a fault: one small function per kind.

A fault that does not apply (a crash of the dead, a resume of the running) does nothing: schedules are drawn, shrunk and
cut, and must make sense in any part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from transis.sim.faults import (
    COPY_SUFFIX,
    HARMLESS,
    ActAsClients,
    Ambush,
    CopyDirectory,
    CrashNode,
    CutLink,
    Delay,
    HealNetwork,
    InjectedFault,
    LeaveCluster,
    MendLink,
    NodeFault,
    PartitionNetwork,
    PauseNode,
    RestartNode,
    ResumeNode,
    SendMessages,
    SlowNode,
    Weather,
)
from transis.sim.life import Submission
from transis.types.outputs import Port

if TYPE_CHECKING:
    from transis.sim.host import Host
    from transis.sim.world import World


def strike(world: World, fault: InjectedFault) -> None:
    if isinstance(fault, NodeFault):
        host = world.hosts.get(fault.node)
        if host is not None:
            if not isinstance(fault, HARMLESS):
                world.coverage.fault(fault.kind, [host.state])
                _record(world, [host], fault)
            _ON_HOST[type(fault)](world, host, fault)
        return
    world.coverage.fault(_name(fault), sorted({host.state for host in world.living()}))
    _record(world, world.living(), fault)
    _ON_NETWORK[type(fault)](world, fault)


def _name(fault: InjectedFault) -> str:
    return f"weather {fault.what}" if isinstance(fault, Weather) else fault.kind


def _record(world: World, hosts: list[Host], fault: InjectedFault) -> None:
    for host in hosts:
        if host.life is not None:
            host.life.recorder.fault(world.now, str(fault))


def _crash(world: World, host: Host, fault: CrashNode) -> None:
    if host.life is None:
        return
    if fault.after:
        host.crash_after = fault.after
    else:
        host.die("failed")


def _restart(world: World, host: Host, fault: RestartNode) -> None:
    if host.life is not None:
        return
    if fault.lost_directory:
        host.disk.durable.clear()
    world.start(host.address, "lost" if fault.lost_directory else "")


def _copy(world: World, host: Host, fault: CopyDirectory) -> None:
    address = host.address + COPY_SUFFIX
    if address not in world.hosts:
        world.add_host(host.config, address)
    copy = world.hosts[address]
    if copy.life is None:
        copy.disk = host.disk.copy()
        world.start(address, "copied")


def _leave(world: World, host: Host, fault: LeaveCluster) -> None:
    if host.life is not None and not host.paused:
        host.leave()


def _pause(world: World, host: Host, fault: PauseNode) -> None:
    host.paused = host.life is not None


def _resume(world: World, host: Host, fault: ResumeNode) -> None:
    if host.paused:
        host.resume()


def _slow(world: World, host: Host, fault: SlowNode) -> None:
    host.slow_us = fault.cost_us


def _send(world: World, host: Host, fault: SendMessages) -> None:
    host.submit(Submission(fault.service, (fault.size,) * fault.count, address=world.sends_to))


def _ask(world: World, host: Host, fault: ActAsClients) -> None:
    for _ in range(fault.count):
        world.ask(host)


def _ambush(world: World, host: Host, fault: Ambush) -> None:
    host.ambushes.append(fault)


def _partition(world: World, fault: PartitionNetwork) -> None:
    """A copy of a host's directory runs beside the host that it was copied from."""
    with_copies = [
        [address for address in world.hosts if address.removesuffix(COPY_SUFFIX) in component] for component in fault.components
    ]
    world.network.partition(with_copies)


def _heal(world: World, fault: HealNetwork) -> None:
    world.network.heal()


def _links(world: World, fault: CutLink) -> list[tuple[str, str, Port]]:
    hosts = list(world.hosts)
    sources = hosts if fault.source == "*" else [fault.source]
    targets = hosts if fault.target == "*" else [fault.target]
    ports = list(Port) if fault.port is None else [fault.port]
    return [(source, target, port) for source in sources for target in targets for port in ports if source != target]


def _cut(world: World, fault: CutLink) -> None:
    for link in _links(world, fault):
        world.network.cut(*link)


def _mend(world: World, fault: MendLink) -> None:
    for link in _links(world, fault):
        world.network.mend(*link)


def _weather(world: World, fault: Weather) -> None:
    world.network.rates[fault.what] = fault.permille


def _delay(world: World, fault: Delay) -> None:
    world.network.extra_us[fault.port] = fault.extra_us


_ON_HOST: Final[dict[type[InjectedFault], Callable[[World, Host, Any], None]]] = {
    CrashNode: _crash,
    RestartNode: _restart,
    CopyDirectory: _copy,
    LeaveCluster: _leave,
    PauseNode: _pause,
    ResumeNode: _resume,
    SlowNode: _slow,
    SendMessages: _send,
    ActAsClients: _ask,
    Ambush: _ambush,
}

_ON_NETWORK: Final[dict[type[InjectedFault], Callable[[World, Any], None]]] = {
    PartitionNetwork: _partition,
    HealNetwork: _heal,
    CutLink: _cut,
    MendLink: _mend,
    Weather: _weather,
    Delay: _delay,
}
