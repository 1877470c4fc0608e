"""A kernel as a sequence of launches."""

from __future__ import annotations

from dataclasses import dataclass

BLOCK = 256  # threads


@dataclass(frozen=True)
class Launch:
    """One launch of the function `symbol`: `blocks` blocks of `threads` threads.

    blocks: the most that have work; a launch with fewer is right, too, since blocks walk on in steps of their number.
    """

    symbol: str
    blocks: int
    threads: int

    def __str__(self) -> str:
        return f"{self.symbol}<<<{self.blocks}, {self.threads}>>>"


@dataclass(frozen=True)
class GridKernel:
    """The launches that compute one instruction, all with the arguments of lower/kernels.py, in their order.

    scratch_bytes: as of KernelFunction.
    """

    launches: tuple[Launch, ...]
    scratch_bytes: int


def blocks_of(iterations: int) -> int:
    """Blocks of BLOCK threads, one thread an iteration."""
    return max(1, -(-iterations // BLOCK))


__all__ = ["BLOCK", "GridKernel", "Launch", "blocks_of"]
