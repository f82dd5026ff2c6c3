"""Which tests run in one process when there are several, and in which order they begin.

1. What takes long to make is made once: all tests that share a cluster of Spark are one unit of work, those that share a session
   are two, since one process would still be at them when all others are done; and so is every other file. Only where tests are
   long and share nothing is each of them a unit.
2. The longest units begin first, and beside them what mostly waits for daemons and sockets; what only computes fills the rest.

xdist's own way, groups by marks, does nothing with this pytest: it changes an attribute that nobody reads any more.
"""

from __future__ import annotations

from typing import Any, Final

from xdist.scheduler import LoadScopeScheduling

SPARK: Final = "one session of Spark"
AUDITS: Final = "another session of Spark"
CLUSTER: Final = "one cluster of Spark"

TOGETHER: Final = {
    "tests/spark/test_cluster.py": CLUSTER,
    "tests/spark/test_cluster_package.py": CLUSTER,
    "tests/sim/test_spark_sweep_cluster.py": CLUSTER,
    "tests/audit/test_cli.py": AUDITS,
    "tests/audit/test_incremental.py": AUDITS,
    "tests/sim/test_demo.py::test_real_daemons_play_every_scene_and_every_guarantee_holds_says_the_audit_too": AUDITS,
    "tests/spark/test_session.py": "",
    "tests/spark/test_java.py": "",
    "tests/spark/": SPARK,
    "tests/audit/": SPARK,
    "tests/sim/test_spark_sweep.py": SPARK,
    "tests/bench/test_audit.py": SPARK,
    "tests/bench/test_generator.py": SPARK,
    "tests/real/": "",
    "tests/sim/": "",
    "tests/embed/": "",
    "tests/bench/": "",
}
"""Units by the beginning of a test's name, the first that fits counts; with no name every test is its own."""

FIRST: Final = (
    "tests/spark/",
    "tests/audit/",
    "tests/sim/test_spark",
    "tests/sim/test_demo.py",
    "tests/bench/",
    "tests/cli/",
    "tests/daemon/",
    "tests/embed/",
    "tests/real/",
    "tests/net/",
)
"""What begins early: Spark, and what waits."""


def unit_of(test: str) -> str:
    """The unit of a test, by its node id."""
    file, _, _ = test.partition("::")
    found = next((unit for beginning, unit in TOGETHER.items() if test.startswith(beginning)), file)
    return found or test


def turn_of(test: str) -> int:
    """Tests with a smaller number begin earlier."""
    return next((turn for turn, beginning in enumerate(FIRST) if test.startswith(beginning)), len(FIRST))


class Packed(LoadScopeScheduling):
    """Units in the order in which the tests were collected."""

    def __init__(self, config: Any, log: Any = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)
