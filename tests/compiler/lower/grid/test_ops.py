"""Ops with kernels of their own on a grid: the processor's results, and how many launches they take."""

from __future__ import annotations

import numpy as np
import pytest

from distxla.ir.shape import Shape
from distxla.text.parser import parse_module
from tests.compiler.lower.grid.agreement import Array, both
from tests.compiler.lower.grid.ops_cases import OPS, module_text
from tests.ops.case import sample
from tests.samples import in_turn

INDICES = np.array([[1], [5], [1], [-3], [1]], np.int32)


def normal(shape: Shape, seed: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape.dims).astype(shape.dtype.dtype)


@pytest.mark.sampled(
    one_in=9,
    first=("dot, batches apart, of which one factor is copied-s32", "convolution in tiles, features first-f32"),
)
@pytest.mark.parametrize(("name", "kind"), [*in_turn(OPS, ["s32", "f32", "f64"]), *in_turn(OPS, ["f32", "f64", "s32"])])
def test_ops(name: str, kind: str) -> None:
    module = parse_module(module_text(name, kind))
    leaves = [p.shape for p in module.entry_computation.parameters][:-2]
    values = [sample(leaf, k) if kind == "s32" else normal(leaf, k) for k, leaf in enumerate(leaves)]
    program, (wanted,), (got,) = both(module, [*values, INDICES, np.int32(25)])
    assert [len(kernel.launches) for kernel in program.grid.launched] == [OPS[name][3]]
    assert all(launch.threads > 1 for launch in program.grid.launched[0].launches) or name == "scatter of elements"
    if kind == "s32":
        assert wanted.tolist() == got.tolist()
    else:
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=max(1e-5, 1e-6 * np.abs(wanted).max()))
