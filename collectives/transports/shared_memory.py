"""Collectives among the devices of one host: routines emitted into the program, over memory that all of them map."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from llvmlite import ir

from distxla.codegen.abi import COMMUNICATE_SYMBOL, Status
from distxla.codegen.program import CommunicatorSpec, Site
from distxla.collectives import state
from distxla.collectives.signature import signature, structure
from distxla.collectives.transports.group_round import emit_group_round
from distxla.collectives.transports.permute_round import NOBODY, PermuteRound
from distxla.collectives.transports.words import I32, I64, POINTER, Words, i32, i64
from distxla.collectives.transports.work import WorkPlan, emit_copy_items, emit_fold_items, emit_zero, plan_work
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.ops.collective import GroupedCollective
from distxla.ops.collective_permute import CollectivePermute
from distxla.ops.movement import Movement
from distxla.ops.op import Lowering

DEVICE_ROW = 16  # bytes of a row of the tables by flattened device id


class SharedMemory:
    """`codegen.communication.CommunicationEmitter` for devices whose memory is mapped by all of them.

    Results must not overlap operands, but for all-reduce, where result leaf i may be operand leaf i. Results are equal
    bit for bit on every run and every member: folds go in group order, whoever does them.
    """

    def communicator(
        self, instruction: Instruction, operands: tuple[Shape, ...], replicas: int, partitions: int
    ) -> CommunicatorSpec:
        """RuleViolation where groups or shapes don't fit the run, UnsupportedOpError for what has no routine here."""
        op = instruction.op
        if op.lowering is not Lowering.COMMUNICATION:
            raise op.unsupported()
        if isinstance(op, CollectivePermute):
            if op.slice_sizes:
                raise op.unsupported()
            groups, pairs = op.device_groups(replicas, partitions), op.device_pairs(replicas, partitions)
            talking = {device for pair in pairs for device in pair}
            sizes = tuple(state.pairs_bytes(len(g)) if g[0] in talking else 0 for g in groups)
            return CommunicatorSpec(f"pairs {_digest((groups, pairs))}", groups, sizes, pairs)
        if isinstance(op, GroupedCollective):
            groups = op.device_groups(replicas, partitions)
            for size in {len(group) for group in groups}:
                op.check_size(instruction.shape, operands, size)
            silent = op.silent_devices(replicas, partitions)
            sizes = tuple(state.group_bytes(len(group)) for group in groups)
            return CommunicatorSpec(f"groups {_digest((groups, silent))}", groups, sizes, silent=silent)
        raise op.unsupported()

    def emit(
        self,
        llvm_module: ir.Module,
        module: Module,
        site: Site,
        spec: CommunicatorSpec,
        instruction: Instruction,
        operands: tuple[Shape, ...],
    ) -> ir.Function:
        """The routine of `site`; what several sites need is added to `llvm_module` once, with internal linkage."""
        name = COMMUNICATE_SYMBOL.format(site=site.index)
        arguments: list[ir.Type] = [POINTER, I32, POINTER, POINTER]
        function, words = Words.function(llvm_module, name, I32, arguments, internal=False)
        context = function.args[0]
        table = words.context_field(context, "communicators")
        group_state = words.load(POINTER, table, 8 * site.communicator)
        number = signature(module, instruction, operands)
        if spec.pairs or isinstance(instruction.op, CollectivePermute):
            _emit_permute(words, function, group_state, spec, operands, number, site)
        else:
            op = instruction.op
            assert isinstance(op, GroupedCollective)
            _GroupSite(words, function, group_state, spec, module, op, operands, number).emit(site)
        return function


def _digest(value: object) -> str:
    return hashlib.blake2b(repr(value).encode(), digest_size=12).hexdigest()


def _constant(llvm_module: ir.Module, name: str, kind: ir.IntType, values: Sequence[int]) -> ir.GlobalVariable:
    """A read-only table, made once for a name."""
    found = llvm_module.globals.get(name)
    if found is None:
        mask = (1 << kind.width) - 1
        array = ir.ArrayType(kind, max(1, len(values)))
        found = ir.GlobalVariable(llvm_module, array, name)
        found.linkage, found.global_constant, found.align = "internal", True, 64
        found.initializer = ir.Constant(array, [kind(v & mask) for v in (values or [0])])
    return found


def _by_device(rows: Mapping[int, tuple[int, ...]]) -> list[int]:
    """Rows of four u32 by flattened device id; zeros for ids that no group has."""
    return [value for device in range(max(rows) + 1) for value in rows.get(device, (0, 0, 0, 0))]


def _device_row(words: Words, context: ir.Value, table: ir.GlobalVariable) -> ir.Value:
    device = words.builder.zext(words.context_field(context, "device"), I64)
    return words.at(table, words.builder.mul(device, i64(DEVICE_ROW)))


def _emit_permute(
    words: Words,
    function: ir.Function,
    group_state: ir.Value,
    spec: CommunicatorSpec,
    operands: tuple[Shape, ...],
    number: int,
    site: Site,
) -> None:
    """Rounds of the pairs; more leaves than a post holds are sent in several."""
    places = {device: position for group in spec.groups for position, device in enumerate(group)}
    targets, sources = dict(spec.pairs), {target: source for source, target in spec.pairs}
    rows = {
        device: (
            places[targets[device]] if device in targets else NOBODY,
            targets.get(device, NOBODY),
            position if device in sources else NOBODY,
            sources.get(device, NOBODY),
        )
        for device, position in places.items()
    }
    table = _constant(words.builder.module, f"distxla_pairs_{_digest(rows)}", I32, _by_device(rows))
    context, site_number, sent, received = function.args
    row = _device_row(words, context, table)
    for first in range(0, len(operands), state.OFFSETS):
        sizes = tuple(o.byte_size for o in operands[first : first + state.OFFSETS])
        name = f"distxla_permute_{number:016x}_{first}"
        round_ = words.builder.module.globals.get(name)
        if round_ is None:
            round_ = PermuteRound(words.builder.module, name, sizes, number ^ first).emit()
        places_ = (words.at(sent, 8 * first), words.at(received, 8 * first))
        status = words.builder.call(round_, [context, site_number, *places_, group_state, row])
        words.return_if(words.builder.icmp_unsigned("!=", status, i32(Status.OK)), status)
    words.builder.ret(i32(Status.OK))


class _GroupSite:
    """The routine of one site whose groups meet in rounds."""

    def __init__(
        self,
        words: Words,
        function: ir.Function,
        group_state: ir.Value,
        spec: CommunicatorSpec,
        module: Module,
        op: GroupedCollective,
        operands: tuple[Shape, ...],
        number: int,
    ) -> None:
        self.words, self.function, self.group_state, self.spec = words, function, group_state, spec
        self.module, self.op, self.operands, self.signature = module, op, operands, number
        self.llvm_module = words.builder.module

    def emit(self, site: Site) -> None:
        """Look up this device's group, then run the round made for groups of that size."""
        words, builder = self.words, self.words.builder
        flat = [device for group in self.spec.groups for device in group]
        rows, first = {}, 0
        for group in self.spec.groups:
            for position, device in enumerate(group):
                rows[device] = (position, len(group), first, int(device in self.spec.silent))
            first += len(group)
        digest = _digest((self.spec.groups, self.spec.silent))
        table = _constant(self.llvm_module, f"distxla_groups_{digest}", I32, _by_device(rows))
        members = _constant(self.llvm_module, f"distxla_members_{digest}", I32, flat)
        row = _device_row(words, self.function.args[0], table)
        position, size, begin = (builder.zext(words.load(I32, row, 4 * i), I64) for i in range(3))
        mine = words.at(members, builder.mul(begin, i64(4)))
        if self.spec.silent:
            with words.when(builder.icmp_unsigned("!=", words.load(I32, row, 12), i32(0))):
                self._zeros()
        sizes = sorted({len(group) for group in self.spec.groups})
        for group_size in sizes[:-1]:
            with words.when(builder.icmp_unsigned("==", size, i64(group_size))):
                self._rounds(site, group_size, position, mine)
        self._rounds(site, sizes[-1], position, mine)

    def _zeros(self) -> None:
        """Fill the results, which have the operands' sizes, and return."""
        words, (context, _, _, received) = self.words, self.function.args
        memory = words.device_memory(context, words.context_field(context, "device"))
        for leaf, operand in enumerate(self.operands):
            emit_zero(words, words.at(memory, words.load(I64, received, 8 * leaf)), i64(operand.byte_size))
        words.builder.ret(i32(Status.OK))

    def _rounds(self, site: Site, size: int, position: ir.Value, members: ir.Value) -> None:
        """Emit the rounds of a group of `size` and the return; more leaves than a slot holds take several rounds."""
        words, builder = self.words, self.words.builder
        movements = self.op.movements(self.operands, size)
        for batch, (parts, operands, results) in enumerate(_batches(movements, self.operands)):
            arguments = self._round_arguments(site, size, batch, parts, operands, results)
            head = (self.function.args[0], self.function.args[1])
            place = (self.group_state, position, i64(size), members)
            status = builder.call(emit_group_round(self.llvm_module), [*head, *arguments[:5], *place, *arguments[5:]])
            words.return_if(builder.icmp_unsigned("!=", status, i32(Status.OK)), status)
        builder.ret(i32(Status.OK))

    def _round_arguments(
        self, site: Site, size: int, batch: int, parts: list[Movement], operands: range, results: range
    ) -> list[ir.Value]:
        words = self.words
        sizes = [self.operands[i].dtype.byte_size for i in operands]
        plan: WorkPlan = plan_work(parts, sizes, len(operands), size)
        rows = [value for row in plan.table for value in row]
        table = _constant(self.llvm_module, f"distxla_work_{site.index}_{size}_{batch}", I64, rows)
        _, _, sent, received = self.function.args
        return [
            words.at(sent, 8 * operands.start),
            words.at(received, 8 * results.start),
            i64(len(operands)),
            i64(len(results)),
            i64(self.signature ^ batch),
            table,
            i64(plan.items),
            i32(int(plan.shared)),
            self._items(size),
        ]

    def _items(self, size: int) -> ir.Function:
        reduction = self.op.reduction
        if reduction is None or size == 1:
            return emit_copy_items(self.llvm_module)
        kind = self.operands[0].dtype
        digest = _digest((structure(self.module, self.module[reduction]), kind.name, size))
        name = f"distxla_fold_{digest}"
        return emit_fold_items(self.llvm_module, name, self.module, reduction, kind, size)


def _batches(movements: tuple[Movement, ...], operands: Sequence[Shape]) -> list[tuple[list[Movement], range, range]]:
    """Movements by round, with leaf numbers within the round, and which operand and result leaves they are.

    Movements with steps are the whole of their instruction's leaves and can't be divided: their slots hold 255 members.
    """
    if any(m.operand_step or m.result_step for m in movements):
        return [(list(movements), range(len(operands)), range(len(operands)))]
    limit = state.OFFSETS // 2
    found = []
    for first in range(0, len(movements), limit):
        part = movements[first : first + limit]
        leaves = range(first, first + len(part))
        found.append(([replace(m, operand=m.operand - first, result=m.result - first) for m in part], leaves, leaves))
    return found
