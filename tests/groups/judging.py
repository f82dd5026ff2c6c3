"""What every group promises, judged over the streams that processes were handed. A rule is a function from streams to findings.

A stream is a list of events of one process: its group views, messages, and last words about groups, in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from transis.model.groups import GroupId, GroupLeft, GroupRefused, GroupView, GroupViewId
from transis.model.ids import MessageId, ProcessId, ViewKind
from transis.model.service import Service


class Seen(NamedTuple):
    """A message as one process got it, and the groups through which it did."""

    message: MessageId
    service: Service
    data: bytes
    groups: tuple[GroupId, ...]


StreamEvent = GroupView | Seen | GroupLeft | GroupRefused
Streams = Mapping[ProcessId, Sequence[StreamEvent]]


def judge(streams: Streams) -> list[str]:
    rules = (agreement_on_views, members_only, no_duplicates, differences_add_up, together_the_same, one_order)
    return [f"{rule.__name__}: {finding}" for rule in rules for finding in rule(streams)]


def agreement_on_views(streams: Streams) -> Iterator[str]:
    """The same id has the same members, origins, cause and flag at everybody."""
    known: dict[tuple[GroupId, GroupViewId], GroupView] = {}
    for process, stream in streams.items():
        for view in stream:
            if isinstance(view, GroupView):
                first = known.setdefault((view.group, view.id), view)
                if _common(first) != _common(view):
                    yield f"{process} has {_common(view)} where another has {_common(first)}"


def _common(view: GroupView) -> tuple[object, ...]:
    return view.name, view.members, view.merged_from, view.cause, view.primary


def members_only(streams: Streams) -> Iterator[str]:
    """A process is in every view it is shown, and gets messages of a group only while a view of it is in force."""
    for process, stream in streams.items():
        inside: set[GroupId] = set()
        for event in stream:
            if isinstance(event, GroupView):
                inside.add(event.group)
                if process not in event.members:
                    yield f"{process} was shown {event.id} without itself"
            elif isinstance(event, GroupLeft):
                inside.discard(event.group)
            elif isinstance(event, Seen) and not inside.issuperset(event.groups):
                yield f"{process} got {event.message} outside of its group"


def no_duplicates(streams: Streams) -> Iterator[str]:
    for process, stream in streams.items():
        messages = [event.message for event in stream if isinstance(event, Seen)]
        views = [(event.group, event.id) for event in stream if isinstance(event, GroupView)]
        if len(set(messages)) < len(messages) or len(set(views)) < len(views):
            yield f"{process} got something twice"


def differences_add_up(streams: Streams) -> Iterator[str]:
    """Members are those of the last regular view, without who left, with who joined; nothing changes without a difference."""
    for process, stream in streams.items():
        last: dict[GroupId, GroupView] = {}
        for event in stream:
            if isinstance(event, GroupLeft):
                last.pop(event.group, None)
            if not isinstance(event, GroupView):
                continue
            before = last.get(event.group)
            if before is not None and event.kind is ViewKind.REGULAR:
                yield from (f"{process}: {wrong} in {event.id}" for wrong in _wrong_difference(before, event))
            if event.kind is ViewKind.REGULAR:
                last[event.group] = event


def _wrong_difference(before: GroupView, view: GroupView) -> Iterator[str]:
    old, new, joined, left = map(set, (before.members, view.members, view.joined, view.left))
    if new != (old - left) | joined:
        yield "members do not add up"
    if not (left <= old and joined <= new and joined & old <= left):
        yield "joined and left are not what they say"


def together_the_same(streams: Streams) -> Iterator[str]:
    """Those who go together from one view of a group to the next got the same ordered messages of it in between."""
    between: dict[tuple[GroupId, GroupViewId, GroupViewId], tuple[ProcessId, list[MessageId]]] = {}
    for process, stream in streams.items():
        for (group, first, second), messages in _stretches(stream):
            one, others = between.setdefault((group, first, second), (process, messages))
            if others != messages:
                yield f"between {first} and {second} {process} got {messages} but {one} got {others}"


def _stretches(stream: Sequence[StreamEvent]) -> Iterator[tuple[tuple[GroupId, GroupViewId, GroupViewId], list[MessageId]]]:
    open_: dict[GroupId, tuple[GroupViewId, list[MessageId]]] = {}
    for event in stream:
        if isinstance(event, GroupView):
            if event.group in open_:
                first, messages = open_[event.group]
                yield (event.group, first, event.id), messages
            open_[event.group] = (event.id, [])
        elif isinstance(event, GroupLeft):
            open_.pop(event.group, None)
        elif isinstance(event, Seen) and event.service is not Service.BASIC:
            for group in event.groups:
                if group in open_:
                    open_[group][1].append(event.message)


def one_order(streams: Streams) -> Iterator[str]:
    """What two processes both got, they got in one order, over all groups."""
    orders = [(process, _ordered(stream)) for process, stream in streams.items()]
    for number, (one, messages) in enumerate(orders):
        for other, others in orders[number + 1 :]:
            common = set(messages) & set(others)
            if [message for message in messages if message in common] != [message for message in others if message in common]:
                yield f"{one} and {other} disagree on the order"


def _ordered(stream: Sequence[StreamEvent]) -> list[MessageId]:
    return [event.message for event in stream if isinstance(event, Seen) and event.service is not Service.BASIC]
