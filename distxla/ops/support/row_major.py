"""Index arithmetic between arrays that hold the same elements in row-major order."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from distxla.ops.support.emit import Index, IndexLike


def reshaped_index(index: Index, dims: Sequence[int], source_dims: Sequence[int]) -> list[IndexLike]:
    """The index in `source_dims` of the element at `index` in `dims`; both have the same number of elements.

    Dimensions are split into the smallest groups of equal products, so that a dimension which both sides have costs no
    arithmetic and loops over it stay simple for the vectoriser.
    """
    source: list[IndexLike] = [0] * len(source_dims)
    if prod(dims) == 0:
        return source
    own = [d for d, n in enumerate(dims) if n != 1]
    theirs = [d for d, n in enumerate(source_dims) if n != 1]
    while own:
        mine, other = [own.pop(0)], [theirs.pop(0)]
        while (left := prod(dims[d] for d in mine)) != (right := prod(source_dims[d] for d in other)):
            if left < right:
                mine.append(own.pop(0))
            else:
                other.append(theirs.pop(0))
        linear: IndexLike = index[mine[0]]
        for d in mine[1:]:
            linear = linear * dims[d] + index[d]
        for d in reversed(other[1:]):
            source[d] = linear % source_dims[d]
            linear = linear // source_dims[d]
        source[other[0]] = linear
    return source
