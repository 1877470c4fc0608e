"""What HLO the methods that are more than one instruction become, and how computations get into a module."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distxla as dx
from distxla.compiler.verify.verifier import verify_module
from distxla.ir.counts import Counts
from distxla.oracle.lockstep import run_reference
from distxla.text.parser import parse_module
from distxla.text.printer import print_module

B = Any
# program of x: f32[4,6] -> the opcodes after the parameter
LOWERINGS: list[tuple[str, Callable[[B, B], Any], str]] = [
    ("scalar", lambda b, x: x + 1, "constant broadcast add"),
    ("equal shapes", lambda b, x: x * x, "multiply"),
    ("vector", lambda b, x: b.add(x, np.zeros(4, np.float32), [0]), "constant broadcast add"),
    ("degenerate", lambda b, x: x[:1] + x, "slice reshape broadcast add"),
    ("collapse", lambda b, x: b.collapse(x, [0, 1]), "reshape"),
    ("reshape with dimensions", lambda b, x: b.reshape(x, [1, 0], [24]), "transpose reshape"),
    ("all_to_all along one", lambda b, x: b.all_to_all(x, 0, 0, 2), "all-to-all"),
    ("all_to_all along two", lambda b, x: b.all_to_all(x, 1, 0, 2), "reshape all-to-all transpose reshape"),
    ("cross_replica_sum", lambda b, x: b.cross_replica_sum(x), "all-reduce"),
    ("rng_bernoulli", lambda b, x: b.rng_bernoulli(0.5, "u32[3]"),
     "constant constant constant rng broadcast compare convert"),
    ("dot", lambda b, x: b.dot(x, x[0]), "slice reshape dot"),
    ("select of tuples", lambda b, x: b.select(True, (x, x), (x, x)),
     "constant tuple tuple" + 4 * " get-tuple-element" + " select select tuple"),
    ("reduce_all", lambda b, x: b.reduce_all(x, 0, operator.add), "constant reduce"),
    ("infeed", lambda b, x: b.infeed("f32[]"), "after-all infeed get-tuple-element get-tuple-element"),
    ("send", lambda b, x: b.send(x, 1), "after-all send send-done"),
    ("recv", lambda b, x: b.recv("f32[]", 1), "after-all recv recv-done get-tuple-element"),
    ("older dynamic_slice", lambda b, x: b.dynamic_slice(x, np.int32([1, 2]), [1, 1]),
     "constant slice reshape slice reshape dynamic-slice"),
    ("all_reduce of one element", lambda b, x: b.all_reduce((x,), operator.add),
     "tuple get-tuple-element all-reduce tuple"),
]  # fmt: skip


@pytest.mark.parametrize(("program", "opcodes"), [row[1:] for row in LOWERINGS], ids=[row[0] for row in LOWERINGS])
def test_lowering(program: Callable[[B, B], Any], opcodes: str) -> None:
    b = dx.XlaBuilder("lowering")
    program(b, b.parameter(0, "f32[4,6]"))
    module = b.build()
    verify_module(module)
    found = [i.opcode for i in module.entry_computation][1:]
    assert sorted(found) == sorted(opcodes.split())
    assert found[-1] == opcodes.split()[-1]


def test_the_older_sort_compares_in_the_total_order() -> None:
    b = dx.XlaBuilder("sort")
    b.sort(b.parameter(0, "bf16[4,3]"))
    text = print_module(b.build())
    assert "direction=LT, type=TOTALORDER" in text
    assert "dimensions={1}" in text


def test_computations_of_scalars_are_shared() -> None:
    """However often, and in whatever spelling, a program sums."""
    b = dx.XlaBuilder("shared")
    x = b.parameter(0, "f32[4,6]")
    b.all_reduce(b.reduce(b.reduce(x, 0, operator.add, [0]), 0, lambda p, q: p + q, [0]), operator.add)
    b.reduce(x, 0, lambda p, q: q + p, [0])
    module = b.build()
    assert len(module.computations) == 3
    verify_module(module)


def test_computations_may_be_modules_builders_functions_and_parsed_text() -> None:
    text = """HloModule doubled

FileNames
1 "user.py"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=1 function_name_id=1 line=5}

StackFrames
1 {file_location_id=1 parent_frame_id=1}

twice { p = f32[3] parameter(0)
  ROOT t = f32[3] add(p, p), metadata={stack_frame_id=1} }

ENTRY doubled { p = f32[3] parameter(0)
  ROOT c = f32[3] call(p), to_apply=twice }
"""
    b = dx.XlaBuilder("all")
    x = b.parameter(0, "f32[3]")
    sub = b.create_sub_builder("sub")
    sub.sub(sub.parameter(0, "f32[3]"), 1)
    parsed = parse_module(text)
    y = b.call(sub, b.call(parsed, b.call(parsed, b.call(lambda p: p * 3, b.call(sub.build(), x)))))
    module = b.build(y)
    verify_module(module)
    names = [c.name for c in module.computations]
    assert names == ["sub", "lambda", "twice", "doubled", "sub.1", "all"]  # one copy of the parsed module
    (metadata,) = [i.metadata for i in module["twice"] if i.metadata is not None]
    assert (metadata.get("source_file"), metadata.get("source_line")) == ("user.py", 5)
    (outs,) = run_reference(module, [[np.float32([1, 2, 3])]], Counts(1, 1))
    assert outs[0] is not None
    assert outs[0].tolist() == [-1, 11, 23]


def test_names_are_legal_and_unique() -> None:
    b = dx.XlaBuilder("2 x")
    x = b.parameter(0, "f32[2]", "a b")
    y = b.parameter(1, "f32[2]", "a b")
    z = b.parameter(2, "f32[2]", "f32")
    assert [b.name, x.name, y.name, z.name] == ["_2_x", "a_b", "a_b.1", "f32_"]
    b.map([x, y, z], lambda p, q, r: p + q * r)
    module = b.build()
    assert parse_module(print_module(module)) == module


@pytest.mark.parametrize(
    "word", ["inf", "maximal", "f32", "s4", "ROOT", "tuple", "replicated", "while", "metadata", "x.1"]
)
def test_xla_takes_the_names(word: str) -> None:
    pytest.importorskip("jax")
    from jaxlib import _hlo

    b = dx.XlaBuilder(word)
    b.parameter(0, "f32[2]", word)
    assert _hlo.hlo_module_from_text(print_module(b.build())).name == b.name


def test_build_may_be_repeated() -> None:
    b = dx.XlaBuilder("again")
    x = b.parameter(0, "f32[2]")
    first = b.build()
    y = x + 1
    assert str(b.get_program_shape().result) == str(b.get_shape(y)) == "f32[2]"
    assert first.entry_computation.root == x.name
    assert b.build(x) != b.build(y) == b.build()


def test_a_loop_of_collectives_runs() -> None:
    """Sub-computations with collectives, tuples and indices together."""
    b = dx.XlaBuilder("ring", replica_count=4, num_partitions=1)
    x = b.parameter(0, "s32[]", "x")

    def body(state: B) -> B:
        step, value, total = state
        moved = state.builder.collective_permute(value, [(d, (d + 1) % 4) for d in range(4)])
        return step + 1, moved, total + moved

    _, _, total = b.while_(lambda state: state[0] < 3, body, (0, x, x))
    module = b.build(total)
    verify_module(module)
    outs = run_reference(module, [[np.int32(1 << d)] for d in range(4)], Counts(4, 1))
    assert [int(row[0]) for row in outs if row[0] is not None] == [15] * 4
