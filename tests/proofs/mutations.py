"""Small changes of a module, most of which make it compute something else."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from distxla.ir.computation import Computation
from distxla.ir.instruction import Instruction
from distxla.ir.literal import Literal
from distxla.ir.module import Module
from distxla.ir.replica_groups import ReplicaGroups
from distxla.ir.window import PaddingDimension, SliceDimension
from distxla.lazy_dataclass import replace
from distxla.ops.copy import Copy
from distxla.ops.support.registry import op_class

Changed = Iterator[Instruction]
OTHER_OPCODE = {"add": "subtract", "subtract": "add", "maximum": "minimum", "minimum": "maximum", "multiply": "add"}


def changes(module: Module, draw: random.Random) -> Iterator[Module]:
    """One changed module for each change of an instruction, in random order."""
    found: list[tuple[Computation, Instruction, Instruction]] = []
    for computation in module.reached():
        for i in computation:
            found += [(computation, i, new) for kind in KINDS for new in kind(module, computation, i, draw)]
    draw.shuffle(found)
    for computation, old, new in found:
        instructions = tuple(new if i is old else i for i in computation)
        changed = replace(computation, instructions=instructions)
        yield module.replace(computations=tuple(changed if c is computation else c for c in module.computations))


def _with(i: Instruction, **attributes: Any) -> Instruction:
    return i.replace(op=replace(i.op, **attributes))


def dropped(module: Module, computation: Computation, i: Instruction, draw: random.Random) -> Changed:
    """A collective that isn't there."""
    if i.op.is_collective and len(i.operands) == 1 and computation[i.operands[0]].shape.dims == i.shape.dims:
        yield i.replace(op=Copy())


def regrouped(module: Module, computation: Computation, i: Instruction, draw: random.Random) -> Changed:
    groups = getattr(i.op, "replica_groups", None)
    if groups is None or not groups.groups:
        return
    ids, size = list(groups.ids), len(groups.groups[0])
    orders = [ids[::-1], ids[1:] + ids[:1], draw.sample(ids, len(ids))]
    for order in orders:
        yield _with(
            i, replica_groups=ReplicaGroups(tuple(tuple(order[k : k + size]) for k in range(0, len(order), size)))
        )
    if i.opcode == "all-reduce" and size > 1:
        half = size // 2
        parts = tuple(part for g in groups.groups for part in (g[:half], g[half:]))
        yield _with(i, replica_groups=ReplicaGroups(parts))


def repaired(module: Module, computation: Computation, i: Instruction, draw: random.Random) -> Changed:
    """Other pairs of a permute."""
    pairs = getattr(i.op, "source_target_pairs", ())
    if pairs:
        yield _with(i, source_target_pairs=tuple((t, s) for s, t in pairs))
        yield _with(i, source_target_pairs=pairs[1:])
    if len(pairs) > 1:
        targets = [t for _, t in pairs]
        yield _with(i, source_target_pairs=tuple(zip([s for s, _ in pairs], targets[1:] + targets[:1])))


def moved(module: Module, computation: Computation, i: Instruction, draw: random.Random) -> Changed:
    """Slices and paddings elsewhere."""
    if i.opcode == "slice":
        for d, part in enumerate(i.op.slice):
            for by in (-1, 1):
                new = SliceDimension(part.start + by, part.limit + by, part.stride)
                if new.start >= 0 and new.limit <= computation[i.operands[0]].shape.dims[d]:
                    yield _with(i, slice=(*i.op.slice[:d], new, *i.op.slice[d + 1 :]))
    if i.opcode == "pad":
        for d, p in enumerate(i.op.padding):
            if p.low or p.high:
                yield _with(
                    i,
                    padding=(
                        *i.op.padding[:d],
                        PaddingDimension(p.low + 1, p.high - 1, p.interior),
                        *i.op.padding[d + 1 :],
                    ),
                )
    if i.opcode in ("concatenate", "dynamic-slice", "dynamic-update-slice") and len(i.operands) > 2:
        first = 0 if i.opcode == "concatenate" else 1
        operands = i.operands[:first] + i.operands[first:][::-1]
        yield i.replace(operands=operands)


def recomputed(module: Module, computation: Computation, i: Instruction, draw: random.Random) -> Changed:
    """Another op of the same signature."""
    other = OTHER_OPCODE.get(i.opcode)
    if other is not None and i.shape.is_array and i.shape.dtype.kind != "pred":
        yield i.replace(op=op_class(other)())
    if i.opcode == "compare":
        yield _with(
            i, direction={"LT": "LE", "LE": "LT", "GT": "GE", "GE": "GT", "EQ": "NE", "NE": "EQ"}[i.op.direction]
        )
    if i.opcode in ("broadcast", "transpose") and len(i.op.dimensions) > 1:
        yield _with(i, dimensions=i.op.dimensions[::-1])
    if i.opcode in ("all-gather", "all-to-all", "reduce-scatter") and i.shape.is_array and i.shape.rank > 1:
        yield _with(i, dimensions=((i.op.dimensions[0] + 1) % i.shape.rank,))
    if i.opcode == "iota" and i.shape.rank > 1:
        yield _with(i, iota_dimension=(i.op.iota_dimension + 1) % i.shape.rank)
    if i.opcode == "dot":
        yield _with(i, lhs_contracting_dims=i.op.rhs_contracting_dims, rhs_contracting_dims=i.op.lhs_contracting_dims)


def revalued(module: Module, computation: Computation, i: Instruction, draw: random.Random) -> Changed:
    """Constants of other values."""
    if i.opcode != "constant" or not i.shape.is_array:
        return
    array = i.op.literal.array
    if array.size > 1:
        yield _with(i, literal=Literal.of(np.roll(array, 1, axis=-1), i.shape))
    if i.shape.dtype.is_float or i.shape.dtype.is_integer:
        yield _with(i, literal=Literal.of(array + np.ones((), array.dtype), i.shape))


def reconnected(module: Module, computation: Computation, i: Instruction, draw: random.Random) -> Changed:
    """Another operand of the same shape."""
    before: list[Instruction] = []
    for other in computation:
        if other is i:
            break
        before.append(other)
    for k, name in enumerate(i.operands):
        shape = computation[name].shape
        fits = [o.name for o in before if o.name != name and o.shape.compatible(shape)]
        if fits:
            yield i.replace(operands=(*i.operands[:k], draw.choice(fits), *i.operands[k + 1 :]))


Kind = Callable[[Module, Computation, Instruction, random.Random], Changed]
KINDS: tuple[Kind, ...] = (dropped, regrouped, repaired, moved, recomputed, revalued, reconnected)
