"""A kernel as a sequence of launches."""

from __future__ import annotations

from distxla.lazy_dataclass import dataclass
from distxla.program.artifact import Launch, MatrixProduct

BLOCK = 256  # threads


@dataclass(frozen=True)
class GridKernel:
    """The launches that compute one instruction, all with the arguments of lower/kernels.py, in their order.

    scratch_bytes: as of KernelFunction.  products: as of LaunchedKernel.
    """

    launches: tuple[Launch, ...]
    scratch_bytes: int
    products: tuple[MatrixProduct, ...] = ()


def blocks_of(iterations: int) -> int:
    """Blocks of BLOCK threads, one thread an iteration."""
    return max(1, -(-iterations // BLOCK))
