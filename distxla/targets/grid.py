"""The code generator's interface of a target whose kernels run on a grid: blocks of threads that share a memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from llvmlite import ir

from distxla.ir.element_type import ElementType
from distxla.lazy_dataclass import dataclass
from distxla.targets.processor import Processor


@dataclass(frozen=True)
class MatrixUnit:
    """What a warp multiplies at once: sums + left x right, [rows, columns] + [rows, terms] x [terms, columns].

    sums: their type.  word_terms: neighbouring terms that travel in one word.
    A lane has words of the left, words of the right, and sums. Their places are offsets from its own: lane l has
    g = l / 4, q = l % 4 and p = q * word_terms. `left_offsets` are added to (row g, term p), `right_offsets` to term p
    of column g, `sum_offsets` to (row g, column 2 * q). Of `mma.m16n8k16` lane 5 has g = 1, q = 1, p = 2: its second
    word of the left, at offset (8, 0), holds the terms 2 and 3 of row 9.
    """

    rows: int
    columns: int
    terms: int
    word_terms: int
    sums: ElementType
    left_offsets: tuple[tuple[int, int], ...]
    right_offsets: tuple[int, ...]
    sum_offsets: tuple[tuple[int, int], ...]


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

    def matrix_unit(self, factors: ElementType) -> MatrixUnit | None:
        """How warps multiply matrices of this type; None: they can't."""

    def emit_matrix_product(
        self,
        builder: ir.IRBuilder,
        factors: ElementType,
        left: Sequence[ir.Value],
        right: Sequence[ir.Value],
        sums: Sequence[ir.Value],
    ) -> list[ir.Value]:
        """A warp's sums + left x right by the `matrix_unit` of the factors: this lane's part.

        left, right: words, an i32 of two 16-bit factors with the first in its lower half, or a factor.  All threads of
        the warp have to come here.
        """

    def emit_shared_array(self, builder: ir.IRBuilder, element: ir.Type, count: int) -> ir.Value:
        """The address of memory that the threads of a block share while the block runs, uninitialised."""
