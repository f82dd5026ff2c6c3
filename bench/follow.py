"""How long it takes from a broken guarantee to the metric: three real daemons, one of them skipping messages, and a follower.

    python -m bench.follow [--rounds 3] [--every 15] [--report report.html]

Each round starts a fresh cluster with settings as they are delivered (digests sealed every 10 s) and a fresh ledger, sends until
the broken daemon has skipped a message, and asks the follower's metric until it says so. With --report it waits for the evidence
of the last round, too, and has `transis report` explain it. Exit code 1 if a round takes a minute, or the report names no one.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import transis

NAMES = ("ann", "bob", "cid")
BROKEN = 'transis_audit_broken{cluster="transis",property="one_sequence"} 1.0'
LIMIT_S = 60
PROGRAM = """
import sys, transis.node.node
from transis.cli.main import app
from transis.sim.defects import broken_engine
with broken_engine("skips_messages"):
    app(["daemon", *sys.argv[1:]])
"""


@contextmanager
def running(*arguments: str, ready: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process, from when it says that it is ready; and the line in which it says so."""
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "NO_COLOR": "1"}
    process = subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if ready in line:
                yield process, line.strip()
                return
        raise SystemExit(f"{arguments[-1]} ended before it said {ready!r}")
    finally:
        process.terminate()
        process.wait()


def settings(place: Path, name: str, port: int) -> Path:
    file = place / f"{name}.toml"
    file.write_text(
        f'[node]\nname = "{name}"\nstate = "{place / name}"\n'
        f'[network]\ngroup = "239.193.77.{port % 250 + 1}"\ndata_port = {port}\ncontrol_port = {port + 1}\n'
        f'[sessions]\nsocket = "{place / name}.sock"\n'
        f'[flight]\ndirectory = "{place / "flight" / name}"\n'
    )
    return file


async def send(socket: Path, messages: int) -> None:
    async with transis.connect(str(socket)) as session:
        for number in range(messages):
            await (await session.send("orders", b"%d" % number))


def seconds_until_broken(port: str) -> float:
    started = time.monotonic()
    while time.monotonic() - started < 4 * LIMIT_S:
        try:
            with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                if BROKEN in answer.read().decode():
                    return time.monotonic() - started
        except URLError:
            pass
        time.sleep(0.1)
    raise SystemExit("the metric never said that anything is broken")


def one_round(place: Path, port: int, every: int, report: Path | None) -> float:
    with ExitStack() as stack:
        for name in NAMES:
            program = ("-c", PROGRAM) if name == "cid" else ("-m", "transis", "daemon")
            stack.enter_context(running(*program, "--config", str(settings(place, name, port)), ready="ready"))
        options = ("--ledger", str(place / "ledger"), "--every", str(every), "--metrics", "127.0.0.1:0")
        follow = ("-m", "transis", "audit", "--follow", str(place / "flight"), *options)
        follower, line = stack.enter_context(running(*follow, ready="metrics: port"))
        # Two messages make sure that Spark runs before the clock starts: the first digests take as long as it needs to start.
        asyncio.run(send(place / "ann.sock", 2))
        wait_for(place / "ledger" / "verdicts")
        asyncio.run(send(place / "ann.sock", 200))
        seconds = seconds_until_broken(line.rpartition(" ")[2])
        if report is not None:
            assert follower.stdout is not None
            explained = next(said for said in follower.stdout if "one_sequence: at position" in said)
            print(explained.strip(), flush=True)
            evidence = next((place / "ledger" / "evidence").glob("0*"))
            subprocess.run([sys.executable, "-m", "transis", "report", str(evidence), "-o", str(report)], check=False)
    return seconds


def wait_for(file: Path) -> None:
    while not file.exists():
        time.sleep(0.2)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--every", type=int, default=15, help="how often the follower looks, in seconds")
    parser.add_argument("--report", type=Path, help="write the report of the last round's evidence there")
    given = parser.parse_args()
    taken = []
    for number in range(given.rounds):
        with tempfile.TemporaryDirectory(prefix="transis-") as place:
            report = given.report if number == given.rounds - 1 else None
            taken.append(one_round(Path(place), 6100 + 2 * number, given.every, report))
            print(f"round {number + 1}: {taken[-1]:.1f} s from the skipped message to the metric", flush=True)
    print(f"{len(taken)} rounds: {min(taken):.1f} to {max(taken):.1f} s, {sum(taken) / len(taken):.1f} s on average")
    named = given.report is None or re.search(r"cid/1 delivered ann/1#\d+:\d+", given.report.read_text()) is not None
    return 0 if max(taken) < LIMIT_S and named else 1


if __name__ == "__main__":
    sys.exit(main())
