"""The element-wise ops of one operand: a table, one row an opcode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from distxla.ops.attribute import attribute
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@dataclass(frozen=True)
class ElementwiseUnary(Op):
    """An op that computes each element from the operand's element at the same index."""

    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    min_operands: ClassVar[int] = 1
    max_operands: ClassVar[int | None] = 1


@dataclass(frozen=True)
class Transcendental(ElementwiseUnary):
    """An element-wise op whose text may ask for an accuracy: `result_accuracy={mode=highest}`; kept, and ignored."""

    result_accuracy: str | None = attribute("raw", default=None)


for _base, _opcodes in (
    (ElementwiseUnary, "abs ceil count-leading-zeros floor imag is-finite negate not popcnt real round-nearest-afz "
     "round-nearest-even sign"),
    (Transcendental, "acos acosh asin asinh atanh cbrt cosh cosine erf exponential exponential-minus-one log log-plus-one "
     "logistic rsqrt sine sinh sqrt tan tanh"),
):
    for _opcode in _opcodes.split():
        _name = _opcode.title().replace("-", "")
        globals()[_name] = register(type(_name, (_base,), {"opcode": _opcode, "__module__": __name__}))
