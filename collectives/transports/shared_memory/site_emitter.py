"""The interface of the emitters of communicating instructions, for devices that share memory."""

from __future__ import annotations

from abc import ABC, abstractmethod

from llvmlite import ir

from distxla.collectives.transports.seam import GridRound, GridSite, ScalarCodeAt
from distxla.emit.atomics_builder import AtomicsBuilder
from distxla.ir.counts import Counts
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.op import Op
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass, field
from distxla.program.artifact import CommunicatorSpec, Site
from distxla.program.work_table import RoundWork


@dataclass(frozen=True)
class Routine:
    """The routine of one site while it is written: i32 (Context*, u32 site, u64* operands, u64* results).

    state: address of the state that this device's communicator shares.  operands: shapes of the operand leaves.
    rounds: the emitter appends those that the routine begins (`Site.rounds`).  grid: as of the CommunicationEmitter.
    """

    atomics: AtomicsBuilder
    function: ir.Function
    state: ir.Value
    module: Module
    scalar_code: ScalarCodeAt
    site: Site
    spec: CommunicatorSpec
    instruction: Instruction
    operands: tuple[Shape, ...]
    grid: GridSite | None = None
    rounds: list[RoundWork] = field(default_factory=list)


class SiteEmitter(ABC):
    """Compiles the instructions that communicate in one way."""

    @abstractmethod
    def handles(self, op: Op) -> bool:
        """Whether this emitter compiles the op; emitters handle disjoint sets of ops."""

    @abstractmethod
    def communicator(self, instruction: Instruction, operands: tuple[Shape, ...], counts: Counts) -> CommunicatorSpec:
        """As `transports.seam.CommunicationEmitter.communicator`."""

    def grid_rounds(
        self, instruction: Instruction, operands: tuple[Shape, ...], counts: Counts
    ) -> tuple[GridRound, ...] | None:
        """As `transports.seam.CommunicationEmitter.grid_rounds`: by default arrays have to be in the host's memory."""
        return None

    @abstractmethod
    def emit(self, routine: Routine) -> None:
        """Write the routine's body with all its returns."""
