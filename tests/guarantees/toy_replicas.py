"""Words of the toy language about replicas (toy.py). They begin with a dot, and all are about the group g.

.o3         the directory was opened with an order of 3 on its disk
.p1:2<1:1,2:4   action 1:2 got its number; its poster could have seen 1:1 and 2:4
.a1:2 .r1:2     it was accepted, refused
.d1:2=5     it was ordered at place 5, at offset 5; .d1:2=5/7 at offset 7; .d1:2=5!x leaves the state x behind it
.d1:2=5*k   with the client key k, and it ran; .d1:2=5*k~again, too_late, void
.s5#1       replica 1 has the order on its disk up to 5;  .t5{1,2}  says that 1 and 2 have it
.P4@7       is in primary 4, in view 7;  .R5  is at rest at place 5;  .L#1 .E#1  the directory of replica 1 is lost, 1 has left
"""

from __future__ import annotations

import re

from transis.trace.events import ReplicaStep

WHATS = {
    "o": "opened",
    "p": "posted",
    "a": "accepted",
    "r": "refused",
    "d": "ordered",
    "s": "synced",
    "t": "stable",
    "P": "primary",
    "R": "rest",
    "L": "lost",
    "E": "left",
}
STEP = re.compile(
    r"\.([oparsdtPRLE])(?:(\d+):(\d+)|(\d+))?(?:=(\d+))?(?:/(\d+))?(?:!(\w+))?(?:\*(\w+))?(?:~(\w+))?"
    r"(?:#(\d+))?(?:@(\d+))?(?:\{([\d,]+)\})?(?:<([\d:,]+))?"
)


def step_of(token: str, name: str, lseq: int, now: int) -> ReplicaStep:
    match = STEP.fullmatch(token)
    assert match is not None, token
    what, creator, action, plain, place, offset, state, key, effect, number, tag, members, seen = match.groups()
    about = ReplicaStep(lseq, now, "g", name[0], name[0].encode(), WHATS[what])
    if creator:
        about = about._replace(creator=int(creator), number=int(action))
    elif what == "P":
        about = about._replace(number=int(plain))
    elif plain:
        about = about._replace(place=int(plain))
    if place:
        about = about._replace(place=int(place), offset=int(offset or place), count=1, effect=effect or "run")
        about = about._replace(state=(state or place).encode(), key=(key or "").encode())
    pairs = tuple((int(one), int(two)) for one, two in (pair.split(":") for pair in seen.split(","))) if seen else ()
    tuples = {"seen": pairs, "members": tuple(map(int, members.split(","))) if members else ()}
    return about._replace(**tuples, tag=int(tag or 0), **({"number": int(number)} if number else {}))
