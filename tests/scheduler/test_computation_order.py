"""Execution order: edges hold, effects keep their order, nothing moves without need, pairs start early and end late."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby

import pytest
from hypothesis import given, settings

from distxla.compiler.compile import optimised
from distxla.compiler.passes.expand import Expand
from distxla.compiler.verify.verifier import verify_module
from distxla.errors import DistxlaError, VerificationError
from distxla.ir.effects_order import effectful_computations, has_effects
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.order import ancestors, stable_order
from distxla.scheduler.computation_order import PAID, PAID_BYTES, schedule
from distxla.scheduler.program_order.memory import ModuleMemory
from distxla.scheduler.program_order.overlap import pairs_of
from distxla.text.parser import parse_module
from tests.samples import examples
from tests.scheduler.random_computations import computations

TEXT = """HloModule m
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = f32[] add(a, b) }
ENTRY e { x = f32[8] parameter(0)
 a = f32[8] negate(x)
 b = f32[8] all-reduce(x), replica_groups={}, to_apply=add
 c = f32[8] all-reduce(a), replica_groups={}, to_apply=add
 ROOT r = f32[8] add(b, c) }
"""


def test_a_good_order_stays():
    module = parse_module(TEXT, "<test>")
    scheduled = schedule(module)
    assert scheduled.is_scheduled
    assert scheduled.entry_computation is module.entry_computation


def test_effects_keep_their_order_where_others_move():
    module = parse_module(TEXT.replace("negate(x)", "negate(x), control-predecessors={x}"), "<test>")
    entry = module.entry_computation
    order = [entry[n] for n in ("x", "a", "b", "c", "r")]
    late = entry["a"].replace(control_predecessors=())
    # as a rewriting may leave it: `a` behind its user
    moved = stable_order([order[0], order[2], order[3], late, order[4]], [("b", "c")])
    assert [i.name for i in moved] == ["x", "b", "a", "c", "r"]


def test_loops_with_collectives_inside_have_a_place_in_the_order():
    text = """HloModule m
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = f32[] add(a, b) }
body { s = f32[8] parameter(0)
 ROOT r = f32[8] all-reduce(s), replica_groups={}, to_apply=add }
cond { s = f32[8] parameter(0)
 ROOT p = pred[] constant(false) }
ENTRY e { x = f32[8] parameter(0)
 w = f32[8] while(x), condition=cond, body=body
 c = f32[8] all-reduce(x), replica_groups={}, to_apply=add
 ROOT r = f32[8] add(w, c) }
"""
    names = [i.name for i in schedule(parse_module(text, "<test>")).entry_computation]
    assert names.index("w") < names.index("c")


def test_ancestors_are_transitive():
    entry = parse_module(TEXT, "<test>").entry_computation
    above = ancestors(entry.instructions)
    assert above["x"] == 0
    assert above["r"] == 0b1111


# --- any computation


def effects_of(module: Module) -> list[Instruction]:
    effectful = effectful_computations(module)
    return [i for i in module.entry_computation if has_effects(i, effectful)]


def keeps_edges(before: Module, after: Module) -> None:
    """Operands and control predecessors first; effects in order but for what only waits, which moves back."""
    old, new = before.entry_computation, after.entry_computation
    assert sorted(i.name for i in new) == sorted(i.name for i in old)
    position = {i.name: k for k, i in enumerate(new)}
    for i in old:
        assert all(position[name] < position[i.name] for name in (*i.operands, *i.control_predecessors))
    begun: list[Instruction] = []
    for i in effects_of(before):
        assert all(position[b.name] < position[i.name] for b in begun)
        if not i.op.only_waits:
            begun.append(i)


@given(computations())
@settings(max_examples=examples(80), deadline=None)
def test_any_computation_keeps_its_edges_and_needs_little_more(text):
    module = Expand().run(parse_module(text))
    scheduled = schedule(module)
    keeps_edges(module, scheduled)
    count = len(module.entry_computation.instructions)
    peak, least = (ModuleMemory(m).of(m.entry_computation).peak(range(count)) for m in (scheduled, module))
    pairs = bool(pairs_of(module.entry_computation))
    assert peak <= least + (max(PAID_BYTES, PAID * least) if pairs else 0)


@given(computations())
@settings(max_examples=examples(40), deadline=None)
def test_a_schedule_is_kept(text):
    module = parse_module(text.replace("HloModule m", "HloModule m, is_scheduled=true"))
    scheduled = optimised(module)
    assert scheduled.is_scheduled
    expanded = effects_of(Expand().run(module))
    found = [i.op.round_opcode for i in effects_of(scheduled)]
    # merged ones are neighbours
    assert [key for key, _ in groupby(found)] == [key for key, _ in groupby(i.op.round_opcode for i in expanded)]
    again = schedule(scheduled)
    assert [c.instructions for c in again.computations] == [c.instructions for c in scheduled.computations]


def test_a_schedule_is_kept_where_another_order_needs_less():
    lines = [f" a{k} = f32[65536] broadcast(p), dimensions={{}}" for k in range(8)]
    lines += [f" b{k} = f32[1024] slice(a{k}), slice={{[0:1024]}}" for k in range(8)]
    names = ", ".join(f"b{k}" for k in range(8))
    body = "\n".join([" p = f32[] parameter(0)", *lines, f" ROOT r = f32[8192] concatenate({names}), dimensions={{0}}"])
    free = parse_module(f"HloModule m\nENTRY e {{\n{body}\n}}\n")
    held = free.replace(is_scheduled=True)
    assert schedule(held).entry_computation is held.entry_computation
    order = [i.name for i in schedule(free).entry_computation]
    assert order.index("b0") < order.index("a7")


def test_users_ahead_of_operands_or_control_predecessors_are_errors_of_a_schedule():
    text = "HloModule m, is_scheduled=true\nENTRY e { x = f32[2] parameter(0)\n a = f32[2] negate(x)\n"
    text += " b = f32[2] negate(x), control-predecessors={a}\n ROOT r = f32[2] add(a, b) }\n"
    module = parse_module(text)
    x, a, b, r = module.entry_computation
    for order, message in [
        ((x, b, a, r), "b is scheduled before its control predecessor a"),
        ((x, a, r, b), "b is not defined before r in e"),
    ]:
        computation = replace(module.entry_computation, instructions=order)
        with pytest.raises(VerificationError, match=message):
            verify_module(module.replace(computations=(computation,)))
    with pytest.raises(DistxlaError, match=r"3:24: .* found 'b'"):
        parse_module(text.replace("negate(x)\n b", "negate(x), control-predecessors={b}\n b", 1))


# --- asynchronous pairs

HEAD = """HloModule m
sum { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = f32[] add(a, b) }
ENTRY e { x = f32[64,64] parameter(0)
 y = f32[64,64] parameter(1)
"""
MULTIPLY = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"


@dataclass
class Case:
    """A program and the order in which its kernels and communicating instructions are executed."""

    name: str
    body: str
    order: str


CASES = [
    Case(
        "started before what is computed meanwhile, ended before its first user",
        """ w = f32[64,64] dot(y, y), MULTIPLY
 n = f32[64,64] dot(x, x), MULTIPLY
 s = f32[64,64] all-reduce-start(n), to_apply=sum
 d = f32[64,64] all-reduce-done(s)
 u = f32[64,64] dot(d, d), MULTIPLY
 z = f32[64,64] dot(y, w), MULTIPLY
 ROOT r = f32[64,64] dot(u, z), MULTIPLY""",
        "n s w z d u r",
    ),
    Case(
        "a permute likewise",
        """ w = f32[64,64] dot(y, y), MULTIPLY
 s = (f32[64,64], f32[64,64]) collective-permute-start(x), source_target_pairs={{0,1},{1,0}}
 d = f32[64,64] collective-permute-done(s)
 u = f32[64,64] dot(d, w), MULTIPLY
 ROOT r = f32[64,64] dot(u, x), MULTIPLY""",
        "s w d u r",
    ),
    Case(
        "two at a time, each ended where it is needed",
        """ s = f32[64,64] all-reduce-start(x), to_apply=sum
 d = f32[64,64] all-reduce-done(s)
 s2 = f32[64,64] all-reduce-start(y), to_apply=sum
 d2 = f32[64,64] all-reduce-done(s2)
 u = f32[64,64] dot(d, d), MULTIPLY
 v = f32[64,64] dot(d2, u), MULTIPLY
 ROOT r = f32[64,64] dot(v, x), MULTIPLY""",
        "s s2 d u d2 v r",
    ),
    Case(
        "a second one that needs the first one's result",
        """ s = f32[64,64] all-reduce-start(x), to_apply=sum
 d = f32[64,64] all-reduce-done(s)
 s2 = f32[64,64] all-reduce-start(d), to_apply=sum
 d2 = f32[64,64] all-reduce-done(s2)
 z = f32[64,64] dot(y, y), MULTIPLY
 ROOT r = f32[64,64] dot(d2, z), MULTIPLY""",
        "s z d s2 d2 r",
    ),
    Case(
        "what begins keeps its order, and starts pass no synchronous round",
        """ c = f32[64,64] all-reduce(y), to_apply=sum
 s = f32[64,64] all-reduce-start(x), to_apply=sum
 d = f32[64,64] all-reduce-done(s)
 c2 = f32[64,64] all-reduce(c), to_apply=sum
 ROOT r = f32[64,64] dot(d, c2), MULTIPLY""",
        "c s c2 d r",
    ),
    Case(
        "transfers are posted early, a send-done comes last, a recv-done stays before what waits",
        """ t = token[] after-all()
 w = f32[64,64] dot(y, y), MULTIPLY
 rv = (f32[64,64], u32[], token[]) recv(t), PAIRS
 sd = (f32[64,64], u32[], token[]) send(x, t), PAIRS
 rd = (f32[64,64], token[]) recv-done(rv)
 dn = token[] send-done(sd)
 v = f32[64,64] get-tuple-element(rd), index=0
 c = f32[64,64] all-reduce(x), to_apply=sum
 ROOT r = (f32[64,64], f32[64,64], f32[64,64]) tuple(w, v, c)""",
        "rv sd w rd c dn",
    ),
]


def executed(module: Module) -> list[str]:
    computation = module.entry_computation
    memory = ModuleMemory(module).of(computation)
    return [i.name for i, runs in zip(computation, memory.runs, strict=True) if runs]


def paired(body: str) -> Module:
    pairs = "frontend_attributes={_xla_send_recv_source_target_pairs={{0,1},{1,0}}}"
    return parse_module(HEAD + body.replace("MULTIPLY", MULTIPLY).replace("PAIRS", pairs) + "}\n")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_pairs_start_early_and_end_late(case):
    module = paired(case.body)
    verify_module(module)
    scheduled = optimised(module)
    assert " ".join(executed(scheduled)) == case.order
    keeps_edges(Expand().run(module), scheduled)


def many(starts: str, ends: str, count: int, shape: str) -> str:
    lines = []
    for k in range(count):
        lines += [f" s{k} = {starts}", f" d{k} = {shape} {ends}(s{k})"]
    names = ", ".join(f"d{k}" for k in range(count))
    whole = ", ".join([shape] * count)
    return "\n".join([*lines, f" ROOT r = ({whole}) tuple({names})"])


@pytest.mark.parametrize(
    ("start", "end", "limit"),
    [
        ("f32[64,64] all-reduce-start(x), to_apply=sum", "all-reduce-done", 8),
        (
            "(f32[64,64], f32[64,64]) collective-permute-start(x), source_target_pairs={{0,1},{1,0}}",
            "collective-permute-done",
            4,
        ),
    ],
)
def test_no_more_rounds_are_in_flight_than_the_transport_has_room_for(start, end, limit):
    in_flight = most = 0
    for name in executed(optimised(paired(many(start, end, 20, "f32[64,64]")))):
        in_flight += 1 if name.startswith("s") else -1
        most = max(most, in_flight)
    assert most == limit


def test_fewer_rounds_are_in_flight_where_memory_is_short():
    """Sixteen gathers of 1 MiB, each read by one product: eight at a time would hold eight results."""
    lines = []
    for k in range(16):
        lines += [
            f" s{k} = (f32[128,512], f32[512,512]) all-gather-start(g), dimensions={{0}}, GROUPS",
            f" d{k} = f32[512,512] all-gather-done(s{k})",
            f" w{k + 1} = f32[512,512] dot(w{k}, d{k}), MULTIPLY",
        ]
    head = " g = f32[128,512] parameter(2)\n w0 = f32[512,512] parameter(3)\n"
    body = head + "\n".join(lines).replace("GROUPS", "replica_groups={{0,1,2,3}}")
    module = Expand().run(paired(body + "\n ROOT r = f32[512,512] negate(w16)"))
    scheduled = schedule(module)
    count = len(module.entry_computation.instructions)
    peak, least = (ModuleMemory(m).of(m.entry_computation).peak(range(count)) for m in (scheduled, module))
    assert least < peak <= least + max(PAID_BYTES, PAID * least)
    assert executed(scheduled)[:9] == ["s0", "d0", "s1", "w1", "d1", "s2", "w2", "d2", "s3"]


def test_more_transfers_than_may_be_in_flight_keep_the_order_of_the_text():
    """Ten sends before the first recv-done: none of them may be held back for an end that the text has later."""
    lines = [" t = token[] after-all()"]
    for k in range(10):
        lines += [
            f" rv{k} = (f32[64,64], u32[], token[]) recv(t), PAIRS",
            f" sd{k} = (f32[64,64], u32[], token[]) send(x, t), PAIRS",
        ]
    lines += [f" rd{k} = (f32[64,64], token[]) recv-done(rv{k})" for k in range(10)]
    lines += [f" dn{k} = token[] send-done(sd{k})" for k in range(10)]
    lines += [f" v{k} = f32[64,64] get-tuple-element(rd{k}), index=0" for k in range(10)]
    values, shapes = ", ".join(f"v{k}" for k in range(10)), ", ".join(["f32[64,64]"] * 10)
    module = paired("\n".join([*lines, f" ROOT r = ({shapes}) tuple({values})"]))
    scheduled = optimised(module)
    keeps_edges(module, scheduled)
    assert [n for n in executed(scheduled) if n[:2] in ("rv", "sd", "rd")] == [
        *(f"{kind}{k}" for k in range(10) for kind in ("rv", "sd")),
        *(f"rd{k}" for k in range(10)),
    ]
