"""Expansion: what stands for an expanded instruction, and what still refers to it."""

from __future__ import annotations

import pytest

from distxla.compiler.passes.expand import Expand
from distxla.compiler.passes.one_thread import OneThread
from distxla.compiler.pipeline import Pipeline
from distxla.compiler.verify.verifier import verify_module
from distxla.ir.module import Module
from distxla.ir.op import Lowering
from distxla.ops.all_gather import AllGather
from distxla.ops.support.collective_start_done import AsyncPart, async_part_of, whole
from distxla.text.parser import parse_module
from tests.compiler.passes.equivalence import changed, opcodes
from tests.ops import asynchronous_cases, batch_norm_cases, ragged_and_scaled_dot_cases, rng_cases, scan_cases

PROGRAMS = {
    **{name: text for name, (text, _) in {**asynchronous_cases.NATIVE, **asynchronous_cases.ALONE}.items()},
    **{name: text for name, (text, _) in scan_cases.CASES.items()},
    **{opcode: batch_norm_cases.program(opcode, "bf16", (4, 3, 2), 1) for opcode in batch_norm_cases.OPCODES},
    **{f"{e} {d}": rng_cases.program(e, d) for e, d in (("f16", "normal"), ("f64", "uniform"), ("s8", "uniform"))},
    "ragged rows": ragged_and_scaled_dot_cases.FREE[1].text("bf16", (300, 7)),
    "ragged sums": ragged_and_scaled_dot_cases.CONTRACTING[1].text("bf16", (3, 11, 7)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_verified_after_every_pass(name: str) -> None:
    module = OneThread().run(parse_module(PROGRAMS[name], "<test>"))
    verify_module(module)
    expanded = Expand().run(module)
    verify_module(expanded)
    assert not any(i.op.lowering is Lowering.EXPANSION for c in expanded.computations for i in c)
    assert Expand().run(expanded) is expanded
    Pipeline(verify=True).run(parse_module(PROGRAMS[name], "<test>"))


def test_nothing_to_expand() -> None:
    module = parse_module("HloModule m\nENTRY main {\n  x = f32[2] parameter(0)\n  ROOT y = f32[2] negate(x)\n}\n")
    assert Expand().run(module) is module


def test_the_result_has_the_name_and_the_place() -> None:
    text = batch_norm_cases.program("batch-norm-inference", "f32", (4, 3), 1)
    text = text.replace("feature_index=1", 'feature_index=1, metadata={op_name="layer/norm"}')
    before = parse_module(text, "<test>")
    after = changed(text, Expand())
    root = after.entry_computation.root_instruction
    assert root.name == before.entry_computation.root
    assert root.opcode == "add"
    added = [i for i in after.entry_computation if not i.op.role.is_parameter]
    assert {i.metadata.op_name for i in added if i.metadata} == {"layer/norm"}
    assert {i.span for i in added} == {before.entry_computation.root_instruction.span}


def _module(*lines: str) -> Module:
    add = "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = f32[] add(a, b)\n}\n"
    body = "\n".join(f"  {line}" for line in lines)
    return changed(f"HloModule m\n{add}ENTRY main {{\n{body}\n}}\n", Expand())


def test_start_and_done_of_a_collective_keep_the_names_of_a_pair() -> None:
    module = _module(
        "x = f32[2] parameter(0)",
        "s = (f32[2], f32[2]) all-gather-start(x), replica_groups={{0}}, dimensions={0}",
        "ROOT d = f32[2] all-gather-done(s)",
    )
    entry = module.entry_computation
    assert async_part_of(entry["s"].op) is AsyncPart.START
    assert str(entry["s"].shape) == "(f32[2], f32[2], u64[])"
    assert async_part_of(entry["d"].op) is AsyncPart.DONE
    assert entry["d"].operands == ("s",)
    assert (
        whole(entry["s"].op)
        == whole(entry["d"].op)
        == AllGather(
            dimensions=(0,),
            replica_groups=entry["s"].op.replica_groups,  # type: ignore[attr-defined]
        )
    )


def test_control_edges() -> None:
    """What came before comes before all that is added; what comes behind waits for what has effects."""
    module = _module(
        "x = f32[2] parameter(0)",
        "n = f32[2] negate(x)",
        "s = (f32[2], f32[2]) all-gather-start(x), replica_groups={{0}}, dimensions={0}, control-predecessors={n}",
        "m = f32[2] abs(x), control-predecessors={s}",
        "d = f32[2] all-gather-done(s)",
        "ROOT r = (f32[2], f32[2]) tuple(d, m)",
    )
    entry = module.entry_computation
    assert entry["s"].control_predecessors == ("n",)
    assert "s" in entry["m"].control_predecessors


def test_random_states_keep_their_order() -> None:
    """rng takes the state as rng-get-and-update-state does."""
    module = _module(
        "a = f32[] parameter(0)",
        "b = f32[] parameter(1)",
        "u = f32[2] rng(a, b), distribution=rng_uniform",
        "t = u64[2] rng-get-and-update-state(), delta=1",
        "v = f32[2] rng(a, b), distribution=rng_normal",
        "ROOT r = (f32[2], f32[2], u64[2]) tuple(u, v, t)",
    )
    states = [i.name for i in module.entry_computation if i.opcode == "rng-get-and-update-state"]
    assert states == ["u", "t", "v"]


def test_called_computations_stand_before_their_callers() -> None:
    module = Expand().run(parse_module(PROGRAMS["two carries"]))
    seen: set[str] = set()
    for computation in module.computations:
        assert all(name in seen for i in computation for name in i.op.called_computations)
        seen.add(computation.name)
    assert opcodes(module).count("while") == 1
