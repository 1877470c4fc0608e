"""The code generator's interface of a target whose kernels run on a grid: blocks of threads that share a memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from llvmlite import ir

from distxla.ir.element_type import ElementType
from distxla.targets.processor import Processor


class GridTarget(Protocol):
    """From LLVM IR to assembler text, and what threads of one block do together. `builder` ends behind the code."""

    @property
    def name(self) -> str:
        """The target's."""

    @property
    def processor(self) -> Processor:
        """Of the host: kernels ask it for nothing that decides about their results."""

    def parse(self, module: ir.Module | str) -> Any:
        """Text or llvmlite module as a verified LLVM module; RuntimeError with LLVM's message if it is not valid."""

    def optimise(self, parsed: Any) -> None:
        """Scalar optimisation, in place."""

    def emit_assembly(self, parsed: Any) -> str:
        """Assembler text."""

    def begin_kernel(self, function: ir.Function) -> None:
        """Make the function one that a launch can name."""

    # --- places in the grid, i64

    def emit_thread(self, builder: ir.IRBuilder) -> ir.Value:
        """The number of this thread in its block."""

    def emit_threads(self, builder: ir.IRBuilder) -> ir.Value:
        """How many threads a block has."""

    def emit_block(self, builder: ir.IRBuilder) -> ir.Value:
        """The number of this thread's block."""

    def emit_blocks(self, builder: ir.IRBuilder) -> ir.Value:
        """How many blocks there are."""

    # --- together

    def emit_barrier(self, builder: ir.IRBuilder) -> None:
        """Wait for all threads of the block; what each stored before, all of them see."""

    def emit_shuffle_down(self, builder: ir.IRBuilder, word: ir.Value, distance: int) -> ir.Value:
        """The i32 `word` of the thread so far behind this one in its warp (32 neighbours), this one's beyond the last.

        All threads of the warp have to come here, so blocks have a multiple of 32 threads.
        """

    def multiplies_matrices_of(self, factors: ElementType) -> bool:
        """Whether warps can multiply matrices of this type, with sums in f32."""

    def emit_matrix_product(
        self,
        builder: ir.IRBuilder,
        factors: ElementType,
        left: Sequence[ir.Value],
        right: Sequence[ir.Value],
        sums: Sequence[ir.Value],
    ) -> list[ir.Value]:
        """A warp's sums + left x right, [16,8] + [16,16] x [16,8] of 16-bit floats, the sums in f32.

        left, right: this lane's words, of two neighbouring terms each.  sums: this lane's. With g, p = l / 4, l % 4 * 2
        lane l has of the left the (row, term) (g, p), (g + 8, p), (g, p + 8), (g + 8, p + 8); of the right the (term,
        column) (p, g), (p + 8, g); and the sums (g, p), (g, p + 1), (g + 8, p), (g + 8, p + 1). All threads of the warp
        have to come here.
        """

    def emit_shared_array(self, builder: ir.IRBuilder, element: ir.Type, count: int) -> ir.Value:
        """The address of memory that the threads of a block share while the block runs, uninitialised."""


__all__ = ["GridTarget"]
