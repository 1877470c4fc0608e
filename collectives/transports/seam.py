"""How the code generator asks a transport for the native routine of a communicating instruction.

The generator knows no transport; the caller of the compiler passes one in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from llvmlite import ir

from distxla.emit.native_function import I32, POINTER
from distxla.ir.counts import Counts
from distxla.ir.element_type import ElementType
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass
from distxla.ops.support.collective_movement import Movement
from distxla.program.artifact import CommunicatorSpec, Launch, Site
from distxla.program.work_table import RoundWork
from distxla.targets.grid_calls import GridCalls

# of a site's routine, which returns a Status, i32: Context*, u32 site, u64* operands, u64* results
ROUTINE_ARGUMENTS = (POINTER, I32, POINTER, POINTER)

# The table of u64 with which a kernel of a round begins its scratch memory: it does the part PART of PARTS, and finds
# the arrays from ADDRESSES on, by leaf, operands before results, those of all members in group order.
PART, PARTS, ADDRESSES = 0, 1, 2


@dataclass(frozen=True)
class GridRound:
    """The work of a round of `members` devices, for kernels on a grid.

    operands: shapes of the leaves that a member posts.  results: how many leaves of results it posts.  movements: from
    the first to the second.  reduction: the computation with which they reduce, in group order; None where none does.
    """

    members: int
    operands: tuple[Shape, ...]
    results: int
    movements: tuple[Movement, ...]
    reduction: str | None


@dataclass(frozen=True)
class LaunchedRound:
    """The launches of a GridRound's kernel. step, launch: the numbers of the step and of its first launch."""

    step: int
    launch: int
    launches: tuple[Launch, ...]


@dataclass(frozen=True)
class GridSite:
    """A site whose arrays are in the memory of kernels on a grid: it gets exported addresses in place of offsets, and
    offsets for the words of async starts alone. rounds: as `grid_rounds` gave them."""

    calls: GridCalls
    rounds: tuple[LaunchedRound, ...]


class ScalarCode(Protocol):
    """The generator's code at a builder's position, for routines that compute. Indices and values are its own."""

    def wrap_index(self, value: ir.Value, low: int, high: int) -> Any:
        """An i64 that is known to be in [low, high] as an index."""

    def load(self, pointer: ir.Value, index: Any, element_type: ElementType) -> Any:
        """Element `index` of the array at `pointer`."""

    def store(self, pointer: ir.Value, index: Any, value: Any) -> None:
        """Store into element `index` of the array at `pointer`."""

    def apply(self, computation: str, *arguments: Any) -> tuple[Any, ...]:
        """Inline a scalar computation of the module; one value a leaf of its result."""


ScalarCodeAt = Callable[[ir.IRBuilder, Module], ScalarCode]
"""Gives the generator's code at a builder's position, for computations of a module."""


class CommunicationEmitter(Protocol):
    """A transport's side of the compiler."""

    def grid_rounds(
        self, instruction: Instruction, operands: tuple[Shape, ...], counts: Counts
    ) -> tuple[GridRound, ...] | None:
        """The rounds of an instruction, should the devices' arrays be in the memory of kernels on a grid.

        None where they have to be in the host's.
        """

    def communicator(self, instruction: Instruction, operands: tuple[Shape, ...], counts: Counts) -> CommunicatorSpec:
        """The groups that act together for this instruction. Equal keys share one communicator within the program."""

    def emit(
        self,
        llvm_module: ir.Module,
        module: Module,
        scalar_code: ScalarCodeAt,
        site: Site,
        spec: CommunicatorSpec,
        instruction: Instruction,
        operands: tuple[Shape, ...],
        grid: GridSite | None = None,
    ) -> tuple[ir.Function, tuple[RoundWork, ...]]:
        """Add the function abi.COMMUNICATE_SYMBOL of `site` to `llvm_module`; it, and what `Site.rounds` shall be.

        scalar_code: for computations of `module`.  operands: shapes of the operand leaves. The routine's u64 arrays
        hold one offset per operand leaf and per result leaf.  grid: where these are not in the host's memory.
        """

    def emit_step_recorder(self, llvm_module: ir.Module) -> ir.Function:
        """Add void (Context*, i32 step, i64 begun, i64 iterations): make a step that has ended an event.

        begun: the target's cycle counter at its begin.  iterations: the record's field that counts the loop around it.
        """
