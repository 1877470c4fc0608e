"""The page "Shapes and Layout": its examples, and NumPy's strides as the judge of all other layouts."""

from __future__ import annotations

from itertools import permutations
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import distxla as dx
from distxla.ir.counts import Counts
from distxla.ir.element_type import F32
from distxla.ir.layout import Layout
from distxla.ir.shape import Shape

TWO_BY_THREE = np.array([list("abc"), list("def")])
MARKED = np.array([[1, 2, 3], [4, 5, 6]], np.int32)


@pytest.mark.parametrize(
    ("layout", "memory"),
    [
        (Layout((0, 1)), "a d b e c f"),
        (Layout((1, 0)), "a b c d e f"),
        (Layout.default(2), "a b c d e f"),
    ],
)
def test_the_page_s_orders(layout: Layout, memory: str) -> None:
    packed = layout.pack(TWO_BY_THREE)
    assert " ".join(packed) == memory
    np.testing.assert_array_equal(layout.unpack(packed, (2, 3)), TWO_BY_THREE)


def test_the_page_s_padding() -> None:
    """`a d 0 b e 0 c f 0 0 0 0 0 0 0`, as the padded array with the same order lies."""
    layout = Layout((0, 1), padded_dimensions=(3, 5))
    packed = layout.pack(MARKED)
    assert packed.tolist() == [1, 4, 0, 2, 5, 0, 3, 6, 0, 0, 0, 0, 0, 0, 0]
    np.testing.assert_array_equal(packed, Layout((0, 1)).pack(np.pad(MARKED, ((0, 1), (0, 2)))))
    np.testing.assert_array_equal(layout.unpack(packed, (2, 3)), MARKED)


def test_the_true_rank_counts_sizes_above_one() -> None:
    assert Shape(F32, (3, 1, 2, 1)).true_rank == 2
    assert Shape(F32, (3, 1, 2, 1)).rank == 4


@given(st.data())
def test_a_buffer_is_the_padded_array_in_the_layout_s_order(data: st.DataObject) -> None:
    dims = tuple(data.draw(st.lists(st.integers(1, 4), max_size=4)))
    order = tuple(data.draw(st.permutations(range(len(dims)))))
    widths = tuple(n + data.draw(st.integers(0, 2)) for n in dims)
    layout = Layout(order, padded_dimensions=data.draw(st.sampled_from([(), widths])))
    array = np.arange(prod(dims)).reshape(dims) + 1
    buffer = layout.pack(array)
    assert buffer.size == prod(layout.widths(dims))
    padded = np.zeros(layout.widths(dims), array.dtype)
    padded[tuple(map(slice, dims))] = array
    np.testing.assert_array_equal(buffer, padded.transpose(order[::-1]).reshape(-1))
    for index in np.ndindex(dims):
        assert buffer[sum(i * stride for i, stride in zip(index, layout.strides(dims), strict=True))] == array[index]
    np.testing.assert_array_equal(layout.unpack(buffer, dims), array)


@pytest.mark.parametrize(
    ("dtype", "lowest", "highest"),
    [
        (np.float32, -np.inf, np.inf),
        (np.int8, -128, 127),
        (np.uint16, 0, 65535),
        (np.bool_, False, True),
        (ml_dtypes.bfloat16, -np.inf, np.inf),
        (ml_dtypes.float8_e4m3fn, -448, 448),
        (ml_dtypes.int4, -8, 7),
    ],
)
def test_what_padding_holds(dtype: Any, lowest: Any, highest: Any) -> None:
    for name, value in {"zero": 0, "one": 1, "lowest": lowest, "highest": highest}.items():
        packed = Layout((0,), padded_dimensions=(2,), padding_value=name).pack(np.zeros(1, dtype))
        assert packed.dtype == np.dtype(dtype)
        assert packed.astype(np.float64).tolist() == [0, value]


def test_what_is_no_layout_is_refused() -> None:
    with pytest.raises(ValueError, match="of a layout of 2 dimensions"):
        Layout((0, 1), padded_dimensions=(3,))
    with pytest.raises(ValueError, match="padding_value='nan' is none of zero, one"):
        Layout((0,), padding_value="nan")
    with pytest.raises(ValueError, match=r"less than the dimension sizes \[2, 3\]"):
        Layout((0, 1), padded_dimensions=(2, 2)).pack(MARKED)
    with pytest.raises(ValueError, match="no order of 2 dimensions"):
        Layout((0, 0)).pack(MARKED)
    with pytest.raises(ValueError, match="tiles"):
        Layout((1, 0), ((8, 128),)).pack(MARKED)
    with pytest.raises(ValueError, match=r"a buffer of \[5\] elements, not of 6"):
        Layout((1, 0)).unpack(np.zeros(5), (2, 3))


def test_packing_takes_arrays_of_any_strides() -> None:
    array = np.arange(24).reshape(2, 3, 4)
    for same in (np.asfortranarray(array), array[::-1, :, ::-1][::-1, :, ::-1], np.repeat(array, 2, 1)[:, ::2]):
        assert dx.Layout((1, 0, 2)).pack(same).tolist() == array.transpose(2, 0, 1).reshape(-1).tolist()


@pytest.mark.parametrize("source", list(permutations(range(3))))
def test_a_bitcast_keeps_the_buffer_whatever_the_layouts(source: tuple[int, ...]) -> None:
    """The result's buffer in the result's layout is the operand's in the operand's, evaluated and compiled."""
    from distxla.compiler.compile import compile_module
    from distxla.oracle.lockstep import run_reference
    from distxla.text.parser import parse_module
    from tests.compiler.runner import run_single

    dims = {"f32[2,3,4]": (2, 3, 4), "f32[4,6]": (4, 6), "f32[3,2,2,2]": (3, 2, 2, 2), "f32[24]": (24,)}
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    order = ",".join(map(str, source))
    targets = [(name, target) for name, dim_sizes in dims.items() for target in permutations(range(len(dim_sizes)))]
    shapes = [f"{name}{{{','.join(map(str, target))}}}" for name, target in targets]
    casts = [f"  b{k} = {shape} bitcast(p)" for k, shape in enumerate(shapes)]
    names = ", ".join(f"b{k}" for k in range(len(shapes)))
    head = ["HloModule casts", "ENTRY main {", f"  p = f32[2,3,4]{{{order}}} parameter(0)"]
    text = "\n".join([*head, *casts, f"  ROOT t = ({', '.join(shapes)}) tuple({names})", "}"])
    module = parse_module(text, "<test>")
    evaluated = run_reference(module, [[array]], Counts(1, 1))[0]
    compiled = run_single(compile_module(module, Counts(1, 1)), [array])
    buffer = Layout(source).pack(array)
    for (name, target), one, other in zip(targets, evaluated, compiled, strict=True):
        wanted = Layout(target).unpack(buffer, dims[name])
        np.testing.assert_array_equal(one, wanted)
        np.testing.assert_array_equal(other, wanted)


def test_layouts_of_entry_and_literals_leave_logical_values_alone() -> None:
    """entry_computation_layout says how XLA would pass buffers; arguments, results and literals here are logical."""
    from distxla.compiler.compile import compile_module
    from distxla.oracle.lockstep import run_reference
    from distxla.text.parser import parse_module
    from tests.compiler.runner import run_single

    text = """HloModule m, entry_computation_layout={(s32[2,3]{0,1})->s32[2,3]{0,1}}
    ENTRY main {
      p = s32[2,3]{0,1} parameter(0)
      c = s32[2,3]{0,1} constant({{10, 20, 30}, {40, 50, 60}})
      ROOT a = s32[2,3]{1,0} add(p, c)
    }
    """
    module = parse_module(text, "<test>")
    wanted = MARKED * 11
    for argument in (MARKED, np.asfortranarray(MARKED), MARKED[::-1][::-1]):
        (got,) = run_reference(module, [[argument]], Counts(1, 1))[0]
        np.testing.assert_array_equal(got, wanted)
        (got,) = run_single(compile_module(module, Counts(1, 1)), [argument])
        np.testing.assert_array_equal(got, wanted)
