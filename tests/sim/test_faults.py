"""Faults and plans as text: what is written down reads back the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transis.sim.faults import (
    MOMENTS,
    WEATHERS,
    Ambush,
    CopyDirectory,
    CrashNode,
    CutLink,
    Delay,
    HealNetwork,
    InjectedFault,
    LeaveCluster,
    MendLink,
    PartitionNetwork,
    PauseNode,
    RestartNode,
    ResumeNode,
    SendMessages,
    SlowNode,
    Weather,
    format_duration,
    format_rate,
    names_in,
    parse,
    parse_duration,
    parse_rate,
)
from transis.sim.plan import parse_plan, plan_text
from transis.sim.swarm import draw
from transis.types.ids import Service
from transis.types.outputs import Port

NAMES = st.sampled_from(["a", "b", "n07", "b+copy"])
LINK_ENDS = st.sampled_from(["a", "b", "*"])
PORTS = st.sampled_from([None, *Port])
TIMES = st.integers(0, 10**8)
PLAIN: st.SearchStrategy[InjectedFault] = st.one_of(
    st.builds(CrashNode, NAMES, st.integers(0, 30)),
    st.builds(RestartNode, NAMES, st.booleans()),
    *(st.builds(kind, NAMES) for kind in (CopyDirectory, LeaveCluster, PauseNode, ResumeNode)),
    st.builds(SlowNode, NAMES, TIMES),
    st.builds(SendMessages, NAMES, st.sampled_from(Service), st.integers(1, 99), st.integers(0, 9999)),
    st.builds(PartitionNetwork, st.lists(st.lists(NAMES, min_size=1).map(tuple), min_size=1).map(tuple)),
    st.just(HealNetwork()),
    st.builds(CutLink, LINK_ENDS, LINK_ENDS, PORTS),
    st.builds(MendLink, LINK_ENDS, LINK_ENDS, PORTS),
    st.builds(Weather, st.sampled_from(WEATHERS), st.integers(0, 1000)),
    st.builds(Delay, st.sampled_from(Port), TIMES),
)
FAULTS = PLAIN | st.builds(Ambush, NAMES, st.sampled_from(MOMENTS), PLAIN, TIMES)


@given(FAULTS)
def test_a_fault_reads_back_from_its_line(fault: InjectedFault) -> None:
    assert parse(str(fault)) == fault


@given(TIMES)
def test_a_duration_reads_back(time_us: int) -> None:
    assert parse_duration(format_duration(time_us)) == time_us


@given(st.integers(0, 1000))
def test_a_rate_reads_back(permille: int) -> None:
    assert parse_rate(format_rate(permille)) == permille


@pytest.mark.parametrize("seed", range(40))
def test_a_plan_reads_back_from_its_text(seed: int) -> None:
    plan = draw(seed)
    assert parse_plan(plan_text(plan)) == plan


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("explode a", "'explode' is not a fault"),
        ("crash", "expected 1 to 2 words"),
        ("cut a b", "source->target"),
        ("cut a->b wire", "not a port"),
        ("weather fog 3%", "not a kind of weather"),
        ("weather loss 300%", "more than 100%"),
        ("slow a 3", "not a duration"),
        ("send a loudly", "not a service"),
        ("restart a found", "'lost'"),
        ("on a Tuesday heal", "not a moment"),
    ],
)
def test_what_is_not_understood_is_named(line: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse(line)


def test_a_plan_names_the_line_that_is_wrong() -> None:
    with pytest.raises(ValueError, match=r"'config\.colour 3'"):
        parse_plan("names a\nconfig.colour 3")


def test_the_names_in_a_fault() -> None:
    assert names_in(parse("on a Recovery partition b,c | d")) == {"a", "b", "c", "d"}
    assert names_in(parse("cut a->*")) == {"a"}
    assert names_in(parse("heal")) == frozenset()
