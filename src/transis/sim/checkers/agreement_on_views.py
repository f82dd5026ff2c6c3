"""Agreement on views: one id means one configuration, with the same members, origins and cause wherever it is installed.

Without it every other property speaks about different things under one name.
"""

from __future__ import annotations

from transis.sim.checkers.index import Index, Life
from transis.sim.checkers.verdict import Findings
from transis.sim.checkers.words import several
from transis.trace.events import Conf
from transis.types.ids import ViewId
from transis.types.views import View


def check_agreement_on_views(index: Index, findings: Findings) -> None:
    first: dict[ViewId, tuple[Life, Conf]] = {}
    for life in index.lives:
        for conf in life.confs:
            findings.checked += 1
            known_life, known = first.setdefault(conf.view.id, (life, conf))
            difference = _difference(known.view, conf.view)
            if difference:
                findings.broken(
                    f"{known_life.node} and {life.node} installed {conf.view.id} with different {difference}",
                    ((known_life.node, known.lseq), (life.node, conf.lseq)),
                )


def _difference(left: View, right: View) -> str:
    if left is right:
        return ""
    if left.nodes != right.nodes:
        return f"members: {several(left.nodes)} against {several(right.nodes)}"
    if left.members != right.members:
        return "previous views, addresses or info of members"
    if left.regular != right.regular:
        return f"regular configurations before it: {left.regular} against {right.regular}"
    if left.cause != right.cause:
        return f"causes: {left.cause} against {right.cause}"
    return ""
