"""Ask for another order in which reducing collectives combine their members' elements."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Final

from distxla.errors import ArgumentError
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.lazy_dataclass import dataclass
from distxla.ops.support.collective import REDUCTION_ORDERS
from distxla.rewrites.step import Compilation, Step, word

AS_WRITTEN: Final = "as-written"


@dataclass(frozen=True)
class ReductionOrder(Step):
    """Let every all-reduce and reduce-scatter combine values in one order, whatever the text says.

    order: ArgumentError for one that there is not.  It is an attribute of the instructions, so that programs of
    different orders neither share a place in the cache nor meet in a round. Floats of another order differ in bits.
    """

    name: ClassVar[str] = "reduction-order"
    order: str = word(AS_WRITTEN, *REDUCTION_ORDERS)

    def __post_init__(self) -> None:
        if self.order not in (AS_WRITTEN, *REDUCTION_ORDERS):
            raise ArgumentError(f"reduction order {self.order!r}: expected {', '.join(REDUCTION_ORDERS)}")

    def apply(self, compilation: Compilation) -> Compilation:
        return compilation.with_module(self.run(compilation.module))

    def run(self, module: Module) -> Module:
        """The module in that order; the same object when nothing changed."""
        if self.order == AS_WRITTEN:
            return module
        changed = {
            computation.name: dataclasses.replace(
                computation, instructions=tuple(_ordered(i, self.order) for i in computation)
            )
            for computation in module.computations
            if any(_ordered(i, self.order) is not i for i in computation)
        }
        if not changed:
            return module
        return module.replace(computations=tuple(changed.get(c.name, c) for c in module.computations))


def _ordered(instruction: Instruction, order: str) -> Instruction:
    if getattr(instruction.op, "reduction_order", order) == order:
        return instruction
    return instruction.replace(op=dataclasses.replace(instruction.op, reduction_order=order))  # type: ignore[call-arg]
