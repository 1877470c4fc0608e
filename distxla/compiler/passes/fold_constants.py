"""Compute small values at compile time."""

from __future__ import annotations

from typing import Any

import numpy as np

from distxla.compiler.passes.simplification_rules import RewriteSite
from distxla.errors import InternalError
from distxla.ir.computation import Computation
from distxla.ir.instruction import Instruction
from distxla.ir.literal import Literal
from distxla.ir.module import Module
from distxla.ir.op import Lowering
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass
from distxla.ops.support.evaluation import Exchange
from distxla.ops.support.executable import executable

MAX_ELEMENTS = 64  # of operands and result: larger ones cost more to read from memory than to compute


@dataclass(frozen=True)
class _Folding:
    """The `Evaluation` of an instruction whose operands are constants; it has no device and calls nothing."""

    instruction: Instruction
    operand_shapes: tuple[Shape, ...]

    @property
    def shape(self) -> Shape:
        return self.instruction.shape

    @property
    def replica(self) -> int:
        raise InternalError("constant folding has no replica")

    @property
    def partition(self) -> int:
        raise InternalError("constant folding has no partition")

    def call(self, computation: str, *arguments: Any) -> Any:
        raise InternalError(f"constant folding does not run {computation}")

    def run_module(self, module: Module, *arguments: Any) -> Any:
        raise InternalError(f"constant folding does not run {module.name}")

    def map(self, computation: str, *arrays: Any, result: str | None = None) -> tuple[Any, ...]:
        raise InternalError(f"constant folding does not run {computation}")

    def computation(self, name: str) -> Computation:
        raise InternalError(f"constant folding does not read {name}")

    def join(self, operands: tuple[Any, ...]) -> Any:
        raise InternalError("constant folding does not communicate")

    @property
    def exchange(self) -> Exchange:
        raise InternalError("constant folding does not communicate")

    def advance_state(self, delta: int) -> int:
        raise InternalError("constant folding has no random state")


def folded(site: RewriteSite) -> Literal | None:
    """The instruction's value, if its operands are small constants and NumPy gives the very bits that it would.

    That holds for element-wise operations which IEEE 754 or integer arithmetic defines; transcendental functions are
    approximated by the generated code in its own way.
    """
    op, shape = site.instruction.op, site.shape
    if (
        op.lowering is not Lowering.ELEMENT
        or not op.elements.is_elementwise
        or op.elements.is_expensive
        or op.called_computations
        or not site.instruction.operands
        or not shape.is_array
        or shape.is_dynamic
        or shape.size > MAX_ELEMENTS
    ):
        return None
    operands = []
    for number in range(len(site.instruction.operands)):
        found = site.operand(number)
        if found.op.constant_array is None or found.shape.size > MAX_ELEMENTS:
            return None
        operands.append(found.op.constant_array)
    run = _Folding(site.instruction, tuple(site.operand(k).shape for k in range(len(operands))))
    with np.errstate(all="ignore"):
        return Literal.of(executable(op).evaluate(run, *operands), shape)
