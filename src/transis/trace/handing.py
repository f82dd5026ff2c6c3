"""What client processes were handed since the last event about them: a number a run, whatever number of processes and messages.

Runs of one address have the same recipients until a view changes, so they are gathered by address. A run that comes right behind
its DELIVERs is known by the numbers of those events; any other waited, and is named by its messages.
"""

from __future__ import annotations

from transis.trace.events import Handed, Waited
from transis.types.outputs import Delivered, Recipient
from transis.types.views import GroupId

Recipients = tuple[Recipient, ...]


class Handing:
    """`_gathered` has, by address, who gets its runs and the runs so far."""

    def __init__(self) -> None:
        self._last: Delivered | None = None
        self._last_lseqs = range(0)
        self._gathered: dict[bytes, tuple[Recipients, list[int]]] = {}
        self._waited: list[Waited] = []

    def delivered(self, run: Delivered, lseqs: range) -> None:
        self._last, self._last_lseqs = run, lseqs

    def add(self, run: Delivered, recipients: Recipients) -> bool:
        """Note a run for these; False if the same address had others before, and what was gathered must be told first."""
        if run is not self._last:
            self._waited += [
                Waited(groups, processes, part.process, part.first_counter, len(part.payloads))
                for part in run.parts()
                for groups, processes in _together(recipients)
            ]
            return True
        known, runs = self._gathered.setdefault(run.address, (recipients, []))
        if known is not recipients and known != recipients:
            return False
        runs += self._last_lseqs
        return True

    def take(self) -> tuple[tuple[Handed, ...], tuple[Waited, ...]]:
        if not self._gathered and not self._waited:
            return (), ()
        handed = tuple(
            Handed(groups, processes, tuple(runs))
            for recipients, runs in self._gathered.values()
            for groups, processes in _together(recipients)
        )
        waited = tuple(self._waited)
        self._gathered, self._waited = {}, []
        return handed, waited


def _together(recipients: Recipients) -> list[tuple[tuple[GroupId, ...], tuple[int, ...]]]:
    """Processes that get something through the same groups, together."""
    found: dict[tuple[GroupId, ...], list[int]] = {}
    for process, groups in recipients:
        found.setdefault(groups, []).append(process)
    return [(groups, tuple(processes)) for groups, processes in found.items()]
