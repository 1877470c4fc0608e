"""The element-wise ops of two operands of equal shapes: a table, one row an opcode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@dataclass(frozen=True)
class ElementwiseBinary(Op):
    """An op that computes each element from the two operands' elements at the same index."""

    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    min_operands: ClassVar[int] = 2
    max_operands: ClassVar[int | None] = 2


for _opcode in (
    "add and atan2 complex divide maximum minimum mulhi multiply or power remainder shift-left shift-right-arithmetic "
    "shift-right-logical subtract xor"
).split():
    _name = _opcode.title().replace("-", "")
    globals()[_name] = register(type(_name, (ElementwiseBinary,), {"opcode": _opcode, "__module__": __name__}))
