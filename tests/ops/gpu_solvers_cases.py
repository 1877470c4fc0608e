"""What test_gpu_solvers.py shares with other tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ops.case import Array
from tests.ops.library_call import LibraryCall

FFI = "api_version=API_VERSION_TYPED_FFI"

TRIANGLE = np.array([[2, 0, 0], [1, 4, 0], [3, -1, 0.5]], np.float32)

SIDES = np.array([[2, 4], [9, -2], [1, 1]], np.float32)

OPTIONS = {"left_side": True, "lower": True, "unit_diagonal": False, "transpose_a": "NO_TRANSPOSE"}

MATRIX = np.array([[4, 2, 0], [2, 5, 1], [0, 1, 3]], np.float64)

CALLS: dict[str, tuple[LibraryCall, list[Array], list[Any]]] = {
    "triangular solve": (
        LibraryCall("__cublas$triangularSolve", ["f32[3,2]", "s8[12]"], ["f32[3,3]", "f32[3,2]"], OPTIONS),
        [TRIANGLE, SIDES],
        [np.linalg.solve(TRIANGLE.astype(np.float64), SIDES), np.zeros(12)],
    ),
    "triangular solve, transposed": (
        LibraryCall(
            "__cublas$triangularSolve",
            ["f32[3,2]{0,1}", "s8[0]"],
            ["f32[3,3]{0,1}", "f32[3,2]{0,1}"],
            OPTIONS | {"transpose_a": "TRANSPOSE"},
        ),
        [TRIANGLE, SIDES],
        [np.linalg.solve(TRIANGLE.astype(np.float64).T, SIDES), []],
    ),
    "cholesky": (
        LibraryCall("__cusolver$cholesky", ["f64[3,3]", "f64[5]", "s32[]"], ["f64[3,3]"], {"lower": True}),
        [np.tril(MATRIX)],
        [np.linalg.cholesky(MATRIX), np.zeros(5), 0],
    ),
    "cholesky of what is not positive": (
        LibraryCall("__cusolver$cholesky", ["f64[1,1]", "f64[5]", "s32[]"], ["f64[1,1]"], {"lower": True}),
        [np.array([[-1.0]])],
        [[[-1]], np.zeros(5), 1],
    ),
    "lu of a batch": (
        LibraryCall("cublas_getrf_batched_ffi", ["f32[1,2,2]", "s32[1,2]", "s32[1]"], ["f32[1,2,2]"], "{}", FFI),
        [np.array([[[0, 2], [4, 1]]], np.float32)],
        [[[[4, 1], [0, 2]]], [[2, 2]], [0]],
    ),
    "qr of a batch": (
        LibraryCall("cublas_geqrf_batched_ffi", ["f32[1,2,1]", "f32[1,1]"], ["f32[1,2,1]"], "{}", FFI),
        [np.array([[[3], [4]]], np.float32)],
        [[[[-5], [0.5]]], [[1.6]]],
    ),
    "permutation": (
        LibraryCall("cu_lu_pivots_to_permutation", ["s32[2,4]"], ["s32[2,3]"], "{}", FFI),
        [np.array([[1, 3, 2], [0, 1, 3]], np.int32)],
        [[[1, 3, 2, 0], [0, 1, 3, 2]]],
    ),
    "tops": (
        LibraryCall("__gpu$TopK", ["f32[2,2]", "s32[2,2]"], ["f32[2,4]"], "{}", FFI),
        [np.array([[1, 4, 2, 4], [0, -1, 5, 3]], np.float32)],
        [[[4, 4], [5, 3]], [[1, 3], [2, 3]]],
    ),
}
