"""Combining the elements of several buffers with a computation, a tile at a time, in a stated order.

A tile stays near the core; the caller writes out the reduced values. The order of combination (see REDUCTION_ORDERS in
ops/support/collective.py) follows from the positions of the members' buffers in the list of sources (rank, ring) or
from how passes combine (tree).
"""

from __future__ import annotations

from llvmlite import ir

from distxla.collectives.transports.seam import ScalarCodeAt
from distxla.emit.atomics_builder import AtomicsBuilder
from distxla.emit.native_function import I8, I64, POINTER, VOID, emit_copy, i64
from distxla.ir.element_type import ElementType
from distxla.ir.module import Module
from distxla.lazy_dataclass import dataclass, replace
from distxla.ops.support.collective import RANK, TREE

TILE_BYTES = 32768  # reduced near the core before it is written out
FAN_IN = 8  # operands that one pass over a tile reads; a power of two: a tree's subtree


@dataclass(frozen=True)
class TileReducer:
    """How many members' elements of a type are combined by which computation of the module, in which order."""

    module: Module
    scalar_code: ScalarCodeAt
    reduction: str
    element_type: ElementType
    members: int
    order: str = RANK


def emit_reduce_tile(llvm_module: ir.Module, name: str, reducer: TileReducer) -> ir.Function:
    """void name(tile, sources, i64 offset, i64 elements): tile[e] = reduction of s0[e], s1[e] .., s0 = sources[0] +
    offset.

    sources: as many addresses as members; tile overlaps none of them.  elements: at most TILE_BYTES' worth.
    """
    found = llvm_module.globals.get(name)
    if found is not None:
        return found
    if reducer.order == TREE and reducer.members > FAN_IN:
        return _emit_large_tree(llvm_module, name, reducer)
    function, atomics = AtomicsBuilder.function(
        llvm_module, name, VOID, [POINTER, POINTER, I64, I64], optimised=True, common=True
    )
    function.attributes.add("noinline")
    function.args[0].add_attribute("noalias")
    begun = min(reducer.members, FAN_IN)
    _one_pass(atomics, function, reducer, i64(0), begun)
    full = (reducer.members - begun) // FAN_IN * FAN_IN
    if full:
        with atomics.count(i64(begun), i64(begun + full), FAN_IN) as first:
            _one_pass(atomics, function, reducer, first, FAN_IN, begins=False)
    if reducer.members - begun - full:
        _one_pass(atomics, function, reducer, i64(begun + full), reducer.members - begun - full, begins=False)
    atomics.builder.ret_void()
    return function


def _one_pass(
    atomics: AtomicsBuilder,
    function: ir.Function,
    reducer: TileReducer,
    first: ir.Value,
    count: int,
    *,
    begins: bool = True,
) -> None:
    """Reduce `count` sources from `first` on into the tile, after the values it holds unless the pass `begins`."""
    tile, sources, offset, elements = function.args
    builder = atomics.builder
    places = []
    for k in range(count):
        index = builder.add(first, i64(k))
        places.append(atomics.at(atomics.load(POINTER, sources, builder.mul(index, i64(8))), offset))
    with atomics.count(i64(0), elements) as element:
        emit = reducer.scalar_code(builder, reducer.module)
        at = emit.wrap_index(element, 0, TILE_BYTES)
        values = [emit.load(p, at, reducer.element_type) for p in ([] if begins else [tile]) + places]

        def combined(a: ir.Value, b: ir.Value) -> ir.Value:
            (result,) = emit.apply(reducer.reduction, a, b)
            return result

        if reducer.order == TREE:
            while len(values) > 1:
                pairs = [values[i : i + 2] for i in range(0, len(values), 2)]
                values = [combined(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
        total, *others = values
        for value in others:
            total = combined(total, value)
        emit.store(tile, at, total)


def _emit_large_tree(llvm_module: ir.Module, name: str, reducer: TileReducer) -> ir.Function:
    """The tree of more members than one pass reads.

    Passes over FAN_IN sources each give tiles of whole subtrees. They are kept on a stack and merged as a binary
    counter carries, so that there are never more of them than levels; the rest is merged from the right.
    """
    leaf = emit_reduce_tile(llvm_module, f"{name}_{FAN_IN}", replace(reducer, members=FAN_IN))
    blocks, rest = divmod(reducer.members, FAN_IN)
    merge = emit_reduce_tile(llvm_module, f"{name}_merge", replace(reducer, members=2))
    function, atomics = AtomicsBuilder.function(llvm_module, name, VOID, [POINTER, POINTER, I64, I64], common=True)
    tile, sources, offset, elements = function.args
    builder = atomics.builder
    stack = atomics.local(ir.ArrayType(I8, TILE_BYTES * (blocks.bit_length() + 2)), 64)
    pair = atomics.local(ir.ArrayType(POINTER, 2))
    depth, carry = atomics.local(I64), atomics.local(I64)
    builder.store(i64(0), depth)

    def place(behind: int) -> ir.Value:
        """A tile of the stack, counted down from the next free one."""
        index = builder.sub(builder.load(depth, typ=I64), i64(behind))
        return atomics.at(stack, builder.mul(index, i64(TILE_BYTES)))

    def push(part: ir.Function, block: ir.Value) -> None:
        from_here = atomics.at(sources, builder.mul(block, i64(8 * FAN_IN)))
        builder.call(part, [place(0), from_here, offset, elements])
        builder.store(builder.add(builder.load(depth, typ=I64), i64(1)), depth)

    def merge_two() -> None:
        """The topmost two become one, by way of the tile, which is otherwise unused until the end."""
        atomics.store(place(2), pair)
        atomics.store(place(1), pair, 8)
        builder.call(merge, [tile, pair, i64(0), elements])
        emit_copy(atomics.builder, place(2), tile, builder.mul(elements, i64(reducer.element_type.byte_size)))
        builder.store(builder.sub(builder.load(depth, typ=I64), i64(1)), depth)

    with atomics.count(i64(0), i64(blocks)) as block:
        push(leaf, block)
        builder.store(block, carry)
        with atomics.forever() as carried:
            bits = builder.load(carry, typ=I64)
            atomics.leave_if(builder.icmp_unsigned("==", builder.and_(bits, i64(1)), i64(0)), carried)
            merge_two()
            builder.store(builder.lshr(bits, i64(1)), carry)
    if rest:
        push(emit_reduce_tile(llvm_module, f"{name}_{rest}_rest", replace(reducer, members=rest)), i64(blocks))
    with atomics.forever() as merged:
        atomics.leave_if(builder.icmp_unsigned("<=", builder.load(depth, typ=I64), i64(1)), merged)
        merge_two()
    emit_copy(atomics.builder, tile, place(1), builder.mul(elements, i64(reducer.element_type.byte_size)))
    builder.ret_void()
    return function
