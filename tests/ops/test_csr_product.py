"""Products of sparse matrices in compressed rows, by both executors against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from distxla.compiler.obstacles import obstacles
from distxla.ops.custom_calls.lapack_target import lapack_names
from distxla.ops.custom_calls.target import built_in_targets
from tests.ops.lapack_calls_cases import by_both, operand
from tests.ops.library_call import LibraryCall

TARGET = "cpu_csr_sparse_dense_ffi"
ROWS = {  # where rows begin, and columns: empty rows at either end and between; a column that is none adds nothing
    "rows of all lengths": ([0, 0, 2, 2, 5, 6, 6], [3, 0, 1, 2, 3, 0], (6, 4)),
    "filled up": ([0, 1, 3], [1, 0, 2], (2, 2)),
    "no elements": ([0, 0, 0], [], (2, 3)),
    "no rows": ([0], [], (0, 3)),
}


def dense(elements: Any, starts: list[int], columns: list[int], dims: tuple[int, int]) -> Any:
    found = np.zeros(dims, elements.dtype)
    for row in range(dims[0]):
        for k in range(starts[row], starts[row + 1]):
            if columns[k] < dims[1]:
                found[row, columns[k]] += elements[k]
    return found


@pytest.mark.parametrize("width", [(), (3,)], ids=["vector", "matrix"])
@pytest.mark.parametrize(("kind", "index"), [("f32", "s32"), ("c128", "s64")])
@pytest.mark.parametrize("name", ROWS)
def test_products(name: str, kind: str, index: str, width: tuple[int, ...]) -> None:
    starts, columns, dims = ROWS[name]
    real = {"f32": "float32", "c128": "complex128"}[kind]
    elements, other = operand(real, len(columns)), operand(real, dims[1], *width)
    sizes = ",".join(map(str, (dims[0], *width))), ",".join(map(str, other.shape))
    call = LibraryCall(
        TARGET,
        [f"{kind}[{sizes[0]}]"],
        [f"{kind}[{len(columns)}]", f"{index}[{len(starts)}]", f"{index}[{len(columns)}]", f"{kind}[{sizes[1]}]"],
        attributes="api_version=API_VERSION_TYPED_FFI",
    )
    positions = [np.array(numbers, index.replace("s", "int")) for numbers in (starts, columns)]
    wanted = dense(elements, starts, columns, dims) @ other
    for executor, (found,) in by_both(call.module, [elements, *positions, other]):
        assert found.dtype == elements.dtype, executor
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


UNFIT = {
    "other types": (["f32[4]"], ["f32[3]", "s32[5]", "s32[3]", "f64[4]"], "takes T[e], I[m+1], I[e]"),
    "other indices": (["f32[4]"], ["f32[3]", "s32[5]", "s64[3]", "f32[4]"], "takes T[e], I[m+1], I[e]"),
    "other lengths": (["f32[4]"], ["f32[3]", "s32[5]", "s32[2]", "f32[4]"], "takes T[e], I[m+1], I[e]"),
    "another result": (["f32[5]"], ["f32[3]", "s32[5]", "s32[3]", "f32[4]"], "gives f32[4], the text says f32[5]"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_calls_that_do_not_fit_are_refused(name: str) -> None:
    results, operands, message = UNFIT[name]
    ((_, why),) = obstacles(LibraryCall(TARGET, results, operands).module)
    assert message in why


def test_every_routine_that_jaxlib_registers_for_cpus_is_known() -> None:
    pytest.importorskip("jaxlib")
    from jaxlib.cpu import _lapack, _sparse

    registered = {*_lapack.registrations(), *_sparse.registrations()}
    assert registered >= set(lapack_names("potrf"))
    assert not registered - set(built_in_targets())
