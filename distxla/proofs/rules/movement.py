"""Constants, and ops that move elements: broadcast, reshape, slice, concatenate, pad and their like."""

from __future__ import annotations

import numpy as np

from distxla.ir.instruction import Instruction
from distxla.ops.broadcast import Broadcast
from distxla.ops.concatenate import Concatenate
from distxla.ops.constant import Constant
from distxla.ops.copy import Copy
from distxla.ops.device_id import PartitionId, ReplicaId
from distxla.ops.domain import Domain
from distxla.ops.dynamic_slice import DynamicSlice
from distxla.ops.dynamic_update_slice import DynamicUpdateSlice
from distxla.ops.iota import Iota
from distxla.ops.optimization_barrier import OptimizationBarrier
from distxla.ops.pad import Pad
from distxla.ops.reshape import Reshape
from distxla.ops.reverse import Reverse
from distxla.ops.slice import Slice
from distxla.ops.transpose import Transpose
from distxla.proofs.relations import indices, views
from distxla.proofs.relations.combining import Label
from distxla.proofs.relations.inference import Inference
from distxla.proofs.relations.lines import NOWHERE, Array
from distxla.proofs.relations.relation import NoRule, Relation, Value, united
from distxla.proofs.rules.registry import rule


@rule(Copy, OptimizationBarrier, Domain, takes_unknown=True)
def same(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    return operands[0] if len(operands) == 1 else tuple(operands)


@rule(Constant)
def constant(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    assert isinstance(instruction.op, Constant)
    literal = instruction.op.literal
    if literal.array is None:
        raise NoRule("a constant whose value the text leaves out, or a tuple")
    return inference.space.constant(literal.array, instruction.shape)


@rule(Iota)
def iota(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    assert isinstance(instruction.op, Iota)
    shape, dim = instruction.shape, instruction.op.iota_dimension
    space = inference.space
    if shape.dtype.is_integer:
        return space.index(shape.dtype, shape.dims, {dim: space.range(shape.dims[dim])})
    term = space.terms.term("index", shape.dtype, (-1,))
    return Relation(term, (((dim, space.range(shape.dims[dim])),),), shape.dims)


@rule(PartitionId, ReplicaId)
def device_id(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    space = inference.space
    if space.alone:
        return space.symbol(instruction.opcode, instruction.shape)
    devices = range(space.devices)
    is_partition = isinstance(instruction.op, PartitionId)
    of = [d % space.counts.partitions if is_partition else d // space.counts.partitions for d in devices]
    return space.ids(instruction.shape.dtype, of)


@rule(Broadcast)
def broadcast(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    assert isinstance(instruction.op, Broadcast)
    return views.broadcast(operands[0], instruction.op.dimensions, instruction.shape.dims)


@rule(Transpose)
def transpose(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    assert isinstance(instruction.op, Transpose)
    return views.transposed(operands[0], instruction.op.dimensions)


@rule(Reshape)
def reshape(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    (operand,) = operands
    dims = instruction.shape.dims
    space = inference.space
    error: NoRule | None = None
    for whole in inference.loops.reshapes_like(operand, dims):
        try:
            return views.reshaped(space, operand, dims, whole)
        except NoRule as found:
            error = found
    assert error is not None
    if any(not lines.is_uniform for axis in operand.axes for _, lines in axis):
        raise error
    return inference.opaque("reshape", operands, [(operand.element_type, dims)])[0]


@rule(Reverse)
def reverse(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    assert isinstance(instruction.op, Reverse)
    (found,) = operands
    for d in instruction.op.dimensions:
        count = found.dims[d]
        found = views.taken(inference.space, found, d, np.arange(count)[::-1], ("reverse", count))
    return found


@rule(Slice)
def slice_(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    assert isinstance(instruction.op, Slice)
    (found,) = operands
    for d, part in enumerate(instruction.op.slice):
        found = views.sliced(inference.space, found, d, part.start, part.limit, part.stride)
    return found


@rule(Concatenate)
def concatenate(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    assert isinstance(instruction.op, Concatenate)
    dim, shape = instruction.op.dimension, instruction.shape
    try:
        return views.joined(inference.space, operands, dim)
    except NoRule:
        pass
    labels: list[tuple[Label, ...]] = []
    rank = len(shape.dims)
    for k in range(len(operands)):
        labels.append(tuple(("piece", k) if d == dim else d for d in range(rank)))
    whole = frozenset(labels[k][dim] for k in range(len(operands)))
    result = tuple("pieces" if d == dim else d for d in range(rank))
    found = inference.structured(
        ("concatenate", tuple(o.dims[dim] for o in operands)),
        shape.dtype,
        list(zip(operands, labels, strict=True)),
        result,
        shape.dims,
        whole=whole,
        made={"pieces": shape.dims[dim]},
    )
    return Relation(found.term, found.axes, found.dims, found.scale, found.parts, found.assumed, (dim, tuple(operands)))


@rule(Pad)
def pad(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    assert isinstance(instruction.op, Pad)
    operand, filling = operands
    shape = instruction.shape
    padded = [d for d, p in enumerate(instruction.op.padding) if (p.low, p.high, p.interior) != (0, 0, 0)]
    only_cut = all(p.low <= 0 and p.high <= 0 and p.interior == 0 for p in instruction.op.padding)
    if (filling.is_zero and operand.axes and operand.term.key != "index") or only_cut:
        found = operand
        for d in padded:
            p = instruction.op.padding[d]
            positions = _padded(operand.dims[d], shape.dims[d], p.low, p.interior)
            found = views.taken(
                inference.space, found, d, positions, ("pad", operand.dims[d], p.low, p.high, p.interior)
            )
        return found
    labels = tuple(("array", d) if d in padded else d for d in range(len(shape.dims)))
    result = tuple(("padded", d) if d in padded else d for d in range(len(shape.dims)))
    return inference.structured(
        ("pad", tuple((d, instruction.op.padding[d]) for d in padded)),
        shape.dtype,
        [(operand, labels), (filling, ())],
        result,
        shape.dims,
        whole=frozenset(("array", d) for d in padded),
        made={("padded", d): shape.dims[d] for d in padded},
    )


def _padded(size: int, result: int, low: int, interior: int) -> Array:
    positions = np.arange(result) - low
    step = interior + 1
    inside = (positions >= 0) & (positions % step == 0) & (positions // step < size)
    return np.where(inside, positions // step, NOWHERE)


@rule(DynamicSlice)
def dynamic_slice(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    """Starts that are known for each device cut the array; others need the dimension whole."""
    array, *starts = operands
    space, shape = inference.space, instruction.shape
    open_: list[int] = []
    for d, start in enumerate(starts):
        room = array.dims[d] - shape.dims[d]
        if room == 0:
            continue
        known = indices.scalar(space, start)
        if known is None:
            open_.append(d)
            continue
        array = views.rows_of_devices(space, array, d, np.clip(known, 0, room), shape.dims[d])
    array = array.changed(assumed=united([array, *starts]))
    if not open_:
        return array
    labels = tuple(("array", d) if d in open_ else d for d in range(shape.rank))
    result = tuple(("taken", d) if d in open_ else d for d in range(shape.rank))
    given = [(array, labels), *((starts[d], ()) for d in open_)]
    return inference.structured(
        "dynamic-slice",
        shape.dtype,
        given,
        result,
        shape.dims,
        linear=(0,),
        whole=frozenset(("array", d) for d in open_),
        made={("taken", d): shape.dims[d] for d in open_},
    )


@rule(DynamicUpdateSlice)
def dynamic_update_slice(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    array, update, *starts = operands
    space, shape = inference.space, instruction.shape
    room = [n - m for n, m in zip(array.dims, update.dims, strict=True)]
    if not any(room):
        return update
    known = [indices.scalar(space, start) if n else None for start, n in zip(starts, room)]
    if array.is_zero and update.axes and all(k is not None or not n for k, n in zip(known, room)):
        found = update
        for d, (start, n) in enumerate(zip(known, room)):
            if start is not None:
                positions = np.arange(array.dims[d]) - np.clip(start, 0, n).reshape(-1, 1)
                positions = np.where((positions >= 0) & (positions < update.dims[d]), positions, NOWHERE)
                found = views.taken(space, found, d, positions, ("placed", positions.tobytes()))
        return found.changed(assumed=united([array, update, *starts]))
    labels = tuple(("array", d) if n else d for d, n in enumerate(room))
    inner = tuple(("update", d) if n else d for d, n in enumerate(room))
    result = tuple(("updated", d) if n else d for d, n in enumerate(room))
    given = [(array, labels), (update, inner), *((starts[d], ()) for d, n in enumerate(room) if n)]
    return inference.structured(
        "dynamic-update-slice",
        shape.dtype,
        given,
        result,
        shape.dims,
        whole=frozenset(label for label in (*labels, *inner) if not isinstance(label, int)),
        made={("updated", d): shape.dims[d] for d, n in enumerate(room) if n},
    )
