"""Hypothesis strategies of single instructions with attributes of all sorts: well-formed, small, with their arguments.

Numbers that are added or multiplied are small integers, so that every order of a sum has the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from distxla.ir.element_type import (
    COMPLEXES,
    DATA_TYPES,
    F8E8M0FNU,
    FLOATS,
    INTEGERS,
    PRED,
    S8,
    S32,
    S64,
    U8,
    U32,
    U64,
    ElementType,
)  # fmt: skip
from distxla.ir.shape import Shape
from distxla.ir.window import ConvolutionDimensions, PaddingDimension, Window, WindowDimension
from distxla.text.windows import print_window
from tests.ops.case import Array, Case, sample
from tests.ops.structured_case import StructuredCase

# What XLA CPU takes and JAX can hand over.
XLA_TYPES = tuple(t for t in DATA_TYPES if t is PRED or t.bits >= 16 or t in (S8, U8))
INDEX_TYPES = (S32, S64, U8, S8, U32, U64)
# f8e8m0fnu has powers of two alone, and pred has no arithmetic.
NUMBERS = tuple(t for t in DATA_TYPES if t is not PRED and t is not F8E8M0FNU)


def _computations(element: ElementType) -> list[str]:
    """What combines two elements with the same bits in every order; sums of the narrowest floats are rounded."""
    adds = ["add"] if not element.is_float or element.bits >= 16 else []
    return adds + ["max"] * (not element.is_complex)


Drawn = Case | StructuredCase


def small(shape: Shape, seed: int) -> Array:
    """Integers from -2 to 2 (0 to 2) that every element type has."""
    generator = np.random.default_rng(seed)
    low = 0 if shape.dtype.kind in ("unsigned", "pred") else -2
    high = 2 if shape.dtype.bits == 2 else 3
    values: Any = generator.integers(low, high, shape.dims)
    if shape.dtype.is_complex:
        values = values + 1j * generator.integers(low, high, shape.dims)
    return np.asarray(values).astype(shape.dtype.dtype).reshape(shape.dims)


def indices(shape: Shape, highest: int, seed: int) -> Array:
    """From a little below 0 to a little above `highest`, where the type can."""
    low = -2 if shape.dtype.is_signed else 0
    high = min(highest + 3, 2 ** (shape.dtype.bits - shape.dtype.is_signed) - 1)
    numbers = np.random.default_rng(seed).integers(low, high, shape.dims)
    return np.asarray(numbers).astype(shape.dtype.dtype).reshape(shape.dims)


@dataclass(frozen=True)
class _Slices:
    """Dimension numbers that gather and scatter share. dims: of the array.  sizes: of a slice.  starts: the index
    array's dimension sizes.  places: positions of the slice's dimensions in the result (the updates), of dimension
    sizes `result`."""

    dims: tuple[int, ...]
    sizes: tuple[int, ...]
    dropped: tuple[int, ...]
    batching: tuple[int, ...]
    starts_batching: tuple[int, ...]
    mapped: tuple[int, ...]
    vector: int
    starts: tuple[int, ...]
    places: tuple[int, ...]
    result: tuple[int, ...]


@st.composite
def _slices(draw: st.DrawFn) -> _Slices:
    rank = draw(st.integers(1, 3))
    dims = tuple(draw(st.integers(1, 5)) for _ in range(rank))
    roles = [draw(st.sampled_from(["window", "dropped", "batching"])) for _ in dims]
    sizes = tuple(draw(st.integers(0, n)) if role == "window" else 1 for n, role in zip(dims, roles))
    free = [d for d in range(rank) if roles[d] != "batching"]
    mapped = tuple(draw(st.permutations(free))[: draw(st.integers(0, len(free)))])
    # The index array's dimensions: those that go with batching dimensions, and others, in any order.
    entries: list[tuple[int, int | None]] = [(dims[d], d) for d in range(rank) if roles[d] == "batching"]
    entries += [(draw(st.integers(0, 4)), None) for _ in range(draw(st.integers(0, 2)))]
    entries = list(draw(st.permutations(entries)))
    dim_sizes = [dim_size for dim_size, _ in entries]
    vector = draw(st.integers(0, len(entries)))
    implicit = len(mapped) == 1 and draw(st.booleans())
    if implicit:
        vector = len(entries)
    of_dimension = {d: k + (not implicit and k >= vector) for k, (_, d) in enumerate(entries) if d is not None}
    starts = tuple(dim_sizes) if implicit else (*dim_sizes[:vector], len(mapped), *dim_sizes[vector:])
    windows = [d for d in range(rank) if roles[d] == "window"]
    total = len(windows) + len(entries)
    places = tuple(sorted(draw(st.permutations(range(total)))[: len(windows)]))
    window_sizes, batch = iter([sizes[d] for d in windows]), iter(dim_sizes)
    result = tuple(next(window_sizes if k in places else batch) for k in range(total))
    batching = tuple(d for d in range(rank) if roles[d] == "batching")
    dropped = tuple(d for d in range(rank) if roles[d] == "dropped")
    starts_batching = tuple(of_dimension[d] for d in batching)
    return _Slices(dims, sizes, dropped, batching, starts_batching, mapped, vector, starts, places, result)


SEEDS = st.integers(0, 2**16)


@st.composite
def gathers(draw: st.DrawFn, types: Sequence[ElementType] = DATA_TYPES) -> Case:
    s, seed = draw(_slices()), draw(SEEDS)
    operands = (Shape(draw(st.sampled_from(types)), s.dims), Shape(draw(st.sampled_from(INDEX_TYPES)), s.starts))
    attributes = {
        "offset_dims": s.places,
        "collapsed_slice_dims": s.dropped,
        "start_index_map": s.mapped,
        "operand_batching_dims": s.batching,
        "start_indices_batching_dims": s.starts_batching,
        "index_vector_dim": s.vector,
        "slice_sizes": s.sizes,
    }
    values = (sample(operands[0], seed), indices(operands[1], max(s.dims), seed))
    return Case("gather", operands, attributes, arguments=values)


@st.composite
def scatters(draw: st.DrawFn, types: Sequence[ElementType] = NUMBERS) -> StructuredCase:
    """With one array, or with two of which the second one is s32."""
    s, seed = draw(_slices()), draw(SEEDS)
    element = draw(st.sampled_from(types))
    both = draw(st.booleans())
    arrays = [element, S32] if both else [element]
    computation = "add_both" if both else draw(st.sampled_from(["add", "second"] + ["max"] * (not element.is_complex)))
    shapes = [Shape(t, s.dims) for t in arrays]
    shapes += [Shape(draw(st.sampled_from(INDEX_TYPES)), s.starts), *(Shape(t, s.result) for t in arrays)]
    values = {k: small(shape, seed + k) for k, shape in enumerate(shapes)}
    values[len(arrays)] = indices(shapes[len(arrays)], max(s.dims), seed)
    result = ", ".join(map(str, shapes[: len(arrays)]))
    attributes = {
        "update_window_dims": s.places,
        "inserted_window_dims": s.dropped,
        "scatter_dims_to_operand_dims": s.mapped,
        "input_batching_dims": s.batching,
        "scatter_indices_batching_dims": s.starts_batching,
    }
    text = ", ".join(f"{name}={_braces(numbers)}" for name, numbers in attributes.items())
    return StructuredCase(
        f"{f'({result})' if both else result} scatter(@), {text}, index_vector_dim={s.vector}, to_apply={computation}",
        tuple(map(str, shapes)),
        element.name,
        values,
    )


@st.composite
def pads(draw: st.DrawFn, types: Sequence[ElementType] = DATA_TYPES) -> Case:
    element, dims = draw(st.sampled_from(types)), draw(st.lists(st.integers(0, 5), max_size=3))
    padding = []
    for dim_size in dims:
        interior = draw(st.integers(0, 2))
        spread = dim_size + max(0, dim_size - 1) * interior
        low = draw(st.integers(-min(2, spread), 3))
        padding.append(PaddingDimension(low, draw(st.integers(max(-2, -low - spread), 3)), interior))
    operands = (Shape(element, tuple(dims)), Shape(element))
    values = tuple(sample(shape, draw(SEEDS)) for shape in operands)
    return Case("pad", operands, {"padding": tuple(padding)}, arguments=values)


@st.composite
def dynamic_slices(draw: st.DrawFn, types: Sequence[ElementType] = DATA_TYPES) -> Case:
    """Slices and updates of slices."""
    element = draw(st.sampled_from(types))
    dims = draw(st.lists(st.integers(0, 5), max_size=3))
    sizes = tuple(draw(st.integers(0, n)) for n in dims)
    index = Shape(draw(st.sampled_from(INDEX_TYPES)))
    starts = [indices(index, max(dims), draw(SEEDS)) for _ in dims]
    operand, update = Shape(element, tuple(dims)), Shape(element, sizes)
    if draw(st.booleans()):
        operands = (operand, *(index for _ in dims))
        return Case(
            "dynamic-slice",
            operands,
            {"dynamic_slice_sizes": sizes},
            arguments=(sample(operand, draw(SEEDS)), *starts),
        )
    values = (sample(operand, draw(SEEDS)), sample(update, draw(SEEDS)), *starts)
    return Case("dynamic-update-slice", (operand, update, *(index for _ in dims)), arguments=values)


@st.composite
def _windows(draw: st.DrawFn, dims: Sequence[int], dilations: bool = True) -> Window:
    """A window that fits at least once; now and then one over all prefixes or suffixes of a dimension."""
    found = []
    for dim_size in dims:
        if draw(st.integers(0, 3)) == 0:
            low, high = draw(st.sampled_from([(dim_size - 1, 0), (0, dim_size - 1)]))
            found.append(WindowDimension(dim_size, padding_low=low, padding_high=high))
            continue
        base = draw(st.integers(1, 2)) if dilations else 1
        along = draw(st.integers(1, 2)) if dilations else 1
        low, high = draw(st.integers(-1, 3)), draw(st.integers(-1, 3))
        spread = (dim_size - 1) * base + 1 + low + high
        if spread < 1:
            low, spread = low + 2, spread + 2
        size = draw(st.integers(1, 4))
        while (size - 1) * along + 1 > spread:
            size -= 1
        found.append(WindowDimension(size, draw(st.integers(1, 3)), low, high, base, along))
    return Window(tuple(found))


@st.composite
def reduce_windows(draw: st.DrawFn, types: Sequence[ElementType] = NUMBERS) -> StructuredCase:
    """With one array, or with two of which the second one is s32; sizes along which code becomes vectors, too."""
    element = draw(st.sampled_from(types))
    dims = (*draw(st.lists(st.integers(1, 5), max_size=2)), draw(st.sampled_from([1, 3, 7, 40])))
    window = draw(_windows(dims))
    both = "add" in _computations(element) and draw(st.booleans())
    computation = "add_both" if both else draw(st.sampled_from(_computations(element)))
    shapes = [Shape(t, dims) for t in ([element, S32] if both else [element])]
    scalars = [Shape(s.dtype) for s in shapes]
    counts = tuple(w.output_size(n) for w, n in zip(window.dimensions, dims))
    results = ", ".join(str(s.with_dims(counts)) for s in shapes)
    seed = draw(SEEDS)
    values = {k: small(s, seed + k) for k, s in enumerate(shapes)}
    lowest = 0 if computation != "max" or not (element.is_signed or element.is_float) else -2
    values |= {len(shapes) + k: np.array(lowest) for k in range(len(shapes))}
    return StructuredCase(
        f"{f'({results})' if both else results} reduce-window(@), window={print_window(window)}, "
        f"to_apply={computation}",
        tuple(map(str, (*shapes, *scalars))),
        element.name,
        values,
    )


@st.composite
def selects_and_scatters(draw: st.DrawFn, types: Sequence[ElementType] = NUMBERS) -> StructuredCase:
    """Values differ where the type has enough of them: of equal ones XLA may choose any."""
    element = draw(st.sampled_from([t for t in types if not t.is_complex and t is not PRED]))
    dims = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    window = draw(_windows(dims, dilations=False))
    counts = tuple(w.output_size(n) for w, n in zip(window.dimensions, dims))
    shapes = (Shape(element, dims), Shape(element, counts), Shape(element))
    seed = draw(SEEDS)
    values = {0: small(shapes[0], seed), 1: small(shapes[1], seed + 1), 2: np.array(0)}
    if element.bits >= (16 if element.is_float else 8):
        values[0] = np.random.default_rng(seed).permutation(shapes[0].size)
    scatter = _computations(element)[0]
    return StructuredCase(
        f"{shapes[0]} select-and-scatter(@), window={print_window(window)}, select=ge, scatter={scatter}",
        tuple(map(str, shapes)),
        element.name,
        values,
    )


@st.composite
def reduces(draw: st.DrawFn, types: Sequence[ElementType] = NUMBERS) -> StructuredCase:
    element = draw(st.sampled_from(types))
    dims = tuple(draw(st.lists(st.sampled_from([0, 1, 2, 3, 5, 9, 40]), min_size=0, max_size=3)))
    dimensions = tuple(sorted(draw(st.sets(st.integers(0, len(dims) - 1))))) if dims else ()
    kept = tuple(n for d, n in enumerate(dims) if d not in dimensions)
    both = "add" in _computations(element) and draw(st.booleans())
    computation = "add_both" if both else draw(st.sampled_from(_computations(element)))
    shapes = [Shape(t, dims) for t in ([element, S32] if both else [element])]
    results = ", ".join(str(s.with_dims(kept)) for s in shapes)
    seed = draw(SEEDS)
    values = {k: small(s, seed + k) for k, s in enumerate(shapes)}
    lowest = 0 if computation != "max" or not (element.is_signed or element.is_float) else -2
    values |= {len(shapes) + k: np.array(lowest) for k in range(len(shapes))}
    return StructuredCase(
        f"{f'({results})' if both else results} reduce(@), dimensions={_braces(dimensions)}, to_apply={computation}",
        tuple(map(str, (*shapes, *(Shape(s.dtype) for s in shapes)))),
        element.name,
        values,
    )


@st.composite
def sorts(draw: st.DrawFn, types: Sequence[ElementType] = DATA_TYPES) -> StructuredCase:
    """Of lines short and long enough for every way to sort them, by comparators with keys and without."""
    element = draw(st.sampled_from([t for t in types if not t.is_complex]))
    dims = draw(st.lists(st.integers(1, 4), max_size=2))
    axis = draw(st.integers(0, len(dims)))
    dims.insert(axis, draw(st.sampled_from([0, 1, 2, 3, 7, 20, 65, 130, 300])))
    singles = ["lt", "gt"] + ["by_negation"] * (element.is_float and element is not F8E8M0FNU)
    pairs = ["lt_pairs", "two_keys", "refined", "chosen"] + ["total"] * element.is_float
    computation = draw(st.sampled_from(singles + pairs))
    shapes = [Shape(element, tuple(dims))] + [Shape(S32, tuple(dims))] * (computation in pairs)
    values = {k: _sortable(shape, draw(SEEDS), computation == "total") for k, shape in enumerate(shapes)}
    result = ", ".join(map(str, shapes))
    return StructuredCase(
        f"{f'({result})' if len(shapes) > 1 else result} sort(@), dimensions={{{axis}}}, is_stable=true, "
        f"to_apply={computation}",
        tuple(map(str, shapes)),
        element.name,
        values,
    )


def _sortable(shape: Shape, seed: int, total: bool) -> Array:
    """Values with repetitions; NaNs only where the comparator has a place for them."""
    generator = np.random.default_rng(seed)
    values = sample(shape, seed) if shape.dtype is not S32 else generator.integers(-5, 5, shape.dims).astype(np.int32)
    if shape.dtype.is_float and not total:
        values = np.where(np.isnan(values.astype(np.float64)), np.ones(1, values.dtype), values)
    return np.asarray(values)


def _products(types: Sequence[ElementType]) -> list[ElementType]:
    return [t for t in types if t in (*FLOATS, *INTEGERS, *COMPLEXES) and t is not F8E8M0FNU]


@st.composite
def dots(draw: st.DrawFn, types: Sequence[ElementType] = DATA_TYPES) -> Case:
    element = draw(st.sampled_from(_products(types)))
    dim_sizes = st.sampled_from([0, 1, 2, 3, 5, 8, 17])
    batch = draw(st.lists(st.integers(0, 3), max_size=2))
    contracted = draw(st.lists(dim_sizes, max_size=2))
    sides = []
    for _ in range(2):
        free = draw(st.lists(dim_sizes, max_size=2))
        roles = [("batch", k, n) for k, n in enumerate(batch)] + [
            ("contracted", k, n) for k, n in enumerate(contracted)
        ]
        order = draw(st.permutations(roles + [("free", k, n) for k, n in enumerate(free)]))
        at = {(role, k): d for d, (role, k, _) in enumerate(order)}
        batch_dims = tuple(at["batch", k] for k in range(len(batch)))
        sides.append(
            (tuple(n for *_, n in order), batch_dims, tuple(at["contracted", k] for k in range(len(contracted))))
        )
    shapes = tuple(Shape(element, side[0]) for side in sides)
    attributes = {
        "lhs_batch_dims": sides[0][1],
        "rhs_batch_dims": sides[1][1],
        "lhs_contracting_dims": sides[0][2],
        "rhs_contracting_dims": sides[1][2],
    }
    values = tuple(small(shape, draw(SEEDS)) for shape in shapes)
    return Case("dot", shapes, attributes, _dot_shape(shapes, attributes), values)


def _dot_shape(shapes: tuple[Shape, ...], attributes: dict[str, tuple[int, ...]]) -> Shape:
    left, right = shapes
    batch = [left.dims[d] for d in attributes["lhs_batch_dims"]]
    free = [
        n
        for side, shape in (("lhs", left), ("rhs", right))
        for d, n in enumerate(shape.dims)
        if d not in (*attributes[f"{side}_batch_dims"], *attributes[f"{side}_contracting_dims"])
    ]
    return Shape(left.dtype, (*batch, *free))


@st.composite
def convolutions(draw: st.DrawFn, types: Sequence[ElementType] = DATA_TYPES) -> Case:
    element = draw(st.sampled_from(_products(types)))
    rank = draw(st.integers(0, 2))
    spatial = tuple(draw(st.integers(1, 6)) for _ in range(rank))
    window = draw(_windows(spatial))
    window = Window(tuple(_reversed(w, draw(st.booleans())) for w in window.dimensions))
    groups, by_batch = draw(st.integers(1, 3)), draw(st.booleans())
    batch_groups = groups if by_batch else 1
    feature_groups = 1 if by_batch else groups
    batch, inputs = draw(st.integers(1, 2)) * batch_groups, draw(st.integers(1, 3)) * feature_groups
    outputs = draw(st.integers(1, 3)) * groups
    orders = [draw(st.permutations(range(rank + 2))) for _ in range(3)]
    dim_sizes = (
        (batch, inputs, *spatial),
        (inputs // feature_groups, outputs, *(w.size for w in window.dimensions)),
        (batch // batch_groups, outputs, *(w.output_size(n) for w, n in zip(window.dimensions, spatial))),
    )
    # order[k]: which dimension of the array the k-th of (batch or input, feature or output, spatial..) is
    shapes = []
    for order, found in zip(orders, dim_sizes):
        dims = [0] * (rank + 2)
        for d, n in zip(order, found):
            dims[d] = n
        shapes.append(Shape(element, tuple(dims)))
    lhs, rhs, out = orders
    numbers = ConvolutionDimensions(
        lhs[0], lhs[1], tuple(lhs[2:]), rhs[0], rhs[1], tuple(rhs[2:]), out[0], out[1], tuple(out[2:])
    )
    attributes = {
        "window": window,
        "dim_labels": numbers,
        "feature_group_count": feature_groups,
        "batch_group_count": batch_groups,
    }
    values = tuple(small(shape, draw(SEEDS)) for shape in shapes[:2])
    return Case("convolution", tuple(shapes[:2]), attributes, shapes[2], values)


def _reversed(w: WindowDimension, reversal: bool) -> WindowDimension:
    return WindowDimension(
        w.size, w.stride, w.padding_low, w.padding_high, w.base_dilation, w.window_dilation, reversal
    )


def _braces(numbers: Sequence[int]) -> str:
    return "{" + ",".join(map(str, numbers)) + "}"
