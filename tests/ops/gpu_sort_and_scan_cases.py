"""What test_gpu_sort_and_scan.py shares with other tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.ops.case import Array
from tests.ops.library_call import LibraryCall

SORT, KEYS, PAIRS = "__cub$DeviceRadixSort", "xla.gpu.ext.cub_sort_keys", "xla.gpu.ext.cub_sort_pairs"

SCAN, FFI = "__cub$DeviceScan", "api_version=API_VERSION_TYPED_FFI"

ASCENDING, DESCENDING = {"descending": False}, {"descending": True}

FORMS: dict[str, LibraryCall] = {
    "no options": LibraryCall(SORT, ["s32[6]", "u8[1]"], ["s32[6]"]),
    "no workspace": LibraryCall(SORT, ["s32[6]"], ["s32[6]"], ASCENDING),
    "FFI": LibraryCall(KEYS, ["s32[6]", "u8[1]"], ["s32[6]"], '"{descending = false, batch_size = 1 : i64}"', FFI),
    "wrapped FFI": LibraryCall(
        KEYS,
        ["s32[6]", "u8[1]"],
        ["s32[6]"],
        {"operation_queue_id": "0", "custom_call_backend_config": {"attributes": "{descending = false}"}},
        FFI,
    ),
    "without scratch size, as FFI names it": LibraryCall(
        "xla.gpu.ext.cub_sort_unassigned_scratch_size", ["s32[6]", "u8[1]"], ["s32[6]"], ASCENDING
    ),
    "without scratch size": LibraryCall("__cub$DeviceRadixSortUnassignedScratchSize", ["s32[6]", "u8[1]"], ["s32[6]"]),
}


def scan(column: int, row: int, vector: int, **more: Any) -> Mapping[str, Any]:
    lengths = {"vector_length": f"{vector}", "row_length": f"{row}", "column_length": f"{column}"}
    return lengths | {"kind": "SUM", "is_reverse": False} | more


NUMBERS = np.arange(1, 13).reshape(3, 4) % 7 - 3

SCANS: dict[str, tuple[LibraryCall, Array]] = {
    "rows": (LibraryCall(SCAN, ["f32[3,4]", "u8[9]"], ["f32[3,4]"], scan(3, 4, 1)), np.cumsum(NUMBERS, 1)),
    "reverse": (
        LibraryCall(SCAN, ["s32[3,4]", "u8[9]"], ["s32[3,4]"], scan(3, 4, 1, is_reverse=True)),
        np.cumsum(NUMBERS[:, ::-1], 1)[:, ::-1],
    ),
    "columns of vectors": (
        LibraryCall(SCAN, ["s8[3,4]", "u8[0]"], ["s8[3,4]"], scan(1, 3, 4)),
        np.cumsum(NUMBERS, 0),
    ),
    "the first dimension where it is the fastest": (
        LibraryCall(SCAN, ["f64[3,4]{0,1}", "u8[0]"], ["f64[3,4]{0,1}"], scan(4, 3, 1)),
        np.cumsum(NUMBERS, 0),
    ),
    "FFI": (
        LibraryCall(
            "xla.gpu.ext.cub_scan",
            ["u32[3,4]", "u8[0]"],
            ["u32[3,4]"],
            '"{vector_length = 1 : i64, row_length = 4 : i64, column_length = 3 : i64, kind = 1 : i32}"',
            FFI,
        ),
        np.cumsum(NUMBERS, 1),
    ),
    "without scratch size": (
        LibraryCall(f"{SCAN}UnassignedScratchSize", ["s16[3,4]", "u8[0]"], ["s16[3,4]"], scan(3, 4, 1)),
        np.cumsum(NUMBERS, 1),
    ),
    "without scratch size, as FFI names it": (
        LibraryCall(
            "xla.gpu.ext.cub_scan_unassigned_scratch_size", ["s64[3,4]", "u8[0]"], ["s64[3,4]"], scan(3, 4, 1, kind=1)
        ),
        np.cumsum(NUMBERS, 1),
    ),
    "nothing": (
        LibraryCall(SCAN, ["f32[0,4]", "u8[0]"], ["f32[0,4]"], scan(0, 4, 1)),
        np.zeros((0, 4)),
    ),
}
