"""HLO `call` and `fusion`: a computation in place of an instruction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from distxla.ir.attribute import attribute
from distxla.ir.instruction import Instruction
from distxla.ir.op import Lowering, Op
from distxla.ir.shape import Called, ProgramShape, Shape
from distxla.ops.control_flow import signature
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.registry import register


@register
class Call(ExecutableOp):
    """Run a computation on the operands.

    Shapes:  (T_0, ..) -> U for a computation of that signature.
    Errors:  C1 the computation's parameters are not the operands' shapes; composite: its frontend attributes have no
             composite.name, a composite.version that is no number from 0 on, or empty composite.attributes.
    Source:  Operation Semantics, "Call" and "Composite".
    """

    opcode: ClassVar[str] = "call"
    lowering: ClassVar[Lowering] = Lowering.CALL
    to_apply: str = attribute("computation")
    is_composite: bool = attribute("bool", default=False)

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        check_arguments(self, "C1", self.to_apply, operands, called(self.to_apply), at="to_apply")
        return called(self.to_apply).result.without_layout()

    def verify_annotations(self, instruction: Instruction) -> None:
        if not self.is_composite:
            return
        name, version, attributes = (
            instruction.frontend_attribute(f"composite.{part}") for part in ("name", "version", "attributes")
        )
        at = "frontend_attributes"
        self.require(name, "composite", "a composite needs the frontend attribute composite.name", at=at)
        self.require(version is None or version.isdecimal(), "composite", f"composite.version is {version}", at=at)
        self.require(attributes != "", "composite", "composite.attributes is empty; write {} for none", at=at)

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        return run.call(self.to_apply, *operands)


class OutlinedCall(Call):
    """A call whose computation is compiled once, as a function, since copies of it in the place of all its calls would
    be too much code (compiler/passes/inlining_budget.py)."""

    lowering: ClassVar[Lowering] = Lowering.CONTROL


@register
class Fusion(ExecutableOp):
    """Run a computation whose intermediate values need no memory of their own.

    Shapes:  (T_0, ..) -> U for a computation of that signature. `kind` tells a compiler how it was meant to be emitted
             and changes no value.
    Errors:  C1 the computation's parameters are not the operands' shapes; kind: not a fusion kind; aliasing: an alias
             of an operand or output that doesn't exist or differs in shape.
    Source:  XLA's HLO text.
    """

    opcode: ClassVar[str] = "fusion"
    lowering: ClassVar[Lowering] = Lowering.CALL
    needs_shape: ClassVar[bool] = True
    kind: str = attribute("word")
    output_to_operand_aliasing: Aliasing = attribute("aliasing", default=())
    calls: str = attribute("computation")

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        kinds = ("kLoop", "kInput", "kOutput", "kCustom")
        self.require(self.kind in kinds, "kind", f"{self.kind} is none of {', '.join(kinds)}", at="kind")
        check_arguments(self, "C1", self.calls, operands, called(self.calls), at="calls")
        result = called(self.calls).result.without_layout()
        check_aliasing(self, self.output_to_operand_aliasing, result, operands)
        return result

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        return run.call(self.calls, *operands)


# (index of a part of the output, operand number, index of a part of the operand), as in `{0}: (1, {})`
Aliasing = tuple[tuple[tuple[int, ...], int, tuple[int, ...]], ...]


def check_arguments(op: Op, rule: str, name: str, operands: Sequence[Shape], have: ProgramShape, *, at: str) -> None:
    """Require that a computation takes the operands."""
    want = ", ".join(map(str, operands))
    op.require(
        len(have.parameters) == len(operands) and all(p.compatible(o) for p, o in zip(have.parameters, operands)),
        rule,
        f"{name} must take ({want}), it is {signature(have)}",
        at=at,
    )


def check_aliasing(op: Op, aliasing: Aliasing, result: Shape, operands: Sequence[Shape]) -> None:
    """Require that every alias names existing parts of equal shape, and every output once (rule `aliasing`)."""
    at = "output_to_operand_aliasing"
    outputs = [output for output, _, _ in aliasing]
    op.require(len(set(outputs)) == len(outputs), "aliasing", "an output is named twice", at=at)
    for output, number, index in aliasing:
        op.require(0 <= number < len(operands), "aliasing", f"there is no operand {number}", at=at)
        parts = part_of(result, output), part_of(operands[number], index)
        op.require(
            parts[0] is not None and parts[1] is not None and parts[0].compatible(parts[1]),
            "aliasing",
            f"output {list(output)} is {parts[0]}, operand {number}{list(index)} is {parts[1]}",
            at=at,
        )


def part_of(shape: Shape, index: Sequence[int]) -> Shape | None:
    """The part of a tuple shape at `index`; None if there is none."""
    for i in index:
        if shape.elements is None or not 0 <= i < len(shape.elements):
            return None
        shape = shape.elements[i]
    return shape
