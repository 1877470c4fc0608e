"""The host processor's numbers by which kernels choose between ways to compute the same."""

from __future__ import annotations

from distxla.ops.support.emit import Tuning

# 16 lanes of 32 bits are one vector of 512 bits, 32 KiB the smallest first-level cache that is common.
HOST = Tuning(lanes=16, cached_bytes=1 << 15)
