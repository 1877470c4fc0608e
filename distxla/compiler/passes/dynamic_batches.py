"""Rules for dynamic dimensions: ops on the last dimensions, which work on a batch of any size."""

from __future__ import annotations

from distxla.compiler.passes.dynamic_site import DimensionSize, DynamicSite, Sizes, dynamic_rule
from distxla.ops.cholesky import Cholesky
from distxla.ops.fft import Fft
from distxla.ops.sort import TopK
from distxla.ops.triangular_solve import TriangularSolve


@dynamic_rule(Fft)
def _fft(op: Fft, site: DynamicSite) -> tuple[str, Sizes]:
    return _batch(site, len(op.fft_length))


@dynamic_rule(Cholesky)
def _cholesky(op: Cholesky, site: DynamicSite) -> tuple[str, Sizes]:
    return _batch(site, 2)


@dynamic_rule(TopK)
def _top_k(op: TopK, site: DynamicSite) -> tuple[str, Sizes]:
    return _batch(site, 1)


@dynamic_rule(TriangularSolve)
def _triangular_solve(op: TriangularSolve, site: DynamicSite) -> tuple[str, Sizes]:
    """The right-hand sides are a batch, too."""
    site.agree()
    rank = site.result.rank
    solved, free = (rank - 2, rank - 1) if op.left_side else (rank - 1, rank - 2)
    if site.is_dynamic(1, solved) or any(site.is_dynamic(0, d) for d in (rank - 2, rank - 1)):
        raise site.refuse("the matrices are")
    dimension_sizes: list[DimensionSize] = [*site.dimension_sizes(0)[: rank - 2], 0, 0]
    dimension_sizes[solved], dimension_sizes[free] = site.result.dims[solved], site.dimension_sizes(1)[free]
    return site.keep(), (tuple(dimension_sizes),)


def _batch(site: DynamicSite, last: int) -> tuple[str, Sizes]:
    """last: how many dimensions the op works on; the others are the batch."""
    batch = len(site.dimension_sizes()) - last
    if any(site.is_dynamic(0, d) for d in range(batch, batch + last)):
        raise site.refuse(f"the last {last} are" if last > 1 else "the last one is")
    dimension_sizes = site.dimension_sizes()[:batch]
    return site.keep(), tuple((*dimension_sizes, *leaf.dims[batch:]) for leaf in site.result.leaves())
