"""Let collectives that follow each other share one round."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from typing import ClassVar

from distxla.ir.computation import Computation
from distxla.ir.effects_order import effectful_computations, has_effects
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.names import Names
from distxla.ir.order import ancestors, stable_order
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass
from distxla.ops.tuple import GetTupleElement, Tuple
from distxla.rewrites.step import Pass

MIB = 1 << 20


@dataclass(frozen=True)
class CombineCollectives(Pass):
    """Merge collectives with equal attributes (groups, reduction, dimensions) into one variadic collective.

    Requires: merged ones are independent, and no other instruction with effects is between them, so that the order of
    rounds stays that of the module. Channel ids may differ, their presence may not. They are in no branch of a
    conditional, where another device's branch, which meets it in the same rounds, may not let them merge.
    Ensures: the merged one is where the last of its parts can be, under the name of the first.
    max_bytes: of operands per merged instruction, since all of them are alive at once.
    """

    name: ClassVar[str] = "combine-collectives"
    max_bytes: int = 32 * MIB

    def run(self, module: Module) -> Module:
        effectful = effectful_computations(module)
        mergeable = effectful - _in_branches(module)
        new = [
            self._combined(computation, effectful) if computation.name in mergeable else computation
            for computation in module.computations
        ]
        return module.with_computations(new)

    def _combined(self, computation: Computation, effectful: frozenset[str]) -> Computation:
        bundles: list[list[Instruction]] = []
        above: dict[str, int] | None = None
        position = {instruction.name: i for i, instruction in enumerate(computation)}
        open_key: Hashable = None
        for instruction in computation:
            if not has_effects(instruction, effectful):
                continue
            key = _key(instruction)
            if key is not None and key == open_key:
                above = above or ancestors(computation.instructions)
                bundle = bundles[-1]
                taken = sum(computation[o].shape.byte_size for i in (*bundle, instruction) for o in i.operands)
                if taken <= self.max_bytes and not any(above[instruction.name] >> position[b.name] & 1 for b in bundle):
                    bundle.append(instruction)
                    continue
            bundles.append([instruction])
            open_key = key
        bundles = [bundle for bundle in bundles if len(bundle) > 1]
        if not bundles:
            return computation
        return _rewritten(computation, bundles)


def _in_branches(module: Module) -> set[str]:
    """The computations that a branch of a conditional runs, and those that they call."""
    branches = [name for computation in module.computations for i in computation for name in i.op.branches]
    return {computation.name for computation in module.reached(*branches)} if branches else set()


def _key(instruction: Instruction) -> Hashable:
    """Equal for instructions that one round can serve; None for those that can't be merged.

    Sliced permutes read their operands by position, and stay alone.
    """
    op = instruction.op
    if not op.round.combines or op.is_sliced or instruction.control_predecessors:
        return None
    return op if op.channel is None else dataclasses.replace(op, channel_id=0)  # type: ignore[call-arg]


def _rewritten(computation: Computation, bundles: list[list[Instruction]]) -> Computation:
    names = Names(computation.by_name)
    merged_at = {bundle[-1].name: bundle for bundle in bundles}
    gone = {instruction.name for bundle in bundles for instruction in bundle}
    result: list[Instruction] = []
    for instruction in computation:
        if instruction.name not in gone:
            result.append(instruction)
            continue
        bundle = merged_at.get(instruction.name)
        if bundle is None:
            continue
        first = bundle[0]
        shapes = tuple(leaf for part in bundle for leaf in part.shape.leaves())
        whole = first.replace(
            name=names.fresh(first.name),
            shape=Shape.tuple(shapes),
            operands=tuple(o for part in bundle for o in part.operands),
        )
        result.append(whole)
        index = 0
        for part in bundle:
            count = len(tuple(part.shape.leaves()))
            elements = []
            for k in range(count):
                name = names.fresh(f"{part.name}.element") if part.shape.is_tuple else part.name
                elements.append(
                    Instruction(
                        name, shapes[index + k], GetTupleElement(index=index + k), (whole.name,), span=part.span
                    )
                )
            result.extend(elements)
            index += count
            if part.shape.is_tuple:
                grouped = tuple(element.name for element in elements)
                result.append(Instruction(part.name, part.shape, Tuple(), grouped, span=part.span))
    return Computation(
        computation.name,
        stable_order(result),
        computation.root,
        computation.execution_thread,
        computation.span,
    )
