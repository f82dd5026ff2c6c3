"""What the system refuses (no space, no descriptor, a directory in the way) is one sentence: where, why, and what to do."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.daemon.running import PATIENCE_S, RunningDaemon, Site, opened_site
from transis.daemon.daemon import DESCRIPTORS_MIN
from transis.sessions.frames import SESSION_VERSION, Hello, encode_frame
from transis.types.errors import plainly

NO_FLIGHT = "enabled = false\n"
WITHIN = """
import resource
resource.setrlimit(resource.{limit}, ({value}, {value}))
from transis.cli.main import app
app(prog_name="transis")
"""
"""A daemon with a limit of its process."""


@pytest.fixture
def site() -> Iterator[Site]:
    with opened_site() as site:
        yield site


def limited(limit: str, value: int) -> tuple[str, ...]:
    return ("-c", WITHIN.format(limit=limit, value=value), "daemon")


def refused(daemon: RunningDaemon, *words: str) -> str:
    """It did not start, and said so in one sentence."""
    code, said = daemon.ended()
    assert (code, said.count("\n")) == (2, 1), said
    assert all(word in said for word in words), said
    assert "Errno" not in said
    return said


@contextmanager
def small_disk(path: Path, size: str = "256k") -> Iterator[Path]:
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path], check=False, capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no disk can be mounted: {mounted.stderr.decode().strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


def fill(disk: Path) -> None:
    with suppress(OSError), (disk / "filling").open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


# --- at the start -------------------------------------------------------------------------------------------------------------


def test_a_directory_where_a_file_belongs(site: Site) -> None:
    (site.directory / "ann" / "incarnation").mkdir(parents=True)
    ann = site.start("ann")
    refused(ann, "node.state", str(site.directory / "ann" / "incarnation"), "Is a directory", "move it away")


def test_files_that_may_not_grow(site: Site) -> None:
    ann = site.start("ann", program=limited("RLIMIT_FSIZE", 0), flight=NO_FLIGHT)
    refused(ann, "node.state", str(site.directory / "ann" / "name"), "File too large", "ulimit -f")


def test_too_few_descriptors(site: Site) -> None:
    ann = site.start("ann", program=limited("RLIMIT_NOFILE", 12), flight=NO_FLIGHT)
    refused(ann, "this process may have 12 open files", "ulimit -n")


@pytest.mark.skipif(os.geteuid() != 0, reason="a disk is mounted by root")
def test_a_disk_that_is_full(site: Site) -> None:
    with small_disk(site.directory / "ann") as disk:
        fill(disk)
        refused(site.start("ann"), "node.state", str(disk), "No space left on device", "free some space")


# --- while it runs ------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() != 0, reason="a disk is mounted by root")
@pytest.mark.parametrize("flight", ["", NO_FLIGHT], ids=["flight", "no-flight"])
def test_a_state_disk_that_fills(site: Site, flight: str) -> None:
    """The node stops with exit code 1 when it would have to remember something, such as a far larger sequence of rings."""
    with small_disk(site.directory / "ann") as disk:
        ann = site.start("ann", flight=flight).ready()
        fill(disk)
        (site.directory / "bob").mkdir()
        (site.directory / "bob" / "ring_seq").write_text("1000000\n")
        bob = site.start("bob").ready()
        code, said = ann.ended()
        assert code == 1
        (line,) = [line for line in said.splitlines() if "the node failed" in line]
        assert f"{disk / 'ring_seq'}: No space left on device: free some space on that disk" in line
        assert "Traceback" not in said
        assert "Errno" not in said
        bob.signal(signal.SIGTERM)
        assert bob.ended()[0] == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="a disk is mounted by root")
def test_a_trace_disk_that_fills(site: Site) -> None:
    """Recording pauses and says so; the node goes on."""
    with small_disk(site.directory / "traces", "1m") as disk:
        ann = site.start("ann", trace=f'directory = "{disk}"\nfree_mb = 1\n').ready()
        fill(disk)
        said = ann.log.until("recording pauses")
        assert str(disk) in said
        assert "the node goes on" in said
        ann.signal(signal.SIGTERM)
        code, rest = ann.ended()
        assert code == 0
        assert "Traceback" not in rest


def test_descriptors_that_run_out(site: Site) -> None:
    """More clients than it may have descriptors: one line, the node goes on, and clients are let in when others have gone."""
    ann = site.start("ann", program=limited("RLIMIT_NOFILE", DESCRIPTORS_MIN), flight=NO_FLIGHT).ready()
    with ExitStack() as opened:
        for _ in range(DESCRIPTORS_MIN):
            opened.enter_context(socket.socket(socket.AF_UNIX)).connect(str(ann.clients))
        said = ann.log.until("no client can be accepted for a while")
    assert "Too many open files: raise this process's limit of open files" in said
    with socket.socket(socket.AF_UNIX) as late:
        late.settimeout(PATIENCE_S)
        late.connect(str(ann.clients))
        late.sendall(encode_frame(Hello(SESSION_VERSION, "late", 1)))
        assert late.recv(1)
    ann.signal(signal.SIGTERM)
    code, rest = ann.ended()
    assert code == 0
    assert "Traceback" not in rest


def test_an_error_of_the_system_in_words() -> None:
    assert plainly(OSError(28, "No space left on device", "/state/x")) == (
        "/state/x: No space left on device: free some space on that disk"
    )
    assert plainly(OSError(24, "Too many open files")).startswith("Too many open files: raise")
    assert plainly(OSError(104, "reset")) == "Connection reset by peer"
    assert plainly(OSError("no number")) == plainly(ValueError("no number")) == "no number"
