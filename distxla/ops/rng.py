"""HLO `rng`, `rng-bit-generator` and `rng-get-and-update-state`: random numbers."""

from __future__ import annotations

from distxla.ops.attribute import attribute
from distxla.ops.effects import Effects
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class Rng(Op):
    """Random numbers of a distribution with scalar parameters."""

    opcode = "rng"
    effects = Effects.RANDOM
    lowering = Lowering.NONE
    min_operands = 2
    max_operands = 2
    needs_shape = True
    distribution: str = attribute("word")


@register
class RngBitGenerator(Op):
    """Random bits from a state, and the next state."""

    opcode = "rng-bit-generator"
    lowering = Lowering.NONE
    min_operands = 1
    max_operands = 1
    needs_shape = True
    algorithm: str = attribute("word")


@register
class RngGetAndUpdateState(Op):
    """The device's random state, which then advances by `delta`."""

    opcode = "rng-get-and-update-state"
    effects = Effects.CUSTOM
    lowering = Lowering.NONE
    max_operands = 0
    needs_shape = True
    delta: int = attribute("int")
