"""Results in the memory of donated parameters: the bits are those of results with memory of their own."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from distxla.compiler.compile import compile_module, planned
from distxla.compiler.pipeline import Pipeline
from distxla.compiler.plan.buffers import Copy
from distxla.compiler.verify.aliases import in_place_pairs
from distxla.compiler.verify.verifier import verify_module
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.program.artifact import CompiledProgram
from distxla.program.options import CompileOptions
from distxla.text.parser import parse_module
from tests.compiler.runner import Devices
from tests.fuzz.xla.program import RandomProgram
from tests.gpu_driver import gpu_driver  # noqa: F401 - a fixture

Array = np.ndarray[Any, Any]
SEEDS = 20
XY = "x = f32[8] parameter(0)\n y = f32[8] parameter(1)\n"
ADD = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\n"

# body of the entry, computations before it
PROGRAMS = {
    "computed over itself": (XY + "a = f32[8] add(x, y)\n ROOT t = (f32[8]) tuple(a)", ""),
    "both change places": (XY + "ROOT t = (f32[8], f32[8]) tuple(y, x)", ""),
    "passed on": (XY + "ROOT t = (f32[8], f32[8]) tuple(x, y)", ""),
    "one of them twice": (XY + "ROOT t = (f32[8], f32[8], f32[8]) tuple(y, y, x)", ""),
    "read after the result is there": (
        XY + "a = f32[8] add(x, y)\n r = f32[8] reverse(x), dimensions={0}\n"
        "m = f32[8] multiply(r, a)\n ROOT t = (f32[8], f32[8]) tuple(a, m)",
        "",
    ),
    "read backwards": (XY + "r = f32[8] reverse(x), dimensions={0}\n ROOT t = (f32[8], f32[8]) tuple(r, y)", ""),
    "each from the other": (
        XY
        + "a = f32[8] subtract(x, y)\n b = f32[8] reverse(x), dimensions={0}\n ROOT t = (f32[8], f32[8]) tuple(b, a)",
        "",
    ),
    "updated": (
        XY + "z = s32[] constant(3)\n p = f32[2] slice(y), slice={[0:2]}\n"
        "u = f32[8] dynamic-update-slice(x, p, z)\n ROOT t = (f32[8], f32[8]) tuple(u, y)",
        "",
    ),
    "updated, and read": (
        XY + "z = s32[] constant(3)\n p = f32[2] slice(y), slice={[0:2]}\n"
        "u = f32[8] dynamic-update-slice(x, p, z)\n d = f32[8] subtract(u, x)\n"
        "ROOT t = (f32[8], f32[8]) tuple(u, d)",
        "",
    ),
    "the state of a loop that is updated": (
        XY + "n = s32[] constant(0)\n s = (s32[], f32[8]) tuple(n, x)\n"
        "w = (s32[], f32[8]) while(s), condition=less1, body=turn1\n"
        "a = f32[8] get-tuple-element(w), index=1\n ROOT t = (f32[8], f32[8]) tuple(a, y)",
        "less1 { s = (s32[], f32[8]) parameter(0)\n i = s32[] get-tuple-element(s), index=0\n"
        " three = s32[] constant(3)\n ROOT c = pred[] compare(i, three), direction=LT }\n"
        "turn1 { s = (s32[], f32[8]) parameter(0)\n i = s32[] get-tuple-element(s), index=0\n"
        " one = s32[] constant(1)\n j = s32[] add(i, one)\n x = f32[8] get-tuple-element(s), index=1\n"
        " p = f32[2] constant({5, 6})\n u = f32[8] dynamic-update-slice(x, p, j)\n"
        " ROOT t = (s32[], f32[8]) tuple(j, u) }\n",
    ),
    "the state of a loop": (
        XY + "n = s32[] constant(0)\n s = (s32[], f32[8], f32[8]) tuple(n, x, y)\n"
        "w = (s32[], f32[8], f32[8]) while(s), condition=less, body=turn\n"
        "a = f32[8] get-tuple-element(w), index=1\n b = f32[8] get-tuple-element(w), index=2\n"
        "ROOT t = (f32[8], f32[8]) tuple(b, a)",
        "less { s = (s32[], f32[8], f32[8]) parameter(0)\n i = s32[] get-tuple-element(s), index=0\n"
        " three = s32[] constant(3)\n ROOT c = pred[] compare(i, three), direction=LT }\n"
        "turn { s = (s32[], f32[8], f32[8]) parameter(0)\n i = s32[] get-tuple-element(s), index=0\n"
        " one = s32[] constant(1)\n j = s32[] add(i, one)\n x = f32[8] get-tuple-element(s), index=1\n"
        " y = f32[8] get-tuple-element(s), index=2\n r = f32[8] reverse(x), dimensions={0}\n"
        " a = f32[8] add(r, y)\n ROOT t = (s32[], f32[8], f32[8]) tuple(j, a, x) }\n",
    ),
    "two results of one kernel": (
        XY + "a = f32[8] subtract(x, y)\n b = f32[8] add(x, y)\n ROOT t = (f32[8], f32[8]) tuple(a, b)",
        "",
    ),
    "one operand twice": (XY + "a = f32[8] multiply(x, x)\n ROOT t = (f32[8], f32[8]) tuple(a, y)", ""),
    "read at another index, too": (
        XY + "r = f32[8] reverse(x), dimensions={0}\n a = f32[8] subtract(x, r)\n ROOT t = (f32[8]) tuple(a)",
        "",
    ),
    "one element for all": (
        XY + "s = f32[1] slice(x), slice={[7:8]}\n o = f32[] reshape(s)\n b = f32[8] broadcast(o), dimensions={}\n"
        "a = f32[8] add(x, b)\n ROOT t = (f32[8]) tuple(a)",
        "",
    ),
    "the second result reads the first's operand backwards": (
        XY + "a = f32[8] add(x, y)\n r = f32[8] reverse(x), dimensions={0}\n b = f32[8] subtract(y, r)\n"
        "ROOT t = (f32[8], f32[8]) tuple(a, b)",
        "",
    ),
    "by its sum": (
        XY + "z = f32[] constant(0)\n s = f32[] reduce(x, z), dimensions={0}, to_apply=add\n"
        "b = f32[8] broadcast(s), dimensions={}\n a = f32[8] divide(x, b)\n ROOT t = (f32[8], f32[8]) tuple(a, y)",
        ADD,
    ),
    "through views": (
        XY + "v = f32[2,4] reshape(x)\n n = f32[2,4] negate(v)\n w = f32[8] reshape(n)\n"
        "ROOT t = (f32[8], f32[8]) tuple(w, y)",
        "",
    ),
    "a column of a matrix": (
        XY + "v = f32[2,4] reshape(x)\n m = f32[4,2] transpose(v), dimensions={1,0}\n w = f32[8] reshape(m)\n"
        "a = f32[8] add(w, x)\n ROOT t = (f32[8]) tuple(a)",
        "",
    ),
    "updated by what is computed from it": (
        XY + "z = s32[] constant(3)\n p = f32[2] slice(y), slice={[0:2]}\n n = f32[8] negate(x)\n"
        "u = f32[8] dynamic-update-slice(n, p, z)\n ROOT t = (f32[8], f32[8]) tuple(u, y)",
        "",
    ),
    "narrow numbers between": (
        XY + "n = bf16[8] convert(x)\n m = bf16[8] multiply(n, n)\n a = f32[8] convert(m)\n"
        "ROOT t = (f32[8], f32[8]) tuple(a, y)",
        "",
    ),
    "summed up over all devices": (
        XY + "a = f32[8] all-reduce(x), replica_groups={{0,1}}, to_apply=add\n"
        "b = f32[8] subtract(a, y)\n ROOT t = (f32[8], f32[8]) tuple(a, b)",
        ADD,
    ),
    "sent to the other device": (
        XY + "a = f32[8] collective-permute(x), source_target_pairs={{0,1},{1,0}}\n"
        "b = f32[8] add(a, x)\n ROOT t = (f32[8], f32[8]) tuple(a, b)",
        "",
    ),
}


def module_of(body: str, before: str) -> Module:
    module = parse_module(f"HloModule m, replica_count=2\n{before}ENTRY e {{\n {body}\n}}\n")
    verify_module(module)
    return module


def run(program: CompiledProgram, args: list[list[Array]], *, in_place: bool) -> Any:
    devices = Devices(program, in_place=in_place)
    try:
        return devices(args)
    finally:
        devices.close()


def require_same_bits(module: Module, args: list[list[Array]], counts: tuple[int, int]) -> int:
    """With results in their own memory, in that of parameters, and in their own where the program allows the latter;
    the number of results that may be there."""
    pairs = in_place_pairs(module, range(len(args[0])))
    apart, shared = (
        compile_module(module, Counts(counts[0], counts[1]), CompileOptions(in_place=each)) for each in ((), pairs)
    )
    wanted = run(apart, args, in_place=False)
    for in_place in (True, False):
        got = run(shared, args, in_place=in_place)
        for mine, theirs in zip(got, wanted, strict=True):
            assert [a.tobytes() for a in mine] == [b.tobytes() for b in theirs]
    return len(pairs)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    args = [[np.arange(8, dtype=np.float32) * 3 + d, np.arange(8, dtype=np.float32) ** 2 - d] for d in range(2)]
    assert require_same_bits(module_of(*PROGRAMS[name]), args, (2, 1)) >= 1


@pytest.mark.sampled(one_in=18, first=("19",))
@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_programs(seed: int) -> None:
    program = RandomProgram(seed)
    module = parse_module(program.text)
    verify_module(module)
    require_same_bits(module, program.arguments(), (program.replicas, program.partitions))


def test_many_random_programs_compute_a_result_over_a_parameter() -> None:
    count = 0
    for seed in range(SEEDS):
        program = RandomProgram(seed)
        module = parse_module(program.text)
        pairs = in_place_pairs(module, range(sum(p.shape.leaf_count for p in module.entry_computation.parameters)))
        plan = planned(Pipeline(), module, Counts(program.replicas, program.partitions), in_place=pairs).plan
        count += bool(plan.in_place)
    assert count >= SEEDS // 6


COMPUTED_OVER = {  # results that are computed in the memory of a parameter, of the pairs (0, 0) and (1, 1)
    "updated": {0, 1},
    "passed on": {0, 1},
    "the state of a loop that is updated": {0, 1},
    "the state of a loop": set(),
    "computed over itself": {0},
    "two results of one kernel": {0, 1},
    "one operand twice": {0, 1},
    "read at another index, too": set(),
    "one element for all": set(),
    "the second result reads the first's operand backwards": {1},
    "through views": {0, 1},
    "a column of a matrix": set(),
    "updated by what is computed from it": {0, 1},
    "narrow numbers between": {0, 1},
    "both change places": set(),
    "updated, and read": {1},
}


@pytest.mark.parametrize("name", COMPUTED_OVER)
def test_nothing_is_copied_but_the_parameter_where_it_is_elsewhere(name: str) -> None:
    module = module_of(*PROGRAMS[name])
    plan = planned(Pipeline(), module, Counts(2, 1), in_place=in_place_pairs(module, (0, 1))).plan
    assert {result for result, _ in plan.in_place} == COMPUTED_OVER[name]
    copied = [(result, parameter) for result, parameter in plan.in_place if result in plan.copied]
    for result, parameter in copied:
        copies = [str(s.source) for s in plan.walk() if isinstance(s, Copy) and str(s.target) == f"result[{result}]"]
        assert copies == [f"parameter[{parameter}]"]


ALIKE = {name for name in COMPUTED_OVER if name not in ("passed on", "both change places")}


@pytest.mark.parametrize("name", [n for n in PROGRAMS if n in ALIKE])
def test_kernels_of_other_targets_agree(name: str, gpu_driver: None) -> None:  # noqa: F811
    """Kernels in a grid, and those in NumPy."""
    args = [[np.arange(8, dtype=np.float32) * 3 + d, np.arange(8, dtype=np.float32) ** 2 - d] for d in range(2)]
    module = module_of(*PROGRAMS[name])
    pairs = in_place_pairs(module, range(2))
    wanted = run(compile_module(module, Counts(2, 1)), args, in_place=False)
    for target in ("nvptx", "interpreted"):
        program = compile_module(module, Counts(2, 1), CompileOptions(target=target, in_place=pairs))
        for in_place in (True, False):
            got = run(program, args, in_place=in_place)
            for mine, theirs in zip(got, wanted, strict=True):
                assert [a.tobytes() for a in mine] == [b.tobytes() for b in theirs], target


def test_some_of_a_kernels_results_may_be_in_parameters_places() -> None:
    """The caller gives a place to one result, not to the other, of one kernel."""
    module = module_of(*PROGRAMS["two results of one kernel"])
    args = [[np.arange(8, dtype=np.float32) + d, np.full(8, 0.5, np.float32)] for d in range(2)]
    program = compile_module(module, Counts(2, 1), CompileOptions(in_place=((0, 0), (1, 1))))
    assert (program.in_place, program.copied) == (((0, 0), (1, 1)), ())
    for given in program.in_place:
        got = run(dataclasses.replace(program, in_place=(given,)), args, in_place=True)
        for (x, y), (difference, total) in zip(args, got, strict=True):
            np.testing.assert_array_equal(difference, x - y)
            np.testing.assert_array_equal(total, x + y)


def test_a_large_result_is_written_where_it_is_read() -> None:
    """In vectors, without a check of distances."""
    size = 100_003
    text = f"HloModule m\nENTRY e {{\n x = f32[{size}] parameter(0)\n ROOT a = f32[{size}] multiply(x, x)\n}}\n"
    program = compile_module(parse_module(text), Counts(1, 1), CompileOptions(in_place=((0, 0),)))
    x = np.linspace(-3, 3, size, dtype=np.float32)
    for in_place in (True, False):
        ((got,),) = run(program, [[x]], in_place=in_place)
        np.testing.assert_array_equal(got, x * x)


HEADERS = {
    "": ((0, 0), (1, 1)),
    ", input_output_alias={ {0}: (1, {}, may-alias) }": ((0, 1), (1, 0)),
    ", input_output_alias={ {1}: (0, {}, may-alias), {0}: (1, {}, must-alias) }": ((0, 1), (1, 0)),
    ", buffer_donor={ (0, {}) }": ((0, 0), (1, 1)),
}


@pytest.mark.parametrize("header", HEADERS)
def test_pairs_follow_the_header_and_then_the_order(header: str) -> None:
    body, _ = PROGRAMS["passed on"]
    module = parse_module(f"HloModule m{header}\nENTRY e {{\n {body}\n}}\n")
    assert in_place_pairs(module, (0, 1)) == HEADERS[header]
    assert in_place_pairs(module, ()) == ()


def test_pairs_are_of_one_type() -> None:
    text = "HloModule m\nENTRY e {\n x = f32[4] parameter(0)\n y = s32[4] parameter(1)\n z = f32[2,2] parameter(2)\n"
    text += " a = f32[2,2] negate(z)\n b = s32[4] negate(y)\n ROOT t = (f32[2,2], (s32[4])) tuple(a, u)\n}\n"
    text = text.replace(" ROOT t", " u = (s32[4]) tuple(b)\n ROOT t")
    assert in_place_pairs(parse_module(text), (0, 1, 2)) == ((0, 2), (1, 1))
