"""Three real daemons, one of them broken on purpose, and a follower beside them: it tells, the metric tells, and the evidence
that it keeps shows what was skipped and by whom."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

import transis
from tests.audit.digests import seal, told_of
from tests.cli.running import Command
from tests.daemon.running import DAEMON, Site, opened_site
from tests.guarantees.oracle import good_history
from tests.house.sources import ROOT
from tests.spark.programs import PATIENCE_S, program_environment
from transis.audit.guarantees import check
from transis.audit.guarantees.property import BROKEN
from transis.trace.reader import read_history

pytestmark = pytest.mark.slow

NAMES = ("ann", "bob", "cid")
SKIPPING = (str(ROOT / "tests" / "real" / "broken_daemon.py"), "skips_messages")
MESSAGES = 200
"""Each in a burst of its own, of which the broken one skips every 64th."""


def start_daemons(site: Site) -> None:
    for name in NAMES:
        flight = f'directory = "{site.directory / "flight" / name}"\nseal_s = 1\n'
        site.start(name, program=SKIPPING if name == "cid" else DAEMON, flight=flight)
    for daemon in site.daemons:
        daemon.ready().sees(*NAMES)


async def send_one_by_one(socket: Path) -> None:
    async with transis.connect(str(socket)) as session:
        for number in range(MESSAGES):
            await (await session.send("orders", b"%d" % number))


def start_follower(directory: Path, place: Path) -> Command:
    options = ["--ledger", str(place / "ledger"), "--every", "1", "--metrics", "127.0.0.1:0"]
    command = [sys.executable, "-m", "transis", "audit", "--follow", str(directory), *options]
    return Command(command, program_environment(place), patience_s=PATIENCE_S)


def broken_by_the_metric(port: str) -> set[str]:
    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        lines = answer.read().decode()
    return set(re.findall(r'^transis_audit_broken\{cluster="[^"]*",property="(\w+)"\} 1\.0$', lines, re.MULTILINE))


def test_a_broken_daemon_is_reported_with_evidence(tmp_path: Path) -> None:
    with opened_site() as site:
        start_daemons(site)
        follower = start_follower(site.directory / "flight", tmp_path)
        try:
            port = follower.out.until("metrics: port").rpartition(" ")[2]
            follower.out.until("following ")
            asyncio.run(send_one_by_one(site.daemons[0].clients))
            said = follower.out.until("one_sequence: in R")
            assert re.search(r"\b(ann/1|bob/1|ann/1 and bob/1) against cid/1$", said), "whoever of the others sealed in time"
            assert "one_sequence" in broken_by_the_metric(port)
            evidence = Path(follower.out.until("evidence: ").rpartition("evidence: ")[2])
        finally:
            follower.signal(signal.SIGINT)
            code, _, _ = follower.ended()
    assert code == 1
    found = check(read_history(evidence)).verdicts["one_sequence"]
    assert found.verdict == BROKEN
    assert re.search(r"the majority, ann/1, bob/1 delivered ann/1#\d+:\d+; cid/1 delivered ", found.violations[0].explanation)
    assert "one_sequence" in (evidence / "why.json").read_text()


def test_a_supervisor_that_ends_all_processes_of_a_follower_gets_its_verdict(tmp_path: Path) -> None:
    """As systemd does, to Java as well: Spark's complaint about that is no answer."""
    flight = tmp_path / "flight"
    flight.mkdir()
    seal(flight, *told_of(good_history(3)))
    follower = start_follower(flight, tmp_path)
    try:
        follower.out.until("one_sequence held")
        for child in Path(f"/proc/{follower.process.pid}/task/{follower.process.pid}/children").read_text().split():
            os.kill(int(child), signal.SIGTERM)
    finally:
        follower.signal(signal.SIGTERM)
        code, said, complaints = follower.ended()
    assert (code, complaints) == (0, "")
    assert "Verdict per guarantee" in said
