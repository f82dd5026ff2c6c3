"""Sessions start, are sized, say little, and leave nothing behind however they end."""

from __future__ import annotations

import io
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.spark.programs import left_behind, program_environment, run_program, start_program
from transis.spark.cluster import GIB, HEAP_MAX, HEAP_MIN, MIB, SMALL, TINY, heap, read_master, settings_for, shuffle_partitions
from transis.spark.progress import StepTimer, sentence_for
from transis.types.errors import ConfigError, PipelineError

# -- sessions that are ours --------------------------------------------------------------------------------------------

TWO_SESSIONS = """
import os, signal, socket, sys
before = dict(os.environ), list(sys.path), signal.getsignal(signal.SIGINT)
from transis.spark.session import spark_session, ui_address
from urllib.request import urlopen

def reached(address):
    if not address:
        return "no UI"
    with socket.socket() as other:
        elsewhere = other.connect_ex(("127.0.0.2", int(address.rpartition(":")[2])))
    with urlopen(address) as page:
        return page.status, elsewhere != 0

for master, size, ui in (("local[1]", 0, True), ("local[2]", 1 << 40, False)):
    with spark_session(master, size=size, ui=ui) as session:
        memory, partitions = (session.conf.get(name) for name in ("spark.driver.memory", "spark.sql.shuffle.partitions"))
        print(session.range(10).count(), partitions, memory)
        print(reached(ui_address(session)))
print(before == (dict(os.environ), list(sys.path), signal.getsignal(signal.SIGINT)))
"""


@pytest.mark.slow
def test_sessions_one_after_the_other_are_sized_anew_and_leave_the_process_as_it_was(tmp_path: Path) -> None:
    code, out, errors = run_program(TWO_SESSIONS, tmp_path)
    assert (code, errors) == (0, "")
    small, large = (f"{heap(size) // MIB}m" for size in (0, 1 << 40))
    assert out.splitlines() == [f"10 1 {small}", "(200, True)", f"10 32768 {large}", "no UI", "True"]
    assert left_behind(tmp_path) == []


WITH_AN_ARCHIVE = """
from transis.spark.session import make_archive
from transis.spark.session import spark_session
archive = make_archive()
with spark_session("local[1]") as session:
    given = list(session._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments())
    print(archive is None, f"-XX:SharedArchiveFile={archive}" in given, session.range(10).count())
"""


@pytest.mark.slow
def test_an_archive_is_used_once_it_is_there(tmp_path: Path) -> None:
    code, out, errors = run_program(WITH_AN_ARCHIVE, tmp_path)
    assert (code, errors) == (0, "")
    assert out in ("False True 10\n", "True False 10\n")
    assert left_behind(tmp_path) == []


INTERRUPTED = """
from transis.spark.session import spark_session
with spark_session("local[2]") as session:
    print(session.range(10).count(), flush=True)
    session.range(10**13).selectExpr("sum(id % 7)").collect()
"""


@pytest.mark.slow
def test_ctrl_c_ends_a_long_query_and_leaves_nothing(tmp_path: Path) -> None:
    process = start_program(INTERRUPTED, tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "10\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert errors.splitlines()[-1] == "KeyboardInterrupt"
    assert "EOFError" not in errors
    assert left_behind(tmp_path) == []


STARTING = """
from transis.spark.session import spark_session
with spark_session("local[1]") as session:
    print("started")
"""


@pytest.mark.slow
def test_ctrl_c_while_java_starts_leaves_no_java(tmp_path: Path) -> None:
    process = start_program(STARTING, tmp_path)
    java = launched_by(process.pid)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert out == ""
    assert errors.splitlines()[-1] == "KeyboardInterrupt"
    assert not Path(f"/proc/{java}").exists()
    assert left_behind(tmp_path) == []


def launched_by(process: int) -> int:
    """The child that is Spark's Java, or will be: a shell has its number first."""
    while True:
        for child in map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split()):
            with suppress(OSError):
                if b"spark-submit" in Path(f"/proc/{child}/cmdline").read_bytes():
                    return child


# -- failures ----------------------------------------------------------------------------------------------------------

FAILING = """
import os, signal, sys
from transis.types.errors import TransisError
from transis.spark.session import spark_session
try:
    with spark_session("local[1]") as session:
        if sys.argv[1:] == ["dies"]:
            os.kill(int(session._jvm.java.lang.ProcessHandle.current().pid()), signal.SIGKILL)
        session.read.parquet({path!r}).collect()
except TransisError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.slow
def test_a_failure_is_one_sentence_that_names_a_log_which_stays(tmp_path: Path) -> None:
    code, out, errors = run_program(FAILING.format(path=str(tmp_path / "nowhere")), tmp_path)
    assert (code, errors) == (0, "")
    assert out.startswith(
        f"PipelineError there is nothing at {tmp_path / 'nowhere'} (Spark's log: {tmp_path / 'tmp'}/transis-spark-"
    )
    (log,) = left_behind(tmp_path)
    assert "PATH_NOT_FOUND" in (tmp_path / log).read_text()


@pytest.mark.slow
def test_the_death_of_java_is_one_sentence(tmp_path: Path) -> None:
    program = "import sys; sys.argv.append('dies')" + FAILING.format(path=str(tmp_path))
    code, out, errors = run_program(program, tmp_path)
    assert (code, errors) == (0, "")
    assert out.startswith("PipelineError Spark's Java process ended unexpectedly (Spark's log:")
    assert [name for name in left_behind(tmp_path) if not name.endswith(".log")] == []


@pytest.mark.slow
def test_a_java_that_does_not_start_is_one_sentence(tmp_path: Path) -> None:
    # PySpark forgets a pipe then; nobody but Python's own warnings would notice.
    forgiving = "import warnings; warnings.simplefilter('ignore', ResourceWarning)"
    env = program_environment(tmp_path, SPARK_LAUNCHER_OPTS="-XX:NoSuchOption")
    code, out, errors = run_program(forgiving + FAILING.format(path=""), tmp_path, env)
    assert (code, errors) == (0, "")
    assert out.startswith("PipelineError Spark's Java process did not start (Spark's log:")
    (log,) = left_behind(tmp_path)
    assert "NoSuchOption" in (tmp_path / log).read_text()


def test_a_missing_package_says_what_to_install(tmp_path: Path) -> None:
    program = "import sys; sys.modules['pyspark'] = None\n" + FAILING.format(path="")
    assert run_program(program, tmp_path) == (
        0,
        "MissingExtra the pipeline needs an optional part: pip install 'transis[spark]'\n",
        "",
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("java.io.IOException: No space left on device", "the disk is full"),
        ("java.io.FileNotFoundException: /data/x.parquet (Permission denied)", "no permission for /data/x.parquet"),
        ('AccessControlException: Permission denied: user=a, access=READ, inode="/data":b', "no permission for /data"),
        ('UnsupportedFileSystemException: No FileSystem for scheme "gs"', "the Hadoop connector for gs"),
        ("java.net.UnknownHostException: nn1", "there is no host nn1"),
        ("java.lang.OutOfMemoryError: Java heap space", "out of memory"),
        ("ModuleNotFoundError: No module named 'msgspec'", "lacks msgspec"),
        ("An error occurred while calling o1.x.\n: java.lang.X: a reason\n\tat y", "Spark failed: java.lang.X: a reason"),
        ("", "Spark failed: it does not say why"),
    ],
)
def test_known_failures_have_their_sentence(text: str, sentence: str) -> None:
    assert sentence in sentence_for(text)


# -- masters and sizes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "master", ["", "loca", "local[0]", "local[x]", "yarn", "spark://", "spark://host", "spark://h:1/x", "sc://h:1"]
)
def test_what_is_no_master_is_refused(master: str) -> None:
    with pytest.raises(ConfigError, match=r"master = .* must be local"):
        read_master(master)


@pytest.mark.parametrize(
    "master", ["spark://127.0.0.1:1", "spark://127.0.0.1:1,localhost:1", "spark://no-such-host.invalid:7077"]
)
def test_a_master_that_is_not_there_is_said_at_once(master: str) -> None:
    with pytest.raises(PipelineError, match="no Spark master answers at"):
        read_master(master)


def test_local_masters() -> None:
    assert read_master("local") == ("local", 1, "127.0.0.1")
    assert read_master("local[7]").cores == 7
    assert read_master("local[*]").cores in range(1, (os.cpu_count() or 1) + 1)


def test_the_heap_is_a_third_of_the_machine_within_bounds() -> None:
    assert heap(1 << 40, GIB) == HEAP_MIN
    assert heap(1 << 40, 12 * GIB) == 4 * GIB
    assert heap(1 << 40, 1 << 44) == HEAP_MAX
    assert heap(0, 1 << 44) < HEAP_MAX


def test_partitions_grow_with_the_input() -> None:
    sizes = [0, TINY - 1, TINY, SMALL - 1, SMALL, 1 << 30, 1 << 34]
    assert [shuffle_partitions(size, 2) for size in sizes] == [1, 1, 2, 2, 8, 32, 512]
    assert settings_for(1 << 30, None)["spark.sql.shuffle.partitions"] == "32"


# -- progress ----------------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_steps_are_seen_on_a_terminal_only() -> None:
    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        steps = StepTimer(stream)
        with steps("reading [12] segments"):
            pass
        assert [step.words for step in steps.taken] == ["reading [12] segments"]
        assert steps.taken[0].seconds >= 0
    assert "reading [12] segments" in terminal.getvalue()
    assert file.getvalue() == ""


def test_a_step_that_fails_is_not_counted() -> None:
    steps = StepTimer(io.StringIO())
    with pytest.raises(ValueError, match="broken"), steps("failing"):
        raise ValueError("broken")
    assert steps.taken == []
