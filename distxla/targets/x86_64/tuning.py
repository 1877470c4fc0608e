"""The host processor's numbers."""

from __future__ import annotations

from functools import cache

import llvmlite.binding as llvm

from distxla.targets.processor import Processor

TILE_ROWS = {32: {1: 14, 2: 12, 3: 8, 4: 6}, 16: {1: 10, 2: 6}}  # for 32 and 16 vector registers


@cache
def host_processor() -> Processor:
    """This machine's."""
    return processor_with(*vector_registers())


def processor_with(vector_bytes: int, registers: int) -> Processor:
    """One with these vector registers, and caches as small as the common ones are."""
    return Processor(
        vector_bytes=vector_bytes,
        tile_rows=TILE_ROWS[registers],
        lanes=16,  # of 32 bits are one vector of 512 bits
        streams=8,
        prefetch_bytes=512,
        cached_bytes=1 << 15,
        weight_bytes=256 << 10,
        panel_bytes=512 << 10,
        floats_beat_bytes=True,
    )


def vector_registers() -> tuple[int, int]:
    """The bytes of the host's widest vector register, and how many of them there are."""
    features = llvm.get_host_cpu_features()
    if features.get("avx512f"):
        return 64, 32
    return (32, 16) if features.get("avx2") else (16, 16)
