"""What test_scatters.py shares with other tests."""

from __future__ import annotations

ROWS = "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"

ELEMENTS = "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"

# name: (operand, indices, update, attributes, range of the indices, launches)
CASES = {
    "few rows": ("6,30", "64,1", "64,30", ROWS, (-2, 9), 2),
    "rows": ("40,30", "65,1", "65,30", ROWS, (-2, 43), 6),
    "many rows": ("40,7", "600,1", "600,7", ROWS, (-2, 43), 9),
    "rows without an index vector": ("40,7", "90", "90,7", ROWS, (-2, 43), 6),
    "one row": ("1,30", "200,1", "200,30", ROWS, (-1, 2), 7),
    "elements": ("40", "300,1", "300", ELEMENTS, (-2, 43), 8),
    "elements of which few are in each place": ("100000", "100,1", "100", ELEMENTS, (0, 1 << 17), 6),
    "columns": (
        "8,50",
        "70,1",
        "8,70",
        "update_window_dims={0}, inserted_window_dims={1}, scatter_dims_to_operand_dims={1}, index_vector_dim=1",
        (-1, 52),
        6,
    ),
    "windows of one element of a dimension": (
        "9,8,5",
        "3,30,2",
        "3,30,1,1,5",
        "update_window_dims={2,3,4}, inserted_window_dims={}, scatter_dims_to_operand_dims={1,0}, index_vector_dim=2",
        (-1, 10),
        6,
    ),
    "windows that cover a dimension with an index": (
        "9,6",
        "80,2",
        "80,6",
        "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={1,0}, index_vector_dim=1",
        (0, 2),
        6,
    ),
    "batches": (
        "6,20,3",
        "6,25,1",
        "6,25,3",
        "update_window_dims={2}, inserted_window_dims={1}, scatter_dims_to_operand_dims={1}, input_batching_dims={0}, "
        "scatter_indices_batching_dims={0}, index_vector_dim=2",
        (-1, 22),
        7,
    ),
    "windows that overlap": (
        "40,3",
        "70,1",
        "70,2,3",
        "update_window_dims={1,2}, inserted_window_dims={}, scatter_dims_to_operand_dims={0}, index_vector_dim=1",
        (-1, 41),
        2,
    ),
}

COMBINED = {  # that depend on the order, by rounding or otherwise
    "add": "add(a, b)",
    "the last one": "copy(b)",
    "subtract from": "subtract(b, a)",
}


def module_text(name: str, kind: str, combined: str) -> str:
    operand, indices, update, attributes, _, _ = CASES[name]
    return f"""HloModule scatter
combine {{ a = {kind}[] parameter(0)  b = {kind}[] parameter(1)  ROOT r = {kind}[] {COMBINED[combined]} }}
ENTRY main {{
  x = {kind}[{operand}] parameter(0)
  i = s32[{indices}] parameter(1)
  u = {kind}[{update}] parameter(2)
  ROOT r = {kind}[{operand}] scatter(x, i, u), {attributes}, to_apply=combine
}}
"""
