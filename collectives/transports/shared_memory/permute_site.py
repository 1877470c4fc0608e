"""Collective-permutes: pairs of devices, each device waiting for the one that sends to it."""

from __future__ import annotations

from distxla.collectives.protocols import permute as permute_words
from distxla.collectives.protocols import rounds as round_words
from distxla.collectives.signature import signature
from distxla.collectives.transports.seam import GridRound
from distxla.collectives.transports.shared_memory.device_tables import by_device, constant, device_row, digest, ticket
from distxla.collectives.transports.shared_memory.grid_items import ON_GRID
from distxla.collectives.transports.shared_memory.permute_round import (
    NO_PAIR,
    emit_permute_begin,
    emit_permute_end,
    emit_permute_round,
)
from distxla.collectives.transports.shared_memory.site_emitter import Routine, SiteEmitter
from distxla.emit.native_function import I32, I64, i32, i64
from distxla.ir.counts import Counts
from distxla.ir.instruction import Instruction
from distxla.ir.op import Op
from distxla.ir.shape import Shape
from distxla.ops.collective_permute import CollectivePermute
from distxla.ops.support.collective_start_done import AsyncPart, async_part_of, of_whole, whole
from distxla.program.abi import Status
from distxla.program.artifact import CommunicatorSpec


class PermuteEmitter(SiteEmitter):
    """`site_emitter.SiteEmitter`: results must not overlap operands."""

    def handles(self, op: Op) -> bool:
        return isinstance(op, CollectivePermute)

    def communicator(self, instruction: Instruction, operands: tuple[Shape, ...], counts: Counts) -> CommunicatorSpec:
        op = whole(instruction.op)
        assert isinstance(op, CollectivePermute)
        groups, pairs = (
            op.device_groups(counts),
            op.device_pairs(counts),
        )
        talking = {device for pair in pairs for device in pair}
        sizes = tuple(permute_words.pairs_bytes(len(g)) if g[0] in talking else 0 for g in groups)
        return CommunicatorSpec(f"pairs {digest((groups, pairs))}", groups, sizes, pairs)

    def grid_rounds(
        self, instruction: Instruction, operands: tuple[Shape, ...], counts: Counts
    ) -> tuple[GridRound, ...] | None:
        """Copies only, which need no kernels."""
        return ()

    def emit(self, routine: Routine) -> None:
        """Rounds of the pairs; more leaves than a post holds are sent in several."""
        atomics, function, spec, part = (
            routine.atomics,
            routine.function,
            routine.spec,
            async_part_of(routine.instruction.op),
        )
        operands, result = of_whole(routine.instruction, routine.operands)
        op = whole(routine.instruction.op)
        number = signature(routine.module, routine.instruction.replace(op=op), operands)
        number ^= 0 if routine.grid is None else ON_GRID
        places = {device: position for group in spec.groups for position, device in enumerate(group)}
        targets, sources = dict(spec.pairs), {target: source for source, target in spec.pairs}
        rows = {
            device: (
                places[targets[device]] if device in targets else NO_PAIR,
                targets.get(device, device),
                position if device in sources else NO_PAIR,
                sources.get(device, device),
            )
            for device, position in places.items()
        }
        table = constant(atomics.builder.module, f"distxla_pairs_{digest(rows)}", I32, by_device(rows))
        context, site_number, sent, received = function.args
        row = device_row(atomics, context, table)
        llvm_module, builder = atomics.builder.module, atomics.builder
        calls = None if routine.grid is None else routine.grid.calls
        for batch, first in enumerate(range(0, len(operands), round_words.OFFSETS)):
            sizes = tuple(o.byte_size for o in operands[first : first + round_words.OFFSETS])
            buffers = (atomics.at(sent, 8 * first), atomics.at(received, 8 * first))
            arguments = [context, site_number, *buffers, routine.state, row]
            if part is AsyncPart.SYNCHRONOUS:
                function = emit_permute_round(llvm_module, sizes, number ^ first, calls)
            elif part is AsyncPart.START:
                place = atomics.local(I64) if batch else ticket(atomics, context, received, result)
                arguments.append(place)
                function = emit_permute_begin(llvm_module, sizes, number ^ first, calls)
            else:
                begun = builder.add(atomics.load(I64, ticket(atomics, context, sent, result)), i64(batch))
                arguments = [context, routine.state, row, begun]
                function = emit_permute_end(llvm_module, sizes, number ^ first, calls)
            atomics.require_ok(builder.call(function, arguments))
        atomics.builder.ret(i32(Status.OK))
