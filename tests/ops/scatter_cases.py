"""What test_scatter.py shares with other tests."""

from __future__ import annotations

from tests.ops.structured_case import StructuredCase


def _scatter(
    operands: tuple[str, ...], attributes: str, result: str | None = None, **arguments: list[int]
) -> StructuredCase:
    values = {int(k[1:]): v for k, v in arguments.items()}
    return StructuredCase(f"{result or operands[0]} scatter(@), {attributes}", operands, "f32", values)


ELEMENTS = "update_window_dims={}, inserted_window_dims={0,1}, scatter_dims_to_operand_dims={0,1}, index_vector_dim=1, "

CASES = [
    _scatter(("f32[2,10]", "s32[7,2]", "f32[7]"), ELEMENTS + "to_apply=add"),
    _scatter(
        ("f32[2,10]", "s32[7,2]", "f32[7,1,2]"),
        "update_window_dims={1,2}, inserted_window_dims={}, scatter_dims_to_operand_dims={0,1}, index_vector_dim=1, "
        "to_apply=second",
    ),
    _scatter(
        ("f32[6,10]", "s64[5]", "f32[10,5]"),
        "update_window_dims={0}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
        "indices_are_sorted=true, to_apply=add",
    ),
    _scatter(
        ("f32[6]", "s32[1]", "f32[3]"),
        "update_window_dims={0}, inserted_window_dims={}, scatter_dims_to_operand_dims={0}, index_vector_dim=0, "
        "to_apply=add",
    ),
    _scatter(
        ("f32[6,10]", "u8[3,6,1]", "f32[3,6,2]"),
        "update_window_dims={2}, inserted_window_dims={}, scatter_dims_to_operand_dims={1}, input_batching_dims={0}, "
        "scatter_indices_batching_dims={1}, index_vector_dim=2, to_apply=add",
    ),
    _scatter(
        ("f32[6,10]", "s32[6,1,3]", "f32[6,3,2]"),
        "update_window_dims={2}, inserted_window_dims={}, scatter_dims_to_operand_dims={1}, input_batching_dims={0}, "
        "scatter_indices_batching_dims={0}, index_vector_dim=1, to_apply=add",
    ),
    _scatter(
        ("f32[6]", "s32[6]", "s32[9,1]", "f32[9]", "s32[9]"),
        "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
        "to_apply=add_both",
        "(f32[6], s32[6])",
    ),
    _scatter(
        ("f32[4,0]", "s32[2,1]", "f32[2,0]"),
        "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
        "to_apply=add",
    ),
]
