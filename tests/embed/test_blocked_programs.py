"""A program that stands still is not a node that stands still: a blocked event loop, and a held interpreter lock.

Each program stands still for several times as long as others take to suspect anybody, and no view changes.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.embed.party import PATIENCE_S, Cluster, echo, names_of, together, until
from transis import Node
from transis.types.config import LOCAL, MS

PATIENT = replace(LOCAL, token_loss_us=250 * MS, consensus_us=300 * MS, fail_to_receive_us=500 * MS)
"""So slow to suspect that what else this machine does is no reason to."""
STANDSTILL_S = 6 * PATIENT.token_loss_us / 1e6
SUSPICIONS = {"totem": ("tokens_lost_operational",), "lansis": ("breaks_silence", "breaks_lag")}
"""Figures that count them; the pulse of loopback, 370 ms, is as patient."""


async def stand_still(engine: str, ann: Node, bob: Node, standing: Callable[[], object]) -> None:
    """Nothing of the view changes while `standing` runs in the program's own thread, and everything goes on after it."""
    await together(ann, bob)
    before = ann.view, bob.view
    standing()
    assert (ann.view, bob.view) == before
    async with ann.connect() as session:
        await echo(session)
    assert (ann.view, bob.view) == before
    for node in (ann, bob):
        figures = await node.statistics()
        assert [figures[name] for name in SUSPICIONS[engine]] == [0] * len(SUSPICIONS[engine])


def test_a_blocked_event_loop_does_not_get_a_node_in_a_thread_excluded(tmp_path: Path, engine: str) -> None:
    async def story() -> None:
        cluster = Cluster(tmp_path, engine)
        async with cluster.node("ann", profile=PATIENT) as ann, cluster.node("bob", profile=PATIENT, run="process") as bob:
            await stand_still(engine, ann, bob, lambda: threading.Event().wait(STANDSTILL_S))

    asyncio.run(story())


def test_a_held_interpreter_lock_does_not_get_a_node_in_a_process_excluded(tmp_path: Path, engine: str) -> None:
    """A call that does not let go of the lock: no other thread of this program runs meanwhile."""
    library = ctypes.PyDLL(None)

    async def story() -> None:
        cluster = Cluster(tmp_path, engine)
        how = {"profile": PATIENT, "run": "process"}
        async with cluster.node("ann", **how) as ann, cluster.node("bob", **how) as bob:
            await stand_still(engine, ann, bob, lambda: library.usleep(int(STANDSTILL_S * 1e6)))

    asyncio.run(story())


PROGRAM = """
import asyncio, sys
import transis
from transis.net.transport import Group

async def main():
    group = Group(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    async with transis.Node("eve", cluster="tests", state=sys.argv[1], group=group, engine=sys.argv[5], run="process") as node:
        async with node.connect() as session, session.join("x"):
            (child,) = open(f"/proc/self/task/{__import__('os').getpid()}/children").read().split()
            print(child, flush=True)
            await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="only Linux can wait for a process that is nobody's child")
def test_the_child_ends_with_its_program_and_leaves_gracefully(tmp_path: Path, engine: str) -> None:
    (tmp_path / "temporary").mkdir()

    async def story() -> None:
        cluster = Cluster(tmp_path, engine)
        async with cluster.node("ann") as ann:
            program = start_program(cluster)
            try:
                assert program.stdout is not None
                child = os.pidfd_open(int(program.stdout.readline()))
                await until(lambda: names_of(ann) == ["ann", "eve"])
                program.send_signal(signal.SIGKILL)
                program.wait(PATIENCE_S)
                ended, _, _ = await asyncio.to_thread(select.select, [child], [], [], PATIENCE_S)
                os.close(child)
                assert ended
            finally:
                program.kill()
                program.communicate()
            await together(ann)
            assert ann.view is not None
            assert "left on purpose" in str(ann.view.cause)

    asyncio.run(story())
    assert list((tmp_path / "temporary").iterdir()) == []


def start_program(cluster: Cluster) -> subprocess.Popen[str]:
    group = cluster.group
    arguments = (str(cluster.directory / "eve"), group.address, str(group.data_port), str(group.control_port), cluster.engine)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(cluster.directory / "temporary")}
    return subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments], stdout=subprocess.PIPE, text=True, env=environment)
