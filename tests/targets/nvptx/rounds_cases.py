"""What test_rounds.py shares with other tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from distxla.text.parser import parse_module

ADD = "add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }"

GROUPS = "replica_groups={{0,2},{3,1}}"

# name -> (computations, the collective of operand x, its result's type, the type of x)
COLLECTIVES = {
    "all-reduce": (ADD, "all-reduce(x), to_apply=add", "f32[6,35]", "f32[6,35]"),
    "of groups": (ADD, f"all-reduce(x), {GROUPS}, to_apply=add", "f32[6,35]", "f32[6,35]"),
    "of unequal groups": (ADD, "all-reduce(x), replica_groups={{0,2,1},{3}}, to_apply=add", "f32[6,35]", "f32[6,35]"),
    "of narrow floats": (
        "big { a = bf16[] parameter(0)  b = bf16[] parameter(1)  s = bf16[] add(a, b)  ROOT c = bf16[] maximum(s, b) }",
        "all-reduce(x), to_apply=big",
        "bf16[301]",
        "bf16[301]",
    ),
    "of small integers": (
        "mul { a = s8[] parameter(0)  b = s8[] parameter(1)  ROOT c = s8[] multiply(a, b) }",
        "all-reduce(x), to_apply=mul",
        "s8[1031]",
        "s8[1031]",
    ),
    "of complex numbers": (
        "add { a = c64[] parameter(0)  b = c64[] parameter(1)  ROOT c = c64[] add(a, b) }",
        "all-reduce(x), to_apply=add",
        "c64[77]",
        "c64[77]",
    ),
    "all-gather along the first dimension": ("", "all-gather(x), dimensions={0}", "s16[28,23]", "s16[7,23]"),
    "all-gather along the last dimension": ("", "all-gather(x), dimensions={1}", "u8[24,68]", "u8[24,17]"),
    "all-gather of groups": ("", f"all-gather(x), dimensions={{1}}, {GROUPS}", "f32[24,34]", "f32[24,17]"),
    "reduce-scatter": (ADD, "reduce-scatter(x), dimensions={1}, to_apply=add", "f32[9,5]", "f32[9,20]"),
    "all-to-all": ("", "all-to-all(x), dimensions={1}", "f64[5,12]", "f64[5,12]"),
    "collective-broadcast": ("", "collective-broadcast(x), replica_groups={{2,0}}", "f32[6,35]", "f32[6,35]"),
    "collective-permute": ("", "collective-permute(x), source_target_pairs={{0,1},{1,3},{3,0}}", "f32[91]", "f32[91]"),
}

DEVICES = 4


def module_of(name: str, *, apart: bool = False) -> str:
    """The collective between two kernels. apart: as start and done."""
    computations, collective, result, operand = COLLECTIVES[name]
    opcode, rest = collective.split("(", 1)
    lines = f"  y = {result} {collective}"
    if apart:
        pair = f"({operand}, {result})" if opcode != "all-reduce" else result
        lines = f"  s = {pair} {opcode}-start({rest}\n  w = {operand} negate(x)\n  y = {result} {opcode}-done(s)"
        if opcode in ("reduce-scatter", "all-to-all", "collective-broadcast"):  # asynchronous as a computation only
            called = f"apart {{ x = {operand} parameter(0)  ROOT y = {result} {collective} }}\n"
            computations += "\n" + called
            lines = f"""  s = (({operand}), {result}, u32[]) async-start(x), calls=apart
  w = {operand} negate(x)
  y = {result} async-done(s)"""
    root = "ROOT r = (W, V) tuple(w, v)".replace("W", operand).replace("V", result)
    other = "" if apart else f"  w = {operand} negate(x)\n"
    return f"""HloModule m, replica_count={DEVICES}
{computations}
ENTRY main {{
  p = {operand} parameter(0)
  x = {operand} add(p, p)
{lines}
{other}  v = {result} add(y, y)
  {root}
}}
"""


def arguments_of(text: str) -> list[list[Any]]:
    shape = parse_module(text).entry_computation.parameters[0].shape
    rng = np.random.default_rng(1)
    found = rng.integers(-100, 100, (DEVICES, *shape.dims)) / (1 if shape.dtype.bits < 16 else 8)
    if shape.dtype.is_complex:
        found = found + 1j * rng.integers(-100, 100, found.shape)
    return [[each.astype(shape.dtype.dtype)] for each in found]
