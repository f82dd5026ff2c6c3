"""A daemon of a test build, broken on purpose: `python broken_daemon.py DEFECT --config FILE`."""

import sys

import transis.node.node  # noqa: F401  # What is broken must be loaded first.
from transis.cli.main import app
from transis.sim.defects import broken_engine

if __name__ == "__main__":
    with broken_engine(sys.argv[1]):
        app(["daemon", *sys.argv[2:]])
