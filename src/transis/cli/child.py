"""`python -m transis.cli.child PARENT ARGUMENTS...`: a transis command that ends when the process that started it is gone.

A cluster on one machine is many daemons and one command that owns them. If that command is killed, the daemons leave by
themselves.
"""

from __future__ import annotations

import sys

from transis.cli.main import app
from transis.net.runtime import end_with_parent

if __name__ == "__main__":
    if not end_with_parent(int(sys.argv[1])):
        sys.exit(1)
    app(sys.argv[2:], prog_name="transis")
