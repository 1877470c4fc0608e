"""Which instructions share a loop, and that the bits stay."""

from __future__ import annotations

import pytest

from distxla.compiler.passes.dead_code import DeadCode
from distxla.compiler.passes.expand import Expand
from distxla.compiler.passes.fuse import Fuse
from distxla.compiler.passes.fuse_rows import FuseRows
from distxla.compiler.passes.simplify import Simplify
from distxla.compiler.verify.verifier import verify_module
from distxla.ir.module import Module
from distxla.ir.op import Lowering
from tests.compiler.passes.equivalence import assert_same, changed, opcodes

ADD = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\n"


def fused(entry: str, *, settings: Fuse | None = None) -> Module:
    text = f"HloModule m\n{ADD}ENTRY e {{\n{entry}\n}}\n"
    module = changed(text, settings or Fuse(), DeadCode())
    check_contract(module)
    assert_same(text, module)
    return module


def check_contract(module: Module) -> None:
    """What lower/ relies on: see compiler/passes/fuse.py."""
    for computation in module.computations:
        for instruction in computation:
            if instruction.opcode != "fusion":
                continue
            body = module[instruction.op.calls]
            root = body.root_instruction
            roots = [body[o] for o in root.operands] if root.opcode == "tuple" else [root]
            kinds = {r.op.lowering for r in roots}
            assert len(kinds) == 1
            if kinds == {Lowering.REDUCTION}:
                assert len({(body[r.operands[0]].shape.dims, r.op.dimensions) for r in roots}) == 1
            else:
                assert len({r.shape.dims for r in roots}) == 1
            for inner in body:
                if inner not in roots and inner is not root and not inner.op.role.is_parameter:
                    assert inner.op.lowering is Lowering.ELEMENT


def body(module: Module, name: str) -> list[str]:
    """Opcodes inside of the fusion of that name, or of the one that an element of that name comes from."""
    instruction = module.entry_computation[name]
    if instruction.opcode == "get-tuple-element":
        instruction = module.entry_computation[instruction.operands[0]]
    return opcodes(module, instruction.op.calls)


def test_a_chain_is_one_loop():
    module = fused(
        "x = f32[8,4] parameter(0)\na = f32[8,4] tanh(x)\nb = f32[8,4] multiply(a, x)\nROOT c = f32[8,4] negate(b)"
    )
    assert opcodes(module) == ["fusion"]
    assert body(module, "c") == ["tanh", "multiply", "negate"]


def test_producers_join_reductions():
    module = fused(
        "x = f32[8,4] parameter(0)\nz = f32[] constant(0)\na = f32[8,4] tanh(x)\n"
        "b = f32[8] reduce(a, z), dimensions={1}, to_apply=add\nROOT c = f32[8] negate(b)"
    )
    assert opcodes(module) == ["fusion", "fusion"]
    assert body(module, "b") == ["constant", "tanh", "reduce"] or body(module, "b") == ["tanh", "constant", "reduce"]


def test_cheap_producers_are_repeated_expensive_ones_are_not():
    entry = (
        "x = f32[8,4] parameter(0)\nz = f32[] constant(0)\na = f32[8,4] {op}(x)\n"
        "b = f32[8] reduce(a, z), dimensions={{1}}, to_apply=add\n"
        "c = f32[4,8] transpose(a), dimensions={{1,0}}\nROOT r = (f32[8], f32[4,8]) tuple(b, c)"
    )
    assert opcodes(fused(entry.format(op="negate"))) == ["fusion", "fusion", "tuple"]
    assert opcodes(fused(entry.format(op="tanh"))) == ["fusion", "fusion", "fusion", "tuple"]


def test_an_expensive_row_is_not_computed_for_every_element():
    module = fused(
        "x = f32[8] parameter(0)\ny = f32[8,64] parameter(1)\na = f32[8] exponential(x)\n"
        "b = f32[8,64] broadcast(a), dimensions={0}\nROOT c = f32[8,64] add(b, y)"
    )
    assert opcodes(module) == ["fusion", "fusion"]
    assert body(module, "c") == ["broadcast", "add"]


def test_one_loop_with_two_results():
    module = fused(
        "x = f32[8,4] parameter(0)\na = f32[8,4] tanh(x)\nb = f32[8,4] cosine(x)\n"
        "ROOT r = (f32[8,4], f32[8,4]) tuple(a, b)"
    )
    assert opcodes(module) == ["fusion", "get-tuple-element", "get-tuple-element", "tuple"]


def test_a_result_that_others_need_is_read_inline_by_its_neighbour():
    """tanh goes to memory for the dot, and 1 - tanh is computed in the same loop."""
    module = fused(
        "x = f32[4,4] parameter(0)\na = f32[4,4] tanh(x)\nb = f32[4,4] negate(a)\n"
        "ROOT d = f32[4,4] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    )
    assert opcodes(module) == ["fusion", "get-tuple-element", "get-tuple-element", "dot"]
    assert body(module, "a") == ["tanh", "negate", "tuple"]


def test_loops_do_not_wait_for_each_other():
    """a and c have equal dimension sizes and share x, but the dot between them needs a and feeds c."""
    module = fused(
        "x = f32[4,4] parameter(0)\na = f32[4,4] tanh(x)\n"
        "d = f32[4,4] dot(a, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        "s = f32[4,4] add(d, x)\nROOT c = (f32[4,4], f32[4,4]) tuple(a, s)"
    )
    assert opcodes(module) == ["fusion", "dot", "fusion", "tuple"]


def test_reductions_of_the_same_sizes_share_a_loop():
    module = fused(
        "x = f32[8,4] parameter(0)\nz = f32[] constant(0)\na = f32[8] reduce(x, z), dimensions={1}, to_apply=add\n"
        "q = f32[8,4] multiply(x, x)\nb = f32[8] reduce(q, z), dimensions={1}, to_apply=add\n"
        "ROOT r = (f32[8], f32[8]) tuple(a, b)"
    )
    assert opcodes(module) == ["fusion", "get-tuple-element", "get-tuple-element", "tuple"]


def test_views_of_memory_need_no_loop():
    module = fused("x = f32[8] parameter(0)\na = f32[2,4] reshape(x)\nROOT c = f32[2,4] tanh(a)")
    assert opcodes(module) == ["reshape", "fusion"]


def test_a_stencil_is_not_expanded_without_end():
    """Every step reads its operand at two indices; fused as a whole it would have 2^12 loads an element."""
    steps = ["x0 = f32[64] parameter(0)", "z = f32[] constant(0)"]
    for k in range(12):
        steps.append(f"p{k} = f32[65] pad(x{k}, z), padding=1_0")
        steps.append(f"l{k} = f32[64] slice(p{k}), slice={{[0:64]}}")
        steps.append(f"x{k + 1} = f32[64] subtract(x{k}, l{k})")
    module = fused("\n".join(steps).replace("x12 =", "ROOT x12 ="))
    assert 1 < opcodes(module).count("fusion") < 12
    assert all(len(c.instructions) < 100 for c in module.computations)


def test_large_constants_are_read_from_memory_small_ones_are_embedded():
    big = "{" + ",".join(str(k) for k in range(512)) + "}"
    module = fused(
        f"x = f32[512] parameter(0)\nc = f32[512] constant({big})\ns = f32[] constant(3)\n"
        "b = f32[512] broadcast(s), dimensions={}\na = f32[512] add(x, c)\nROOT r = f32[512] multiply(a, b)"
    )
    assert opcodes(module) == ["constant", "fusion"]
    assert "constant" in body(module, "r")


def test_loops_inside_of_control_structures_are_fused_reductions_are_left_alone():
    text = f"""HloModule m
{ADD}body {{ s = (s32[], f32[4]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 x = f32[4] get-tuple-element(s), index=1
 one = s32[] constant(1)
 j = s32[] add(i, one)
 y = f32[4] multiply(x, x)
 w = f32[4] add(y, x)
 ROOT t = (s32[], f32[4]) tuple(j, w) }}
cond {{ s = (s32[], f32[4]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 n = s32[] constant(3)
 ROOT l = pred[] compare(i, n), direction=LT }}
ENTRY e {{ x = f32[4] parameter(0)
 z = s32[] constant(0)
 i = (s32[], f32[4]) tuple(z, x)
 ROOT w = (s32[], f32[4]) while(i), condition=cond, body=body }}
"""
    module = changed(text, Fuse(), DeadCode(), Simplify())
    check_contract(module)
    assert_same(text, module)
    assert opcodes(module, "body").count("fusion") == 2
    assert "add" in [c.name for c in changed(text, Fuse()).computations]


def test_an_instruction_that_another_one_waits_for_keeps_its_name() -> None:
    module = fused("""
  x = f32[40] parameter(0)
  y = f32[40] parameter(1)
  n = f32[40] negate(x)
  e = f32[40] exponential(n)
  k = f32[] constant(2), control-predecessors={n}
  b = f32[40] broadcast(k), dimensions={}
  m = f32[40] multiply(y, b), control-predecessors={n}
  ROOT t = (f32[40], f32[40]) tuple(e, m)
""")
    verify_module(module)


@pytest.mark.parametrize("edge", ["k", "p"])
def test_control_edges_at_rows_are_kept(edge: str) -> None:
    text = f"""HloModule m
{ADD}
ENTRY e {{
  x = f32[4,64] parameter(0)
  z = f32[] constant(0)
  s = f32[4] reduce(x, z), dimensions={{1}}, to_apply=add
  b = f32[4,64] broadcast(s), dimensions={{0}}
  k = f32[4,64] subtract(x, b)
  p = f32[4,64] add(x, b)
  q = f32[4] reduce(k, z), dimensions={{1}}, to_apply=add
  w = f32[4] negate(q), control-predecessors={{{edge}}}
  ROOT t = (f32[4,64], f32[4,64], f32[4]) tuple(k, p, w)
}}
"""
    module = changed(text, Fuse(), FuseRows(), DeadCode())
    verify_module(module)
    assert_same(text, module)


@pytest.mark.parametrize(
    ("size", "between"),
    [
        (2048, ["fusion"]),  # it overlaps with the others' coming
        (16, []),  # and this is not worth a loop of its own
    ],
)
def test_instructions_between_start_and_done_of_a_collective_stay_there(size: int, between: list[str]) -> None:
    text = f"""HloModule m, replica_count=2
{ADD}ENTRY e {{
  x = f32[{size}] parameter(0)
  b = f32[] constant(3)
  s = f32[{size}] all-reduce-start(x), replica_groups={{}}, to_apply=add
  t = f32[{size}] tanh(x)
  u = f32[{size}] broadcast(b), dimensions={{}}
  d = f32[{size}] all-reduce-done(s)
  v = f32[{size}] multiply(t, u)
  ROOT r = f32[{size}] add(d, v)
}}
"""
    module = changed(text, Expand(), Fuse(), FuseRows(), DeadCode())
    check_contract(module)
    assert_same(text, module, replicas=2)
    found = opcodes(module)
    first, second = found.index("all-reduce-start"), found.index("all-reduce-done")
    assert found[first + 1 : second] == between
    assert found[second + 1 :] == ["fusion"]


def test_instructions_between_start_and_done_delay_no_start():
    text = f"""HloModule m, replica_count=2
{ADD}ENTRY e {{
  x = f32[2048] parameter(0)
  y = f32[2048] negate(x)
  s = f32[2048] all-reduce-start(y), replica_groups={{}}, to_apply=add
  t = f32[2048] tanh(y)
  d = f32[2048] all-reduce-done(s)
  ROOT r = (f32[2048], f32[2048]) tuple(d, t)
}}
"""
    module = changed(text, Expand(), Fuse(), FuseRows(), DeadCode())
    assert opcodes(module) == ["fusion", "all-reduce-start", "fusion", "all-reduce-done", "tuple"]
