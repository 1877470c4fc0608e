"""Fusions that run row by row: each row goes through all of them while it is in the cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from distxla.compiler.lower.arrays import MemoryArray
from distxla.compiler.lower.buffer_emitter import BufferEmitter
from distxla.compiler.lower.element_computations import element_array
from distxla.compiler.lower.index import IndexExpression
from distxla.compiler.lower.scalar_value import ScalarValue, register_type
from distxla.ir.computation import Computation
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.op import Lowering
from distxla.ir.shape import Shape
from distxla.ops.support.emit import ArrayRef
from distxla.ops.support.row_limits import row_sizes

Index = Sequence[IndexExpression | int]
Stage = Callable[[Computation, Sequence[Any], Sequence[Any], "RowView | None"], None]


class RowView:
    """Makes one row of an array an array of its own. prefix: the row's index."""

    def __init__(self, prefix: Index) -> None:
        self.prefix = tuple(prefix)

    def of(self, array: Any) -> Any:
        """The row of an array (something that loads, and stores where it is memory)."""
        return _Row(array, self.prefix)


class _Row:
    def __init__(self, array: Any, prefix: tuple[IndexExpression | int, ...]) -> None:
        self.array = array
        self.prefix = prefix
        self.shape = array.shape.with_dims(array.shape.dims[len(prefix) :])

    def load(self, index: Index) -> ScalarValue:
        value: ScalarValue = self.array.load((*self.prefix, *index))
        return value

    def store(self, index: Index, value: ScalarValue) -> None:
        self.array.store((*self.prefix, *index), value)


class _RowMemory:
    """An array of which only the row in flight is kept. shape: of the whole array."""

    def __init__(self, shape: Shape, memory: MemoryArray, leading: int) -> None:
        self.shape = shape
        self.memory = memory
        self.leading = leading

    def load(self, index: Index) -> ScalarValue:
        return self.memory.load(index[self.leading :])

    def store(self, index: Index, value: ScalarValue) -> None:
        self.memory.store(index[self.leading :], value)


class _RowScalar:
    """An array with one element a row, which stays in registers. shape: of the whole array."""

    def __init__(self, emit: BufferEmitter, shape: Shape) -> None:
        self.emit = emit
        self.shape = shape
        kind = register_type(shape.dtype)
        self.slots = [emit.stack_slot(kind) for _ in range(2 if shape.dtype.is_complex else 1)]

    def load(self, index: Index) -> ScalarValue:
        kind = register_type(self.shape.dtype)
        return ScalarValue(self.shape.dtype, *(self.emit.builder.load(slot, typ=kind) for slot in self.slots))

    def store(self, index: Index, value: ScalarValue) -> None:
        for register, slot in zip(value.registers(), self.slots):
            self.emit.builder.store(register, slot)


def emit_rows(
    emit: BufferEmitter,
    module: Module,
    rows: Computation,
    arrays: Sequence[ArrayRef],
    results: Sequence[MemoryArray],
    stage: Stage,
) -> None:
    """Run a computation of rows (ops/support/row_limits.py); stage: emits one fused computation for one row."""
    dimension_sizes = row_sizes(rows, lambda name: module[name])
    with emit.loops(dimension_sizes) as prefix:
        view = RowView(prefix)

        def kept(shape: Shape) -> _RowMemory | _RowScalar:
            return _kept(emit, shape, len(dimension_sizes))

        _emit_stages(emit, module, rows, arrays, results, kept, stage, view)


def emit_rows_apart(
    emit: BufferEmitter,
    module: Module,
    rows: Computation,
    arrays: Sequence[ArrayRef],
    results: Sequence[MemoryArray],
    stage: Stage,
) -> None:
    """The same, but all rows go through one fused computation before the next: values in between are whole arrays."""
    _emit_stages(emit, module, rows, arrays, results, emit.scratch, stage, None)


def _emit_stages(
    emit: BufferEmitter,
    module: Module,
    rows: Computation,
    arrays: Sequence[ArrayRef],
    results: Sequence[MemoryArray],
    kept: Callable[[Shape], Any],
    stage: Stage,
    row: RowView | None,
) -> None:
    """kept: makes room for a value that is no result.  row: which one; None for all of them."""
    leaves = _result_leaves(rows, rows.root_instruction)
    stored = dict(zip(leaves, results))
    values: dict[str, tuple[Any, ...]] = {}
    for instruction in rows:
        op: Any = instruction.op
        operands = [values[name] for name in instruction.operands]
        if op.role.is_parameter:
            values[instruction.name] = (arrays[op.number],)
        elif op.lowering is Lowering.ALIAS:
            shapes = [o.shape for o in rows.operands(instruction)]
            values[instruction.name] = tuple(op.result_leaves(shapes, operands))
        elif op.lowering is Lowering.ELEMENT:
            values[instruction.name] = (element_array(emit, instruction, [leaves[0] for leaves in operands]),)
        else:
            made = tuple(
                stored.get((instruction.name, k)) or kept(leaf) for k, leaf in enumerate(instruction.shape.leaves())
            )
            values[instruction.name] = made
            (called,) = op.called_computations
            stage(module[called], [leaf for leaves in operands for leaf in leaves], made, row)


def _kept(emit: BufferEmitter, shape: Shape, leading: int) -> _RowMemory | _RowScalar:
    rest = shape.dims[leading:]
    if prod(rest) == 1:
        return _RowScalar(emit, shape)
    return _RowMemory(shape, emit.scratch(shape.with_dims(rest)), leading)


def _result_leaves(rows: Computation, root: Instruction) -> list[tuple[str, int]]:
    """Which leaf of which fusion each leaf of the root is."""
    made: dict[str, tuple[tuple[str, int], ...]] = {}
    for instruction in rows:
        if instruction.op.lowering is Lowering.ALIAS and not instruction.op.role.is_parameter:
            shapes = [o.shape for o in rows.operands(instruction)]
            made[instruction.name] = tuple(
                instruction.op.result_leaves(shapes, [made[name] for name in instruction.operands])
            )
        else:
            made[instruction.name] = tuple((instruction.name, k) for k, _ in enumerate(instruction.shape.leaves()))
    return list(made[root.name])
