"""CUB's sorts and scans in HLO of XLA's GPU backend, by both executors."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.case import Array
from tests.ops.gpu_sort_and_scan_cases import (
    ASCENDING,
    DESCENDING,
    FFI,
    FORMS,
    KEYS,
    NUMBERS,
    PAIRS,
    SCAN,
    SCANS,
    SORT,
    scan,
)
from tests.ops.library_call import LibraryCall, assert_refused, assert_xla_reads, compare

FLOATS = [2.5, -0.0, np.nan, 0.0, -np.inf, 7, -1, np.inf, -np.nan, -0.0, -1, 1e-40, 0.0]
SIGNED = [3, -128, 127, 0, -1, 3, 5, -1]
UNSIGNED = [3, 255, 0, 128, 127, 3, 5, 255]

# keys' type, keys, values' type or None
SORTED = [
    ("s8", SIGNED, None),
    ("s16", SIGNED, None),
    ("s32", SIGNED, "f32"),
    ("s64", SIGNED, None),
    ("u8", UNSIGNED, "s64"),
    ("u16", UNSIGNED, "bf16"),
    ("u32", UNSIGNED, "u32"),
    ("u64", UNSIGNED, "s16"),
    ("f16", FLOATS, None),
    ("bf16", FLOATS, None),
    ("f32", FLOATS, "s32"),
    ("f64", FLOATS, None),
]


def order(keys: Array, descending: bool) -> Array:
    """Stable; floats in the total order, with -0 made 0."""
    if keys.dtype.kind in "iu":
        rank = keys.astype(object)
    else:
        width = keys.dtype.itemsize * 8
        bits = np.where(keys == 0, keys.dtype.type(0), keys).view(f"u{width // 8}").astype(object)
        rank = np.where(bits >> (width - 1), (1 << width) - 1 - bits, bits + (1 << (width - 1)))
    return np.argsort(-rank if descending else rank, kind="stable")


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(("key", "numbers", "value"), SORTED)
def test_rows_are_sorted(key: str, numbers: list[float], value: str | None, descending: bool) -> None:
    n = len(numbers)
    shapes = [f"{key}[2,{n}]", *[f"{value}[2,{n}]"] * (value is not None)]
    call = LibraryCall(SORT, [*shapes, "u8[128]"], shapes, {"descending": descending})
    types = [shape.dtype.dtype for shape in call.shapes]
    keys = np.array([numbers, numbers[::-1]]).astype(types[0])
    arguments = [keys, *(np.arange(2 * n).reshape(2, n).astype(of_value) for of_value in types[1:])]
    places = np.stack([order(row, descending) for row in keys])
    wanted = [np.take_along_axis(a, places, 1) for a in arguments]
    for results in call.run(*arguments):
        for got, right in zip(results, [*wanted, np.zeros(128, np.uint8)], strict=True):
            assert got.tobytes() == right.tobytes(), f"{got} is not {right}"


@pytest.mark.parametrize("name", FORMS)
def test_forms_of_the_call(name: str) -> None:
    keys = np.array([3, -1, 2, 3, 0, -7], np.int32)
    for results in FORMS[name].run(keys):
        assert results[0].tolist() == sorted(keys)


def test_a_batch_cuts_memory_into_parts() -> None:
    call = LibraryCall(
        PAIRS, ["u16[6]", "s32[6]", "u8[4]"], ["u16[6]", "s32[6]"], '"{descending = true, batch_size = 2 : i64}"', FFI
    )
    keys, values = np.array([1, 3, 2, 5, 4, 6], np.uint16), np.arange(6, dtype=np.int32)
    compare(call, [keys, values], [[3, 2, 1, 6, 5, 4], [1, 2, 0, 5, 3, 4], np.zeros(4)])


@pytest.mark.parametrize("name", SCANS)
def test_cumulative_sums(name: str) -> None:
    call, wanted = SCANS[name]
    (shape,) = call.shapes
    argument = NUMBERS.reshape(-1)[: shape.size].reshape(shape.dims).astype(shape.dtype.dtype)
    workspace = call.module.entry_computation.root_instruction.shape.elements[1]
    compare(call, [argument], [wanted.astype(shape.dtype.dtype), np.zeros(workspace.dims)])


def test_a_sum_of_negative_zeros_is_one() -> None:
    call = LibraryCall(SCAN, ["f32[3]", "u8[0]"], ["f32[3]"], scan(1, 3, 1))
    for results in call.run(np.array([-0.0, -0.0, 0.0], np.float32)):
        assert np.signbit(results[0]).tolist() == [True, True, False]


REFUSED: dict[str, tuple[LibraryCall, str]] = {
    "an option that nobody knows": (
        LibraryCall(SORT, ["s32[6]", "u8[1]"], ["s32[6]"], {"descending": False, "begin_bit": 4}),
        "does not know the field begin_bit",
    ),
    "no dictionary": (
        LibraryCall(SORT, ["s32[6]", "u8[1]"], ["s32[6]"], '"descending"'),
        "backend_config is no dictionary: 'descending'",
    ),
    "parts that are not equal": (
        LibraryCall(KEYS, ["s32[6]", "u8[1]"], ["s32[6]"], '"{batch_size = 4 : i64}"', FFI),
        "batch_size=4: this version executes equal parts of 6 elements",
    ),
    "three arrays": (
        LibraryCall(SORT, ["s32[6]", "s32[6]", "s32[6]", "u8[1]"], ["s32[6]"] * 3, ASCENDING),
        "takes keys, or keys and values, the operands are (s32[6], s32[6], s32[6])",
    ),
    "complex keys": (
        LibraryCall(SORT, ["c64[6]", "u8[1]"], ["c64[6]"], ASCENDING),
        "sorts arrays of integers or floats, not c64[6]",
    ),
    "columns": (
        LibraryCall(SORT, ["s32[2,3]{0,1}", "u8[1]"], ["s32[2,3]{0,1}"], ASCENDING),
        "sorts arrays in row-major layout",
    ),
    "values of other dimension sizes": (
        LibraryCall(SORT, ["s32[6]", "s32[5]", "u8[1]"], ["s32[6]", "s32[5]"], DESCENDING),
        "reshape",
    ),
    "a sum that is none": (
        LibraryCall(SCAN, ["s32[6]", "u8[1]"], ["s32[6]"], scan(1, 6, 1, kind="KIND_INVALID")),
        "kind='KIND_INVALID': this version executes only SUM",
    ),
    "a scan of a kind that nobody knows": (
        LibraryCall(SCAN, ["s32[6]", "u8[1]"], ["s32[6]"], scan(1, 6, 1, kind="MAX")),
        "kind='MAX', which is not one of KIND_INVALID, SUM",
    ),
    "lengths that don't fit": (
        LibraryCall(SCAN, ["s32[6]", "u8[1]"], ["s32[6]"], scan(1, 5, 1)),
        "column_length, row_length and vector_length are [1, 5, 1] for s32[6]",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    assert_refused(*REFUSED[name])


@pytest.mark.parametrize("name", [*FORMS, *SCANS])
def test_xla_reads_the_calls(name: str) -> None:
    assert_xla_reads(FORMS[name] if name in FORMS else SCANS[name][0])
