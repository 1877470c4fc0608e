"""HLO `ragged-dot` and `scaled-dot`: products with groups of rows, and of operands with scaled blocks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any, ClassVar, Final

import numpy as np

from distxla.ir.attribute import attribute
from distxla.ir.element_type import F32, F64, S64, ElementType
from distxla.ir.instruction import Instruction
from distxla.ir.op import Lowering, Op
from distxla.ir.op_traits import OperandCount, exactly
from distxla.ir.shape import Called, Shape
from distxla.ops.dot import Dot
from distxla.ops.dynamic_slice import DynamicSlice
from distxla.ops.dynamic_update_slice import DynamicUpdateSlice
from distxla.ops.support.dot_dimensions import DotDimensions, DotOp, check_algorithm, check_precision, product_type
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.expansion import Build
from distxla.ops.support.matrix_views import accumulation_type
from distxla.ops.support.registry import register

# Block size along a ragged dimension: every group costs at most two products of a block in excess.
BLOCK: Final = 128


@register
class RaggedDot(DotOp):
    """A product in which one dimension of lhs is cut into groups of sizes that an operand gives.

    A free ragged dimension: rows of a group are multiplied by that group's part of rhs, rows behind the last group give
    zeros. A contracting one: each group has a product of its own. A batch one: the groups change nothing.

    Shapes:  by the kind of the ragged dimension of lhs: free: rhs has a group dimension, -> [batch, free of lhs, free
             of rhs]; contracting: -> [groups, batch, free, free]; batch: -> [batch, free, free]. The sizes are
             [groups], or [.., groups] with the dimension sizes of lhs's batch dimensions and those of the ragged
             dimension's kind that precede it.
    Errors:  C1 to C10 as for dot; C11 operand_precision; C14 not one ragged dimension; C15 the group dimensions; C16
             the group sizes.
    Source:  CHLO "ragged_dot".
    """

    opcode: ClassVar[str] = "ragged-dot"
    lowering: ClassVar[Lowering] = Lowering.EXPANSION
    operand_count: ClassVar[OperandCount] = exactly(3)
    lhs_ragged_dims: tuple[int, ...] = attribute("int_list", default=())
    rhs_group_dims: tuple[int, ...] = attribute("int_list", default=())
    operand_precision: tuple[str, ...] = attribute("precision", default=())

    @property
    def ragged(self) -> int:
        """The ragged dimension of lhs."""
        return self.lhs_ragged_dims[0]

    def _prefix(self, rank: int) -> tuple[int, ...]:
        """The dimensions of lhs, which has `rank`, over which group sizes may differ."""
        dims = self.dimensions
        if self.ragged in dims.lhs_batch:
            return dims.lhs_batch[: dims.lhs_batch.index(self.ragged)]
        kind = dims.lhs_contracting if self.ragged in dims.lhs_contracting else dims.lhs_free(rank)
        return dims.lhs_batch + kind[: kind.index(self.ragged)]

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        lhs, rhs, sizes = operands
        dims = self.dimensions
        dims.check(self, lhs, rhs)
        check_precision(self, "C11", self.operand_precision)
        ragged = self.lhs_ragged_dims
        self.require(
            len(ragged) == 1 and 0 <= ragged[0] < lhs.rank, "C14", f"{list(ragged)} for {lhs}", at="lhs_ragged_dims"
        )
        is_free = ragged[0] in dims.lhs_free(lhs.rank)
        self.require(
            len(self.rhs_group_dims) == int(is_free) and all(d in dims.rhs_free(rhs.rank) for d in self.rhs_group_dims),
            "C15",
            f"rhs_group_dims={list(self.rhs_group_dims)} for a {'free' if is_free else 'shared'} ragged dimension",
            at="rhs_group_dims",
        )
        self.require(
            sizes.is_array and sizes.dtype.is_integer and sizes.rank >= 1, "C16", f"group sizes {sizes}", at="operands"
        )
        groups = sizes.dims[-1]
        prefix = tuple(lhs.dims[d] for d in self._prefix(lhs.rank))
        self.require(
            sizes.rank == 1 or sizes.dims[:-1] == prefix,
            "C16",
            f"group sizes {sizes} are neither [{groups}] nor {[*prefix, groups]}",
            at="operands",
        )
        for d in self.rhs_group_dims:
            self.require(rhs.dims[d] == groups, "C16", f"{rhs} has not {groups} groups", at="operands")
        result = [
            *(lhs.dims[d] for d in dims.lhs_batch),
            *(lhs.dims[d] for d in dims.lhs_free(lhs.rank)),
            *(rhs.dims[d] for d in dims.rhs_free(rhs.rank) if d not in self.rhs_group_dims),
        ]
        if ragged[0] in dims.lhs_contracting:
            result.insert(0, groups)
        return Shape(product_type(lhs, rhs), tuple(result))

    def verify(self, shape: Shape, operands: Sequence[Shape], called: Called) -> None:
        _verify_product(self, shape, self.infer_shape(operands, called))

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        lhs, rhs, sizes = operands
        element_type, dims = run.shape.dtype, self.dimensions
        wide = accumulation_type(element_type).dtype
        lhs, rhs = lhs.astype(wide), rhs.astype(wide)
        if self.ragged in dims.lhs_batch:
            return _product(lhs, rhs, dims).astype(element_type.dtype)
        ends = np.cumsum(sizes.astype(np.int64), -1)
        groups, prefix = sizes.shape[-1], self._prefix(lhs.ndim)

        def of_group(group: int, shape: tuple[int, ...], ragged: int, before: Sequence[int]) -> Any:
            """Which elements of an array with that ragged dimension belong to the group."""
            place = np.arange(shape[ragged]).reshape([-1 if d == ragged else 1 for d in range(len(shape))])
            end, size = ends[..., group], sizes[..., group]
            if sizes.ndim > 1:
                order = sorted(range(len(before)), key=before.__getitem__)
                dimension_sizes = [shape[d] if d in before else 1 for d in range(len(shape))]
                end, size = (array.transpose(order).reshape(dimension_sizes) for array in (end, size))
            return np.broadcast_to((place >= end - size) & (place < end), shape)

        if self.ragged in dims.lhs_contracting:
            partner = dict(zip((*dims.lhs_batch, *dims.lhs_contracting), (*dims.rhs_batch, *dims.rhs_contracting)))
            results = []
            for group in range(groups):
                left = np.where(of_group(group, lhs.shape, self.ragged, prefix), lhs, 0)
                inside = of_group(group, rhs.shape, partner[self.ragged], [partner[d] for d in prefix])
                results.append(_product(left, np.where(inside, rhs, 0), dims))
            return np.reshape(results, run.shape.dims).astype(element_type.dtype)
        place_of = self._result_places(lhs.ndim)
        result = np.zeros(run.shape.dims, wide)
        for group in range(groups):
            part = np.take(rhs, group, self.rhs_group_dims[0])
            found = _product(lhs, part, self._without_group_dimension())
            inside = of_group(group, result.shape, place_of[self.ragged], [place_of[d] for d in prefix])
            result = np.where(inside, found, result)
        return result.astype(element_type.dtype)

    def _result_places(self, rank: int) -> dict[int, int]:
        """Where lhs's batch and free dimensions are in the result of a product."""
        return {d: place for place, d in enumerate((*self.dimensions.lhs_batch, *self.dimensions.lhs_free(rank)))}

    def _without_group_dimension(self) -> DotDimensions:
        """The dimension numbers where rhs is one group's part."""
        dims, (group,) = self.dimensions, self.rhs_group_dims

        def moved(numbers: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(d - 1 if d > group else d for d in numbers)

        return DotDimensions(dims.lhs_batch, dims.lhs_contracting, moved(dims.rhs_batch), moved(dims.rhs_contracting))

    def expand(self, build: Build, instruction: Instruction) -> str:
        lhs, rhs, _ = instruction.operands
        shape = instruction.shape.without_layout()
        if self.ragged in self.dimensions.lhs_batch:
            return build.add(_dot(self.dimensions, self.operand_precision), lhs, rhs, shape=shape)
        if not shape.size:
            return build.constant(0, shape.dtype, shape.dims)
        return _RaggedLoop(self, build, instruction).run()


class _RaggedLoop:
    """Builds a loop over pairs of a block of the ragged dimension and a group that may have a part of it.

    Blocks and groups both are in the ragged dimension's order, so that a step ends either a block or a group.
    """

    def __init__(self, op: RaggedDot, build: Build, instruction: Instruction) -> None:
        self.op, self.build = op, build
        self.lhs, self.rhs, self.sizes = instruction.operands
        self.shape = instruction.shape.without_layout()
        self.lhs_shape, self.rhs_shape = build.shape(self.lhs), build.shape(self.rhs)
        self.dims = op.dimensions
        self.contracts = op.ragged in self.dims.lhs_contracting
        self.dimension_size = self.lhs_shape.dims[op.ragged]
        sizes = build.shape(self.sizes)
        self.groups = sizes.dims[-1]
        # Where sizes differ by other dimensions, there is no common order: all is one block.
        self.one_block = sizes.rank > 1 or self.dimension_size <= BLOCK
        self.block = self.dimension_size if self.one_block else BLOCK
        self.sum_type = accumulation_type(self.shape.dtype) if self.contracts else self.shape.dtype

    def run(self) -> str:
        """The name of the result."""
        build = self.build
        zero = build.constant(0, S64)
        sizes = build.convert(self.sizes, S64)
        start = build.constant(0, S64, build.shape(sizes).dims[:-1])
        result = build.constant(0, self.sum_type, self.shape.dims)
        initial = [zero, zero, start, sizes, self.lhs, self.rhs, result]
        if not self.dimension_size or not self.groups:
            return build.convert(result, self.shape.dtype)
        *_, result = build.loop(initial, self.goes_on, self.step)
        return build.convert(result, self.shape.dtype)

    def goes_on(self, build: Build, state: Sequence[str]) -> str:
        """There are a group and the beginning of a block."""
        group, begin, *_ = state
        more = build.compare("LT", group, build.constant(self.groups, S64))
        if self.one_block:
            return more
        return build.compute("and", more, build.compare("LT", begin, build.constant(self.dimension_size, S64)))

    def step(self, build: Build, state: Sequence[str]) -> Sequence[str]:
        """Multiply the intersection of block and group, then go on with the one that ends later."""
        group, begin, start, sizes, lhs, rhs, result = state
        prefix = build.shape(start).dims
        size = build.reshape(self.slice(build, sizes, {len(prefix): (group, 1)}), prefix)
        end = build.compute("add", start, size)
        # The last block is moved to the left where it would reach over the end.
        moved = (
            begin
            if self.one_block
            else build.compute("minimum", begin, build.constant(self.dimension_size - self.block, S64))
        )
        multiply = self.contracting if self.contracts else self.free
        following = multiply(build, group, begin, moved, start, end, (lhs, rhs, result))
        next_group = build.compute("add", group, build.constant(1, S64))
        if self.one_block:
            return [next_group, begin, end, sizes, lhs, rhs, following]
        next_block = build.compute("add", begin, build.constant(self.block, S64))
        more_of_group = build.compare("GT", end, next_block)
        return [
            build.select(more_of_group, group, next_group),
            build.select(more_of_group, next_block, begin),
            build.select(more_of_group, start, end),
            sizes,
            lhs,
            rhs,
            following,
        ]

    def free(
        self, build: Build, group: str, begin: str, moved: str, start: str, end: str, arrays: tuple[str, str, str]
    ) -> str:
        """The result after the rows of the block that belong to the group are put into it."""
        lhs, rhs, result = arrays
        (group_dimension,) = self.op.rhs_group_dims
        place_of = self.op._result_places(self.lhs_shape.rank)
        rows = self.slice(build, lhs, {self.op.ragged: (moved, self.block)})
        dims = self.rhs_shape.dims
        part = self.slice(build, rhs, {group_dimension: (group, 1)})
        part = build.reshape(part, dims[:group_dimension] + dims[group_dimension + 1 :])
        place = {place_of[self.op.ragged]: (moved, self.block)}
        old = self.slice(build, result, place)
        dot = _dot(self.op._without_group_dimension(), self.op.operand_precision)
        found = build.add(dot, rows, part, shape=build.shape(old))
        prefix = [place_of[d] for d in self.op._prefix(self.lhs_shape.rank)]
        inside = self.inside(build, build.shape(old).dims, place_of[self.op.ragged], prefix, moved, begin, start, end)
        return self.update(build, result, build.select(inside, found, old), place)

    def contracting(
        self, build: Build, group: str, begin: str, moved: str, start: str, end: str, arrays: tuple[str, str, str]
    ) -> str:
        """The result after the block's part of the group's product is added to it."""
        lhs, rhs, result = arrays
        partner = dict(
            zip(
                (*self.dims.lhs_batch, *self.dims.lhs_contracting),
                (*self.dims.rhs_batch, *self.dims.rhs_contracting),
            )
        )
        prefix = self.op._prefix(self.lhs_shape.rank)
        sides = []
        for array, ragged, before in (
            (lhs, self.op.ragged, list(prefix)),
            (rhs, partner[self.op.ragged], [partner[d] for d in prefix]),
        ):
            part = self.slice(build, array, {ragged: (moved, self.block)})
            shape = build.shape(part)
            inside = self.inside(build, shape.dims, ragged, before, moved, begin, start, end)
            sides.append(build.select(inside, part, build.constant(0, shape.dtype, shape.dims)))
        old = self.slice(build, result, {0: (group, 1)})
        product = build.add(
            _dot(self.dims, self.op.operand_precision), *sides, shape=Shape(self.sum_type, self.shape.dims[1:])
        )
        added = build.compute("add", old, build.reshape(product, build.shape(old).dims))
        return self.update(build, result, added, {0: (group, 1)})

    def inside(
        self,
        build: Build,
        dims: tuple[int, ...],
        ragged: int,
        prefix: Sequence[int],
        moved: str,
        begin: str,
        start: str,
        end: str,
    ) -> str:
        """Which elements of a block with dimension sizes `dims` belong to the group, and to no earlier block."""
        place = build.compute("add", build.iota(S64, dims, ragged), build.broadcast(moved, dims))
        # Sizes that don't differ are scalars here.
        by = prefix if build.shape(start).rank else ()
        order = sorted(range(len(by)), key=by.__getitem__)
        low, high = start, end
        if order != list(range(len(by))):
            low, high = (build.transpose(array, order) for array in (start, end))
        by = sorted(by)
        if not self.one_block:
            low = build.compute("maximum", low, begin)
        return build.compute(
            "and",
            build.compare("GE", place, build.broadcast(low, dims, by)),
            build.compare("LT", place, build.broadcast(high, dims, by)),
        )

    def slice(self, build: Build, array: str, ranges: dict[int, tuple[str, int]]) -> str:
        """The part of an array: by dimension its start and its size."""
        dims = build.shape(array).dims
        sizes = tuple(ranges[d][1] if d in ranges else dimension_size for d, dimension_size in enumerate(dims))
        return build.add(DynamicSlice(dynamic_slice_sizes=sizes), array, *self.starts(build, len(dims), ranges))

    def update(self, build: Build, array: str, part: str, ranges: dict[int, tuple[str, int]]) -> str:
        """The array with that part in place."""
        return build.add(DynamicUpdateSlice(), array, part, *self.starts(build, build.shape(array).rank, ranges))

    def starts(self, build: Build, rank: int, ranges: dict[int, tuple[str, int]]) -> list[str]:
        zero = build.constant(0, S64)
        return [ranges[d][0] if d in ranges else zero for d in range(rank)]


@register
class ScaledDot(DotOp):
    """A product of operands whose blocks along the contracting dimension carry a scale each.

    Shapes:  as dot; the scales have the rank of their operand, each size divides it; a scalar scale means none.
    Errors:  C1 to C10 as for dot; C11 operand_precision; C14 a scale that doesn't fit; C15 no scale at all: both are
             scalars; C16 a scale of blocks and not one contracting dimension; algorithm: no such one.
    """

    opcode: ClassVar[str] = "scaled-dot"
    lowering: ClassVar[Lowering] = Lowering.EXPANSION
    operand_count: ClassVar[OperandCount] = exactly(4)
    operand_precision: tuple[str, ...] = attribute("precision", default=())
    algorithm: str | None = attribute("word", default=None)

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        lhs, rhs = operands[:2]
        dims = self.dimensions
        dims.check(self, lhs, rhs)
        check_precision(self, "C11", self.operand_precision)
        check_algorithm(self, self.algorithm)
        for operand, scale in zip((lhs, rhs), operands[2:]):
            fits = scale.is_array and (
                scale.rank == 0
                or (
                    scale.rank == operand.rank
                    and all(
                        dimension_size == s or (s > 0 and dimension_size % s == 0)
                        for s, dimension_size in zip(scale.dims, operand.dims)
                    )
                )
            )
            self.require(fits, "C14", f"{scale} does not scale blocks of {operand}", at="operands")
            one = scale.rank == 0 or len(dims.lhs_contracting) == 1
            self.require(
                one, "C16", f"{len(dims.lhs_contracting)} contracting dimensions with scales {scale}", at="operands"
            )
        scaled = any(scale.rank for scale in operands[2:])
        self.require(scaled, "C15", "both scales are scalars, one must scale blocks", at="operands")
        return Shape(product_type(lhs, rhs), dims.result_dims(lhs, rhs))

    def verify(self, shape: Shape, operands: Sequence[Shape], called: Called) -> None:
        _verify_product(self, shape, self.infer_shape(operands, called))

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        wide = np.float64 if F64 in (shape.dtype for shape in run.operand_shapes[:2]) else np.float32
        sides = []
        for operand, scale in zip(operands[:2], operands[2:]):
            scaled = scale.astype(wide)
            for d in range(scale.ndim):
                scaled = np.repeat(scaled, operand.shape[d] // scale.shape[d], d) if scale.shape[d] else scaled
            sides.append(operand.astype(wide) * scaled)
        result = run.shape.dtype.dtype
        return _product(sides[0], sides[1], self.dimensions).astype(result)

    def expand(self, build: Build, instruction: Instruction) -> str:
        lhs, rhs = instruction.operands[:2]
        wide = F64 if F64 in (build.shape(lhs).dtype, build.shape(rhs).dtype) else F32
        sides = [
            build.compute("multiply", build.convert(operand, wide), self._spread(build, scale, operand, wide))
            for operand, scale in zip((lhs, rhs), instruction.operands[2:])
        ]
        return build.add(
            _dot(self.dimensions, self.operand_precision), *sides, shape=instruction.shape.without_layout()
        )

    def _spread(self, build: Build, scale: str, operand: str, wide: ElementType) -> str:
        """The scale with its operand's dimension sizes: every element for the block that it scales."""
        scale, dims = build.convert(scale, wide), build.shape(operand).dims
        dimension_sizes = build.shape(scale).dims
        if not dimension_sizes or not build.shape(operand).size:
            return build.broadcast(scale, dims) if not dimension_sizes else build.constant(0, wide, dims)
        kept = [d for d, dimension_size in enumerate(dimension_sizes) if dimension_size > 1]
        blocks = [(dimension_size, dims[d] // dimension_size) for d, dimension_size in enumerate(dimension_sizes)]
        apart = build.broadcast(
            build.reshape(scale, [dimension_sizes[d] for d in kept]),
            [n for block in blocks for n in block],
            [2 * d for d in kept],
        )
        return build.reshape(apart, dims)


def _dot(dims: DotDimensions, precision: tuple[str, ...]) -> Dot:
    return Dot(
        lhs_batch_dims=dims.lhs_batch,
        lhs_contracting_dims=dims.lhs_contracting,
        rhs_batch_dims=dims.rhs_batch,
        rhs_contracting_dims=dims.rhs_contracting,
        operand_precision=precision,
    )


def _product(lhs: Any, rhs: Any, dims: DotDimensions) -> Any:
    """A product by NumPy, in the operands' type."""
    fresh = count()
    left = [next(fresh) for _ in range(lhs.ndim)]
    right = [next(fresh) for _ in range(rhs.ndim)]
    for a, b in zip((*dims.lhs_batch, *dims.lhs_contracting), (*dims.rhs_batch, *dims.rhs_contracting)):
        right[b] = left[a]
    free = (*(left[d] for d in dims.lhs_free(lhs.ndim)), *(right[d] for d in dims.rhs_free(rhs.ndim)))
    return np.einsum(lhs, left, rhs, right, [*(left[d] for d in dims.lhs_batch), *free])


def _verify_product(op: Op, shape: Shape, inferred: Shape) -> None:
    """The dimension sizes must agree; the result's element type is free."""
    op.require(
        shape.is_array and shape.dims == inferred.dims,
        "C12",
        f"the result is {inferred}, the text says {shape}",
        at="shape",
    )
