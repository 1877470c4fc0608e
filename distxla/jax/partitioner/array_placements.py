"""How the arrays of a partitioned module are cut, for the check whether equal ones are equal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distxla.compiler.passes.placements import Placements
from distxla.errors import UnsupportedOpError

if TYPE_CHECKING:
    from distxla.ir.shards import Shards
    from distxla.jax.partitioner.partitioning import Partitioned


def placements_of_arrays(partitioned: Partitioned) -> Placements:
    """As far as arrays are cut in equal parts."""
    found: list[tuple[Shards | None, ...]] = []
    for name in ("parameters", "results"):
        try:
            found.append(tuple(array.shards for array in getattr(partitioned, name)))
        except UnsupportedOpError:
            found.append(())
    return Placements(*found)


__all__ = ["placements_of_arrays"]
