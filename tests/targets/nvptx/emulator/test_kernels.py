"""Kernels that are right: their results, in every order of threads, and that a GPU's assembler takes them, too."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest

from distxla.targets.nvptx.emulator.launch import ORDERS, LoadedModule, Order, load
from distxla.targets.nvptx.emulator.prepare import prepare
from tests.targets.nvptx.assembler import ARCHITECTURES, assemble, needs_assembler, ptx_of
from tests.targets.nvptx.emulator import kernels
from tests.targets.nvptx.emulator.kernels_cases import floats, memory, sum_in_order

MODES = {"unchecked": {}, "checked": {"checked": True}, "races": {"races": True}}


@cache
def loaded(text: str, mode: str) -> LoadedModule:
    return load(prepare(text, **MODES[mode]))


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    return request.param


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_block_reduction(mode: str, order: Order) -> None:
    x, out = floats(9, 1000), np.zeros(9, np.float32)
    module = loaded(kernels.REDUCE, mode)
    arguments = [x.ctypes.data, out.ctypes.data, x.shape[1]]
    module.launch("reduce", (9, 1, 1), (256, 1, 1), arguments, order=order, memory=memory(x, out))
    assert out.tobytes() == sum_in_order(x, 256).tobytes()


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_tiled_transpose(mode: str, order: Order) -> None:
    x = np.arange(96 * 64, dtype=np.int32).reshape(96, 64)
    out = np.zeros((64, 96), np.int32)
    module = loaded(kernels.TRANSPOSE, mode)
    module.launch(
        "transpose", (2, 3, 1), (32, 8, 1), [x.ctypes.data, out.ctypes.data], order=order, memory=memory(x, out)
    )
    assert (out == x.T).all()


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize(("blocks", "threads", "n"), [(1, 1, 5), (3, 32, 1000), (8, 128, 1000), (1, 1024, 7)])
def test_grid_stride_loop(mode: str, order: Order, blocks: int, threads: int, n: int) -> None:
    x, y = floats(n), floats(n)
    expected = np.float32(5) * x + y
    module = loaded(kernels.AXPY, mode)
    arguments = [x.ctypes.data, y.ctypes.data, n, 1]
    module.launch("axpy", (blocks, 1, 1), (threads, 1, 1), arguments, order=order, memory=memory(x, y))
    assert y.tobytes() == expected.tobytes()


@pytest.mark.parametrize("threads", [1, 33, 1024])
def test_dynamic_shared_memory(mode: str, threads: int) -> None:
    x, out = np.arange(threads, dtype=np.int32), np.zeros(threads, np.int32)
    module = loaded(kernels.REVERSE, mode)
    arguments = [x.ctypes.data, out.ctypes.data]
    module.launch("reverse", (1, 1, 1), (threads, 1, 1), arguments, shared_bytes=4 * threads, memory=memory(x, out))
    assert (out == x[::-1]).all()


@pytest.mark.sampled(one_in=4)
@needs_assembler
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", kernels.ALL)
def test_assembles(name: str, architecture: str) -> None:
    assert assemble(ptx_of(kernels.ALL[name], architecture), architecture)
