"""A run in words: for a person tables, the story of a history and the events of a violation; for a machine one JSON object.

The same for a simulated run and for the traces of real daemons. Messages between the daemons themselves, as when a process joins
a group, are part of the evidence but not of the story. Keys of the JSON are stable.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from transis.audit.draw.svg import clock
from transis.audit.guarantees import ALL_MEANINGS
from transis.audit.guarantees.property import NOT_EXERCISED, NOT_PROMISED, Verdict, Violation, Witness
from transis.audit.words import COLOURS
from transis.cli.options import counted, plain_table
from transis.sim.cluster import grouped, show_message, show_node, show_view, show_view_id
from transis.sim.coverage import COLOURS as OF_REPLICAS
from transis.sim.coverage import REPLICA_STATES, REPLICAS_EXPECTED, Coverage, Expected, Pair, expected_of
from transis.sim.plan import TOTEM
from transis.sim.run import RunOutcome
from transis.sim.runs import Failure, SimulateRequest, Tally
from transis.sim.sweep import PropertyTotals
from transis.trace.events import (
    CheckpointEvent,
    ClientDelivery,
    ClientLeft,
    ClientLife,
    Conf,
    Delivery,
    End,
    Event,
    Fault,
    Gap,
    GroupConf,
    History,
    NoteEvent,
    OfClients,
    Prefix,
    Refuse,
    ReplicaStep,
    Sent,
    Submit,
)
from transis.types.ids import MessageId, NodeId, ProcessId, Service, ViewId
from transis.types.views import PROCESSES_MAX, View

# --- words ------------------------------------------------------------------------------------------------------------


def witness_lines(history: History, violations: Sequence[Violation]) -> Iterator[str]:
    """For the first violation of each property: the sentence, then the events that show it."""
    events = {trace.node: {event.lseq: event for event in trace.events} for trace in history.nodes}
    shown: set[str] = set()
    for violation in violations:
        if violation.property not in shown:
            shown.add(violation.property)
            yield f"{violation.property}: {violation.explanation}"
            yield from (f"    {line}" for line in _events(events, violation.witness))


def _events(events: dict[NodeId, dict[int, Event]], witness: Witness) -> Iterator[str]:
    for node, lseq in witness:
        event = events.get(node, {}).get(lseq)
        if event is not None:
            yield f"{show_node(node)}, event {lseq} at {clock(event.time_us)}: {event_words(node, event)}"


def event_words(node: NodeId, event: Event) -> str:
    match event:
        case Submit() as submit:
            return f"accepted {_run(ProcessId(node, submit.process), submit.first, submit.count)}"
        case Refuse() as refuse:
            return f"refused {_run(ProcessId(node, refuse.process), refuse.first, refuse.count)}: {refuse.why}"
        case Sent() as sent:
            run = _run(ProcessId(node, sent.process), sent.first, sent.count)
            return f"sent {run} ({sent.service.name.lower()}) in {show_view_id(sent.conf)} at place {sent.place.seq}"
        case Delivery() as delivery:
            run = _run(delivery.process, delivery.first, delivery.count)
            where = f"in {show_view_id(delivery.conf)} at place {delivery.place.seq} of {show_view_id(delivery.regular)}"
            return f"delivered {run} ({delivery.service.name.lower()}) {where}"
        case Conf(view=view):
            return f"installed {show_view(view)}: {view.cause.in_words(show_node)}"
        case End(how=how):
            return f"ended: {how}"
        case Fault(what=what):
            return f"suffered: {what}"
        case NoteEvent(what=what):
            return f"noted: {what}"
        case Gap(first_lseq=first, last_lseq=last):
            return f"dropped its events {first} to {last}"
        case Prefix(conf=conf, count=count):
            return f"recorded the digests of the first {count} messages of {show_view_id(conf)}"
        case ReplicaStep() as step:
            action = f" {step.creator}:{step.number}" if step.creator else ""
            return f"{step.what}{action}" + (f" at place {step.place}" if step.place >= 0 else "")
        case _:
            return _client_words(node, event)


def _client_words(node: NodeId, event: OfClients) -> str:
    match event:
        case GroupConf(view=view, processes=processes):
            members = ", ".join(f"{show_node(member.node)}#{member.number}" for member in view.members)
            return f"showed {view.id} of {view.name} {{{members}}} to {_numbers(processes)}: {view.cause}"
        case ClientDelivery(handed=handed, waited=waited):
            runs = [f"events {', '.join(map(str, one.runs))} to {_numbers(one.processes)}" for one in handed]
            late = [f"{_run(one.sender, one.first, one.count)} to {_numbers(one.processes)}" for one in waited]
            return f"handed over {'; '.join(runs + late)}"
        case ClientLeft(process=process, name=name, why=why, refused=refused):
            return f"informed #{process} that {'it may not join' if refused else 'it is out of'} {name}: {why}"
        case ClientLife(process=process, connected=connected):
            return f"#{process} {'connected' if connected else 'is gone'}"
        case CheckpointEvent(process=process, name=name, count=count, digest=digest):
            return f"heard that #{process} is in state {digest.hex()} behind {count} messages of {name}"


def _numbers(processes: Sequence[int]) -> str:
    return " ".join(f"#{process}" for process in processes)


def _run(process: ProcessId, first: int, count: int) -> str:
    start = show_message(MessageId(process, first))
    return start if count == 1 else f"{start} to {show_message(MessageId(process, first + count - 1))}"


# --- tables -----------------------------------------------------------------------------------------------------------

TRAP: Final = re.compile(r"((?:\d+ )*)(.*)", re.DOTALL)


def verdict_table(properties: Mapping[str, PropertyTotals]) -> Table:
    table = plain_table("guarantee", "verdict", "checks made", "violations", title="Verdict per guarantee")
    table.add_column("in words")
    for name, found in properties.items():
        verdict = Text(found.verdict, style=COLOURS.get(found.verdict, ""))
        violations = f"{found.violations:,}" if found.violations else ""
        table.add_row(name, verdict, f"{found.checked:,}", violations, Text(ALL_MEANINGS.get(name, ""), style="dim"))
    return table


def fault_line(faults: Mapping[str, int]) -> str:
    drawn = ", ".join(f"{kind} {count:,}" for kind, count in sorted(faults.items(), key=lambda item: (-item[1], item[0])))
    return f"Faults drawn: {drawn or 'none'}"


def coverage_tables(coverage: Coverage, runs: int, engine: str = "totem") -> RenderableType:
    """After one run only the tables show what was not reached, since one run cannot reach much; after many it is also listed."""
    wanted = expected_of(engine)
    missing = wanted.never_reached(coverage)
    events = _turned_pairs(wanted.events)
    parts: list[RenderableType] = [
        _pair_table("States × events reached", wanted.event_names, _turned(coverage.events), events, wanted.states),
        Text(),
        _pair_table("Faults × states they met", _fault_names(coverage, wanted), coverage.faults, wanted.faults, wanted.states),
        Text(),
        Text(_traps(coverage)),
        Text(),
        *([Text(_groups(coverage)), Text()] if coverage.groups else []),
        *(_of_replicas(coverage) if coverage.replicas else []),
        *(_missing_counts(missing, wanted) if runs == 1 else _missing_names(missing)),
    ]
    return Group(*parts)


def _turned(counts: Mapping[Pair, int]) -> dict[Pair, int]:
    """(state, event) as (event, state): events make the rows, for there are more of them."""
    return {(event, state): count for (state, event), count in counts.items()}


def _turned_pairs(pairs: Iterable[Pair]) -> frozenset[Pair]:
    return frozenset((event, state) for state, event in pairs)


def _fault_names(coverage: Coverage, wanted: Expected) -> list[str]:
    return sorted({kind for kind, _ in coverage.faults} | {kind for kind, _ in wanted.faults})


def _pair_table(
    title: str, rows: Iterable[str], counts: Mapping[Pair, int], expected: frozenset[Pair], states: tuple[str, ...]
) -> Table:
    """Counts; `never` where something was expected, nothing where nothing was."""
    columns = [*states, *sorted({column for _, column in counts} - set(states))]
    table = plain_table("", *columns, title=title)
    for row in rows:
        table.add_row(row, *(_cell(counts.get((row, column), 0), (row, column) in expected) for column in columns))
    return table


def _cell(count: int, expected: bool) -> Text:
    if count:
        return Text(f"{count:,}", style="" if expected else "dim")
    return Text("never", style="yellow") if expected else Text("·", style="dim")


def _traps(coverage: Coverage) -> str:
    fired = sorted(coverage.traps.items(), key=lambda item: _natural(item[0]))
    return "Traps whose trigger fired: " + ("; ".join(f"{_trap(name)}: {count:,}" for name, count in fired) or "none")


def _trap(name: str) -> str:
    """`10 more to flush than a window` as `trap 10, more to flush than a window`: or its number would look like a count."""
    numbers, words = TRAP.fullmatch(name).groups()  # type: ignore[union-attr]  # It takes any text.
    return f"trap {'/'.join(numbers.split())}, {words}" if numbers else words


def _groups(coverage: Coverage) -> str:
    return "Groups: " + ", ".join(f"{what} {count:,}" for what, count in sorted(coverage.groups.items()))


def _of_replicas(coverage: Coverage) -> Iterator[RenderableType]:
    """Which faults met which states, which colours there were in them, and all else."""
    met = _pairs(coverage.replicas, " met ")
    yield _pair_table("Faults × states of replicas", _rows(met), met, _expected_pairs(" met "), REPLICA_STATES)
    yield Text()
    held = _pairs(coverage.replicas, " in ")
    yield _pair_table("Colours held", OF_REPLICAS, held, _expected_pairs(" in "), ("MINORITY", "PRIMARY"))
    yield Text()
    others = sorted((what, count) for what, count in coverage.replicas.items() if " met " not in what and " in " not in what)
    yield Text("Replicas: " + ", ".join(f"{what} {count:,}" for what, count in others if count))
    yield Text()


def _pairs(counts: Mapping[str, int], between: str) -> dict[Pair, int]:
    found = {}
    for name, count in counts.items():
        first, word, second = name.partition(between)
        if word:
            found[(first, second)] = count
    return found


def _rows(pairs: Mapping[Pair, int]) -> list[str]:
    return sorted({first for first, _ in pairs})


def _expected_pairs(between: str) -> frozenset[Pair]:
    return frozenset(_pairs(dict.fromkeys(REPLICAS_EXPECTED, 1), between))


def _natural(name: str) -> tuple[int, str]:
    first = name.partition(" ")[0]
    return (int(first) if first.isdigit() else 0, name)


def _missing_counts(missing: Mapping[str, list[str]], wanted: Expected) -> Iterator[Text]:
    expected = {"events": len(wanted.events), "faults": len(wanted.faults)}
    parts = (f"{len(missing[table])} of {count} expected pairs of states and {table}" for table, count in expected.items())
    yield Text(f"Never reached in this run: {', '.join(parts)}.")


def _missing_names(missing: Mapping[str, list[str]]) -> Iterator[Text]:
    if not any(missing.values()):
        yield Text("Never reached: nothing that was expected is missing.")
    for table, names in missing.items():
        if names:
            named = _grouped(names) if table in ("events", "faults") else "; ".join(map(_trap, sorted(names, key=_natural)))
            yield Text(f"Never reached, of {table}: ", style="bold").append(named, style="not bold")


def _grouped(names: Iterable[str]) -> str:
    """`crash x Commit` and `crash x Gather` as `crash x Commit/Gather`."""
    together: dict[str, list[str]] = {}
    for name in names:
        first, _, second = name.partition(" x ")
        together.setdefault(first, []).append(second)
    return ", ".join(f"{first} × {'/'.join(seconds)}" for first, seconds in together.items())


# --- story ------------------------------------------------------------------------------------------------------------

PROSE_WIDTH: Final = 100
MARKS: Final = {Service.BASIC: "({})", Service.CAUSAL: "<{}>"}
RUN_SHOWN: Final = 3
"""Messages of a run that are named one by one."""


def print_step(console: Console, number: int, heading: str, paragraph: str, times_us: tuple[int, int]) -> None:
    console.print()
    console.print(Rule(f"{number}. {heading}   ({clock(times_us[0])} to {clock(times_us[1])})", align="left"))
    console.print(Text(paragraph), width=min(PROSE_WIDTH, console.width))
    console.print()


def print_outcome(console: Console, history: History, since_us: int) -> None:
    """The views that came since, and what was delivered in them."""
    console.print(Padding(_installed_table(_installed(history, since_us)), (0, 0, 0, 2)))
    delivered = _deliveries(history, since_us)
    if delivered:
        marked = "; (a1) is a basic, <a1> a causal one" if "(" in delivered or "<" in delivered else ""
        console.print(Text(f"  Delivered, by view (a1 is the first message of a{marked}):", style="dim"))
        console.print(Padding(Text(delivered), (0, 0, 0, 4)))


def print_summary(console: Console, history: History, verdicts: Sequence[Verdict], more: Sequence[Table] = ()) -> None:
    console.print()
    console.print(Rule("What happened, in one look", align="left"))
    for table in (_timeline(history), _delivery_table(history), *more):
        console.print(table)
        console.print()
    added = {verdict.property: PropertyTotals(verdict.verdict, verdict.checked, verdict.count) for verdict in verdicts}
    console.print(verdict_table(added))


STORY_LINES: Final = 80
"""Of a longer run only the beginning and the end are shown."""
ARMED: Final = "on "
"""How the harness's line begins when a fault waits for its moment; when that comes, the fault has a line of its own."""


def story_table(outcome: RunOutcome) -> Table:
    """What a single run went through, in the order of time: faults, and the regular views that came of them."""
    rows = sorted([*_fault_rows(outcome.log), *_view_rows(outcome.history)], key=lambda row: row[0])
    table = Table(box=None, pad_edge=False, show_header=False, title="What happened", title_justify="left", title_style="bold")
    table.add_column(justify="right")
    table.add_column(overflow="fold")
    left_out = len(rows) - STORY_LINES
    for index, (time_us, words) in enumerate(rows):
        if left_out > 0 and index == STORY_LINES // 2:
            table.add_row("", Text(f"… {left_out:,} more lines; --show FILE.html draws all of it", style="dim"))
        if left_out <= 0 or index < STORY_LINES // 2 or index >= len(rows) - STORY_LINES // 2:
            table.add_row(Text(clock(time_us), style="dim"), words)
    return table


def _fault_rows(log: Sequence[tuple[int, str]]) -> Iterator[tuple[int, Text]]:
    """What the harness did; what it did to several links at one instant is one line."""
    at: dict[int, list[str]] = {}
    for time_us, what in log:
        if not what.startswith(ARMED):
            at.setdefault(time_us, []).append(what)
    for time_us, together in at.items():
        yield time_us, Text("; ".join(_joined(together)), style="yellow")


def _joined(together: Sequence[str]) -> list[str]:
    """`cut a->b data` and `cut a->c data` as `cut a->b,c data`."""
    found: dict[tuple[str, str], list[str]] = {}
    for what in together:
        link = LINK.fullmatch(what)
        before, target, after = link.groups() if link is not None else (what, "", "")
        found.setdefault((before, after), []).append(target)
    return [f"{before}{','.join(targets)}{after}" for (before, after), targets in found.items()]


LINK: Final = re.compile(r"(\w+ \w+->)(\w+)( .*)?", re.DOTALL)


def _view_rows(history: History) -> Iterator[tuple[int, Text]]:
    delivered: Counter[ViewId] = Counter()
    for trace in history.nodes:
        own: Counter[ViewId] = Counter()
        for event in filter(_is_of_story, trace.events):
            assert isinstance(event, Delivery)
            own[event.regular] += event.count
        delivered |= own
    for installed in _installed(history, 0):
        view = installed.view
        if view.id.is_regular:
            missing = [show_node(node) for node in view.nodes if node not in installed.at]
            where = f", not installed by {' '.join(missing)}" if missing else ""
            count = counted(delivered[view.id], "message")
            yield installed.first_us, Text(f"{show_view(view)}{where}: {view.cause.in_words(show_node)}; {count}")


# --- views ----------------------------------------------------------------------------------------------------------


class Installed(NamedTuple):
    """One view and who installed it."""

    view: View
    at: list[NodeId]
    first_us: int


def _installed(history: History, since_us: int) -> list[Installed]:
    """Views since a time, each once, in the order in which they first appeared."""
    found: dict[ViewId, Installed] = {}
    confs = sorted(_confs(history), key=lambda item: (item[1].time_us, item[0], item[1].lseq))
    for node, conf in confs:
        if conf.time_us >= since_us:
            found.setdefault(conf.view.id, Installed(conf.view, [], conf.time_us)).at.append(node)
    return list(found.values())


def _confs(history: History) -> Iterator[tuple[NodeId, Conf]]:
    for trace in history.nodes:
        yield from ((trace.node, event) for event in trace.events if isinstance(event, Conf))


def _installed_table(views: Sequence[Installed]) -> Table | Text:
    if not views:
        return Text("No view changed.", style="dim")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("at", "view", "kind", "installed by", "cause"):
        table.add_column(column, overflow="fold")
    for installed in views:
        kind = "regular" if installed.view.id.is_regular else "transitional"
        nodes = " ".join(map(show_node, installed.at))
        cause = installed.view.cause.in_words(show_node) if installed.view.id.is_regular else ""
        table.add_row(clock(installed.first_us), show_view(installed.view), Text(kind, style="dim"), nodes, cause)
    return table


def _timeline(history: History) -> Table:
    """Each life's views in order; a transitional view is the seam between two."""
    table = Table(title="View timeline", box=None, pad_edge=False, title_justify="left", title_style="bold", header_style="dim")
    table.add_column("node")
    table.add_column("views, in order (T: transitional)", overflow="fold")
    for trace in history.nodes:
        views = [show_view(event.view) for event in trace.events if isinstance(event, Conf)]
        table.add_row(show_node(trace.node), " → ".join(views))
    return table


# --- deliveries -----------------------------------------------------------------------------------------------------


def _is_of_story(event: object) -> bool:
    return isinstance(event, Delivery) and event.process.number < PROCESSES_MAX


def _deliveries(history: History, since_us: int) -> str:
    """Nodes that delivered the same share a line: `a b: R8: a1 a2 b1; T10: c1`."""
    lines = []
    for trace in history.nodes:
        parts: dict[ViewId, list[str]] = {}
        for event in filter(_is_of_story, trace.events):
            assert isinstance(event, Delivery)
            if event.time_us >= since_us:
                parts.setdefault(event.conf, []).append(_run_of(event))
        if parts:
            words = "; ".join(f"{show_view_id(view)}: {' '.join(runs)}" for view, runs in parts.items())
            lines.append((show_node(trace.node), words))
    return grouped(lines)


def _run_of(event: Delivery) -> str:
    """Messages are named after their node, which has one client here: `a1`, `a1 a2`, `a1..a9`, and `c/2:1` in a second life.

    Those that need not have the same place everywhere are marked; else nodes that deliver them differently would seem wrong."""
    node = show_node(event.process.node)
    name = f"{node}:" if node[-1].isdigit() else node
    last = event.first + event.count - 1
    if event.count > RUN_SHOWN:
        run = f"{name}{event.first}..{name}{last}"
    else:
        run = " ".join(f"{name}{counter}" for counter in range(event.first, last + 1))
    return MARKS.get(event.service, "{}").format(run)


def _delivery_table(history: History) -> Table:
    """How many messages each life delivered in which view."""
    counts: dict[tuple[NodeId, ViewId], int] = {}
    first_seen: dict[ViewId, int] = {}
    for trace in history.nodes:
        for event in filter(_is_of_story, trace.events):
            assert isinstance(event, Delivery)
            counts[(trace.node, event.conf)] = counts.get((trace.node, event.conf), 0) + event.count
            first_seen[event.conf] = min(event.time_us, first_seen.get(event.conf, event.time_us))
    views = sorted(first_seen, key=lambda view: (first_seen[view], view))
    headings = (f"{show_view_id(view)} of {view.rep.name}" for view in views)
    table = plain_table("node", *headings, title="Messages delivered, by view")
    for trace in history.nodes:
        table.add_row(show_node(trace.node), *(str(counts.get((trace.node, view), "")) for view in views))
    return table


# --- as json ----------------------------------------------------------------------------------------------------------


def json_text(request: SimulateRequest, tally: Tally, more: dict[str, Any]) -> str:
    return json.dumps(as_dict(request, tally) | more, indent=2, ensure_ascii=False)


def as_dict(request: SimulateRequest, tally: Tally) -> dict[str, Any]:
    summary = tally.summary
    return {
        "engine": request.engine,
        **({} if request.engine == "totem" else {"order": request.scenario.order, "mode": request.scenario.mode}),
        **({} if request.scenario.partitions else {"partitions": False}),
        **({} if request.scenario.judge == TOTEM.judge else {"judge": request.scenario.judge}),
        "groups": request.groups,
        **({"layer": "prsl", "ordering": request.scenario.replicas} if request.scenario.replicas else {}),
        "seeds": {"first": request.seeds[0], "last": request.seeds[-1], "count": len(request.seeds)},
        "broken_engine": request.broken or None,
        "runs": summary.runs,
        "violations": summary.violations,
        "deliveries": summary.deliveries,
        "views": summary.views,
        "turns": summary.turns,
        "nodes": {str(nodes): runs for nodes, runs in sorted(summary.nodes.items())},
        "faults": dict(sorted(summary.faults.items())),
        "virtual_s": round(summary.virtual_us / 1e6, 6),
        "wall_s": round(tally.wall_s, 3),
        "runs_per_minute": round(tally.runs_per_minute, 1),
        "liveness_budget_used_max": summary.liveness_permille_max / 1000,
        "properties": {name: _property(found) for name, found in summary.properties.items() if _is_judged(found)},
        "not_exercised": [name for name, found in summary.properties.items() if found.verdict == NOT_EXERCISED],
        "not_promised": [name for name, found in summary.properties.items() if found.verdict == NOT_PROMISED],
        "coverage": {"never_reached": expected_of(request.engine).never_reached(summary.coverage), **summary.coverage.as_dict()},
        "failing": [_failure(failure) for failure in tally.failures],
        **({} if tally.outcome is None else {"final_views": final_views(tally.outcome)}),
    }


def final_views(outcome: RunOutcome) -> list[dict[str, Any]]:
    """In which views the nodes of a single run were at its end, and how many nodes in each; one view if all is well."""
    last: Counter[View] = Counter()
    for trace in outcome.history.nodes:
        views = [event.view for event in trace.events if isinstance(event, Conf)]
        if views and not any(isinstance(event, End) for event in trace.events):
            last[views[-1]] += 1
    return [
        {"id": str(view.id), "members": [str(node) for node in view.nodes], "installed_by": count}
        for view, count in sorted(last.items(), key=lambda item: item[0].id)
    ]


def _is_judged(found: PropertyTotals) -> bool:
    return found.verdict not in (NOT_EXERCISED, NOT_PROMISED)


def _property(found: PropertyTotals) -> dict[str, Any]:
    return {"verdict": found.verdict, "checked": found.checked, "violations": found.violations}


def _failure(failure: Failure) -> dict[str, Any]:
    return {
        "seed": failure.seed,
        "properties": list(failure.properties),
        "replay": failure.replay,
        "explanation": failure.explanation,
    }
