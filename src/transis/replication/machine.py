"""A replicated object as a program has it: its actions are calls that run everywhere, its queries are answered here.

    async with transis.replica("accounts", me="ann", replicas=[...], directory=..., machine=Accounts()) as bank:
        left = await bank.move("7", "9", 50)      # ordered, applied here, and its result
        await bank.of("7")                        # linear: sees every action that returned before, anywhere

1. An action is applied where it is delivered, in one step of the event loop. An error of its method is its result: it is the same
   at every replica, and is raised where the action was called.
2. A call that no method understands (of another release, or nonsense) changes nothing anywhere; the log goes on.
3. A linear query waits for a mark of its own in the order; those that wait at one time share it.
4. Results travel as bytes even here, so that nobody holds a piece of the state itself.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from itertools import chain
from typing import Any, Concatenate, Final, Generic, Literal, ParamSpec, TypeVar, overload

import msgspec

from transis.prsl.actions import Action, ActionId, Kind
from transis.prsl.core import Config
from transis.prsl.log import Snapshot
from transis.prsl.outputs import Effect, LoadSnapshot, Ordered, TakeSnapshot
from transis.replication.attachment import Connect
from transis.replication.context import Moment, at_moment, current_once, remaining
from transis.replication.host import News
from transis.replication.log import POST_MAX, ReplicaBase, key_of
from transis.replication.posts import Outcome, PostReceipt, Posts, a_change
from transis.replication.replicated import Method, Methods, methods_of
from transis.replication.state import restore, save
from transis.replication.store import Store
from transis.types.errors import ActionFailed, InDoubt, MessageTooLarge, NotYet, ReplicaError, TransisError, UsageError, plainly

M = TypeVar("M")
P = ParamSpec("P")
R = TypeVar("R")

Recorded = tuple[bytes, str, str]
"""An outcome in a snapshot: the result, or the name of an error and its text."""


class Head(msgspec.Struct, frozen=True, array_like=True):
    """What the replica itself has in a snapshot: the agreed clock, and the results of client keys by offset, in their order."""

    time_us: int
    results: tuple[tuple[int, tuple[Recorded, ...]], ...]


def _recorded(outcome: Outcome) -> Recorded:
    error = outcome.error
    return (outcome.value, "", "") if error is None else (b"", type(error).__name__, str(error))


def _outcome(value: bytes, error: str, text: str) -> Outcome:
    return Outcome(value, ActionFailed(f"{error}: {text}") if error else None)


_call: Final = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw])


class CallReceipt(PostReceipt, Generic[R]):
    """The receipt of one action: `result()` beside what every receipt has."""

    def __init__(self, posts: Posts, method: Method) -> None:
        super().__init__(posts, 1)
        self._method = method
        self._outcome: Outcome | None = None

    async def result(self, timeout: float | None = None) -> R:
        """Wait until the action ran here, and return what it returned, or raise its error. NotYet after `timeout` seconds."""
        await self.ordered(timeout)
        if self._outcome is None:
            raise InDoubt(f"{self._method.name} was ordered and ran, and its result came here only within a snapshot")
        if self._outcome.error is not None:
            raise self._outcome.error
        result: R = self._method.result(self._outcome.value)
        return result

    def _ran(self, results: Sequence[Outcome]) -> None:
        (self._outcome,) = results


class Application:
    """The object, and what runs on it."""

    def __init__(self, thing: object, group: str) -> None:
        self.thing = thing
        self.methods: Methods = methods_of(type(thing))
        self.time_us: int = 0
        self._group = group

    def run(self, offset: int, creator: str, action: Action) -> list[Outcome]:
        """The calls of an action, one after the other."""
        self.time_us = max(self.time_us, action.posted)
        return [
            self._run(Moment(self.time_us, offset + number, creator, self._group), message)
            for number, message in enumerate(action.messages())
        ]

    def _run(self, moment: Moment, message: bytes) -> Outcome:
        try:
            name, encoded = _call.decode(message)
            method = self.methods[name]
            arguments = method.arguments(bytes(encoded))
        except (msgspec.MsgspecError, KeyError, UnicodeDecodeError) as error:
            return Outcome(error=ActionFailed(f"no action of {type(self.thing).__name__} understands this call: {error}"))
        if method.kind != "action":
            return Outcome(error=ActionFailed(f"{name} is a query of {type(self.thing).__name__}, which changes nothing"))
        try:
            with at_moment(moment):
                return Outcome(method.encode_result(method.function(self.thing, *arguments)))
        except Exception as error:
            return Outcome(error=error)

    def copy(self) -> Application:
        twin = Application(copy.deepcopy(self.thing), self._group)
        twin.time_us = self.time_us
        return twin

    def ask(self, method: Method, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """The answer of a query, as it would travel."""
        _, encoded = _call.decode(method.encode(arguments, named))
        answer = method.function(self.thing, *method.arguments(bytes(encoded)))
        return method.result(method.encode_result(answer))


class ReplicaMachine(ReplicaBase, Generic[M]):
    """A replicated object: what `transis.replica` yields with a `machine`. Its actions and queries are methods of this, to be
    awaited; `call` and `ask` are the same for type checkers: `await bank.call(Accounts.move, "7", "9", 50)`."""

    def __init__(self, store: Store, group: str, config: Config, connect: Connect, snapshot_every: int, thing: M) -> None:
        self._application = Application(thing, group)
        self._results: dict[int, list[Outcome]] = {}
        self._keys_max = config.keys_max
        self._dirty: tuple[tuple[int, tuple[ActionId, ...]], Application] | None = None
        self._later: deque[Ordered | TakeSnapshot | LoadSnapshot] = deque()
        self._work: asyncio.Task[None] | None = None
        super().__init__(store, group, config, connect, snapshot_every)

    async def _start(self) -> None:
        place = self._delivered.place
        if place:
            await self._restore(place)
        await super()._start()

    async def close(self) -> None:
        """End the replica here. What was posted is on the disk and goes on when it is opened again. Closing twice is harmless."""
        if self._work is not None:
            self._work.cancel()
        await super().close()

    # --- actions --------------------------------------------------------------------------------------------------------

    async def call(self, action: Callable[Concatenate[M, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run this `action` everywhere, with `args` and `kwargs`, and return its result."""
        receipt: CallReceipt[R] = self._post(self._method(action, "action"), args, kwargs)
        return await receipt.result(remaining())

    async def post(self, action: Callable[Concatenate[M, P], R], *args: P.args, **kwargs: P.kwargs) -> CallReceipt[R]:
        """The same without waiting for the result: returns when the `action`, with `args` and `kwargs`, is on this disk."""
        receipt: CallReceipt[R] = self._post(self._method(action, "action"), args, kwargs)
        await receipt.accepted(remaining())
        return receipt

    def _post(self, method: Method, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallReceipt[Any]:
        message = method.encode(args, kwargs)
        if len(message) > POST_MAX:
            raise MessageTooLarge(f"the arguments of {method.name} have {len(message)} bytes: at most {POST_MAX} are allowed")
        receipt: CallReceipt[Any] = CallReceipt(self._posts, method)
        once = current_once()
        if once is None:
            self._posts.add([message], receipt=receipt)
        else:
            at = self.end if once.at is None else once.at
            self._posts.add([message], receipt=receipt, key=key_of(once.next_key()), at=at)
        return receipt

    # --- queries --------------------------------------------------------------------------------------------------------

    async def ask(self, query: Callable[Concatenate[M, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """The answer of this `query`, with `args` and `kwargs`, that sees every action which returned before, at any replica."""
        answer: R = await self._ask(self._method(query, "query"), args, kwargs)
        return answer

    async def _ask(self, method: Method, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        method.encode(args, kwargs)
        await self._posts.add([], kind=Kind.MARK).ordered(remaining())
        return self._application.ask(method, args, kwargs)

    @overload
    def read(self, how: Literal["local", "dirty"]) -> Answers: ...
    @overload
    def read(self, *, at_least: int) -> LaterAnswers: ...
    def read(self, how: str = "", *, at_least: int | None = None) -> Answers | LaterAnswers:
        """Queries that need no majority. Say `how`: "local" sees what was delivered here, "dirty" also what is not ordered yet
        and may come out otherwise. `at_least=offset` waits until what is at that offset was delivered here."""
        if at_least is not None and not how:
            return LaterAnswers(self, at_least)
        if how == "local":
            return Answers(self._application)
        if how == "dirty":
            return Answers(self._with_dirty())
        raise UsageError(f"read({how!r}): write read('local'), read('dirty') or read(at_least=offset)")

    def _with_dirty(self) -> Application:
        actions = [action for action in self._host.machine.dirty() if action.kind == Kind.DATA]
        state = (self._delivered.place, tuple(action.id for action in actions))
        if self._dirty is None or self._dirty[0] != state:
            twin = self._application.copy()
            for action in actions:
                twin.run(self.end, self._delivered.creator(action), action)
            self._dirty = (state, twin)
        return self._dirty[1]

    async def _until_delivered(self, offset: int) -> None:
        try:
            async with asyncio.timeout(remaining()):
                while self.end <= offset:
                    if self._delivered.failure is not None:
                        raise self._delivered.failure
                    await a_change(self._delivered.waiting)
        except TimeoutError:
            raise NotYet(f"offset {offset} was not delivered here yet, only what is before {self.end}") from None

    # --- by name --------------------------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = None if name.startswith("_") else self._application.methods.get(name)
        if method is None:
            kind = type(self)
            raise AttributeError(f"{kind.__name__!r} and the replicated class have no {name!r}", name=name, obj=self)
        if method.kind == "query":
            return lambda *args, **kwargs: self._ask(method, args, kwargs)
        return lambda *args, **kwargs: self._post(method, args, kwargs).result(remaining())

    def _method(self, function: Callable[..., Any], kind: str) -> Method:
        method = self._application.methods.get(getattr(function, "__name__", ""))
        if method is None or method.kind != kind:
            raise UsageError(f"{function!r} is no {kind} of {type(self._application.thing).__name__}")
        return method

    # --- snapshots ------------------------------------------------------------------------------------------------------

    def _hear(self, news: News) -> None:
        """While a snapshot is written or read, what is to be delivered waits, and nothing else."""
        if isinstance(news, Ordered | TakeSnapshot | LoadSnapshot):
            self._later.append(news)
            self._go_on()
        else:
            super()._hear(news)

    def _go_on(self) -> None:
        while self._later and self._work is None:
            super()._hear(self._later.popleft())

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._work = asyncio.ensure_future(work)
        self._work.add_done_callback(self._done)

    def _done(self, work: asyncio.Task[None]) -> None:
        self._work = None
        if not work.cancelled():
            work.result()
            self._go_on()

    def _take_snapshot(self, snapshot: Snapshot) -> None:
        self._begin(self._write_snapshot(snapshot))

    def _load_snapshot(self, snapshot: Snapshot) -> None:
        super()._load_snapshot(snapshot)
        self._snapshot_at = self.end
        self._begin(self._load(snapshot.base.place))

    async def _write_snapshot(self, snapshot: Snapshot) -> None:
        """The chunks are made here, where the state is, and written in a thread."""
        place = snapshot.base.place
        try:
            with self._host.files.begin(place) as file:
                head = msgspec.msgpack.encode(Head(self._application.time_us, self._recorded()))
                for chunk in chain([head], save(self._application.thing)):
                    await asyncio.to_thread(file.add, chunk)
                await asyncio.to_thread(file.finish)
            await asyncio.to_thread(self._host.files.publish, place)
        except Exception as error:
            self._trouble = f"no snapshot was taken at offset {self.end}: {plainly(error)}"
        else:
            self._trouble = ""
            self._host.snapshot_written(place)

    async def _load(self, place: int) -> None:
        try:
            await self._restore(place)
        except TransisError as error:
            self._host.end(str(error))
        except Exception as error:
            self._host.end(f"the snapshot at place {place} is none of this class: {error!r}")

    async def _restore(self, place: int) -> None:
        chunks = await asyncio.to_thread(list, self._host.files.read(place))
        head = msgspec.msgpack.decode(chunks[0], type=Head)
        self._application.time_us = head.time_us
        self._results = {offset: [_outcome(*one) for one in outcomes] for offset, outcomes in head.results}
        try:
            restore(self._application.thing, chunks[1:])
        except Exception as error:
            name = type(self._application.thing).__name__
            raise ReplicaError(f"{name} does not take its own snapshot: {type(error).__name__}: {error}") from error

    def _recorded(self) -> tuple[tuple[int, tuple[Recorded, ...]], ...]:
        return tuple((offset, tuple(map(_recorded, outcomes))) for offset, outcomes in self._results.items())

    # --- for the host -----------------------------------------------------------------------------------------------------

    def _ordered(self, news: Ordered) -> None:
        results: list[Outcome] = []
        if news.effect == Effect.RUN and news.action.kind == Kind.DATA:
            results = self._application.run(news.offset, self._delivered.creator(news.action), news.action)
            if news.action.key:
                self._remember(news.offset, results)
        elif news.effect == Effect.AGAIN:
            results = self._results[news.first]
        self._note(news, results)
        if self.end - self._snapshot_at >= self._snapshot_every:
            self._snapshot_at = self.end
            asyncio.get_running_loop().call_soon(self._host.take_snapshot)

    def _remember(self, offset: int, results: list[Outcome]) -> None:
        """As long as the key is remembered, and dropped with it (prsl/keys.py)."""
        self._results[offset] = results
        if len(self._results) > self._keys_max:
            del self._results[next(iter(self._results))]


class Answers:
    """Queries of a replicated object, answered at once."""

    def __init__(self, application: Application) -> None:
        self._application = application

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = _query(self._application, name, self)
        return lambda *args, **kwargs: self._application.ask(method, args, kwargs)


class LaterAnswers:
    """Queries of a replicated object, to be awaited."""

    def __init__(self, machine: ReplicaMachine[Any], offset: int) -> None:
        self._machine = machine
        self._offset = offset

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = _query(self._machine._application, name, self)

        async def answer(*args: Any, **kwargs: Any) -> Any:
            await self._machine._until_delivered(self._offset)
            return self._machine._application.ask(method, args, kwargs)

        return answer


def _query(application: Application, name: str, asked: object) -> Method:
    method = None if name.startswith("_") else application.methods.get(name)
    if method is None or method.kind != "query":
        raise AttributeError(f"{type(application.thing).__name__} has no query {name!r}", name=name, obj=asked)
    return method
