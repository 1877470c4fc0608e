"""HLO `copy`, `copy-start` and `copy-done`."""

from __future__ import annotations

from typing import ClassVar

from distxla.ops.attribute import attribute
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class Copy(Op):
    """The operand, possibly in another layout."""

    opcode = "copy"
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    min_operands: ClassVar[int] = 1
    max_operands: ClassVar[int | None] = 1


@register
class CopyStart(Op):
    """Begin a copy: (destination, source, context)."""

    opcode = "copy-start"
    lowering: ClassVar[Lowering] = Lowering.KERNEL
    min_operands: ClassVar[int] = 1
    max_operands: ClassVar[int | None] = 1
    cross_program_prefetch_index: int | None = attribute("int", default=None)


@register
class CopyDone(Op):
    """The destination of a copy-start."""

    opcode = "copy-done"
    lowering: ClassVar[Lowering] = Lowering.ALIAS
    min_operands: ClassVar[int] = 1
    max_operands: ClassVar[int | None] = 1
