"""What `Op.evaluate` may ask of the executor that runs it."""

from __future__ import annotations

from typing import Any, Protocol

from distxla.ir.instruction import Instruction
from distxla.ir.shape import Shape


class Evaluation(Protocol):
    """One instruction being evaluated on one device.

    Values are NumPy arrays of `shape.dtype.dtype` (rank 0 included), tuples of values, and None for tokens.
    """

    @property
    def instruction(self) -> Instruction: ...

    @property
    def shape(self) -> Shape:
        """The result's shape."""

    @property
    def operand_shapes(self) -> tuple[Shape, ...]: ...

    @property
    def replica(self) -> int: ...

    @property
    def partition(self) -> int: ...

    def call(self, computation: str, *arguments: Any) -> Any:
        """Run a computation of the module on this device."""

    def map(self, computation: str, *arguments: Any) -> tuple[Any, ...]:
        """A computation of scalars applied to every element of arrays of one shape; one array a leaf of its result."""

    def join(self, operands: tuple[Any, ...]) -> Any:
        """COMMUNICATION ops: meet the other members; returns this device's result (see `evaluate_group`)."""

    def advance_state(self, delta: int) -> int:
        """The device's random state, of 128 bits, before it goes on by `delta`; see ops/rng.py."""
