"""The executor's interface for `Op.evaluate`."""

from __future__ import annotations

from typing import Any, Protocol

from distxla.ir.computation import Computation
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.shape import Shape


class Exchange(Protocol):
    """Other devices and the host, as one instruction sees them that is being evaluated on one device.

    Methods that begin something return at once; their result may be used in the place of any part of the instruction's
    result, as long as it reaches only the method that ends it. Those that end something block.
    """

    def begin(self, operands: tuple[Any, ...]) -> Any:
        """Collectives: reach the round, without waiting for the others; `finish` waits."""

    def start(self, computation: str, *arguments: Any) -> Any:
        """Run a computation of the module beside this device's program; its result by `finish`, as with `begin`."""

    def finish(self, pending: Any) -> Any:
        """Wait for the pending value of `begin` or `start`; its result."""

    def give(self, item: Any) -> Any:
        """Hand the host an item on the op's `stream`; a u32[], the item's number."""

    def ask(self) -> Any:
        """Ask the host for the next item of the op's `stream`, without waiting: the u32[] by which `take` knows it."""

    def take(self, ticket: Any) -> Any:
        """Wait for the item that was asked for."""

    def send(self, value: Any) -> Any:
        """Send a value on the instruction's channel, without waiting: the u32[] by which `finish_send` knows it."""

    def finish_send(self, ticket: Any) -> None:
        """Wait until the target has reached its recv."""

    def receive(self) -> Any:
        """Be ready for a value on the instruction's channel: the u32[] by which `finish_receive` knows it."""

    def finish_receive(self, ticket: Any) -> Any:
        """Wait for the value; None on a device that is no target."""


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

    def run_module(self, module: Module, *arguments: Any) -> Any:
        """Run the entry of another module on this device: a static one that does not communicate."""

    def map(self, computation: str, *arguments: Any, result: str | None = None) -> tuple[Any, ...]:
        """A computation of scalars applied to every element of arrays of one shape; one array a leaf of its result.

        result: the instruction of it whose values are wanted instead of the root's.
        """

    def computation(self, name: str) -> Computation:
        """A computation of the module, to be looked at."""

    def join(self, operands: tuple[Any, ...]) -> Any:
        """Collectives: meet the other members; returns this device's result (see `evaluate_group`)."""

    @property
    def exchange(self) -> Exchange:
        """Other devices and the host, for instructions that do not just meet and go on."""

    def advance_state(self, delta: int) -> int:
        """The device's random state, of 128 bits, before it goes on by `delta`; see ops/rng.py."""
