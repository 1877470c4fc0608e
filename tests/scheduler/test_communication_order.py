"""An order of communication for all programs of a run: found where there is one; nothing is changed without need."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distxla.compiler.compile import compile_module
from distxla.compiler.verify.world import verify_together, verify_world
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.oracle.lockstep import run_programs
from distxla.rewrites.async_computations import InlineAsync
from distxla.scheduler.communication_order import JointOrder, order_communication
from distxla.scheduler.deadlocks import examine
from distxla.scheduler.joint_order import order_search
from distxla.scheduler.verdict import Outcome
from distxla.text.parser import parse_module
from tests.deadlock_programs import (
    BY_INFEED,
    CASES,
    GOT,
    NAMED,
    SCHEDULED,
    SUM,
    Case,
    alone,
    by_device,
    exchange,
    looped,
    recv,
    recv_done,
    reduce,
    send,
    send_done,
)
from tests.samples import examples
from tests.scheduler.planted_programs import PlantedPrograms
from tests.scheduler.random_programs import RandomProgram

Programs = Sequence[tuple[Sequence[int], Module]]
RANK = [Outcome.DEADLOCK, Outcome.UNKNOWN, Outcome.SAFE]


def unscheduled(case: Case) -> list[tuple[tuple[int, ...], Module]]:
    return [(devices, module.replace(is_scheduled=False)) for devices, module in case.modules()]


def parsed(texts: Sequence[tuple[Sequence[int], str]]) -> list[tuple[Sequence[int], Module]]:
    return [(devices, parse_module(text, f"{chr(ord('a') + k)}.hlo")) for k, (devices, text) in enumerate(texts)]


def ordered(programs: Programs, replicas: int) -> tuple[Outcome, Outcome, JointOrder]:
    """What is known of the text's order and of the one that was found, which keeps all that it has to."""
    programs = [(devices, InlineAsync().run(module)) for devices, module in programs]
    order = order_communication(programs, Counts(replicas, 1))
    before = examine(programs, Counts(replicas, 1)).outcome
    after = examine([(d, m) for (d, _), m in zip(programs, order.modules, strict=True)], Counts(replicas, 1)).outcome
    assert RANK.index(after) >= RANK.index(before)
    assert order.is_changed is (after is not before)
    for (_, old), new in zip(programs, order.modules, strict=True):
        assert (new.is_scheduled, new.entry, new.source) == (old.is_scheduled, old.entry, old.source)
        assert new is old or not old.is_scheduled
        for one, other in zip(old.computations, new.computations, strict=True):
            assert (one.name, one.root) == (other.name, other.root)
            assert sorted(map(id, one)) == sorted(map(id, other))
            place = {i.name: k for k, i in enumerate(other)}
            for i in other:
                assert all(place[n] < place[i.name] for n in (*i.operands, *i.control_predecessors))
    return before, after, order


# cases that deadlock by the order of their instructions alone have one that is given
BY_ORDER = {case.name for case in CASES if case.deadlocks and all(m.is_scheduled for _, m in case.modules())}


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("name", [case.name for case in CASES])
def test_cases_without_a_schedule(name: str) -> None:
    """Those that deadlock by the order of their text run in another one; the data of others force theirs."""
    before, after, order = ordered(unscheduled(NAMED[name]), NAMED[name].replicas)
    if name in BY_ORDER:
        assert (before, after) == (Outcome.DEADLOCK, Outcome.SAFE)
    else:
        assert not order.is_changed


@pytest.mark.parametrize("name", sorted(BY_ORDER))
def test_schedules_are_taken_as_they_are(name: str) -> None:
    case = NAMED[name]
    assert ordered(case.modules(), case.replicas)[:2] == (Outcome.DEADLOCK, Outcome.DEADLOCK)


def free(*order: str) -> str:
    return exchange(*order).removeprefix(SCHEDULED)


TWO = "{{0,1},{2,3}}"
A, B = reduce("a", "p", TWO), reduce("b", "p")
BOTH = "ROOT r = f32[4] add(a, b)"
PAIRS = "{{0,1},{1,0}}"
IN_LOOP = "\n".join(
    ["t = token[] after-all()", recv("c", 1, PAIRS), recv_done("rd", "c", 1),
     send("s", 1, PAIRS).replace("(x,", "(v,"), send_done("sd", "s", 1), "u = f32[4] get-tuple-element(rd), index=0"]
)  # fmt: skip
FORCED = "\n".join(
    [recv("c", "1"), recv_done("rd", "c", "1"), "y = f32[4] get-tuple-element(rd), index=0",
     send("s", "2").replace("(x,", "(y,"), send_done("sd", "s", "2"), "ROOT r = f32[4] negate(y)"]
)  # fmt: skip
MIXED = "\n".join([reduce("a", "x"), recv("c", 1), recv_done("rd", "c", 1), GOT])
OTHER = "\n".join([send("s", 1), reduce("a", "x"), send_done("sd", "s", 1), "ROOT r = f32[4] negate(a)"])
LATE = "\n".join([reduce("a", "x"), send("s", 1), send_done("sd", "s", 1), "ROOT r = f32[4] copy(x)"])
EARLY = "\n".join([recv("c", 1), recv_done("rd", "c", 1), reduce("a", "x"), GOT])
CONTROLLED = LATE.replace("channel_id=1", "channel_id=1, control-predecessors={a}", 1)

TABLE = [  # name, devices, programs, found, moves: (program, instruction, before)
    ("only one of two changes", 2, [((0,), free("r1", "rd1", "s2", "sd2")), ((1,), free("r2", "rd2", "s1", "sd1"))],
     Outcome.SAFE, [(1, "s", "rd")]),
    ("the one that may change", 2, [((0,), free("r1", "rd1", "s2", "sd2")), ((1,), exchange("r2", "rd2", "s1", "sd1"))],
     Outcome.SAFE, [(0, "s", "rd")]),
    ("the other one that may change", 2,
     [((0,), exchange("r1", "rd1", "s2", "sd2")), ((1,), free("r2", "rd2", "s1", "sd1"))],
     Outcome.SAFE, [(1, "s", "rd")]),
    ("what is safe stays", 2, [((0,), free("r1", "s2", "rd1", "sd2")), ((1,), free("r2", "rd2", "s1", "sd1"))],
     Outcome.SAFE, []),
    ("branches that meet in different orders", 4,
     [(range(4), by_device(f"{A}\n{B}\n{BOTH}", *[f"{B}\n{A}\n{BOTH}"] * 3))], Outcome.SAFE, [(0, "a", "b")]),
    ("branches of which the data force the order", 4,
     [(range(4), by_device(f"{A}\n{reduce('ROOT b', 'a')}", *[f"{B}\n{reduce('ROOT a', 'b', TWO)}"] * 3))],
     Outcome.DEADLOCK, []),
    ("one program whose devices all receive first", 2, [(range(2), alone("\n".join([
        recv("c", 1, PAIRS), recv_done("rd", "c", 1), send("s", 1, PAIRS), send_done("sd", "s", 1), GOT])))],
     Outcome.SAFE, [(0, "s", "rd")]),
    ("in a loop", 2, [(range(2), looped(IN_LOOP, "count = s32[] constant(3)"))], Outcome.SAFE, [(0, "s", "rd")]),
    ("in a loop that is too long to follow", 2, [(range(2), looped(IN_LOOP, "count = s32[] constant(100000000)"))],
     Outcome.SAFE, [(0, "s", "rd")]),
    ("in a loop that the infeed decides", 2, [(range(2), looped(IN_LOOP, BY_INFEED))], Outcome.UNKNOWN, []),
    ("data force both to receive first", 2,
     [((0,), alone(FORCED)), ((1,), alone(FORCED.replace("=1", "=9").replace("=2", "=1").replace("=9", "=2")))],
     Outcome.DEADLOCK, []),
    ("a round and a transfer", 2, [((0,), SUM + alone(EARLY)), ((1,), SUM + alone(LATE))], Outcome.SAFE,
     [(1, "s", "a")]),
    ("a round and a transfer, which has to wait for it", 2,
     [((0,), SUM + alone(EARLY)), ((1,), SUM + alone(CONTROLLED))], Outcome.SAFE, [(0, "a", "rd")]),
    ("a round and a transfer in an order that runs", 2, [((0,), SUM + alone(MIXED)), ((1,), SUM + alone(OTHER))],
     Outcome.SAFE, []),
]  # fmt: skip


@pytest.mark.parametrize(("name", "devices", "texts", "outcome", "moves"), TABLE, ids=[case[0] for case in TABLE])
def test_orders(name: str, devices: int, texts: list, outcome: Outcome, moves: list) -> None:  # type: ignore[type-arg]
    programs = parsed(texts)
    _, after, order = ordered(programs, devices)
    assert after is outcome
    assert [(move.program, move.instruction.name, move.first_of.name) for move in order.moves] == moves
    assert order.is_complete or outcome is not Outcome.DEADLOCK


def test_moves_name_places_in_the_text() -> None:
    order = order_communication(unscheduled(NAMED["ring_2"]), Counts(2, 1))
    assert [(str(m.location), str(m.first_location)) for m in order.moves] == [("b.hlo:7:3", "b.hlo:6:3")]


GROUPS = """sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
takes {
  t = token[] parameter(0)
  ROOT c = CONTEXT recv(t), channel_id=TAKEN
}
gives {
  x = f32[4] parameter(0)
  t = token[] parameter(1)
  s = CONTEXT send(x, t), channel_id=GIVEN
  n = f32[4] all-reduce(x), to_apply=sum
  ROOT o = (CONTEXT, f32[4]) tuple(s, n)
}
ENTRY main {
  x = f32[4] parameter(0)
  t = token[] after-all()
  b = ((token[]), CONTEXT, s32[]) async-start(t), calls=takes
  rd = CONTEXT async-done(b)
  g = ((f32[4], token[]), (CONTEXT, f32[4]), s32[]) async-start(x, t), calls=gives
  e = (CONTEXT, f32[4]) async-done(g)
  v = f32[4] get-tuple-element(rd), index=0
  n = f32[4] get-tuple-element(e), index=1
  ROOT r = f32[4] add(v, n)
}
""".replace("CONTEXT", "(f32[4], u32[], token[])")


def test_what_groups_begin_may_come_earlier() -> None:
    """A module that comes out of it can be sent to the compiler, and one that needs no other order is the given one."""
    texts = [GROUPS.replace("GIVEN", given).replace("TAKEN", taken) for given, taken in ("12", "21")]
    programs = parsed([([device], text) for device, text in enumerate(texts)])
    order = order_communication(programs, Counts(2, 1))
    assert order.is_safe
    (move,) = order.moves
    assert (move.instruction.name, move.first_of.name) == ("s", "c-done")
    assert [new is old for new, (_, old) in zip(order.modules, programs, strict=True)].count(True) == 1
    x = np.arange(4, dtype=np.float32)
    modules = pickle.loads(pickle.dumps(order.modules))
    assert modules == order.modules
    for modules_in_order in (order.modules, modules):
        verify_world([([device], module) for device, module in enumerate(modules_in_order)], Counts(2, 1))
    outs = run_programs(dict(enumerate(modules)), {0: [x], 1: [x + 1]}, Counts(2, 1))
    for device in range(2):
        np.testing.assert_array_equal(outs[device][0], x + 1 - device + 2 * x + 1)  # type: ignore[arg-type]
        assert compile_module(modules[device], Counts(2, 1)).sites


def test_what_was_found_is_remembered() -> None:
    programs = unscheduled(NAMED["ring_8"])
    order = order_communication(programs, Counts(8, 1))
    assert order_communication(programs, Counts(8, 1)) is order
    again = order_communication([(d, m) for (d, _), m in zip(programs, order.modules, strict=True)], Counts(8, 1))
    assert not again.is_changed


def by_channel(k: int) -> str:
    return f"{reduce(f'v{k}', 'p')}, channel_id={k + 1}"


def by_shape(k: int) -> str:
    shape = f"f32[{k + 1}]"
    return f"y{k} = {shape} broadcast(z), dimensions={{}}\n" + reduce(f"v{k}", f"y{k}").replace("f32[4]", shape)


def crossed(count: int, line: Callable[[int], str]) -> list[str]:
    """Two bodies with the same lines, in the other the last one first."""
    rounds = [line(k) for k in range(count)]
    return ["\n".join(["z = f32[] constant(1)", *lines, "ROOT r = f32[4] copy(p)"]) for lines in (rounds, rounds[::-1])]


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize(
    ("devices", "count", "line"),
    [(8, 200, by_channel), (8, 200, by_shape), (256, 300, by_shape), (256, 1000, by_channel)],
)
def test_many_rounds_in_reverse_order(devices: int, count: int, line: Callable[[int], str]) -> None:
    """Far too many for one exchange after the other."""
    programs = parsed([(range(devices), by_device(*crossed(count, line) * (devices // 2)))])
    began = time.process_time()
    order = order_communication(programs, Counts(devices, 1))
    assert order.is_safe
    assert time.process_time() - began < 20
    assert [move.first_of.name for move in order.moves] == [f"v{count - 1}"] * (count - 1)
    found = [(range(devices), order.modules[0])]
    assert examine(found, Counts(devices, 1)).outcome is Outcome.SAFE


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("first_is_scheduled", [False, True])
def test_many_rounds_of_two_programs(first_is_scheduled: bool) -> None:
    """In loops, too, and with one of them as it stands: the other one takes its order."""
    one, other = crossed(300, by_channel)
    texts = [
        (devices, looped(body.replace("(p)", "(v)").replace("ROOT r", "u"), "count = s32[] constant(3)"))
        for devices, body in ((range(4), one), (range(4, 8), other))
    ]
    programs = parsed(texts)
    programs[0] = (programs[0][0], programs[0][1].replace(is_scheduled=first_is_scheduled))
    before, after, order = ordered(programs, 8)
    assert (before, after) == (Outcome.DEADLOCK, Outcome.SAFE)
    assert {move.program for move in order.moves} == {1}


def test_many_transfers_that_are_all_received_first() -> None:
    """Both sides of each; the text's order of transfers stays where it can."""
    bodies: list[list[str]] = [[], []]
    for k in range(1, 601):
        receives, sends = bodies[k % 2], bodies[1 - k % 2]
        receives += [recv(f"c{k}", k), recv_done(f"rd{k}", f"c{k}", k)]
        sends += [send(f"s{k}", k), send_done(f"sd{k}", f"s{k}", k)]
    bodies[0] += ["ROOT r = f32[4] copy(x)"]
    bodies[1] += ["ROOT r = f32[4] copy(x)"]
    programs = parsed([((d,), alone("\n".join(lines))) for d, lines in enumerate(bodies)])
    assert ordered(programs, 2)[1] is Outcome.SAFE


def planted(data: st.DataObject, steps: int) -> None:
    """Programs that have been made from an order in which they run are given one."""
    devices = data.draw(st.integers(2, 4), label="devices")
    in_branches = data.draw(st.booleans(), label="in branches")
    texts = PlantedPrograms(lambda count: data.draw(st.integers(0, count - 1)), devices, in_branches, steps).texts()
    programs = parsed(texts)
    order = ordered(programs, devices)[2]
    found = [(d, m) for (d, _), m in zip(programs, order.modules, strict=True)]
    assert examine(found, Counts(devices, 1)).outcome is Outcome.SAFE, "\n".join(text for _, text in texts)
    verify_together(found, Counts(devices, 1))
    by_device_ = {device: module for ids, module in found for device in ids}
    arguments = {device: [np.full(4, 1 + device, np.float32)] for device in range(devices)}
    run_programs(by_device_, arguments, Counts(devices, 1), time_limit=60)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_an_order_is_found_where_there_is_one(data: st.DataObject) -> None:
    planted(data, 8)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_whole_orders_run(monkeypatch: pytest.MonkeyPatch, data: st.DataObject) -> None:
    """Also where nothing was tried before them."""
    monkeypatch.setattr(order_search, "SINGLY", 0)
    planted(data, 8)


@pytest.mark.exhaustive
@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_an_order_is_found_in_many_programs(data: st.DataObject) -> None:
    planted(data, 12)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_random_programs_are_never_worse_than_before(data: st.DataObject) -> None:
    devices = data.draw(st.integers(2, 4), label="devices")
    module = parse_module(RandomProgram(lambda strategy: data.draw(strategy), devices).text(), "random.hlo")
    ordered([(range(devices), module)], devices)
