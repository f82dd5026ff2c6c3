"""What the tab key offers beyond names of commands and options: services, and the groups of the daemon that would be asked.

A key press is not worth waiting for: a daemon that does not answer at once is left alone, and then nothing is offered.
"""

from __future__ import annotations

import threading
from typing import Final

from transis.console.asking import AdminConnection
from transis.types.errors import TransisError
from transis.types.ids import Service

COMPLETION_PATIENCE_S: Final = 0.5
GROUPS_MAX: Final = 200


def complete_service(incomplete: str) -> list[tuple[str, str]]:
    meanings = {
        Service.BASIC: "on receipt, in no order",
        Service.CAUSAL: "no answer before its question",
        Service.AGREED: "in one order, everywhere",
        Service.SAFE: "when every member has it",
    }
    found = [(service.name.lower(), meaning) for service, meaning in meanings.items()]
    return [(name, meaning) for name, meaning in found if name.startswith(incomplete)]


def complete_group(incomplete: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    thread = threading.Thread(target=_ask, args=(found,), daemon=True)
    thread.start()
    thread.join(COMPLETION_PATIENCE_S)
    return [(name, members) for name, members in list(found) if name.startswith(incomplete)]


def _ask(found: list[tuple[str, str]]) -> None:
    try:
        with AdminConnection(None, None) as connection:
            groups = connection.ask("groups", limit=GROUPS_MAX)["groups"]
    except TransisError:
        return
    found += [(group["name"], f"{group['members']} member{'s' if group['members'] != 1 else ''}") for group in groups]
