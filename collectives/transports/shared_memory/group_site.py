"""Collectives whose groups meet in rounds: all-reduce, all-gather, reduce-scatter, all-to-all, broadcast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from llvmlite import ir

from distxla.collectives.protocols import group as group_words
from distxla.collectives.protocols import rounds as round_words
from distxla.collectives.signature import signature, structure
from distxla.collectives.transports.seam import GridRound
from distxla.collectives.transports.shared_memory.device_tables import by_device, constant, device_row, digest, ticket
from distxla.collectives.transports.shared_memory.grid_items import (
    ON_GRID,
    emit_grid_items,
    emit_grid_zeros,
    grid_parts,
)
from distxla.collectives.transports.shared_memory.group_round import emit_group_begin, emit_group_end, emit_group_round
from distxla.collectives.transports.shared_memory.ragged_work_items import (
    bytes_read,
    emit_ragged_items,
    emit_ragged_start,
    plan_ragged_work,
)
from distxla.collectives.transports.shared_memory.reduce_tile import TileReducer, emit_reduce_tile
from distxla.collectives.transports.shared_memory.site_emitter import Routine, SiteEmitter
from distxla.collectives.transports.shared_memory.work_items import (
    WorkPlan,
    emit_copy_items,
    emit_reduce_items,
    plan_work,
)
from distxla.emit.native_function import I32, I64, POINTER, emit_zero, i32, i64
from distxla.errors import UnsupportedOpError
from distxla.ir.counts import Counts
from distxla.ir.instruction import Instruction
from distxla.ir.op import Op
from distxla.ir.shape import Shape
from distxla.ops.ragged_all_to_all import RaggedAllToAll
from distxla.ops.support.collective import RANK, GroupedCollective
from distxla.ops.support.collective_movement import Movement
from distxla.ops.support.collective_start_done import AsyncPart, async_part_of, of_whole, whole
from distxla.program.abi import Status
from distxla.program.artifact import CommunicatorSpec, Site
from distxla.program.work_table import RoundWork

MOST_GRID_MEMBERS = 64  # whose elements one thread reduces


class GroupEmitter(SiteEmitter):
    """`site_emitter.SiteEmitter`: every member of a group waits for all others.

    Results must not overlap operands, but for all-reduce, where result leaf i may be operand leaf i. Results are equal
    bit for bit on every run and every member: reductions go in group order, on whatever member.
    """

    def handles(self, op: Op) -> bool:
        return op.round.has_groups

    def communicator(self, instruction: Instruction, operands: tuple[Shape, ...], counts: Counts) -> CommunicatorSpec:
        op = whole(instruction.op)
        assert isinstance(op, GroupedCollective)
        groups = op.device_groups(counts)
        sent, result = of_whole(instruction, operands)
        for size in {len(group) for group in groups}:
            op.check_size(result, sent, size)
            if not isinstance(op, RaggedAllToAll):
                _batches(op.movements(sent, size), sent)
        silent = op.silent_devices(counts)
        sizes = tuple(group_words.group_bytes(len(group)) for group in groups)
        key = f"groups {digest((groups, silent))}"
        return CommunicatorSpec(key, groups, sizes, silent=silent, common_key="groups")

    def grid_rounds(
        self, instruction: Instruction, operands: tuple[Shape, ...], counts: Counts
    ) -> tuple[GridRound, ...] | None:
        """In group order only, and of arrays whose stretches are known."""
        op = whole(instruction.op)
        assert isinstance(op, GroupedCollective)
        sizes = sorted({len(group) for group in op.device_groups(counts)})
        if isinstance(op, RaggedAllToAll) or op.order != RANK or sizes[-1] > MOST_GRID_MEMBERS:
            return None
        if async_part_of(instruction.op) is AsyncPart.DONE:
            return ()
        sent, _ = of_whole(instruction, operands)
        return tuple(
            GridRound(size, tuple(sent[k] for k in leaves), len(results), tuple(movements), op.reduction)
            for size in sizes
            for movements, leaves, results in _batches(op.movements(sent, size), sent)
        )

    def emit(self, routine: Routine) -> None:
        op = whole(routine.instruction.op)
        assert isinstance(op, GroupedCollective)
        _GroupSite(routine, op).emit(routine.site)


class _GroupSite:
    """The routine of one site whose groups meet in rounds."""

    def __init__(self, routine: Routine, op: GroupedCollective) -> None:
        self.atomics, self.function, self.spec = routine.atomics, routine.function, routine.spec
        self.group_state, self.module, self.op = routine.state, routine.module, op
        self.scalar_code = routine.scalar_code
        self.part = async_part_of(routine.instruction.op)
        self.operands, self.result = of_whole(routine.instruction, routine.operands)
        self.signature = signature(routine.module, routine.instruction.replace(op=op), self.operands)
        if routine.grid is not None:
            self.signature ^= ON_GRID
        self.llvm_module = self.atomics.builder.module
        self.rounds, self.grid = routine.rounds, routine.grid
        self.launched = iter(() if self.grid is None else self.grid.rounds)

    def emit(self, site: Site) -> None:
        """Look up this device's group, then run the round made for groups of that size."""
        atomics, builder = self.atomics, self.atomics.builder
        flat = [device for group in self.spec.groups for device in group]
        rows, first = {}, 0
        for group in self.spec.groups:
            for position, device in enumerate(group):
                rows[device] = (position, len(group), first, int(device in self.spec.silent))
            first += len(group)
        name = digest((self.spec.groups, self.spec.silent))
        table = constant(self.llvm_module, f"distxla_groups_{name}", I32, by_device(rows))
        members = constant(self.llvm_module, f"distxla_members_{name}", I32, flat)
        row = device_row(atomics, self.function.args[0], table)
        position, size, begin = (builder.zext(atomics.load(I32, row, 4 * i), I64) for i in range(3))
        mine = atomics.at(members, builder.mul(begin, i64(4)))
        if self.spec.silent:
            with atomics.when(builder.icmp_unsigned("!=", atomics.load(I32, row, 12), i32(0))):
                self._zeros()
        sizes = sorted({len(group) for group in self.spec.groups})
        for group_size in sizes[:-1]:
            with atomics.when(builder.icmp_unsigned("==", size, i64(group_size))):
                self._rounds(site, group_size, position, mine)
        self._rounds(site, sizes[-1], position, mine)

    def _zeros(self) -> None:
        """Fill the results, which have the operands' sizes, and return."""
        if self.part is AsyncPart.DONE:
            self.atomics.builder.ret(i32(Status.OK))
            return
        atomics, (context, _, _, received) = self.atomics, self.function.args
        if self.grid is not None:
            emit_grid_zeros(atomics, self.grid.calls, context, received, [each.byte_size for each in self.operands])
            atomics.builder.ret(i32(Status.OK))
            return
        memory = atomics.device_memory(context, atomics.context_field(context, "device"))
        for leaf, operand in enumerate(self.operands):
            place = atomics.at(memory, atomics.load(I64, received, 8 * leaf))
            emit_zero(atomics.builder, place, i64(operand.byte_size))
        atomics.builder.ret(i32(Status.OK))

    def _rounds(self, site: Site, size: int, position: ir.Value, members: ir.Value) -> None:
        """Emit the rounds of a group of `size` and the return; more leaves than a slot holds take several rounds."""
        atomics, builder = self.atomics, self.atomics.builder
        if self.part is AsyncPart.DONE:
            self._ends(size, position)
            return
        if isinstance(self.op, RaggedAllToAll):
            batches = [self._ragged(self.op, site, size)]
        else:
            movements = self.op.movements(self.operands, size)
            batches = [
                self._round_arguments(site, size, batch, *parts)
                for batch, parts in enumerate(_batches(movements, self.operands))
            ]
        emit = emit_group_begin if self.part is AsyncPart.START else emit_group_round
        for batch, arguments in enumerate(batches):
            head = (self.function.args[0], self.function.args[1])
            place = (self.group_state, position, i64(size), members)
            tickets = [] if self.part is AsyncPart.SYNCHRONOUS else [atomics.local(I64) if batch else self._ticket()]
            given = [*head, *arguments[:5], *place, *arguments[5:], *tickets]
            atomics.require_ok(builder.call(emit(self.llvm_module), given))
        builder.ret(i32(Status.OK))

    def _ends(self, size: int, position: ir.Value) -> None:
        """The dones of the rounds, which have consecutive numbers, and the return."""
        atomics, builder = self.atomics, self.atomics.builder
        is_ragged = isinstance(self.op, RaggedAllToAll)
        batches = 1 if is_ragged else len(_batches(self.op.movements(self.operands, size), self.operands))
        first = atomics.load(I64, self._ticket())
        for batch in range(batches):
            number = builder.add(first, i64(batch))
            arguments = [self.function.args[0], self.group_state, position, i64(size), number]
            atomics.require_ok(builder.call(emit_group_end(self.llvm_module), arguments))
        builder.ret(i32(Status.OK))

    def _ticket(self) -> ir.Value:
        """Where the number of the first round is: after the words that the start writes for the done."""
        table = self.function.args[3 if self.part is AsyncPart.START else 2]
        return ticket(self.atomics, self.function.args[0], table, self.result)

    def _round_arguments(
        self, site: Site, size: int, batch: int, parts: list[Movement], operands: range, results: range
    ) -> list[ir.Value]:
        if self.grid is not None:
            return self._grid_arguments(site, size, batch, (operands, results))
        sizes = [self.operands[i].dtype.byte_size for i in operands]
        shares = site.shares and size > 1
        plan = plan_work(
            parts, sizes, len(operands), size, result_leaves=len(results) if shares else 0, order=self.op.order
        )
        items, (reduction, element) = self._items(size), self._reduce(size)
        leaves = (operands, results)
        self._describe(size, batch, leaves, plan, items, shares=shares, reduction=reduction, element=element)
        return self._arguments(site, size, batch, leaves, plan, items)

    def _grid_arguments(self, site: Site, size: int, batch: int, leaves: tuple[range, range]) -> list[ir.Value]:
        assert self.grid is not None
        name = f"distxla_grid_items_{site.index}_{size}_{batch}"
        count = sum(len(side) for side in leaves)
        calls, context = self.grid.calls, self.function.args[0]
        do_items = emit_grid_items(self.llvm_module, name, calls, next(self.launched), size, count)
        arguments = self._arguments(site, size, batch, leaves, WorkPlan((), 1, False), do_items)
        builder = self.atomics.builder
        items = grid_parts(calls, builder, context, size)
        arguments[6:8] = items, builder.zext(builder.icmp_unsigned(">", items, i64(1)), I32)
        return arguments

    def _ragged(self, op: RaggedAllToAll, site: Site, size: int) -> list[ir.Value]:
        """The one round of a ragged-all-to-all, after the part that each member does for itself."""
        atomics, (context, _, sent, received) = self.atomics, self.function.args
        _, output, table, *_ = self.operands
        movement = op.ragged_movement(self.operands, size)
        memory = atomics.device_memory(context, atomics.context_field(context, "device"))
        record = atomics.context_field(context, "record")
        places = (sent, received)
        emit_ragged_start(atomics, memory, places, record, movement, table.dtype, output.byte_size, table.size)
        leaves = len(self.operands)
        items = emit_ragged_items(self.llvm_module, movement, table.dtype, leaves)
        sizes = [operand.byte_size for operand in self.operands]
        plan = plan_ragged_work(movement, output.dtype.byte_size, size)
        both = (range(leaves), range(1))
        self._describe(size, 0, both, plan, items, read=bytes_read(movement, sizes))
        return self._arguments(site, size, 0, both, plan, items)

    def _describe(
        self,
        size: int,
        batch: int,
        leaves: tuple[range, range],
        plan: WorkPlan,
        items: ir.Function,
        *,
        shares: bool = False,
        reduction: ir.Function | None = None,
        element: int = 0,
        read: tuple[int, ...] = (),
    ) -> None:
        """Keep the round for proxies. Groups of one device have none."""
        if size == 1:
            return
        operands, results = (len(side) for side in leaves)
        number, symbol = self.signature ^ batch, "" if reduction is None else _exported(reduction)
        head = (size, number, operands, results, plan.table, plan.items, _exported(items))
        self.rounds.append(RoundWork(*head, shares, element, symbol, read))

    def _arguments(
        self,
        site: Site,
        size: int,
        batch: int,
        leaves: tuple[range, range],
        plan: WorkPlan,
        items: ir.Function,
    ) -> list[ir.Value]:
        """Of the round function, but for the context, the site's number and the device's place in its group."""
        atomics, (operands, results) = self.atomics, leaves
        rows = [value for row in plan.table for value in row]
        table = constant(self.llvm_module, f"distxla_work_{site.index}_{size}_{batch}", I64, rows)
        _, _, sent, received = self.function.args
        shares = site.shares and size > 1
        places = 8 * (len(self.operands) + results.start)  # a site that shares has as many results as operands
        common = atomics.at(received, places) if shares else ir.Constant(POINTER, None)
        return [
            atomics.at(sent, 8 * operands.start),
            atomics.at(received, 8 * results.start),
            i64(len(operands)),
            i64(len(results)),
            i64(self.signature ^ batch),
            table,
            i64(plan.items),
            i32(int(plan.shared)),
            items,
            common,
        ]

    def _items(self, size: int) -> ir.Function:
        reduction = self.op.reduction
        if reduction is None or size == 1:
            return emit_copy_items(self.llvm_module)
        reducer = TileReducer(self.module, self.scalar_code, reduction, self.operands[0].dtype, size, self.op.order)
        return emit_reduce_items(self.llvm_module, self._reduction_name(reducer), reducer)

    def _reduce(self, size: int) -> tuple[ir.Function | None, int]:
        """For a proxy, to reduce operands as they arrive, in group order: a routine that reduces two, and the bytes of
        an element. No routine where another order is asked for: then it collects the operands and does the items."""
        reduction = self.op.reduction
        if reduction is None or size == 1:
            return None, 0
        two = TileReducer(self.module, self.scalar_code, reduction, self.operands[0].dtype, 2)
        element = two.element_type.byte_size
        if self.op.order != RANK:
            return None, element
        name = f"{self._reduction_name(two)}_tile"
        if size == 2:
            return emit_reduce_tile(self.llvm_module, name, two), element
        # Kept small, because every program would take longer to compile for a routine that most never call: 2 ms
        # instead of 15, and as fast for f32.
        found = emit_reduce_tile(self.llvm_module, f"{name}_small", two)
        for attribute in ("minsize", "optsize"):
            found.attributes.add(attribute)
        return found, element

    def _reduction_name(self, reducer: TileReducer) -> str:
        computation = structure(self.module, self.module[reducer.reduction])
        return f"distxla_reduce_{digest((computation, reducer.element_type.name, reducer.members, reducer.order))}"


def _exported(function: ir.Function) -> str:
    """The symbol by which a proxy finds a function of the program."""
    function.linkage = ""
    return str(function.name)


def _batches(movements: tuple[Movement, ...], operands: Sequence[Shape]) -> list[tuple[list[Movement], range, range]]:
    """Movements by round, with leaf numbers within the round, and which operand and result leaves they are.

    Movements with steps are the whole of their instruction's leaves and can't be divided: UnsupportedOpError where
    these are more than a slot holds.
    """
    if any(m.operand_step or m.result_step for m in movements):
        if len(operands) > round_words.OFFSETS // 2:
            raise UnsupportedOpError(
                f"{len(operands)} operands: this version exchanges at most {round_words.OFFSETS // 2}"
            )
        return [(list(movements), range(len(operands)), range(len(operands)))]
    limit = round_words.OFFSETS // 3  # operands, results, and the results' shared places
    found = []
    for first in range(0, len(movements), limit):
        part = movements[first : first + limit]
        leaves = range(first, first + len(part))
        found.append(([replace(m, operand=m.operand - first, result=m.result - first) for m in part], leaves, leaves))
    return found
