"""Cases of the ops that move elements: rank 0, size 0, primes, permuted layouts, clamped starts."""

from __future__ import annotations

from typing import Any

import numpy as np

from distxla.ir.literal import Literal
from distxla.ir.shape import Layout, Shape
from distxla.ir.window import PaddingDimension, SliceDimension
from tests.ops.case import Case, array, sample


def _constant(shape: Shape, value: Any = None) -> Case:
    values = sample(shape, 0) if value is None else np.full(shape.dims, value, shape.dtype.dtype)
    return Case("constant", (), {"literal": Literal.of(values, shape)}, result=shape)


def _laid_out(name: str, dims: tuple[int, ...], minor_to_major: tuple[int, ...]) -> Shape:
    return Shape(array(name).dtype, dims, layout=Layout(minor_to_major))


def _padding(*dimensions: tuple[int, ...]) -> dict[str, Any]:
    return {"padding": tuple(PaddingDimension(*d) for d in dimensions)}


def _slice(*dimensions: tuple[int, ...]) -> dict[str, Any]:
    return {"slice": tuple(SliceDimension(*d) for d in dimensions)}


CONSTANTS = [
    _constant(array("f32", 3, 5)),
    _constant(array("f32", 3, 5), 2.5),
    _constant(array("f32"), -0.0),
    _constant(array("s4", 7)),
    _constant(array("bf16", 2, 0)),
    _constant(array("c64", 3)),
    _constant(array("pred", 4)),
]

SHAPES = [
    Case("broadcast", (array("f32", *dims),), {"dimensions": dimensions}, result=array("f32", *to))
    for dims, dimensions, to in (
        ((), (), (3, 5)),
        ((), (), ()),
        ((3,), (0,), (3, 5)),
        ((5,), (1,), (3, 5)),
        ((3, 5), (2, 0), (5, 2, 3)),
        ((1, 5), (0, 1), (1, 5)),
        ((0,), (1,), (2, 0)),
        ((3,), (1,), (0, 3)),
    )
]
SHAPES += [
    Case("reshape", (array("s32", *dims),), result=array("s32", *to))
    for dims, to in (
        ((), (1, 1)),
        ((1, 1), ()),
        ((6,), (2, 3)),
        ((2, 3), (3, 2)),
        ((4, 6), (2, 2, 6)),
        ((2, 3, 5, 7), (6, 35)),
        ((6, 35), (2, 3, 5, 7)),
        ((4, 9), (6, 6)),
        ((1, 5, 1, 7), (5, 1, 7)),
        ((0, 3), (7, 0)),
        ((2, 12, 5), (8, 3, 5)),
    )
]
SHAPES += [
    Case("transpose", (array("f32", *dims),), {"dimensions": order})
    for dims, order in (
        ((), ()),
        ((5,), (0,)),
        ((3, 5), (1, 0)),
        ((2, 3, 5), (2, 0, 1)),
        ((2, 3, 5), (0, 2, 1)),
        ((0, 3, 2), (1, 2, 0)),
        ((65, 33), (1, 0)),
    )
]
SHAPES += [
    Case("reverse", (array("f32", *dims),), {"dimensions": dimensions})
    for dims, dimensions in (((), ()), ((5,), (0,)), ((3, 5), (0, 1)), ((2, 3, 4), (1,)), ((2, 0), (1,)), ((3, 5), ()))
]
SHAPES += [
    Case("bitcast", (_laid_out("f32", dims, layout),), result=_laid_out(name, to, to_layout))
    for dims, layout, name, to, to_layout in (
        ((2, 3), (1, 0), "f32", (3, 2), (0, 1)),
        ((2, 3), (0, 1), "f32", (6,), (0,)),
        ((2, 3, 5), (1, 2, 0), "f32", (5, 6), (0, 1)),
        ((4, 1), (1, 0), "s32", (2, 2), (1, 0)),
        ((), (), "f32", (1, 1), (0, 1)),
        ((0, 3), (0, 1), "f32", (3, 0), (1, 0)),
    )
]
SHAPES += [Case("copy", (array("f32", *dims),)) for dims in ((), (0,), (3, 5))]
SHAPES += [
    Case("copy-start", (array("f32", 3, 5),)),
    Case("copy-done", (Shape.tuple([array("f32", 3), array("f32", 3), array("u32")]),)),
]

TUPLES = [
    Case("tuple", ()),
    Case("tuple", (array("f32", 3), Shape.tuple([array("s32"), array("u8", 0)]))),
    Case(
        "get-tuple-element",
        (Shape.tuple([array("f32", 3), Shape.tuple([array("s32"), array("u8", 2)])]),),
        {"index": 1},
    ),
    Case("get-tuple-element", (Shape.tuple([array("f32", 3), array("s32")]),), {"index": 0}),
]

SLICES = [
    Case("slice", (array("f32", *dims),), _slice(*box))
    for dims, box in (
        ((), ()),
        ((7,), ((2, 5, 1),)),
        ((7,), ((0, 7, 3),)),
        ((7,), ((3, 3, 1),)),
        ((5, 11), ((1, 5, 2), (0, 11, 5))),
        ((2, 3, 5), ((0, 2, 1), (1, 3, 1), (0, 5, 1))),
    )
]


def _starts(*values: int, name: str = "s32") -> tuple[np.ndarray[Any, Any], ...]:
    return tuple(np.array(v, array(name).dtype.dtype) for v in values)


SLICES += [
    Case(
        "dynamic-slice",
        (array("f32", *dims), *(array("s32") for _ in starts)),
        {"dynamic_slice_sizes": sizes},
        arguments=(sample(array("f32", *dims), 0), *_starts(*starts)),
    )
    for dims, sizes, starts in (
        ((), (), ()),
        ((7,), (3,), (2,)),
        ((7,), (3,), (6,)),
        ((7,), (3,), (-5,)),
        ((5, 11), (2, 11), (9, 3)),
        ((5, 11), (0, 4), (1, 2_000_000_000)),
    )
]
SLICES += [
    Case(
        "dynamic-slice",
        (array("f32", 7), array("u64")),
        {"dynamic_slice_sizes": (3,)},
        arguments=(sample(array("f32", 7), 0), np.array(2**64 - 1, np.uint64)),
    ),
    Case(
        "dynamic-slice",
        (array("f32", 5, 7), array("s32", 2)),
        {"dynamic_slice_sizes": (2, 3)},
        arguments=(sample(array("f32", 5, 7), 0), np.array([4, 1], np.int32)),
    ),
]
SLICES += [
    Case(
        "dynamic-update-slice",
        (array("f32", *dims), array("f32", *update), *(array("s64") for _ in starts)),
        arguments=(sample(array("f32", *dims), 0), sample(array("f32", *update), 1), *_starts(*starts, name="s64")),
    )
    for dims, update, starts in (
        ((), (), ()),
        ((7,), (3,), (2,)),
        ((7,), (3,), (100,)),
        ((5, 11), (2, 3), (-1, 4)),
        ((5, 11), (0, 3), (1, 1)),
        ((5, 11), (5, 11), (3, 3)),
    )
]

PADS = [
    Case("pad", (array("f32", *dims), array("f32")), _padding(*padding))
    for dims, padding in (
        ((), ()),
        ((3,), ((1, 2, 0),)),
        ((3,), ((0, 0, 2),)),
        ((3,), ((2, 1, 1),)),
        ((5,), ((-1, -2, 0),)),
        ((5,), ((-1, 3, 1),)),
        ((5,), ((-2, -2, 2),)),
        ((0,), ((2, 1, 3),)),
        ((3, 5), ((1, 0, 0), (0, 2, 1))),
        ((3, 5), ((0, 0, 0), (-3, -2, 0))),
        ((2, 3, 5), ((1, 1, 0), (0, 0, 0), (2, 2, 0))),
        ((1, 1), ((0, 0, 5), (3, 0, 2))),
    )
]

JOINS = [
    Case("concatenate", tuple(array("s16", *d) for d in dims), {"dimensions": (dimension,)})
    for dims, dimension in (
        (((3,),), 0),
        (((3,), (4,), (5,)), 0),
        (((2, 3), (2, 0), (2, 5)), 1),
        (((0, 3), (0, 3)), 0),
        (((2, 3, 2), (1, 3, 2)), 0),
        (((0,), (4,)), 0),
    )
]


def _gather(
    dims: tuple[int, ...],
    starts: tuple[int, ...],
    *,
    name: str = "s32",
    low: int = -3,
    high: int = 12,
    **attributes: Any,
) -> Case:
    generator = np.random.default_rng(len(dims) + sum(starts))
    indices = generator.integers(low, high, starts).astype(array(name).dtype.dtype)
    return Case(
        "gather",
        (array("f32", *dims), array(name, *starts)),
        attributes,
        arguments=(sample(array("f32", *dims), 0), indices),
    )


_ROWS = {"offset_dims": (1,), "collapsed_slice_dims": (0,), "start_index_map": (0,), "index_vector_dim": 1}
_TABLE = {**_ROWS, "slice_sizes": (1, 4)}

GATHERS = [
    _gather((10, 4), (6, 1), **_TABLE),
    # every element of the indices is a start
    _gather((10, 4), (6,), **_TABLE),
    # unsigned starts; no start at all
    _gather((10, 4), (6, 1), name="u32", low=0, **_TABLE),
    _gather((10, 4), (0, 1), **_TABLE),
    # an empty window
    _gather((10, 4), (3, 1), **{**_TABLE, "offset_dims": (1, 2), "collapsed_slice_dims": (), "slice_sizes": (0, 4)}),
    # scalars at pairs of indices, the vector first
    _gather(
        (10, 7),
        (2, 3, 5),
        offset_dims=(),
        collapsed_slice_dims=(0, 1),
        start_index_map=(1, 0),
        index_vector_dim=0,
        slice_sizes=(1, 1),
    ),
    # windows that keep their dimensions, in front of and behind the batch
    _gather(
        (10, 7, 3),
        (4, 2),
        offset_dims=(0, 2),
        collapsed_slice_dims=(1,),
        start_index_map=(0, 1),
        index_vector_dim=1,
        slice_sizes=(3, 1, 2),
    ),
    # one window
    _gather(
        (10, 7),
        (2,),
        offset_dims=(0, 1),
        collapsed_slice_dims=(),
        start_index_map=(0, 1),
        index_vector_dim=0,
        slice_sizes=(2, 3),
    ),
    # batching dimensions, one and two in another order
    _gather(
        (5, 10, 7),
        (4, 5, 1),
        offset_dims=(2,),
        collapsed_slice_dims=(1,),
        start_index_map=(1,),
        operand_batching_dims=(0,),
        start_indices_batching_dims=(1,),
        index_vector_dim=2,
        slice_sizes=(1, 1, 3),
    ),
    _gather(
        (2, 10, 3),
        (3, 2, 1),
        offset_dims=(),
        collapsed_slice_dims=(1,),
        start_index_map=(1,),
        operand_batching_dims=(0, 2),
        start_indices_batching_dims=(1, 0),
        index_vector_dim=2,
        slice_sizes=(1, 1, 1),
    ),
]

CASES = [*CONSTANTS, *SHAPES, *TUPLES, *SLICES, *PADS, *JOINS, *GATHERS]
