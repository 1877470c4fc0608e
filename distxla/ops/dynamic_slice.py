"""HLO `dynamic-slice`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from distxla.ir.attribute import attribute
from distxla.ir.op import Lowering, Op
from distxla.ir.shape import ProgramShape, Shape
from distxla.ops.registry import register
from distxla.ops.support.conversion import Array
from distxla.ops.support.emit import ArrayRef, Emitter, Index, IndexLike, Value
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.run_time_sizes import widened


def require_starts(op: Op, rank: int, starts: Sequence[Shape]) -> None:
    """The start operands are `rank` integer scalars of one type, or the older form, one vector of `rank` integers."""
    if len(starts) == 1 and starts[0].is_array and starts[0].rank == 1:
        fits = starts[0].dims == (rank,)
    else:
        fits = len(starts) == rank and all(s.is_array and s.rank == 0 for s in starts)
    text = ", ".join(map(str, starts)) or "no"
    op.require(fits, "C2", f"{text} start indices for {rank} dimensions", at="operands")
    types = {s.dtype for s in starts}
    op.require(
        len(types) <= 1 and all(t.is_integer for t in types),
        "C3",
        f"start indices must be of one integer type, not {text}",
        at="operands",
    )


def evaluated_starts(dims: Sequence[int], sizes: Sequence[int], starts: Sequence[Array]) -> list[int]:
    """The starts moved so that the box of `sizes` is inside `dims`."""
    wanted = starts[0] if len(starts) == 1 and starts[0].ndim == 1 else starts
    return [min(max(int(s), 0), n - size) for s, n, size in zip(wanted, dims, sizes, strict=True)]


def emitted_starts(
    emit: Emitter, dims: Sequence[int], sizes: Sequence[int], starts: Sequence[ArrayRef]
) -> list[IndexLike]:
    """The same in generated code; a dimension that the box fills starts at 0 whatever the operand says."""
    vector = len(starts) == 1 and starts[0].shape.rank == 1
    found: list[IndexLike] = []
    for d, (dimension_size, size) in enumerate(zip(dims, sizes, strict=True)):
        if dimension_size == size:
            found.append(0)
            continue
        value = starts[0].load((d,)) if vector else starts[d].load(())
        found.append(emit.index_clamp(0, emit.index_of(value), dimension_size - size))
    return found


@register
class DynamicSlice(ExecutableOp):
    """A box of fixed dimension sizes whose start is known at run time; starts are clamped so that the box fits.

    Shapes:  T[dims], one integer scalar for each dimension (or one vector) -> T[dynamic_slice_sizes]; any T.
    Errors:  C2 not one start, or not one size, for each dimension.  C3 starts are not of one integer type.  C4 a size
             is negative or larger than the size.
    """

    opcode = "dynamic-slice"
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    min_operands: ClassVar[int] = 1
    dynamic_slice_sizes: tuple[int, ...] = attribute("int_list")

    def infer_shape(self, operands: Sequence[Shape], called: Callable[[str], ProgramShape]) -> Shape:
        operand, *starts = operands
        sizes, at = self.dynamic_slice_sizes, "dynamic_slice_sizes"
        self.require(
            operand.is_array and len(sizes) == operand.rank,
            "C2",
            f"{len(sizes)} sizes for the {operand.rank} dimensions of {operand}",
            at,
        )
        require_starts(self, operand.rank, starts)
        self.require(
            all(0 <= size <= dimension_size for size, dimension_size in zip(sizes, operand.dims, strict=True)),
            "C4",
            f"a box of {list(sizes)} does not fit into {operand}",
            at,
        )
        return operand.with_dims(sizes)

    def run_time_shape(
        self,
        shape: Shape,
        operands: Sequence[Shape],
        actual: Sequence[Shape],
        called: Callable[[str], ProgramShape],
    ) -> Shape:
        box = zip(actual[0].dims, operands[0].dims, shape.dims, strict=True)
        return shape.with_dims(tuple(n if size == bound else size for n, bound, size in box))

    def is_view(self, shape: Shape, operands: Sequence[Shape]) -> bool:
        return shape.dims == operands[0].dims

    def evaluate(self, run: Evaluation, *operands: Any) -> Array:
        operand, *starts = operands
        bounds = run.operand_shapes[0].dims
        first = evaluated_starts(bounds, self.dynamic_slice_sizes, starts)
        whole = [size == bound for size, bound in zip(self.dynamic_slice_sizes, bounds, strict=True)]
        seen: Any = widened(operand, [n if w else b for n, b, w in zip(operand.shape, bounds, whole, strict=True)])
        box = tuple(slice(s, s + size) for s, size in zip(first, self.dynamic_slice_sizes, strict=True))
        result: Array = seen[(*box, ...)]
        return result

    def emit_element(self, emit: Emitter, shape: Shape, index: Index, *operands: ArrayRef) -> Value:
        operand, *starts = operands
        first = emitted_starts(emit, operand.shape.dims, shape.dims, starts)
        return operand.load([i + s for i, s in zip(index, first, strict=True)])
