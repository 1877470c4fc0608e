"""Element-wise fusions: one loop nest that computes and stores every result."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from distxla.compiler.lower.arrays import MemoryArray
from distxla.compiler.lower.emitter import ScalarEmitter
from distxla.compiler.lower.index import IndexExpression
from distxla.compiler.lower.loops import SplitRequest
from distxla.ops.support.emit import ArrayRef

MAX_PIECES = 28  # 3 a dimension of a three-dimensional pad


def emit_map(
    emit: ScalarEmitter, dimension_sizes: Sequence[int], body: Callable[[tuple[IndexExpression, ...]], None]
) -> None:
    """Run `body` for every index over `dimension_sizes`, in any order.

    Where a comparison in the body is decided by one loop index (the borders of concatenate and pad), the range is cut
    there and each piece gets a body without the branch.
    """
    budget = [MAX_PIECES]
    _pieces(emit, tuple(dimension_sizes), tuple((0, e) for e in dimension_sizes), body, budget)


def _pieces(
    emit: ScalarEmitter,
    dimension_sizes: tuple[int, ...],
    ranges: tuple[tuple[int, int], ...],
    body: Callable[[tuple[IndexExpression, ...]], None],
    budget: list[int],
) -> None:
    builder = emit.builder
    block, blocks = builder.block, len(builder.function.blocks)
    nest = emit.nest(dimension_sizes, ranges=ranges, parallel=True, splits=budget[0] > 0)
    marker, depth = emit.indices.depth(), len(emit.nests)
    try:
        indices = nest.open()
        emit.nests.append(nest)
        body(tuple(indices))
        emit.nests.pop()
        nest.close()
    except SplitRequest as request:
        if request.nest is not nest:
            raise
        # the code for the whole range is removed
        del builder.function.blocks[blocks:]
        builder.position_at_end(block)
        emit.indices.unwind(marker)
        del emit.nests[depth:]
        budget[0] -= 1
        first, end = ranges[request.dimension]
        for piece in ((first, request.boundary), (request.boundary, end)):
            narrowed = (*ranges[: request.dimension], piece, *ranges[request.dimension + 1 :])
            _pieces(emit, dimension_sizes, narrowed, body, budget)


def emit_elements(emit: ScalarEmitter, roots: Sequence[ArrayRef], results: Sequence[MemoryArray]) -> None:
    """Store every element of `roots` (arrays of equal dimension sizes) into `results`."""

    def body(index: tuple[IndexExpression, ...]) -> None:
        values = [root.load(index) for root in roots]  # type: ignore[arg-type]
        for value, result in zip(values, results):
            result.store(index, value)  # type: ignore[arg-type]

    emit_map(emit, results[0].shape.dims, body)
