"""Where Spark runs: what a person may name as master, and by which address of ours it is reached."""

from __future__ import annotations

import os
import re
import socket
from typing import Final, NamedTuple

from transis.types.errors import ConfigError, PipelineError

LOCAL: Final = "local[*]"
ALLOWED: Final = (
    "must be local, local[N], local[*] or spark://HOST:PORT; for other clusters use transis package-job and spark-submit"
)
PATIENCE_S: Final = 5.0
"""For a master to accept a connection."""

_LOCAL: Final = re.compile(r"local(?:\[(\*|\d{1,4})\])?")
_CLUSTER: Final = re.compile(r"spark://(?P<hosts>[^\s/,]+:\d{1,5}(?:,[^\s/,]+:\d{1,5})*)")


class Master(NamedTuple):
    url: str
    cores: int | None
    """How many this machine gives; None on a cluster, which decides for itself."""
    our_address: str
    """Where the workers find the driver, and where it listens."""

    @property
    def is_local(self) -> bool:
        return self.cores is not None


def read_master(text: str) -> Master:
    """Raises ConfigError if it is none, PipelineError if nobody answers there: Spark itself would try for a minute first."""
    if local := _LOCAL.fullmatch(text):
        cores = usable_cores() if local[1] == "*" else int(local[1] or 1)
        if cores > 0:
            return Master(text, cores, "127.0.0.1")
    elif cluster := _CLUSTER.fullmatch(text):
        return Master(text, None, _our_address(cluster["hosts"].split(",")))
    raise ConfigError("master", text, ALLOWED)


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _our_address(masters: list[str]) -> str:
    """The address by which this machine reaches the first master that answers."""
    reason = ""
    for master in masters:
        host, _, port = master.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), PATIENCE_S) as connection:
                return str(connection.getsockname()[0])
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
    raise PipelineError(f"no Spark master answers at {', '.join(masters)} ({reason}): is it running, and is the address right?")
