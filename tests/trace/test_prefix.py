"""Prefix digests: however deliveries are cut, equal sequences have equal sums, and any other sequence has others."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from transis.trace.tape import EMPTY, FACTOR, PRIME, STEP_MAX, Digest, Prefixes, after, head_of
from transis.types.ids import Service

HEADS = [head_of(boot, number, service) for boot in (7, 1 << 63) for number in (0, 3) for service in Service]

Message = tuple[int, int]
messages = st.lists(st.tuples(st.sampled_from(HEADS), st.integers(1, 1 << 62)), max_size=60)
stretches = st.lists(st.tuples(st.sampled_from(HEADS), st.integers(1, 1 << 62), st.integers(1, 3000)), max_size=30)


def naive(sequence: list[Message]) -> Digest:
    """The sums as they are defined, message by message."""
    ids = [head + counter * FACTOR for head, counter in sequence]
    return Digest(len(ids), sum(ids) % PRIME, sum((i + 1) * one for i, one in enumerate(ids)) % PRIME)


def of(sequence: list[Message]) -> Digest:
    sums = EMPTY
    for head, counter in sequence:
        sums = after(sums, head, counter, 1)
    return sums


def singles(stretches: list[tuple[int, int, int]]) -> list[Message]:
    return [(head, first + i) for head, first, count in stretches for i in range(count)]


def test_heads_differ() -> None:
    assert len(set(HEADS)) == len(HEADS)


@given(stretches)
def test_the_closed_form_is_the_sum_over_messages(drawn: list[tuple[int, int, int]]) -> None:
    sums = EMPTY
    for stretch in drawn:
        sums = after(sums, *stretch)
    assert sums == naive(singles(drawn))


@given(stretches, st.integers(0, 40))
def test_what_is_told_inside_stretches_is_true(drawn: list[tuple[int, int, int]], doublings: int) -> None:
    prefixes, sequence = Prefixes(), singles(drawn)
    prefixes.step = 1 << (doublings // 2)
    told = [one for stretch in drawn for one in prefixes.add(*stretch)]
    assert told == [naive(sequence[: one.count]) for one in told]
    assert all(one.count % prefixes.step == 0 for one in told)
    assert prefixes.end() == naive(sequence)
    assert prefixes.end() == EMPTY


@given(messages, st.randoms(use_true_random=False))
def test_any_other_sequence_has_other_sums(sequence: list[Message], rng: Random) -> None:
    whole = of(sequence)
    if not sequence:
        return
    i, j = sorted((rng.randrange(len(sequence)), rng.randrange(len(sequence))))
    swapped = [*sequence[:i], sequence[j], *sequence[i + 1 : j], sequence[i], *sequence[j + 1 :]] if i < j else sequence
    assert (of(swapped) == whole) == (swapped == sequence)
    dropped = sequence[:i] + sequence[i + 1 :]
    assert (of(dropped) == of(sequence[:-1])) == (dropped == sequence[:-1])
    head, counter = sequence[i]
    for foreign in ((head, counter + 1), (HEADS[(HEADS.index(head) + 1) % len(HEADS)], counter)):
        assert of([*sequence[:i], foreign, *sequence[i + 1 :]])[1:] != whole[1:]
    doubled = [*sequence[: i + 1], *sequence[i:-1]]
    assert (of(doubled) == whole) == (doubled == sequence)


@given(st.integers(1, 5000), st.integers(0, 2**32), st.integers(0, 2**32), st.integers(0, 12), st.integers(0, 12))
def test_two_nodes_share_positions_whatever_their_cuts_and_steps(total: int, left: int, right: int, one: int, two: int) -> None:
    """Every multiple of the larger step, and of the longest stretch's power of two, is told by both."""
    told, longest = [], 1
    for seed, doublings in ((left, one), (right, two)):
        rng, prefixes, at, found = Random(seed), Prefixes(), 0, []
        prefixes.step = 1 << doublings
        while at < total:
            count = min(total - at, rng.randrange(1, 200))
            found += prefixes.add(HEADS[0], 1 + at, count)
            at, longest = at + count, max(longest, count)
        told.append(set(found))
    every = max(1 << one, 1 << two, 1 << (longest.bit_length() - 1))
    shared = {sums.count for sums in told[0] & told[1]}
    assert shared >= set(range(every, total + 1, every))


def test_the_step_follows_the_traffic() -> None:
    """Thousands a second: a few digests a second. One in a while: each is told. Where traffic ends is told, too."""
    prefixes, now, told = Prefixes(), 0, []
    for _ in range(200):
        now += 100_000
        told += [(now, one) for one in prefixes.add(HEADS[0], 1 + prefixes.sums.count, 5000) + prefixes.pace(now)]
    late = [one for at, one in told if at > 10_000_000]
    assert 5 <= len(late) <= 25
    assert prefixes.step <= STEP_MAX
    prefixes.add(HEADS[0], 1, 1)
    rest = [one for second in range(60) for one in prefixes.pace(now + second * 1_000_000)]
    now += 60_000_000
    assert rest == [prefixes.sums]
    assert prefixes.step == 1
    for _ in range(5):
        now += 3_000_000
        assert len(prefixes.add(HEADS[0], 1, 1)) == 1
        assert prefixes.pace(now) == []
