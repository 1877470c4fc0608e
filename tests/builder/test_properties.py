"""Broadcasting and indexing against NumPy, for any shapes."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import basic_indices

import distxla as dx
from distxla.ir.counts import Counts
from distxla.oracle.lockstep import run_reference
from tests.samples import examples

Array = np.ndarray[Any, Any]


def filled(dims: tuple[int, ...], start: int = 0) -> Array:
    return np.arange(start, start + prod(dims), dtype=np.int32).reshape(dims)


def result(b: dx.XlaBuilder, root: dx.XlaOp, *arguments: Array) -> Any:
    (outs,) = run_reference(b.build(root), [list(arguments)], Counts(1, 1))
    return outs[0]


DIMS = st.lists(st.integers(0, 3), max_size=4).map(tuple)


@settings(max_examples=examples(150), deadline=None)
@given(st.data())
def test_broadcast_dimensions(data: st.DataObject) -> None:
    """A result is NumPy's for operands that are reshaped as the dimensions say; an error where NumPy has one."""
    high = data.draw(DIMS)
    mapping = sorted(data.draw(st.sets(st.sampled_from(range(len(high)))))) if high else []
    low = tuple(data.draw(st.sampled_from([high[d], 1, 2])) for d in mapping)
    spread = [1] * len(high)
    for size, d in zip(low, mapping, strict=True):
        spread[d] = size
    x, y = filled(high), filled(low, 100)
    swapped = data.draw(st.booleans())
    b = dx.XlaBuilder("broadcast")
    operands = [b.parameter(0, x), b.parameter(1, y)]
    try:
        wanted = x - y.reshape(spread)
    except ValueError:
        with np.testing.assert_raises(dx.VerificationError):
            b.sub(*operands, broadcast_dimensions=mapping)
        return
    if swapped:
        root, wanted = b.sub(*reversed(operands), broadcast_dimensions=mapping), -wanted
    else:
        root = b.sub(*operands, broadcast_dimensions=mapping)
    np.testing.assert_array_equal(result(b, root, x, y), wanted)


@settings(max_examples=examples(150), deadline=None)
@given(st.data())
def test_basic_indices(data: st.DataObject) -> None:
    dims = data.draw(DIMS)
    x = filled(dims)
    key = data.draw(basic_indices(dims, allow_newaxis=True, allow_ellipsis=True))
    b = dx.XlaBuilder("index")
    got = result(b, b.parameter(0, x)[key], x)
    np.testing.assert_array_equal(got, x[key])


@settings(max_examples=examples(100), deadline=None)
@given(st.data())
def test_broadcast_in_dim(data: st.DataObject) -> None:
    """Any order of the dimensions."""
    out = data.draw(DIMS)
    mapping = data.draw(st.permutations(range(len(out))))[: data.draw(st.integers(0, len(out)))]
    operand = filled(tuple(data.draw(st.sampled_from([1, out[d]])) for d in mapping))
    order = sorted(range(len(mapping)), key=lambda i: mapping[i])
    spread = [1] * len(out)
    for i in order:
        spread[mapping[i]] = operand.shape[i]
    b = dx.XlaBuilder("broadcast_in_dim")
    got = result(b, b.broadcast_in_dim(b.parameter(0, operand), out, mapping), operand)
    np.testing.assert_array_equal(got, np.broadcast_to(operand.transpose(order).reshape(spread), out))
