"""The form of `collective-permute` that sends slices of one array into places of another, or of a tuple of arrays.

Operands (input, output, input indices, output indices). input and output are arrays, or tuples of as many arrays. The
indices of an array are a tuple of integer scalars, one a dimension, or for several slices a tuple of such tuples; those
of a tuple of arrays are a tuple of that. `slice_sizes` holds the dimension sizes of every slice, array by array.

Slice j of the source's input, at the source's input indices, is copied into the target's output, at the target's output
indices; starts are clamped as dynamic-slice does. Elements outside all slices keep the value of `output`. They are
written in order. Every pair carries every slice, unless an id is the source or target of several pairs: the pairs are
then as many stretches of equal length as an array has slices, and the j-th stretch carries the j-th slice (the two
directions of a ring in one instruction).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from distxla.ir.element_type import PRED
from distxla.ir.instruction import Instruction
from distxla.ir.op import Op
from distxla.ir.shape import Shape
from distxla.ops.support.box_starts import evaluated_starts
from distxla.ops.support.expansion import Build
from distxla.ops.support.registry import op_class

Pairs = tuple[tuple[int, int], ...]
T = TypeVar("T")


class SlicedPermute(Protocol):
    """A collective-permute with slice_sizes."""

    @property
    def channel_id(self) -> int | None: ...
    @property
    def source_target_pairs(self) -> Pairs: ...
    @property
    def slice_sizes(self) -> tuple[tuple[int, ...], ...]: ...
    def require(self, condition: object, rule: str, message: str, at: str | None = None) -> None: ...


def check_slices(op: SlicedPermute, operands: Sequence[Shape]) -> None:
    """C3 and C6 to C8 of `collective-permute`, and C1 within every stretch of pairs."""
    op.require(len(operands) == 4, "C3", f"{len(operands)} operands with slice_sizes", at="operands")
    inputs, outputs = _buffers(operands[0]), _buffers(operands[1])
    op.require(
        operands[0].is_tuple == operands[1].is_tuple
        and len(inputs) == len(outputs) > 0
        and all(
            a.is_array and b.is_array and a.dtype is b.dtype and a.rank == b.rank
            for a, b in zip(inputs, outputs, strict=False)
        ),
        "C6",
        f"input {operands[0]} and output {operands[1]} must be arrays, or tuples of as many arrays, of the same types "
        "and ranks",
        at="operands",
    )
    op.require(
        len(op.slice_sizes) % len(inputs) == 0,
        "C8",
        f"{len(op.slice_sizes)} slice_sizes for {len(inputs)} arrays",
        at="slice_sizes",
    )
    count = len(op.slice_sizes) // len(inputs)
    for indices in operands[2:]:
        _check_indices(op, indices, operands[0].is_tuple, inputs, count)
    for k, sizes in enumerate(op.slice_sizes):
        source, target = inputs[k // count], outputs[k // count]
        op.require(
            len(sizes) == source.rank
            and all(0 <= size <= min(a, b) for size, a, b in zip(sizes, source.dims, target.dims, strict=True)),
            "C8",
            f"a slice of {list(sizes)} does not fit into {source} and {target}",
            at="slice_sizes",
        )
    stretches(op, count)


def _check_indices(op: SlicedPermute, indices: Shape, is_tuple: bool, buffers: Sequence[Shape], count: int) -> None:
    """C7 for one of the two operands."""
    wanted = f"indices of {count} slice(s) of {', '.join(map(str, buffers))}"

    def is_index(shape: Shape, rank: int) -> bool:
        scalars = shape.elements
        return (
            scalars is not None
            and len(scalars) == rank
            and all(s.is_array and s.rank == 0 and s.dtype.is_integer for s in scalars)
        )

    def fits(shape: Shape, rank: int) -> bool:
        several = shape.elements or ()
        return (count == 1 and is_index(shape, rank)) or (
            len(several) == count and all(is_index(one, rank) for one in several)
        )

    given = (indices.elements or ()) if is_tuple else (indices,)
    op.require(
        len(given) == len(buffers) and all(fits(shape, b.rank) for shape, b in zip(given, buffers, strict=False)),
        "C7",
        f"{indices} are no {wanted}",
        at="operands",
    )


def stretches(op: SlicedPermute, count: int) -> tuple[Pairs, ...]:
    """The pairs that carry each of an array's `count` slices; RuleViolation C1 where they are not one-to-one."""
    pairs = op.source_target_pairs
    if _is_one_to_one(pairs):
        return (pairs,) * count
    length = len(pairs) // count
    found = tuple(pairs[j * length : (j + 1) * length] for j in range(count))
    op.require(
        length * count == len(pairs) and all(map(_is_one_to_one, found)),
        "C1",
        f"an id is in two pairs, and {len(pairs)} pairs are not {count} stretches, one a slice, in which none is",
        at="source_target_pairs",
    )
    return found


def _is_one_to_one(pairs: Pairs) -> bool:
    return all(len({pair[side] for pair in pairs}) == len(pairs) for side in (0, 1))


def _buffers(shape: Shape) -> tuple[Shape, ...]:
    return shape.elements if shape.elements is not None else (shape,)


def positions(indices: T, shape: Shape, of_tuple: bool, count: int, part: Callable[[T, int], T]) -> list[list[list[T]]]:
    """The scalars of an operand of indices by array, slice and dimension. part: an element of a tuple."""
    whole = [(part(indices, b), s) for b, s in enumerate(shape.elements or ())] if of_tuple else [(indices, shape)]
    found = []
    for node, own in whole:
        nested = own.elements or ()
        several = bool(nested) and nested[0].is_tuple
        slices = [(part(node, j), s) for j, s in enumerate(nested)] if several else [(node, own)] * count
        found.append([[part(one, d) for d in range(len(s.elements or ()))] for one, s in slices])
    return found


def exchanged(
    op: SlicedPermute, ids: Sequence[int], operands: Sequence[tuple[Any, ...]], shapes: Sequence[Shape]
) -> list[Any]:
    """The results of the devices `ids`, in their order, by NumPy."""
    of_tuple = shapes[0].is_tuple
    count = len(op.slice_sizes) // len(_buffers(shapes[0]))
    received = [[np.array(a) for a in (mine[1] if of_tuple else (mine[1],))] for mine in operands]
    starts = [
        [positions(mine[k], shapes[k], of_tuple, count, lambda node, i: node[i]) for k in (2, 3)] for mine in operands
    ]
    for j, pairs in enumerate(stretches(op, count)):
        for source, target in pairs:
            if source not in ids:
                continue
            s, t = ids.index(source), ids.index(target)
            sent = operands[s][0] if of_tuple else (operands[s][0],)
            for b, array in enumerate(sent):
                sizes = op.slice_sizes[b * count + j]
                there = evaluated_starts(array.shape, sizes, starts[s][0][b][j])
                here = evaluated_starts(received[t][b].shape, sizes, starts[t][1][b][j])
                received[t][b][_box(here, sizes)] = array[_box(there, sizes)]
    return [tuple(mine) if of_tuple else mine[0] for mine in received]


def _box(starts: Sequence[int], sizes: Sequence[int]) -> tuple[Any, ...]:
    return (*(slice(start, start + size) for start, size in zip(starts, sizes, strict=True)), ...)


def expand_slices(
    op: SlicedPermute, build: Build, instruction: Instruction, permute_whole: Callable[[Pairs], Op]
) -> str:
    """Slices are cut out, permuted, and written over the output of devices that are a target.

    permute_whole: the op that sends whole arrays along pairs.
    """

    given, kept, *indices = instruction.operands
    of_tuple = build.shape(given).is_tuple
    count = len(op.slice_sizes) // len(_buffers(build.shape(given)))
    numbers = range(len(_buffers(build.shape(given))))
    sources = [build.element(given, b) for b in numbers] if of_tuple else [given]
    results = [build.element(kept, b) for b in numbers] if of_tuple else [kept]
    theirs, mine = (positions(i, build.shape(i), of_tuple, count, build.element) for i in indices)
    carried = stretches(op, count)
    together = [range(count)] if len(set(carried)) == 1 else [range(j, j + 1) for j in range(count)]
    name: str | None = instruction.name
    for slices in together:
        pairs = carried[slices.start] if count else ()
        if not pairs:
            continue
        cut, places = [], []
        for b in numbers:
            for j in slices:
                sizes = op.slice_sizes[b * count + j]
                cut.append(_slice(build, sizes, sources[b], *theirs[b][j]))
                places.append((b, mine[b][j]))
        shapes = [build.shape(c) for c in cut]
        shape = shapes[0] if len(shapes) == 1 else Shape.tuple(tuple(shapes))
        arrived = build.add(permute_whole(pairs), *cut, shape=shape, name=name)
        name = None
        is_target = _is_one_of(op, build, [target for _, target in pairs])
        for k, (b, at) in enumerate(places):
            new = arrived if len(places) == 1 else build.element(arrived, k)
            dims = shapes[k].dims
            old = _slice(build, dims, results[b], *at)
            written = build.select(build.broadcast(is_target, dims), new, old)
            results[b] = build.compute("dynamic-update-slice", results[b], written, *at)
    return build.join(*results) if of_tuple else results[0]


def _slice(build: Build, sizes: tuple[int, ...], operand: str, *starts: str) -> str:
    return build.add(op_class("dynamic-slice")(dynamic_slice_sizes=sizes), operand, *starts)  # type: ignore[call-arg]


def _is_one_of(op: SlicedPermute, build: Build, ids: Sequence[int]) -> str:
    """pred[]: whether this device's id is among `ids`. Higher ids read the table's last entry, which is false."""
    own = build.compute("replica-id" if op.channel_id is None else "partition-id")
    table = np.zeros(max(ids) + 2, bool)
    table[list(ids)] = True
    entries = build.literal(table, Shape(PRED, table.shape))
    return build.reshape(_slice(build, (1,), entries, own), ())
