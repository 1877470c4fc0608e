"""Element-wise kernels that read across the order in which they write: by tiles, through shared memory.

Neighbouring threads should read neighbours, and write neighbours. Where most loads run along another dimension than
the result does, a block computes a tile of the result in the order of the loads, and stores it in that of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from distxla.compiler.lower.arrays import MemoryArray
from distxla.compiler.lower.fusion import emit_elements
from distxla.compiler.lower.grid.grid_loops import GridLoops
from distxla.compiler.lower.grid.shared_array import SharedArray
from distxla.compiler.lower.index import IndexExpression
from distxla.compiler.lower.loops import Nest
from distxla.ir.element_type import ElementType
from distxla.ops.support.emit import ArrayRef
from distxla.targets.grid_module import grid_of

SIDE = 32  # elements along either side of a tile: threads of a warp
ROWS = 8  # of a tile that a block works on at a time
PITCH = SIDE + 1  # so that the elements of a column lie in different banks of the memory
LEAST = 16  # elements of either run from which on tiles are worth their barriers
MOST_BYTES = 48 << 10  # of shared memory that every block may have

Run = tuple[int, int]  # the first and the last of neighbouring dimensions


def emit_grid_elements(emit: GridLoops, roots: Sequence[ArrayRef], results: Sequence[MemoryArray]) -> None:
    """Store every element of `roots` (arrays of equal dimension sizes) into `results`."""
    runs = _crossed_runs(emit, results[0].shape.dims, roots)
    if runs is None or sum(_bytes(r.shape.dtype) for r in results) * SIDE * PITCH > MOST_BYTES:
        emit_elements(emit, roots, results)
    else:
        _emit_tiles(emit, *runs, roots, results)


def _bytes(kind: ElementType) -> int:
    return max(1, kind.byte_size)


def _crossed_runs(emit: GridLoops, dims: Sequence[int], roots: Sequence[ArrayRef]) -> tuple[Run, Run] | None:
    """The runs of dimensions along which most loads and all stores go, if they are two."""
    if len(dims) < 2 or prod(dims) < SIDE * SIDE or emit.nests:
        return None
    with emit.tried() as nests:
        nest = Nest(emit.indices, dims, parallel=True)
        index = nest.open()
        nests.append(nest)
        for root in roots:
            root.load(index)  # type: ignore[arg-type]
        return nest.crossed(LEAST)


def _emit_tiles(
    emit: GridLoops, across: Run, along: Run, roots: Sequence[ArrayRef], results: Sequence[MemoryArray]
) -> None:
    """across: the run whose neighbours are loaded side by side; along: the last one, in whose order results lie."""
    dims, grid = results[0].shape.dims, grid_of(emit.builder)
    lengths = [prod(dims[first : last + 1]) for first, last in (across, along)]
    others = [d for d in range(len(dims)) if not any(first <= d <= last for first, last in (across, along))]
    tiles = [-(-length // SIDE) for length in lengths]
    with emit.blocks(prod(dims[d] for d in others) * prod(tiles), SIDE * ROWS) as number:
        starts = number // tiles[1] % tiles[0] * SIDE, number % tiles[1] * SIDE
        fixed = dict(_apart(number // prod(tiles), others, dims))
        thread = emit.wrap_index(grid.emit_thread(emit.builder), 0, SIDE * ROWS - 1)
        lane, row = thread % SIDE, thread // SIDE
        shared = [SharedArray(emit, r.shape.dtype, SIDE * PITCH) for r in results]

        def each(
            at: Callable[[IndexExpression], tuple[IndexExpression, IndexExpression]],
            body: Callable[[Sequence[IndexExpression], IndexExpression], None],
        ) -> None:
            """Call `body` with the index and the place of this thread's elements. at: of its row, where in the tile."""
            for step in range(SIDE // ROWS):
                within = at(row + step * ROWS)
                places = [start + w for start, w in zip(starts, within)]
                inside = [emit.index_compare("LT", p, length) for p, length in zip(places, lengths)]
                with emit.when(emit.binary("and", *inside)):
                    index = dict(fixed)
                    for place, length, (first, last) in zip(places, lengths, (across, along)):
                        bounded = emit.index_clamp(0, place, length - 1)
                        index.update(_apart(bounded, range(first, last + 1), dims))
                    body([index[d] for d in range(len(dims))], within[1] * PITCH + within[0])

        def load(index: Sequence[IndexExpression], place: IndexExpression) -> None:
            for array, root in zip(shared, roots):
                array.store(place, root.load(index))  # type: ignore[arg-type]

        def store(index: Sequence[IndexExpression], place: IndexExpression) -> None:
            for array, result in zip(shared, results):
                result.store(index, array.load(place))

        each(lambda other: (lane, other), load)
        grid.emit_barrier(emit.builder)
        each(lambda other: (other, lane), store)
        grid.emit_barrier(emit.builder)  # the next tile goes to the same places


def _apart(number: IndexExpression, over: Sequence[int], dims: Sequence[int]) -> list[tuple[int, IndexExpression]]:
    """A row-major number as indices of the dimensions `over`."""
    index = []
    for d in reversed(over):
        index.append((d, number % dims[d]))
        number = number // dims[d]
    return index


__all__ = ["emit_grid_elements"]
