"""Transis: group communication for Python.

This file imports nothing of the package, so that importing one room never loads another.
"""

__version__ = "0.1.0"

# Invariants are asserted, and the guarantees rest on those assertions being checked in production too.
if not __debug__:
    raise RuntimeError("transis refuses to run with assertions off: start Python without -O and without PYTHONOPTIMIZE")
