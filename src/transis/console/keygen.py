"""`transis keygen`: a new key for a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from transis.console.asking import unable
from transis.net.state import key_text, new_key, write_key
from transis.types.errors import ConfigError

KEYGEN_EXAMPLES = """Examples:

transis keygen --out transis.key [dim]# readable by you alone; copy it to every node[/dim]

transis keygen | ssh other 'umask 077; cat > transis.key'
"""


def keygen(
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write it, with mode 0600. An old file stays.")
    ] = None,
) -> None:
    """Make a cluster key: 32 random bytes. Every node of the cluster needs the same one, and nobody else may have it."""
    key = new_key()
    if out is None:
        print(key_text(key), end="")
        return
    try:
        write_key(out, key)
    except ConfigError as error:
        raise unable("keygen", error) from None
    print(f"{out}: copy it to every node of the cluster and name it there as security.key_file")
