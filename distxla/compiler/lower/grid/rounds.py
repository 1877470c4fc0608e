"""The work of a collective's round on a grid: a kernel moves the data of all members, or a part of it.

The code that launches it has filled the table in its scratch memory (collectives/transports/seam.py). Every movement
(ops/support/collective_movement.py) is a launch, a thread an element.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import gcd

from llvmlite import ir

from distxla.collectives.transports.seam import ADDRESSES, PART, PARTS, GridRound
from distxla.compiler.lower.arrays import MemoryArray
from distxla.compiler.lower.grid.grid_emitter import GridEmitter
from distxla.compiler.lower.grid.grid_loops import WORDS
from distxla.compiler.lower.grid.kernel import begin, inline, launched
from distxla.compiler.lower.grid.launches import GridKernel
from distxla.compiler.lower.index import IndexExpression
from distxla.compiler.lower.scalar_value import ScalarValue
from distxla.emit.native_function import I32, I64, POINTER, VOID
from distxla.ir.element_type import U64, ElementType
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.ir.structure import Structure
from distxla.lazy_dataclass import dataclass, replace
from distxla.ops.support.collective_movement import Movement
from distxla.targets.grid_module import GridModule

IndexLike = IndexExpression | int


@dataclass(frozen=True)
class _Addresses:
    """The table of addresses."""

    emit: GridEmitter
    table: MemoryArray
    members: int

    def of(self, leaf: IndexLike, member: IndexLike) -> ir.Value:
        """Of a leaf's array of a member."""
        value = self.emit.load(self.table.pointer, leaf * self.members + member + ADDRESSES, U64)
        return self.emit.builder.inttoptr(value.llvm, POINTER)

    def part(self) -> tuple[ir.Value, ir.Value]:
        """Which part of the work this launch does, and of how many."""
        builder = self.emit.builder
        places = (builder.gep(self.table.pointer, [I64(k)], source_etype=I64) for k in (PART, PARTS))
        which, count = (builder.load(place, typ=I64) for place in places)
        return which, count


def round_key(structure: Structure, round_: GridRound) -> Hashable:
    """What the kernel of a round depends on. structure: the module's."""
    shapes = tuple(shape.without_layout() for shape in round_.operands)
    number = None if round_.reduction is None else structure.number(round_.reduction)
    return "round", round_.members, shapes, round_.results, round_.movements, number


def emit_grid_round(grid_module: GridModule, module: Module, round_: GridRound, name: str) -> GridKernel:
    """Add the functions that do a round's work to `grid_module`, one a movement; their arguments are those of a kernel
    without operands and results."""
    kinds = [I32, POINTER, POINTER]
    body = ir.Function(grid_module, ir.FunctionType(VOID, kinds), f"{name}_body")
    inline(body)
    number, context, scratch = body.args
    emit = GridEmitter(ir.IRBuilder(body.append_basic_block("entry")), module, context, scratch, number, [context])
    begin(emit)
    leaves = len(round_.operands) + round_.results
    table = emit.scratch(Shape(U64, (ADDRESSES + leaves * round_.members,)))
    addresses = _Addresses(emit, table, round_.members)
    emit.part = addresses.part
    for movement in round_.movements:
        _emit_movement(emit, addresses, round_, movement)
    emit.builder.ret_void()
    return launched(grid_module, body, emit, name, lambda arguments: None)


def _emit_movement(emit: GridEmitter, addresses: _Addresses, round_: GridRound, movement: Movement) -> None:
    kind, moved = round_.operands[movement.operand].dtype, movement
    if moved.rows * moved.row == 0:
        return
    if moved.is_contiguous:
        moved = replace(moved, rows=1, row=moved.rows * moved.row, source_stride=0, target_stride=0)
    if not moved.reduces:
        kind, moved = _in_words(moved, kind)
    members = round_.members
    sources, targets = (members if moved.by_source else 1), (members if moved.by_target else 1)
    with emit.loops((sources, targets, moved.rows, moved.row), parallel=True) as (source, target, row, column):
        operand = target * moved.operand_step + moved.operand
        at = target * moved.source_offset + row * moved.source_stride + column
        if moved.reduces:
            value = _reduced(emit, addresses, round_, operand, at, kind)
        else:
            value = emit.load(addresses.of(operand, source), at, kind)
        result = source * moved.result_step + moved.result + len(round_.operands)
        at = source * moved.target_offset + row * moved.target_stride + column
        for member in (target,) if moved.by_target else range(members):
            emit.store(addresses.of(result, member), at, value)


def _reduced(
    emit: GridEmitter,
    addresses: _Addresses,
    round_: GridRound,
    operand: IndexLike,
    at: IndexLike,
    kind: ElementType,
) -> ScalarValue:
    """In group order."""
    assert round_.reduction is not None
    first, *others = (emit.load(addresses.of(operand, m), at, kind) for m in range(round_.members))
    total = first
    for value in others:
        (total,) = emit.apply(round_.reduction, total, value)
    return total


def _in_words(movement: Movement, kind: ElementType) -> tuple[ElementType, Movement]:
    """The same bytes in the widest words that fit."""
    size = kind.byte_size
    offsets = movement.source_offset, movement.target_offset
    strides = (movement.source_stride, movement.target_stride) if movement.rows > 1 else ()
    width = gcd(8, *(size * count for count in (movement.row, *offsets, *strides)))

    def words(count: int) -> int:
        return count * size // width

    return WORDS[width], replace(
        movement,
        row=words(movement.row),
        source_offset=words(movement.source_offset),
        target_offset=words(movement.target_offset),
        source_stride=words(movement.source_stride),
        target_stride=words(movement.target_stride),
    )


__all__ = ["emit_grid_round", "round_key"]
