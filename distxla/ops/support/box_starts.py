"""The start operands of `dynamic-slice` and `dynamic-update-slice`: where the box of elements begins."""

from __future__ import annotations

from collections.abc import Sequence

from distxla.ir.op import Op
from distxla.ir.shape import Shape
from distxla.ops.support.conversion import Array
from distxla.ops.support.emit import ArrayRef, Emitter, IndexLike


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
