"""What an instruction does besides computing its result; scheduler and passes ask this, never the opcode."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distxla.ir.instruction import Instruction
    from distxla.ir.module import Module


class Effects(Enum):
    """PURE may be moved, merged, dropped. The others keep their order among themselves and are never dropped,
    but for COLLECTIVE: dropped only if the whole program drops it on every device (we never do).

    RANDOM: has no order, but two of them aren't merged.
    """

    PURE = "pure"
    RANDOM = "random"
    COLLECTIVE = "collective"
    CHANNEL = "channel"
    FEED = "feed"
    CUSTOM = "custom"

    @property
    def is_free(self) -> bool:
        """Without an order of its own: may be moved, and dropped where nobody reads it."""
        return self in (Effects.PURE, Effects.RANDOM)


COMMUNICATING = (Effects.COLLECTIVE, Effects.CHANNEL, Effects.FEED)  # with other devices or with the host


def effectful_computations(module: Module) -> frozenset[str]:
    """Names of the computations that hold an instruction with effects, directly or through what they call."""
    found: set[str] = set()
    for computation in module.computations:  # called ones stand before their callers
        for instruction in computation:
            op = instruction.op
            if not op.effects.is_free or any(name in found for name in op.called_computations):
                found.add(computation.name)
                break
    return frozenset(found)


def has_effects(instruction: Instruction, effectful: frozenset[str]) -> bool:
    """Whether the instruction keeps its place among others with effects; effectful: `effectful_computations`."""
    op = instruction.op
    return not op.effects.is_free or any(name in effectful for name in op.called_computations)
