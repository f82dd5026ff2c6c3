"""What the daemons wrote about themselves: read, completed by what the site saw, and given to every checker.

A daemon that was killed cannot write its end; its next life does, and if there is none, whoever killed it. A daemon that was
given a copy of another's state directory cannot know that either.
"""

from __future__ import annotations

from pathlib import Path

from transis.audit.guarantees import GROUP_PROPERTIES, NODE_PROPERTIES, check
from transis.trace.events import End, Event, Fault, History, NodeTrace
from transis.trace.reader import STILL_OPEN, TRUNCATED, read_trace

ALWAYS = frozenset((*NODE_PROPERTIES, *GROUP_PROPERTIES)) - {"group_primary", "group_only_primary", "replicas_agree"}
"""Properties that every scenario must have exercised, unless it says otherwise."""


class Evidence:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.killed: set[str] = set()
        """Lives that the site killed and that have no successor, as `name/incarnation`."""
        self.copied: set[str] = set()
        """Lives of which there were two at a time, because the site wanted it so."""

    def at_rest(self) -> History:
        """Of a site where nothing is under way, so that nothing may be missing."""
        return self._history(closed=True)

    def at_the_end(self) -> History:
        history = self._history(closed=False)
        unended = [str(node) for node, events in history.nodes if not isinstance(_last_word(events), End)]
        assert unended == [], f"lives without an end in their traces: {unended}"
        return history

    def _history(self, *, closed: bool) -> History:
        reading = read_trace(self.directory)
        harmless = (STILL_OPEN, TRUNCATED)
        assert [finding for finding in reading.findings if finding.what not in harmless] == []
        return reading.history._replace(nodes=[self._completed(life) for life in reading.history.nodes], closed=closed)

    def _completed(self, life: NodeTrace) -> NodeTrace:
        events = list(life.events)
        if str(life.node) in self.copied:
            events.insert(0, Fault(0, events[0].time_us if events else 0, "copied state directory"))
        if str(life.node) in self.killed and events and not any(isinstance(event, End) for event in events):
            events.append(End(events[-1].lseq + 1, events[-1].time_us, "failed"))
        return NodeTrace(life.node, events)


def _last_word(events: list[Event]) -> Event | None:
    return events[-1] if events else None


def judge(history: History) -> set[str]:
    """Nothing is broken; at rest nothing is pending either. The properties that were exercised."""
    report = check(history)
    told = "\n".join(violation.explanation for violation in report.violations)
    assert report.broken == (), f"{' '.join(report.broken)}:\n{told}"
    assert not history.closed or report.pending == (), f"pending at rest: {' '.join(report.pending)}"
    return {name for name, verdict in report.verdicts.items() if verdict.checked}
