"""Communication among the devices of one host: routines emitted into the program, over memory that all of them map."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from distxla.collectives.protocols.control_block import iterations_field
from distxla.collectives.protocols.event import LARGE_BYTES
from distxla.collectives.transports.seam import ROUTINE_ARGUMENTS, GridRound, GridSite, ScalarCodeAt
from distxla.collectives.transports.shared_memory.channel_site import ChannelEmitter
from distxla.collectives.transports.shared_memory.event_recording import emit_recorded, emit_step_recorded
from distxla.collectives.transports.shared_memory.group_site import GroupEmitter
from distxla.collectives.transports.shared_memory.permute_site import PermuteEmitter
from distxla.collectives.transports.shared_memory.site_emitter import Routine, SiteEmitter
from distxla.collectives.transports.shared_memory.stream_site import StreamEmitter
from distxla.emit.atomics_builder import AtomicsBuilder
from distxla.emit.native_function import I32, POINTER
from distxla.ir.counts import Counts
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.op import Lowering, Op
from distxla.ir.shape import Shape
from distxla.program.abi import COMMUNICATE_SYMBOL, ROUND_SYMBOL
from distxla.program.artifact import CommunicatorSpec, Site
from distxla.program.work_table import RoundWork

SITE_EMITTERS: tuple[SiteEmitter, ...] = (GroupEmitter(), PermuteEmitter(), StreamEmitter(), ChannelEmitter())


class SharedMemoryEmitter:
    """`transports.seam.CommunicationEmitter` for devices whose memory is mapped by all of them."""

    def __init__(self, emitters: Sequence[SiteEmitter] = SITE_EMITTERS, *, timed: bool = False) -> None:
        """timed: the flight recorder gets exact times of all sites, not just of large ones."""
        self._emitters = emitters
        self._timed = timed

    def communicator(self, instruction: Instruction, operands: tuple[Shape, ...], counts: Counts) -> CommunicatorSpec:
        """RuleViolation where groups or shapes don't fit the run, UnsupportedOpError for ops without a routine here."""
        return self._emitter_of(instruction.op).communicator(instruction, operands, counts)

    def grid_rounds(
        self, instruction: Instruction, operands: tuple[Shape, ...], counts: Counts
    ) -> tuple[GridRound, ...] | None:
        """See `transports.seam.CommunicationEmitter`."""
        return self._emitter_of(instruction.op).grid_rounds(instruction, operands, counts)

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
        """The routine of `site`, and its rounds; functions that several sites share are added to `llvm_module` once,
        with internal linkage but for those that a proxy calls."""
        arguments: list[ir.Type] = list(ROUTINE_ARGUMENTS)
        name = ROUND_SYMBOL.format(site=site.index)
        function, atomics = AtomicsBuilder.function(llvm_module, name, I32, arguments, internal=False)
        table = atomics.context_field(function.args[0], "communicators")
        state = atomics.load(POINTER, table, 8 * site.communicator)
        emitter = self._emitter_of(instruction.op)
        routine = Routine(atomics, function, state, module, scalar_code, site, spec, instruction, operands, grid)
        emitter.emit(routine)
        name = COMMUNICATE_SYMBOL.format(site=site.index)
        outer, atomics = AtomicsBuilder.function(llvm_module, name, I32, arguments, internal=False, optimised=True)
        timed = self._timed or _bytes(operands, instruction.shape) >= LARGE_BYTES
        iterations = iterations_field(len(site.loops))
        emit_recorded(atomics, outer.args, function, iterations, timed=timed)
        return outer, tuple(routine.rounds)

    def emit_step_recorder(self, llvm_module: ir.Module) -> ir.Function:
        """See `transports.seam.CommunicationEmitter`."""
        return emit_step_recorded(llvm_module)

    def _emitter_of(self, op: Op) -> SiteEmitter:
        found = next((emitter for emitter in self._emitters if emitter.handles(op)), None)
        if found is None or op.lowering is not Lowering.COMMUNICATION:
            raise op.unsupported()
        return found


def _bytes(operands: Sequence[Shape], result: Shape) -> int:
    """Of an instruction's operands or results, whichever are more."""
    return max(sum(leaf.byte_size for leaf in leaves if leaf.is_array) for leaves in (operands, tuple(result.leaves())))
