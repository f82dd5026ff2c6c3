"""A toy language for histories: one line per life of a node, so that a whole case is read at a glance.

    a: R4{a,b} s1 s2! d1 d2 T6{a} R8{a}
    b: R4{a,b} d1 x

R4{a,b}   installs the regular configuration 4 with these members; the first of them represents it (R4@b{..}: b does)
T6{a}     installs the transitional configuration 6 after the regular one in force
R4~3{a>2} that says that its regular configuration is 3, and that a came from 2 (both represented by its own representative);
R4(x){a}  that says that x is its cause
s1 s1! s1~ s1?   submits and sends message 1 as agreed, safe, causal, basic; its place on its ring is 1
u1        only submits it; o1 only sends it (with the same marks); r1 refuses it
s1@R3     claims to send in the regular configuration 3 (of the representative of that in force)
d1        delivers message 1; d1=7 claims that its place is 7, d1@R3 that it does so in 3; d9<b delivers one that b never sent
x z ?     failed, stopped, ended nobody knows how;  g  a gap in the trace;  f(words)  a fault;  +500  time passes
a2        as a name: the second incarnation of a

Words about client processes and groups are in toy_groups.py, words about replicas in toy_replicas.py.
"""

from __future__ import annotations

import re
from functools import partial
from typing import NamedTuple

from tests.guarantees.toy_groups import WORD, Groups, address_of, event_of
from tests.guarantees.toy_groups import Sent as SentHere
from tests.guarantees.toy_replicas import step_of
from transis.audit.guarantees import Report, check
from transis.trace.events import Conf, Delivery, End, Event, Fault, Gap, History, NodeTrace, Refuse, Sent, Submit, is_ordered
from transis.types.ids import MessageId, NodeId, Place, ProcessId, Service, ViewId, ViewKind
from transis.types.views import Cause, Member, View

MARKS = {"": Service.AGREED, "!": Service.SAFE, "~": Service.CAUSAL, "?": Service.BASIC}
ENDS = {"x": "failed", "z": "stopped", "?": "unknown"}
TOKEN = re.compile(r"f\([^)]*\)|\S+")


class Message(NamedTuple):
    id: MessageId
    service: Service
    address: bytes = b""


def node(name: str) -> NodeId:
    incarnation = int(name[1:] or 1)
    return NodeId(name[0], incarnation, 100 * incarnation + ord(name[0]))


def view_id(token: str) -> ViewId:
    kind = ViewKind.REGULAR if token[0] == "R" else ViewKind.TRANSITIONAL
    rep = re.search(r"@(\w+)", token)
    number = re.match(r"[RT](\d+)", token)
    assert number is not None
    return ViewId(kind, int(number[1]), node(rep[1]) if rep else node(members(token)[0]))


def members(token: str) -> list[str]:
    return [member.split(">")[0] for member in token[token.index("{") + 1 : -1].split(",")]


def origins(token: str) -> dict[str, ViewId]:
    """What a token says itself about where members come from."""
    said = (member.split(">") for member in token[token.index("{") + 1 : -1].split(",") if ">" in member)
    return {name: view_id(token)._replace(kind=ViewKind.REGULAR, seq=int(number)) for name, number in said}


class Toy:
    """Compiles the lines of one history."""

    def __init__(self, text: str) -> None:
        lines = [line.strip() for line in text.replace(" / ", "\n").strip().splitlines() if line.strip()]
        self.scripts = {line.split(":")[0]: TOKEN.findall(line.split(":", 1)[1]) for line in lines}
        self.messages = self._messages()
        self.groups = Groups(self.scripts, node, view_id)

    def history(self, closed: bool = True, promises: str = "evs", engine: str = "totem") -> History:
        nodes = [NodeTrace(node(name), _Line(self, name, engine).compile()) for name in self.scripts]
        return History(nodes, closed, promises, engine)

    def _messages(self) -> dict[str, Message]:
        found: dict[str, Message] = {}
        for name, tokens in self.scripts.items():
            counter = 0
            for token in tokens:
                sent = re.fullmatch(r"([suor])(\d+)([!~?]?)(?:@R\d+)?(@[a-z]\S*)?", token)
                if sent and sent[2] not in found:
                    counter += 1
                    id = MessageId(ProcessId(node(name), 0), counter)
                    found[sent[2]] = Message(id, MARKS[sent[3]], address_of(sent[4], node))
        return found

    def _previous(self, member: str, ring: ViewId) -> ViewId | None:
        """The regular configuration from which a member comes into `ring`, as its own line tells."""
        before = None
        for token in self.scripts.get(member, []):
            if token[0] == "R":
                if view_id(token) == ring or view_id(token).seq >= ring.seq:
                    return before
                before = view_id(token)
        return before

    def view_of(self, token: str, regular: ViewId | None) -> View:
        own, claimed, cause = view_id(token), re.search(r"~(\d+)", token), re.search(r"\((\w+)\)", token)
        regular = own if own.is_regular else regular
        if claimed:
            regular = own._replace(kind=ViewKind.REGULAR, seq=int(claimed[1]))
        assert regular is not None
        said = origins(token)
        known = {name: self._previous(name, own) if own.is_regular else regular for name in members(token)}
        joined = tuple(Member(node(name), "", said.get(name, origin)) for name, origin in known.items())
        return View(own, regular, joined, Cause(cause[1] if cause else "toy"), 0)


class _Line:
    def __init__(self, toy: Toy, name: str, engine: str) -> None:
        self.toy = toy
        self.engine = engine
        self.name = name
        self.events: list[Event] = []
        self.now = 0
        self.conf = self.regular = ViewId(ViewKind.REGULAR, 0, node(name))
        self.installed = False
        self.tpos = 0
        self.delivered: dict[str, int] = {}

    def compile(self) -> list[Event]:
        for at, token in enumerate(self.toy.scripts[self.name]):
            self.now += 10
            if WORD.fullmatch(token):
                self._of_groups(token, at)
            elif token[0] == ".":
                self.events.append(step_of(token, self.name, self.lseq, self.now))
            else:
                self._token(token)
        return self.events

    @property
    def lseq(self) -> int:
        return len(self.events) + 1

    def _token(self, token: str) -> None:
        if token[0] in "RT":
            self._install(token)
        elif token in ENDS:
            self.events.append(End(self.lseq, self.now, ENDS[token]))
        elif token == "g":
            self.events.append(Gap(self.lseq, self.now, self.lseq, self.lseq))
        elif token[0] == "f":
            self.events.append(Fault(self.lseq, self.now, token[2:-1]))
        elif token[0] == "+":
            self.now += int(token[1:])
        elif token[0] == "d":
            self._deliver(token)
        else:
            self._send(token)

    def _of_groups(self, token: str, at: int) -> None:
        here, groups = node(self.name), self.toy.groups
        if token[0] == "V":
            self.events.append(groups.event(here, at, self.lseq, self.now))
        else:
            in_force = partial(groups.in_force, here, at)
            self.events.append(event_of(token, self.lseq, self.now, self._sent, in_force))

    def _sent(self, number: str) -> SentHere:
        (process, counter), _, address = self.toy.messages[number]
        return SentHere(process, counter, address, self.delivered.get(number, 0))

    def _install(self, token: str) -> None:
        view = self.toy.view_of(token, self.regular)
        self.conf = view.id
        if view.id.is_regular:
            self.regular, self.tpos = view.id, 0
        self.events.append(Conf(self.lseq, self.now, view))

    def _claimed(self, seq: str | None) -> ViewId | None:
        return None if seq is None else self.regular._replace(seq=int(seq))

    def _send(self, token: str) -> None:
        match = re.fullmatch(r"\D(\d+)[!~?]?(?:@R(\d+))?(?:@[a-z]\S*)?", token)
        assert match is not None
        number, conf = match[1], self._claimed(match[2]) or self.regular
        message = self.toy.messages[number]
        counter, service, address = message.id.counter, message.service, message.address
        if token[0] in "su":
            self.events.append(Submit(self.lseq, self.now, 0, counter, 1, service, address))
        if token[0] in "so":
            place = Place(int(number), 0)
            self.events.append(Sent(self.lseq, self.now, conf, 0, counter, 1, service, address, place, 0))
        if token[0] == "r":
            self.events.append(Refuse(self.lseq, self.now, 0, counter, 1, "toy"))

    def _deliver(self, token: str) -> None:
        match = re.fullmatch(r"d(\d+)(?:=(\d+))?(?:<(\w+))?(?:@R(\d+))?", token)
        assert match is not None
        number, place, stranger, claimed = match[1], int(match[2] or match[1]), match[3], self._claimed(match[4])
        message = Message(MessageId(ProcessId(node(stranger), 0), 900 + int(number)), Service.AGREED) if stranger else None
        (process, counter), service, address = message or self.toy.messages[number]
        self.delivered[number] = self.lseq
        tpos = -1
        if is_ordered(service, self.engine):
            tpos, self.tpos = self.tpos, self.tpos + 1
        self.events.append(
            Delivery(
                *(self.lseq, self.now, claimed or self.conf, claimed or self.regular),
                *(process, counter, 1, service, address, Place(place, 0), tpos, 0, 0, 0),
            )
        )


def history(text: str, closed: bool = True, promises: str = "evs") -> History:
    return Toy(text).history(closed, promises)


def report(text: str, closed: bool = True) -> Report:
    return check(history(text, closed))


def broken(text: str, closed: bool = True) -> set[str]:
    return set(report(text, closed).broken)


def word(text: str, name: str, closed: bool = True) -> str:
    """The verdict of one property."""
    return report(text, closed).verdicts[name].verdict
