"""Programs for tests of transports, most with one collective of four devices, and their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from distxla.compiler.compile import compile_module
from distxla.compiler.verify.verifier import verify_module
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.oracle.lockstep import run_reference
from distxla.program.artifact import CompiledProgram
from distxla.text.parser import parse_module
from tests.collectives.matrix import same_bits

Arrays = list[np.ndarray[Any, Any]]

TWO_HOSTS, THREE_HOSTS = [[0, 1], [2, 3]], [[0], [1, 2], [3]]

HEADER = "HloModule m, replica_count={devices}\n"
ADD = "add {{ a = {t}[] parameter(0)\n b = {t}[] parameter(1)\n ROOT r = {t}[] add(a, b) }}\n"


def compiled(text: str, devices: int = 4) -> CompiledProgram:
    return compile_module(parse_module(HEADER.format(devices=devices) + text, "<test>"), Counts(devices, 1))


def arguments(program: CompiledProgram, devices: int = 4) -> list[list[np.ndarray[Any, Any]]]:
    """Random bits that are no NaNs, different on every device."""
    found = []
    for device in range(devices):
        rng = np.random.default_rng(device)
        row = []
        for leaf in program.parameter_leaves:
            if leaf.dtype.is_float or leaf.dtype.is_complex:
                row.append(rng.standard_normal(leaf.dims).astype(leaf.dtype.dtype))
            else:
                row.append(rng.integers(0, 2 if leaf.dtype.name == "pred" else 7, leaf.dims).astype(leaf.dtype.dtype))
        found.append(row)
    return found


def entry(op: str, operand: str, result: str) -> str:
    return f"ENTRY e {{ x = {operand} parameter(0)\n ROOT y = {result} {op} }}\n"


def collectives(n: int) -> dict[str, str]:
    """One instruction each; n: elements of the largest dimension, a multiple of 4."""
    all_, pairs = "replica_groups={{0,1,2,3}}", "replica_groups={{3,1},{0,2}}"
    v, w = f"f32[{n}]", f"f32[4,{n // 4}]"
    t = f"f32[3,{n}]"
    return {
        "all-reduce": ADD.format(t="f32") + entry(f"all-reduce(x), {all_}, to_apply=add", v, v),
        "all-reduce in odd order": ADD.format(t="f32")
        + entry("all-reduce(x), replica_groups={{2,0,3,1}}, to_apply=add", v, v),
        "all-reduce of pairs": ADD.format(t="f32") + entry(f"all-reduce(x), {pairs}, to_apply=add", v, v),
        "all-reduce of ragged groups": ADD.format(t="f32")
        + entry("all-reduce(x), replica_groups={{0,2,3},{1}}, to_apply=add", v, v),
        "all-reduce of two": ADD.format(t="f32")
        + f"ENTRY e {{ x = {v} parameter(0)\n z = f32[7] parameter(1)\n"
        + f" ROOT y = ({v}, f32[7]) all-reduce(x, z), {all_}, to_apply=add }}\n",
        "all-gather": entry(f"all-gather(x), {all_}, dimensions={{0}}", v, f"f32[{4 * n}]"),
        "all-gather of columns": entry(f"all-gather(x), {all_}, dimensions={{1}}", t, f"f32[3,{4 * n}]"),
        "all-gather of pairs": entry(f"all-gather(x), {pairs}, dimensions={{0}}", v, f"f32[{2 * n}]"),
        "reduce-scatter": ADD.format(t="f32")
        + entry(f"reduce-scatter(x), {all_}, dimensions={{0}}, to_apply=add", v, f"f32[{n // 4}]"),
        "reduce-scatter of columns": ADD.format(t="f32")
        + entry(f"reduce-scatter(x), {all_}, dimensions={{1}}, to_apply=add", t, f"f32[3,{n // 4}]"),
        "all-to-all": entry(f"all-to-all(x), {all_}, dimensions={{0}}", v, v),
        "all-to-all of columns": entry(f"all-to-all(x), {all_}, dimensions={{1}}", t, t),
        "all-to-all of tuples": f"ENTRY e {{ a = {v} parameter(0)\n b = {v} parameter(1)\n c = {v} parameter(2)\n"
        + f" d = {v} parameter(3)\n ROOT y = ({v}, {v}, {v}, {v}) all-to-all(a, b, c, d), {all_} }}\n",
        "broadcast": entry("collective-broadcast(x), replica_groups={{2,0,1,3}}", w, w),
        "broadcast of pairs": entry(f"collective-broadcast(x), {pairs}", w, w),
    }


LOOP = """c { p = (s32[], V) parameter(0)
 i = s32[] get-tuple-element(p), index=0
 m = s32[] constant(11)
 ROOT l = pred[] compare(i, m), direction=LT }
b { p = (s32[], V) parameter(0)
 i = s32[] get-tuple-element(p), index=0
 v = V get-tuple-element(p), index=1
 one = s32[] constant(1)
 j = s32[] add(i, one)
 w = V collective-permute(v), RING
 a = V add(w, v)
 ROOT t = (s32[], V) tuple(j, a) }
ENTRY e { x = V parameter(0)
 z = s32[] constant(0)
 t = (s32[], V) tuple(z, x)
 w = (s32[], V) while(t), condition=c, body=b
 ROOT y = V get-tuple-element(w), index=1 }
"""


def permutes(n: int) -> dict[str, str]:
    v = f"f32[{n}]"
    ring = "source_target_pairs={{0,1},{1,2},{2,3},{3,0}}"
    both = f"ENTRY e {{ x = {v} parameter(0)\n z = s8[11] parameter(1)\n"
    return {
        "ring": entry(f"collective-permute(x), {ring}", v, v),
        "some": entry("collective-permute(x), source_target_pairs={{3,0},{0,2},{1,1}}", v, v),
        "two operands": both + f" ROOT y = ({v}, s8[11]) collective-permute(x, z), {ring} }}\n",
        "in a loop": LOOP.replace("V", v).replace("RING", ring),
        "started": f"ENTRY e {{ x = {v} parameter(0)\n s = ({v}, {v}) collective-permute-start(x), {ring}\n"
        f" y = {v} multiply(x, x)\n d = {v} collective-permute-done(s)\n ROOT r = {v} add(d, y) }}\n",
    }


def permuted(n: int) -> str:
    return entry("collective-permute(x), source_target_pairs={{0,2},{2,0}}", f"f32[{n}]", f"f32[{n}]")


RAGGED = """ENTRY main {
  input = f32[ROWS,3] parameter(0)
  output = f32[ROWS,3] parameter(1)
  input_offsets = s32[4] parameter(2)
  send_sizes = s32[4] parameter(3)
  output_offsets = s32[4] parameter(4)
  recv_sizes = s32[4] parameter(5)
  ROOT r = f32[ROWS,3] ragged-all-to-all(input, output, input_offsets, send_sizes, output_offsets, recv_sizes),
    replica_groups={{0,1,2,3}}
}
"""


@cache
def made(text: str) -> tuple[CompiledProgram, list[Arrays], list[Arrays]]:
    """A program for four devices, arguments, and the reference's results."""
    program, module = compiled(text), parse_module(HEADER.format(devices=4) + text, "<test>")
    args = arguments(program)
    return program, args, reference(module, args)


def reference(module: Module, args: Sequence[Sequence[Any]]) -> list[Arrays]:
    verify_module(module, len(args), 1)
    return [[np.asarray(array) for array in row] for row in run_reference(module, args, Counts(len(args), 1))]


def require_bits(outs: Sequence[Sequence[Any]], expected: Sequence[Sequence[Any]]) -> None:
    for device, (row, wanted) in enumerate(zip(outs, expected, strict=True)):
        for found, array in zip(row, wanted, strict=True):
            assert same_bits(found, array), f"device {device}: {found}, not {array}"
