"""Cases for dynamic dimensions: instructions over arrays whose sizes `n` and `m` are arguments of the program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

COMPUTATIONS = """
sum {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT r = f32[] add(x, y)
}
product {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT r = f32[] multiply(x, y)
}
greater {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT r = pred[] compare(x, y), direction=GT
}
at_least {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT r = pred[] compare(x, y), direction=GE
}
differs_f8 {
  x = f8e4m3fn[] parameter(0)
  y = f8e4m3fn[] parameter(1)
  ROOT r = pred[] compare(x, y), direction=NE
}
larger_f8 {
  x = f8e4m3fn[] parameter(0)
  y = f8e4m3fn[] parameter(1)
  ROOT r = f8e4m3fn[] maximum(x, y)
}
square {
  x = f32[] parameter(0)
  ROOT r = f32[] multiply(x, x)
}
"""
# d, e: f32[<=6] of n and m elements; rows: f32[<=4,6] of m rows; columns: f32[4,<=6] of n columns; both: m by n
SETUP = """
  v = f32[6] parameter(0)
  w = f32[4,6] parameter(1)
  n = s32[] parameter(2)
  m = s32[] parameter(3)
  zero = f32[] constant(0)
  one = f32[] constant(1)
  d = f32[<=6] set-dimension-size(v, n), dimensions={0}
  e = f32[<=6] set-dimension-size(v, m), dimensions={0}
  columns = f32[4,<=6] set-dimension-size(w, n), dimensions={1}
  rows = f32[<=4,6] set-dimension-size(w, m), dimensions={0}
  both = f32[<=4,<=6] set-dimension-size(columns, m), dimensions={0}
"""
# the same arrays as arguments: what lies behind their elements in memory is then up to the caller
ARRAYS_AS_PARAMETERS = """
  v = f32[6] parameter(0)
  w = f32[4,6] parameter(1)
  n = s32[] parameter(2)
  m = s32[] parameter(3)
  zero = f32[] constant(0)
  one = f32[] constant(1)
  d = f32[<=6] parameter(4)
  e = f32[<=6] parameter(5)
  columns = f32[4,<=6] parameter(6)
  rows = f32[<=4,6] parameter(7)
  both = f32[<=4,<=6] parameter(8)
"""
# family -> name -> instructions; those before the last one have names of their own behind `NAME.`; the last is the case
CASES: dict[str, dict[str, tuple[str, ...]]] = {
    "element-wise": {
        "negate": ("f32[<=6] negate(d)",),
        "add": ("f32[<=6] add(d, e)",),
        "add_static": ("f32[<=6] add(v, d)",),
        "clamp": ("f32[<=6] clamp(zero, d, one)",),
        "select": ("c = pred[<=6] compare(d, v), direction=LT", "f32[<=6] select(NAME.c, d, e)"),
        "convert": ("s32[<=6] convert(d)",),
        "map": ("f32[<=6] map(d), dimensions={0}, to_apply=square",),
        "copy": ("f32[<=4,<=6] copy(both)",),
        "convert_and_add": ("c = f64[<=6] convert(d)", "w = f64[6] convert(v)", "f64[<=6] add(NAME.c, NAME.w)"),
        "bitcast": ("f32[<=6,<=4]{0,1} bitcast(both)",),
        "bitcast_split": ("f32[<=3,2] bitcast(d)",),
        "bitcast_to_static": ("f32[2,3] bitcast(d)",),
        "bitcast_convert": ("s32[<=6] bitcast-convert(d)",),
        "bitcast_convert_split": ("u16[<=6,2] bitcast-convert(d)",),
        "mean_removed": (
            "s = f32[] reduce(d, zero), dimensions={0}, to_apply=sum",
            "k = s32[] get-dimension-size(d), dimensions={0}",
            "f = f32[] convert(NAME.k)",
            "q = f32[] divide(NAME.s, NAME.f)",
            "b = f32[<=6] broadcast(NAME.q), dimensions={}",
            "f32[<=6] subtract(d, NAME.b)",
        ),
    },
    "sizes": {
        "get": ("s32[] get-dimension-size(d), dimensions={0}",),
        "get_static": ("s32[] get-dimension-size(w), dimensions={1}",),
        "smaller_or_larger": ("f32[<=6] set-dimension-size(d, m), dimensions={0}",),
        "to_the_bound": ("six = s32[] constant(6)", "f32[6] set-dimension-size(d, NAME.six), dimensions={0}"),
        "constant": ("two = s32[] constant(2)", "f32[<=6] set-dimension-size(v, NAME.two), dimensions={0}"),
        "too_large": (
            "ten = s32[] constant(10)",
            "k = s32[] multiply(n, NAME.ten)",
            "f32[<=6] set-dimension-size(v, NAME.k), dimensions={0}",
        ),
        "negative": ("k = s32[] negate(n)", "f32[<=6] set-dimension-size(v, NAME.k), dimensions={0}"),
    },
    "movement": {
        "broadcast": ("f32[3,<=6,2] broadcast(d), dimensions={1}",),
        "transpose": ("f32[<=6,<=4] transpose(both), dimensions={1,0}",),
        "reverse": ("f32[<=4,<=6] reverse(both), dimensions={0,1}",),
        "reverse_one": ("f32[<=4,<=6] reverse(both), dimensions={1}",),
        "concatenate": ("f32[<=18] concatenate(d, v, e), dimensions={0}",),
        "concatenate_last": ("f32[<=12] concatenate(v, e), dimensions={0}",),
        "concatenate_rows": ("f32[<=8,<=6] concatenate(both, columns), dimensions={0}",),
        "concatenate_columns": ("f32[<=4,<=18] concatenate(both, columns, w), dimensions={1}",),
        "pad": ("f32[<=10] pad(d, one), padding=1_3",),
        "pad_interior": ("f32[<=16] pad(d, one), padding=2_3_1",),
        "pad_negative": ("f32[<=4] pad(d, one), padding=-2_0",),
        "slice": ("f32[3] slice(d), slice={[1:4]}",),
        "slice_kept": ("f32[2,<=6] slice(both), slice={[1:3], [0:6]}",),
        "slice_strided": ("f32[3] slice(d), slice={[0:6:2]}",),
        "dynamic_slice": ("f32[3] dynamic-slice(d, m), dynamic_slice_sizes={3}",),
        "dynamic_slice_kept": ("f32[2,<=6] dynamic-slice(both, m, n), dynamic_slice_sizes={2,6}",),
        "update": ("u = f32[3] slice(v), slice={[0:3]}", "f32[<=6] dynamic-update-slice(d, NAME.u, m)"),
        "dynamic_update": (
            "u0 = f32[3] slice(v), slice={[0:3]}",
            "u = f32[<=3] set-dimension-size(NAME.u0, n), dimensions={0}",
            "f32[6] dynamic-update-slice(v, NAME.u, m)",
        ),
    },
    "reshape": {
        "merge_minor": ("f32[<=24] reshape(columns)",),
        "merge_major": ("f32[<=24] reshape(rows)",),
        "merge_both": ("f32[<=24] reshape(both)",),
        "merge_into_static_text": ("f32[24] reshape(columns)",),
        "split_major": ("f32[<=3,2] reshape(d)",),
        "split_minor": ("f32[2,<=3] reshape(d)",),
        "split_inferred": ("f32[3,2] reshape(d), inferred_dimension=0",),
        "split_into_static": ("f32[3,2] reshape(d)",),
        "ones": ("f32[1,<=4,1,<=6,1] reshape(both)",),
        "one_of_two": ("f32[<=2,2,<=6] reshape(both)",),
        "other_of_two": ("f32[<=4,<=3,2] reshape(both)",),
        "dynamic": ("f32[<=4,<=6] dynamic-reshape(both, n, m)",),
        "dynamic_flat": ("k = s32[] multiply(n, m)", "f32[<=24] dynamic-reshape(both, NAME.k)"),
    },
    "reduction": {
        "sum": ("f32[] reduce(d, zero), dimensions={0}, to_apply=sum",),
        "product": ("f32[] reduce(d, one), dimensions={0}, to_apply=product",),
        "of_columns": ("f32[<=6] reduce(both, zero), dimensions={0}, to_apply=sum",),
        "of_rows": ("f32[<=4] reduce(both, zero), dimensions={1}, to_apply=sum",),
        "of_all": ("f32[] reduce(both, zero), dimensions={0,1}, to_apply=sum",),
        "window": ("f32[<=5] reduce-window(d, zero), window={size=2}, to_apply=sum",),
        "window_padded": (
            "f32[<=4,<=3] reduce-window(both, zero), window={size=3x3 stride=1x2 pad=1_1x1_1}, to_apply=sum",
        ),
        "window_base_dilated": ("f32[<=10] reduce-window(d, one), window={size=2 lhs_dilate=2}, to_apply=product",),
        "prefixes": ("f32[<=6] reduce-window(d, zero), window={size=6 pad=5_0}, to_apply=sum",),
        "suffixes": ("f32[<=6] reduce-window(d, zero), window={size=6 pad=0_5}, to_apply=sum",),
        "select_and_scatter": (
            "o = f32[<=5] reduce-window(d, zero), window={size=2}, to_apply=sum",
            "f32[<=6] select-and-scatter(d, NAME.o, zero), window={size=2}, select=at_least, scatter=sum",
        ),
        "select_and_scatter_no_infinity": (
            "x = f8e4m3fn[<=6] convert(d)",
            "w = f32[<=5] reduce-window(d, zero), window={size=2}, to_apply=sum",
            "o = f8e4m3fn[<=5] convert(NAME.w)",
            "c = f8e4m3fn[] constant(-448)",
            "s = f8e4m3fn[<=6] select-and-scatter(NAME.x, NAME.o, NAME.c), window={size=2}, select=differs_f8, "
            "scatter=larger_f8",
            "f32[<=6] convert(NAME.s)",
        ),
    },
    "contraction": {
        "dot": ("f32[] dot(d, e), lhs_contracting_dims={0}, rhs_contracting_dims={0}",),
        "dot_matrices": ("f32[<=4,<=4] dot(both, both), lhs_contracting_dims={1}, rhs_contracting_dims={1}",),
        "dot_batch": (
            "f32[<=4] dot(both, w), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1}, "
            "rhs_contracting_dims={1}",
        ),
        "convolution": (
            "x = f32[1,<=6,1] reshape(d)",
            "k = f32[3,1,1] constant({{{1}},{{2}},{{3}}})",
            "f32[1,<=6,1] convolution(NAME.x, NAME.k), window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f",
        ),
        "convolution_strided": (
            "x = f32[1,<=6,1] reshape(d)",
            "k = f32[2,1,1] constant({{{1}},{{2}}})",
            "f32[1,<=3,1] convolution(NAME.x, NAME.k), window={size=2 stride=2}, dim_labels=b0f_0io->b0f",
        ),
        "convolution_batch": (
            "x = f32[<=4,<=6,1] reshape(both)",
            "k = f32[2,1,1] constant({{{1}},{{2}}})",
            "f32[<=4,<=5,1] convolution(NAME.x, NAME.k), window={size=2}, dim_labels=b0f_0io->b0f",
        ),
    },
    "batches": {
        "fft": ("x = f32[<=6,4] broadcast(d), dimensions={0}", "c64[<=6,3] fft(NAME.x), fft_type=RFFT, fft_length={4}"),
        "solve": (
            "a = f32[2,2] constant({{2,0},{1,3}})",
            "b0 = f32[6,2,2] broadcast(NAME.a), dimensions={1,2}",
            "b = f32[<=6,2,2] set-dimension-size(NAME.b0, n), dimensions={0}",
            "x = f32[<=6,2,1] broadcast(d), dimensions={0}",
            "f32[<=6,2,1] triangular-solve(NAME.b, NAME.x), left_side=true, lower=true, unit_diagonal=false, "
            "transpose_a=NO_TRANSPOSE",
        ),
        "top_k": (
            "t = (f32[<=4,2], s32[<=4,2]) topk(rows), k=2, largest=true",
            "f32[<=4,2] get-tuple-element(NAME.t), index=0",
        ),
    },
    "ordering": {
        "sort": ("f32[<=6] sort(d), dimensions={0}, to_apply=greater",),
        "sort_rows": ("f32[<=4,<=6] sort(both), dimensions={1}, to_apply=greater",),
        "gather": (
            "i0 = s32[6] constant({3,1,5,0,9,3})",
            "i = s32[<=6] set-dimension-size(NAME.i0, n), dimensions={0}",
            "f32[<=6] gather(v, NAME.i), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, "
            "index_vector_dim=1, slice_sizes={1}",
        ),
        "gather_rows": (
            "i = s32[3] constant({3,1,2})",
            "f32[3,<=6] gather(both, NAME.i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, "
            "index_vector_dim=1, slice_sizes={1,6}",
        ),
        "scatter": (
            "i0 = s32[6] constant({3,1,1,0,9,3})",
            "i = s32[<=6] set-dimension-size(NAME.i0, n), dimensions={0}",
            "f32[6] scatter(v, NAME.i, d), update_window_dims={}, inserted_window_dims={0}, "
            "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum",
        ),
        "scatter_unsigned": (
            "i0 = u8[6] constant({3,1,1,0,9,3})",
            "i = u8[<=6] set-dimension-size(NAME.i0, n), dimensions={0}",
            "f32[6] scatter(v, NAME.i, d), update_window_dims={}, inserted_window_dims={0}, "
            "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum",
        ),
        "scatter_into": (
            "i = s32[3] constant({3,1,5})",
            "u = f32[3] slice(v), slice={[0:3]}",
            "f32[<=6] scatter(d, NAME.i, NAME.u), update_window_dims={}, inserted_window_dims={0}, "
            "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum",
        ),
    },
    "XLA's own padding": {
        "pad_to_static": (
            't = (f32[4,6], s32[], s32[]) custom-call(both), custom_call_target="PadToStatic"',
            "f32[4,6] get-tuple-element(NAME.t), index=0",
        ),
        "sizes": (
            't = (f32[4,6], s32[], s32[]) custom-call(both), custom_call_target="PadToStatic"',
            "s32[] get-tuple-element(NAME.t), index=2",
        ),
        "annotated": (
            's = f32[<=4,<=6] custom-call(both), custom_call_target="Sharding", sharding={replicated}',
            'f32[<=4,<=6] custom-call(NAME.s), custom_call_target="MoveToHost"',
        ),
        "slice_to_dynamic": ('f32[<=4,<=6] custom-call(w, m, n), custom_call_target="SliceToDynamic"',),
    },
    "tuples": {
        "barrier": (
            "t = (f32[6], f32[<=4,<=6]) tuple(v, both)",
            "u = ((f32[6], f32[<=4,<=6]), f32[<=6]) tuple(NAME.t, d)",
            "b = ((f32[6], f32[<=4,<=6]), f32[<=6]) opt-barrier(NAME.u)",
            "g = (f32[6], f32[<=4,<=6]) get-tuple-element(NAME.b), index=0",
            "f32[<=4,<=6] get-tuple-element(NAME.g), index=1",
        ),
    },
}
VECTOR = np.arange(6, dtype=np.float32) - 2.5
MATRIX = np.arange(24, dtype=np.float32).reshape(4, 6) % 7 - 3


def arguments(n: int, m: int) -> list[Array]:
    return [VECTOR, MATRIX, np.array(n, np.int32), np.array(m, np.int32)]


def all_arguments(n: int, m: int) -> list[Array]:
    """Of a module that has ARRAYS_AS_PARAMETERS."""
    return [*arguments(n, m), VECTOR[:n], VECTOR[:m], MATRIX[:, :n], MATRIX[:m], MATRIX[:m, :n]]


def text(cases: Mapping[str, Sequence[str]], setup: str = SETUP) -> str:
    """A module whose result is a tuple with a leaf for each case."""
    lines: list[str] = []
    shapes: list[str] = []
    for name, instructions in cases.items():
        *before, last = instructions
        lines += [f"  {name}.{line.replace('NAME', name)}" for line in before]
        lines.append(f"  {name} = {last.replace('NAME', name)}")
        shapes.append(last.split(" ")[0])
    root = f"  ROOT all = ({', '.join(shapes)}) tuple({', '.join(cases)})"
    return "\n".join(["HloModule dynamic", COMPUTATIONS, "ENTRY main {", setup, *lines, root, "}"])
