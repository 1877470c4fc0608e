"""Each rule: what it makes of an instruction, and that the bits stay."""

from __future__ import annotations

import pytest

from distxla.compiler.passes.dead_code import DeadCode
from distxla.compiler.passes.resolve_layouts import ResolveLayouts
from distxla.compiler.passes.simplify import Simplify
from tests.compiler.passes.equivalence import assert_same, changed, opcodes

# name -> (parameters and instructions, the last one the root; opcodes left)
CASES: dict[str, tuple[str, list[str]]] = {
    "tuple element": (
        """x = f32[3] parameter(0)
        t = (f32[3], f32[3]) tuple(x, x)
        ROOT g = f32[3] get-tuple-element(t), index=1""",
        [],
    ),
    "copy": (
        """x = f32[3] parameter(0)
        ROOT c = f32[3] copy(x)""",
        [],
    ),
    "same convert": (
        """x = f32[3] parameter(0)
        ROOT c = f32[3] convert(x)""",
        [],
    ),
    "reshape twice": (
        """x = f32[6] parameter(0)
        a = f32[2,3] reshape(x)
        ROOT b = f32[3,2] reshape(a)""",
        ["reshape"],
    ),
    "reshape back": (
        """x = f32[6] parameter(0)
        a = f32[2,3] reshape(x)
        ROOT b = f32[6] reshape(a)""",
        [],
    ),
    "reshape of one element": (
        """x = f32[] parameter(0)
        ROOT b = f32[1,1] reshape(x)""",
        ["broadcast"],
    ),
    "transpose twice": (
        """x = f32[2,3,4] parameter(0)
        a = f32[3,4,2] transpose(x), dimensions={1,2,0}
        ROOT b = f32[4,3,2] transpose(a), dimensions={1,0,2}""",
        ["transpose"],
    ),
    "transpose back": (
        """x = f32[2,3] parameter(0)
        a = f32[3,2] transpose(x), dimensions={1,0}
        ROOT b = f32[2,3] transpose(a), dimensions={1,0}""",
        [],
    ),
    "transpose of ones": (
        """x = f32[1,3,1] parameter(0)
        ROOT b = f32[3,1,1] transpose(x), dimensions={1,2,0}""",
        ["reshape"],
    ),
    "broadcast twice": (
        """x = f32[2] parameter(0)
        a = f32[2,3] broadcast(x), dimensions={0}
        ROOT b = f32[4,2,3] broadcast(a), dimensions={1,2}""",
        ["broadcast"],
    ),
    "broadcast of nothing new": (
        """x = f32[2,3] parameter(0)
        ROOT b = f32[2,3] broadcast(x), dimensions={0,1}""",
        [],
    ),
    "broadcast of one": (
        """x = f32[1] parameter(0)
        ROOT b = f32[5,1] broadcast(x), dimensions={1}""",
        ["reshape", "broadcast"],
    ),
    "whole slice": (
        """x = f32[4,3] parameter(0)
        ROOT b = f32[4,3] slice(x), slice={[0:4], [0:3]}""",
        [],
    ),
    "pad by nothing": (
        """x = f32[4] parameter(0)
        z = f32[] parameter(1)
        ROOT b = f32[4] pad(x, z), padding=0_0""",
        [],
    ),
    "concatenate one": (
        """x = f32[4] parameter(0)
        y = f32[0] parameter(1)
        ROOT b = f32[4] concatenate(y, x, y), dimensions={0}""",
        [],
    ),
    "reverse ones": (
        """x = f32[1,4] parameter(0)
        ROOT b = f32[1,4] reverse(x), dimensions={0}""",
        [],
    ),
    "select of equals": (
        """p = pred[4] parameter(0)
        x = f32[4] parameter(1)
        ROOT b = f32[4] select(p, x, x)""",
        [],
    ),
    "select by a constant": (
        """x = f32[4] parameter(0)
        y = f32[4] parameter(1)
        c = pred[] constant(false)
        p = pred[4] broadcast(c), dimensions={}
        ROOT b = f32[4] select(p, x, y)""",
        [],
    ),
    "add minus zero": (
        """x = f32[8] parameter(0)
        c = f32[] constant(-0.0)
        z = f32[8] broadcast(c), dimensions={}
        ROOT b = f32[8] add(x, z)""",
        [],
    ),
    "add zero stays": (
        """x = f32[8] parameter(0)
        c = f32[] constant(0)
        z = f32[8] broadcast(c), dimensions={}
        ROOT b = f32[8] add(x, z)""",
        ["constant", "broadcast", "add"],
    ),
    "add integer zero": (
        """x = s32[8] parameter(0)
        z = s32[8] constant({0,0,0,0,0,0,0,0})
        ROOT b = s32[8] add(z, x)""",
        [],
    ),
    "subtract zero": (
        """x = f32[8] parameter(0)
        c = f32[] constant(0)
        z = f32[8] broadcast(c), dimensions={}
        ROOT b = f32[8] subtract(x, z)""",
        [],
    ),
    "subtract minus zero stays": (
        """x = f32[8] parameter(0)
        c = f32[] constant(-0.0)
        z = f32[8] broadcast(c), dimensions={}
        ROOT b = f32[8] subtract(x, z)""",
        ["constant", "broadcast", "subtract"],
    ),
    "times one": (
        """x = f32[8] parameter(0)
        c = f32[] constant(1)
        z = f32[8] broadcast(c), dimensions={}
        ROOT b = f32[8] multiply(z, x)""",
        [],
    ),
    "divided by a power of two": (
        """x = f32[8] parameter(0)
        c = f32[] constant(8)
        z = f32[8] broadcast(c), dimensions={}
        ROOT b = f32[8] divide(x, z)""",
        ["constant", "broadcast", "multiply"],
    ),
    "divided by three stays": (
        """x = f32[8] parameter(0)
        c = f32[] constant(3)
        z = f32[8] broadcast(c), dimensions={}
        ROOT b = f32[8] divide(x, z)""",
        ["constant", "broadcast", "divide"],
    ),
    "divided by a huge power stays": (
        """x = f32[8] parameter(0)
        c = f32[] constant(1.7014118e+38)
        z = f32[8] broadcast(c), dimensions={}
        ROOT b = f32[8] divide(x, z)""",
        ["constant", "broadcast", "divide"],
    ),
    "maximum of equals": (
        """x = f32[8] parameter(0)
        ROOT b = f32[8] maximum(x, x)""",
        [],
    ),
    "and true": (
        """x = pred[4] parameter(0)
        c = pred[] constant(true)
        z = pred[4] broadcast(c), dimensions={}
        ROOT b = pred[4] and(x, z)""",
        [],
    ),
    "or true": (
        """x = pred[4] parameter(0)
        c = pred[] constant(true)
        z = pred[4] broadcast(c), dimensions={}
        ROOT b = pred[4] or(x, z)""",
        ["constant", "broadcast"],
    ),
    "negated twice": (
        """x = f32[4] parameter(0)
        n = f32[4] negate(x)
        ROOT b = f32[4] negate(n)""",
        [],
    ),
    "folded": (
        """x = s32[2] parameter(0)
        a = s32[2] constant({1,2})
        b = s32[2] constant({3,4})
        c = s32[2] multiply(a, b)
        ROOT d = s32[2] add(x, c)""",
        ["constant", "add"],
    ),
    "transcendental not folded": (
        """x = f32[] parameter(0)
        a = f32[] constant(0.5)
        b = f32[] tanh(a)
        ROOT d = f32[] add(x, b)""",
        ["constant", "tanh", "add"],
    ),
    "barrier": (
        """x = f32[2] parameter(0)
        ROOT d = f32[2] opt-barrier(x)""",
        [],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rules(name):
    instructions, left = CASES[name]
    text = f"HloModule m\nENTRY e {{\n{instructions}\n}}\n"
    module = changed(text, Simplify(), DeadCode())
    assert opcodes(module) == left
    assert_same(text, module)


def test_unchanged_module_is_the_same_object():
    text = "HloModule m\nENTRY e {\nx = f32[3] parameter(0)\nROOT y = f32[3] add(x, x)\n}\n"
    module = changed(text)
    assert Simplify().run(module) is module


def test_transposes_of_matrices_go_into_the_dot():
    text = """HloModule m
ENTRY e {
x = f32[5,3] parameter(0)
y = f32[5,4] parameter(1)
t = f32[3,5] transpose(x), dimensions={1,0}
d = f32[3,4] dot(t, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
ROOT r = f32[4,3] transpose(d), dimensions={1,0}
}
"""
    module = changed(text, Simplify(), DeadCode())
    assert opcodes(module) == ["dot"]
    assert module.entry_computation.root_instruction.operands == ("y", "x")


def test_a_dot_that_others_read_keeps_its_transpose():
    text = """HloModule m
ENTRY e {
x = f32[5,3] parameter(0)
y = f32[3,5] parameter(1)
d = f32[5,5] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
t = f32[5,5] transpose(d), dimensions={1,0}
ROOT r = f32[5,5] add(d, t)
}
"""
    module = changed(text, Simplify(), DeadCode())
    assert opcodes(module) == ["dot", "transpose", "add"]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("f32[2,3]{1,0}", "f32[6]{0}"),
        ("f32[2,3]{0,1}", "f32[6]{0}"),
        ("f32[2,3,4]{0,2,1}", "f32[4,6]{0,1}"),
        ("f32[2,3]{0,1}", "f32[3,2]{1,0}"),
        ("f32[2,3]{1,0}", "s32[3,2]{0,1}"),
    ],
)
def test_bitcasts_become_logical(source, target):
    text = f"HloModule m\nENTRY e {{\nx = {source} parameter(0)\nROOT b = {target} bitcast(x)\n}}\n"
    module = changed(text, ResolveLayouts(), Simplify())
    assert "bitcast" not in opcodes(module)
    assert all(i.shape.layout is None for i in module.entry_computation)
    assert_same(text, module)


def test_a_copy_between_layouts_matters_to_the_bitcast_behind_it():
    text = """HloModule m
ENTRY e {
x = f32[2,3]{1,0} parameter(0)
c = f32[2,3]{0,1} copy(x)
ROOT b = f32[6]{0} bitcast(c)
}
"""
    module = changed(text, ResolveLayouts(), Simplify(), DeadCode())
    assert opcodes(module) == ["transpose", "reshape"]
    assert_same(text, module)
