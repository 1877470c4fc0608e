"""Numbers about a processor, by which the code generator chooses between ways to compute the same."""

from __future__ import annotations

from collections.abc import Mapping

from distxla.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Processor:
    """vector_bytes: the size of a vector register.
    tile_rows: how many rows a GEMM micro-kernel's tile has, by its vectors of columns.  lanes: independent operations
    on 32-bit numbers that fill the vectors of any processor of this kind.  streams: that are prefetched together.
    prefetch_bytes: by which explicit prefetches run ahead of loads.  cached_bytes: that stay in the fastest cache.
    weight_bytes, panel_bytes: of a product's right and left operand that a micro-kernel keeps in the next one.
    floats_beat_bytes: vectors of f32 are multiplied faster than integers of 8 bits.
    """

    vector_bytes: int
    tile_rows: Mapping[int, int]
    lanes: int
    streams: int
    prefetch_bytes: int
    cached_bytes: int
    weight_bytes: int
    panel_bytes: int
    floats_beat_bytes: bool
