"""HLO `domain`: a border between regions of different sharding."""

from __future__ import annotations

from typing import ClassVar

from distxla.ir.attribute import attribute
from distxla.ops.support.executable import FirstOperand
from distxla.ops.support.registry import register


@register
class Domain(FirstOperand):
    """The operand itself. Marks where metadata changes.

    Shapes:  T -> T, tuples included.
    Source:  XLA's HLO text.
    """

    opcode: ClassVar[str] = "domain"
    domain: str = attribute("domain")
