"""Arrays without elements and of rank 0, in ops that walk over arrays: both executors give the same as XLA."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ops.program_case import compiled, evaluated, one_instruction

Array = np.ndarray[Any, Any]
COMPUTATIONS = "".join(
    f"{name} {{\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = {body}\n}}\n"
    for name, body in (
        ("add", "f32[] add(a, b)"),
        ("ge", "pred[] compare(a, b), direction=GE"),
        ("lt", "pred[] compare(a, b), direction=LT"),
    )
)
ROWS = "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={0,2}"
BATCHED = (
    "offset_dims={1}, collapsed_slice_dims={}, operand_batching_dims={0}, start_indices_batching_dims={0}, "
    "start_index_map={1}, index_vector_dim=1, slice_sizes={0,2}"
)
NOWHERE = "offset_dims={}, collapsed_slice_dims={}, start_index_map={}, index_vector_dim=1, slice_sizes={}"
ALONE = "update_window_dims={}, inserted_window_dims={}, scatter_dims_to_operand_dims={}"
POINTS = "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"

CASES: list[tuple[str, list[str]]] = [
    ("f32[3,2] gather(@), " + ROWS, ["f32[0,2]", "s32[3]"]),
    ("f32[3,2] gather(@), " + ROWS, ["f32[4,2]", "s32[3]"]),
    ("f32[0,2] gather(@), " + BATCHED, ["f32[0,4]", "s32[0,1]"]),
    ("f32[2,2] gather(@), " + BATCHED, ["f32[2,4]", "s32[2,1]"]),
    ("f32[3] gather(@), " + NOWHERE, ["f32[]", "s32[3,0]"]),
    ("f32[] scatter(@), " + ALONE + ", index_vector_dim=0, to_apply=add", ["f32[]", "s32[0]", "f32[]"]),
    ("f32[0] scatter(@), " + POINTS + ", to_apply=add", ["f32[0]", "s32[3,1]", "f32[3]"]),
    ("f32[4] scatter(@), " + POINTS + ", to_apply=add", ["f32[4]", "s32[0,1]", "f32[0]"]),
    ("f32[] dynamic-slice(@), dynamic_slice_sizes={}", ["f32[]"]),
    ("f32[0,3] dynamic-slice(@), dynamic_slice_sizes={0,3}", ["f32[0,3]", "s32[]", "s32[]"]),
    ("f32[] dynamic-update-slice(@)", ["f32[]", "f32[]"]),
    ("f32[4] dynamic-update-slice(@)", ["f32[4]", "f32[0]", "s32[]"]),
    ("f32[0] select-and-scatter(@), window={size=2 pad=1_1}, select=ge, scatter=add", ["f32[0]", "f32[1]", "f32[]"]),
    ("f32[2] select-and-scatter(@), window={size=1 pad=2_2}, select=ge, scatter=add", ["f32[2]", "f32[6]", "f32[]"]),
    ("f32[2] select-and-scatter(@), window={size=3}, select=ge, scatter=add", ["f32[2]", "f32[0]", "f32[]"]),
    ("f32[3] reduce-window(@), window={size=2 pad=2_2}, to_apply=add", ["f32[0]", "f32[]"]),
    ("f32[2] reduce-window(@), window={size=2 pad=2_1 lhs_dilate=2}, to_apply=add", ["f32[0]", "f32[]"]),
    ("f32[0] reduce-window(@), window={size=1 pad=-2_-2}, to_apply=add", ["f32[3]", "f32[]"]),
    ("f32[3] pad(@), padding=1_2_3", ["f32[0]", "f32[]"]),
    ("f32[0] pad(@), padding=-1_-2", ["f32[3]", "f32[]"]),
    ("f32[] dot(@)", ["f32[]", "f32[]"]),
    ("f32[2,3] dot(@), lhs_contracting_dims={1}, rhs_contracting_dims={0}", ["f32[2,0]", "f32[0,3]"]),
    ("f32[1,3,2] convolution(@), window={size=2}, dim_labels=b0f_0io->b0f", ["f32[1,4,0]", "f32[2,0,2]"]),
    ("f32[1,1,1] convolution(@), window={size=2 pad=1_1}, dim_labels=b0f_0io->b0f", ["f32[1,0,1]", "f32[2,1,1]"]),
    ("f32[2,3] convolution(@), dim_labels=bf_io->bf", ["f32[2,4]", "f32[4,3]"]),
    ("f32[0,3] sort(@), dimensions={1}, to_apply=lt", ["f32[0,3]"]),
    ("f32[3] concatenate(@), dimensions={0}", ["f32[0]", "f32[3]", "f32[0]"]),
    ("f32[3] reduce(@), dimensions={0}, to_apply=add", ["f32[0,3]", "f32[]"]),
]  # fmt: skip


def arguments(operands: list[str]) -> list[Array]:
    """Different numbers; indices 0, 1, 2, 0 and so on."""
    found = []
    for k, operand in enumerate(operands):
        element, dims = operand.rstrip("]").split("[")
        shape = tuple(map(int, filter(None, dims.split(","))))
        values = np.arange(np.prod(shape, dtype=int)).reshape(shape)
        found.append((values % 3).astype(np.int32) if element == "s32" else (values + 10 * k + 1).astype(np.float32))
    return found


def named(case: tuple[str, list[str]]) -> str:
    expression, operands = case
    return f"{expression.split('(')[0]}({','.join(operands)})".replace(" ", "_")


@pytest.mark.parametrize("case", CASES, ids=named)
@pytest.mark.filterwarnings("ignore")
def test_both_executors_give_what_xla_gives(case: tuple[str, list[str]]) -> None:
    pytest.importorskip("jax")
    from tests.ops.xla_cpu import run_by_xla

    text, values = one_instruction(*case, COMPUTATIONS), arguments(case[1])
    (wanted,) = run_by_xla(text, values)
    for run in (evaluated, compiled):
        (got,) = run(text, *values)
        np.testing.assert_array_equal(got, wanted, strict=True)


@pytest.mark.parametrize("window", ["", "window={}, "])
def test_select_and_scatter_of_a_scalar(window: str) -> None:
    """One window of one element, which is chosen: its source is combined with the initial value. XLA CPU's process ends
    when it compiles that from StableHLO; the answer follows from the definition."""
    expression = f"f32[] select-and-scatter(@), {window}select=ge, scatter=add"
    text = one_instruction(expression, ["f32[]"] * 3, COMPUTATIONS)
    for run in (evaluated, compiled):
        assert run(text, *map(np.float32, (42, 1, 2)))[0] == np.float32(3)
