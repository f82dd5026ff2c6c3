"""What several control packets carry alike: why something happened, and the signature of a configuration."""

from __future__ import annotations

from typing import Final

from transis.types.views import Cause
from transis.wire.layouts import CauseLayout
from transis.wire.nodetable import NodeTable, is_valid_text, require

DIGEST_SIZE: Final = 8
CAUSE_TEXT_MAX: Final = 64


def require_signature(digest: bytes, versions: tuple[int, int]) -> None:
    require(len(digest) == DIGEST_SIZE, "digest", f"a digest of {len(digest)} bytes")
    require(0 <= versions[0] <= versions[1] <= 255, "versions", f"wire versions {versions[0]} to {versions[1]}")


def cause_layout(cause: Cause, table: NodeTable) -> CauseLayout:
    by = None if cause.accuser is None else table.rank(cause.accuser)
    return CauseLayout(cause.what, by, tuple(map(table.rank, cause.accused)), cause.timer)


def cause_of(cause: CauseLayout, table: NodeTable) -> Cause:
    require(is_valid_text(cause.what, 0, CAUSE_TEXT_MAX), "cause", "a cause that is too long or not printable")
    require(is_valid_text(cause.timer, 0, CAUSE_TEXT_MAX), "cause", "a timer that is too long or not printable")
    accuser = None if cause.accuser is None else table.node(cause.accuser)
    return Cause(cause.what, accuser, tuple(map(table.node, cause.accused)), cause.timer)
