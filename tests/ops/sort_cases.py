"""What test_sort.py shares with other tests."""

from __future__ import annotations

import numpy as np

from tests.ops.structured_case import StructuredCase


def sort_case(operand: str, dimension: int, comparator: str = "lt", element: str = "f32") -> StructuredCase:
    return StructuredCase(f"{operand} sort(@), dimensions={{{dimension}}}, to_apply={comparator}", (operand,), element)


CASES = [
    *(sort_case(f"f32[{n}]", 0) for n in (0, 1, 2, 3, 7, 8, 31, 100, 1009)),
    sort_case("f32[3,17]", 1),
    sort_case("f32[17,3]", 0),
    sort_case("f32[3,17,5]", 1),
    sort_case("f32[5,0]", 0),
    sort_case("f32[5,0]", 1),
    sort_case("s8[65]", 0, "ge", "s8"),
    sort_case("u64[65]", 0, "lt", "u64"),
    sort_case("bf16[65]", 0, "lt", "bf16"),
    StructuredCase(
        "(s8[3,50], s32[3,50]) sort(@), dimensions={1}, is_stable=true, to_apply=lt_pairs",
        ("s8[3,50]", "s32[3,50]"),
        "s8",
        {1: np.arange(150)},
    ),
]

# Short lines of keys of every width beside an array: LLVM once left a 16-bit key in the place that it was sorted with.
CASES += [
    StructuredCase(
        f"({element}[{n}], f32[{n}]) sort(@), dimensions={{0}}, is_stable=true, to_apply=beside_{direction}",
        (f"{element}[{n}]", f"f32[{n}]"),
        element,
    )
    for element in ("s8", "s16", "u16", "bf16", "f16", "s32", "s64")
    for n in (2, 3, 4, 5, 6)
    for direction in ("lt", "gt")
]


def top_k_case(operand: str, k: int, attributes: str = "", values: object = None) -> StructuredCase:
    element, dims = operand.rstrip("]").split("[")
    dims = ",".join([*dims.split(",")[:-1], str(k)])
    return StructuredCase(
        f"({element}[{dims}], s32[{dims}]) topk(@), k={k}{attributes}",
        (operand,),
        element,
        {} if values is None else {0: np.asarray(values)},
    )


# Zeros of both signs and NaNs of both signs have places of their own in the total order.
CORNERS = np.array([0.0, np.nan, -0.0, 1.0, -np.nan, -1.0, np.inf, 1.0, -np.inf, 0.0], np.float32)
CASES += [
    top_k_case("f32[10]", 10, values=CORNERS),
    top_k_case("f32[10]", 10, ", largest=false", CORNERS),
    top_k_case("f32[3,4,17]", 5),
    top_k_case("f32[3,17]", 5, ", largest=false"),
    top_k_case("f32[3,17]", 0),
    top_k_case("f32[3,500]", 7),
    top_k_case("f32[3,500]", 7, ", largest=false"),
    top_k_case("s32[2,300]", 9),
    top_k_case("bf16[80]", 1),
    top_k_case("f32[0,17]", 2),
    top_k_case("f32[1]", 1),
    top_k_case("s8[50]", 50),
    top_k_case("u8[50]", 7, ", largest=false"),
    top_k_case("u64[50]", 7, values=np.arange(50, dtype=np.uint64) * 2**58),
    top_k_case("s32[50]", 7),
    top_k_case("bf16[50]", 7),
    top_k_case("f64[50]", 7),
    StructuredCase('(f32[3,5], s32[3,5]) custom-call(@), custom_call_target="TopK"', ("f32[3,17]",)),
]
