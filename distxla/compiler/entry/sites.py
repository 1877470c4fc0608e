"""The communicating instructions of a program, their routines, and the groups that act together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from llvmlite import ir

from distxla.collectives.protocols.control_block import R_EVENTS
from distxla.collectives.signature import summary
from distxla.collectives.transports.seam import ROUTINE_ARGUMENTS, CommunicationEmitter, GridSite
from distxla.compiler.entry.function_body import FunctionBody
from distxla.compiler.lower.emitter import ScalarEmitter
from distxla.compiler.plan.buffers import Communicate, shares
from distxla.emit.native_function import I8, I32, I64, POINTER, load_function
from distxla.errors import CompileError
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.ir.op import Lowering
from distxla.ops.custom_calls.aliased_leaves import aliased_leaves
from distxla.ops.custom_calls.custom_call import HostCall
from distxla.ops.custom_calls.registry import find_target
from distxla.ops.custom_calls.user import ORIGINAL, NativeTarget
from distxla.program.abi import COMMUNICATE_SYMBOL
from distxla.program.artifact import CommunicatorSpec, EnclosingLoop, HostRoutine, Site


class Sites:
    """The sites of a program while its entry is emitted, and the calls of their routines.

    found: those so far, in the order of their numbers.  loops: around the current step, as ControlFlow's.
    """

    def __init__(
        self,
        llvm_module: ir.Module,
        module: Module,
        communication: CommunicationEmitter,
        counts: Counts,
        loops: Sequence[EnclosingLoop],
    ) -> None:
        self._loops = loops
        self.found: list[Site] = []
        self._llvm_module, self._module, self._communication = llvm_module, module, communication
        self._counts = counts
        self._communicators: dict[str, tuple[int, CommunicatorSpec]] = {}

    @property
    def communicators(self) -> tuple[CommunicatorSpec, ...]:
        """By number."""
        return tuple(spec for _, spec in sorted(self._communicators.values(), key=lambda found: found[0]))

    def emit(self, body: FunctionBody, step: Communicate) -> None:
        """A step whose arrays are in the host's memory."""
        site = self.add(step)
        self.emit_call(body, step, site, body.offset_table(step.operands), body.result_table(step.results))

    def emit_call(
        self, body: FunctionBody, step: Communicate, site: int, operands: ir.Value, results: ir.Value
    ) -> None:
        """Call the step's routine. operands, results: tables of where they are."""
        table = body.field("communicate")
        slot = body.builder.gep(table, [I64(site)], source_etype=POINTER)
        routine = load_function(body.builder, slot, I32, ROUTINE_ARGUMENTS, "routine")
        body.fail_unless_zero(body.builder.call(routine, [body.context, I32(site), operands, results]))
        if step.instruction.op.lowering is not Lowering.HOST:  # the flight recorder has begun an event, which is over
            place = body.begin.gep(body.field("record"), [I64(R_EVENTS)], source_etype=I8)
            body.builder.store(body.builder.add(body.builder.load(place, typ=I64), I64(1)), place)

    def add(self, step: Communicate, grid: GridSite | None = None) -> int:
        """Number the step's site and emit its routine. grid: as for `CommunicationEmitter.emit`."""
        instruction, index = step.instruction, len(self.found)
        if instruction.op.lowering is Lowering.HOST:
            self.found.append(self._host_site(step))
            return index
        operands = step.operand_leaves
        spec = self._communication.communicator(instruction, operands, self._counts)
        number, spec = self._communicators.setdefault(spec.key, (len(self._communicators), spec))
        item = instruction.op.stream_item(
            instruction.shape, tuple(o.shape for o in step.computation.operands(instruction))
        )
        site = Site(
            index,
            instruction.name,
            instruction.opcode,
            step.computation.name,
            number,
            self._module.locate(instruction),
            item=item,
            shares=shares(step.results) and not step.on_device,
            facets=summary(self._module, instruction, operands),
            loops=tuple(self._loops),
            sends=instruction.op.transfer.sends,
            receives=instruction.op.transfer.receives,
            completes=bool(instruction.op.start_done.completes),
            peer_action=instruction.op.transfer.peer_action,
            on_device=step.on_device,
        )
        routine, rounds = self._communication.emit(
            self._llvm_module, self._module, ScalarEmitter, site, spec, instruction, operands, grid
        )
        self.found.append(replace(site, rounds=rounds))
        if routine.name != COMMUNICATE_SYMBOL.format(site=index):
            raise CompileError(f"the routine of site {index} is called {routine.name}")
        return index

    def _host_site(self, step: Communicate) -> Site:
        """A site whose routine the replica puts in place."""
        instruction = step.instruction
        if not isinstance(instruction.op, HostCall):
            raise CompileError(f"{instruction.name}: {instruction.opcode} calls no routine of the replica")
        operands = tuple(o.shape.without_layout() for o in step.computation.operands(instruction))
        op, result = instruction.op, instruction.shape.without_layout()
        routine = HostRoutine(op.custom_call_target, operands, result)
        if op.api_version != ORIGINAL and isinstance(find_target(op.custom_call_target), NativeTarget):
            aliases = tuple(aliased_leaves(op.output_to_operand_aliasing, result, operands))
            routine = replace(routine, interface=op.api_version, config=instruction.backend_config, aliases=aliases)
        return Site(
            len(self.found),
            instruction.name,
            instruction.opcode,
            step.computation.name,
            -1,
            self._module.locate(instruction),
            routine,
        )
