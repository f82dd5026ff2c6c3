"""No duplicates: a process gets a message once, however many of its groups it is for, and a group view once."""

from __future__ import annotations

from transis.sim.checkers.clients import Client, Crowd, Got
from transis.sim.checkers.verdict import Findings
from transis.trace.events import GroupConf
from transis.types.views import GroupId, GroupViewId


def check_group_duplicates(crowd: Crowd, findings: Findings) -> None:
    for client in crowd.clients:
        codes: dict[int, int] = {}
        views: dict[tuple[GroupId, GroupViewId], int] = {}
        for step in client.steps:
            if isinstance(step, Got):
                findings.checked += len(step.codes)
                _messages(crowd, client, step, codes, findings)
            elif isinstance(step, GroupConf):
                findings.checked += 1
                key = (step.view.group, step.view.id)
                if views.setdefault(key, step.lseq) != step.lseq:
                    findings.broken(
                        f"{client.id} was shown {step.view.id} of {step.view.name} twice",
                        ((client.node, views[key]), (client.node, step.lseq)),
                    )


def _messages(crowd: Crowd, client: Client, got: Got, codes: dict[int, int], findings: Findings) -> None:
    for code in got.codes:
        if code in codes:
            message = crowd.index.message(code)
            findings.broken(f"{client.id} got {message} twice", ((client.node, codes[code]), (client.node, got.lseq)), (message,))
        codes[code] = got.lseq
