"""Simulated clusters for other people's tests: the pytest plugin and what its fixture gives; docs/testing.md shows how.

Nothing is imported until somebody asks for it, because pytest loads the plugin in every run wherever the package is installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transis.testing.cluster import Cluster, Clusters, GuaranteeBroken, Unsettled
    from transis.testing.loop import Stuck

__all__ = ["Cluster", "Clusters", "GuaranteeBroken", "Stuck", "Unsettled"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from transis.testing import cluster, loop

    return next(getattr(module, name) for module in (cluster, loop) if hasattr(module, name))
