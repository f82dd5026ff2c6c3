"""A standalone Spark cluster on loopback: a master and workers, real processes, ended by whoever started them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread

import pyspark

from tests.daemon.running import PATIENCE_S, Lines
from transis.spark.cluster import COMPILED_QUICKLY
from transis.spark.java import ensure_java

SPARK_HOME = Path(pyspark.__file__).parent
LOOPBACK = "127.0.0.1"


def spark_submit(master: str) -> list[str]:
    """How a command begins, with Java as we start it for a small input: a better compiler never earns what it costs."""
    quickly = " ".join(COMPILED_QUICKLY)
    java = ["--driver-java-options", quickly, "--conf", f"spark.executor.extraJavaOptions={quickly}"]
    return [str(SPARK_HOME / "bin" / "spark-submit"), "--master", master, *java]


def spark_environment() -> dict[str, str]:
    """What Spark's own programs need here. They find no package of ours: what they run must be brought by the job."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_", "PYTHONPATH"))}
    return kept | {
        "JAVA_HOME": str(ensure_java().home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData",
    }


@contextmanager
def running_cluster(directory: Path, workers: int) -> Iterator[str]:
    """The master's address, once all workers are registered. Every port is one that was free."""
    common = ["--host", LOOPBACK, "--port", "0", "--webui-port", "0"]
    with ExitStack() as stack:
        said = stack.enter_context(_running("master.Master", *common, directory=directory, ready="Starting Spark master at"))
        address = said.rpartition(" ")[2]
        for number in range(workers):
            place = directory / f"worker-{number}"
            place.mkdir()
            size = ["--cores", "1", "--memory", "1g", "--work-dir", str(place)]
            ready = "Successfully registered with master"
            stack.enter_context(_running("worker.Worker", *common, *size, address, directory=place, ready=ready))
        yield address


@contextmanager
def _running(program: str, *arguments: str, directory: Path, ready: str) -> Iterator[str]:
    """One process, from when it says that it is ready; the line in which it says so. What it says later is read and forgotten,
    for a full pipe would stop it."""
    command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{program}", *arguments]
    process = subprocess.Popen(command, cwd=directory, env=spark_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    reader = Thread(target=process.stderr.read)
    try:
        line = Lines(process.stderr).until(ready)
        reader.start()
        yield line
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
        if reader.ident is not None:
            reader.join()
        process.stderr.close()
