"""`Build`: how an op with Lowering.EXPANSION writes down the instructions by which it is computed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from distxla.ir.computation import Computation
from distxla.ir.element_type import ElementType
from distxla.ir.op import Op
from distxla.ir.shape import Shape


class Build(ABC):
    """A computation under construction. Instructions are named by strings, as everywhere in the IR.

    Every method that adds an instruction gives its name; shapes are without layout.
    """

    @property
    @abstractmethod
    def is_static(self) -> bool:
        """Whether the dimension sizes of all arrays of the module are known before it runs."""

    @abstractmethod
    def shape(self, name: str) -> Shape:
        """The shape of an instruction that exists already."""

    @abstractmethod
    def op(self, name: str) -> Op:
        """The op of an instruction that exists already."""

    @abstractmethod
    def add(self, op: Op, *operands: str, shape: Shape | None = None, name: str | None = None) -> str:
        """Append an instruction.

        shape: where it can't be inferred.  name: the expanded instruction's own name, for the one that reports should
        name (at most once; otherwise the result gets it), or None.
        """

    @abstractmethod
    def computation(self, parameters: Sequence[Shape], body: Callable[[Build, Sequence[str]], str]) -> str:
        """A new computation of the module; body: adds its instructions, given its parameters' names, and names its
        root. Equal ones need not be shared: the compiler merges them."""

    @abstractmethod
    def called(self, computation: str) -> Computation:
        """A computation of the module, its own expansions done."""

    # --- made of these: ops/custom_calls/composed_build.py ------------------------------------------------------------

    @abstractmethod
    def compute(self, opcode: str, *operands: str) -> str:
        """An opcode without attributes, such as `add` or `rsqrt`."""

    @abstractmethod
    def constant(self, value: Any, element_type: ElementType, dims: Sequence[int] = ()) -> str:
        """A number, or as many equal ones as `dims` tells. A float beyond the type's range is an infinity."""

    @abstractmethod
    def literal(self, value: Any, shape: Shape) -> str:
        """An array of constants."""

    @abstractmethod
    def convert(self, operand: str, element_type: ElementType) -> str:
        """The operand itself where it is of that type."""

    @abstractmethod
    def broadcast(self, operand: str, dims: Sequence[int], dimensions: Sequence[int] = ()) -> str:
        """Operand dimension i becomes dimension dimensions[i]; the operand itself where that changes nothing."""

    @abstractmethod
    def reshape(self, operand: str, dims: Sequence[int]) -> str:
        """The operand itself where it has these dimension sizes."""

    @abstractmethod
    def row(self, operand: str, number: int) -> str:
        """One of the slices along dimension 0, which stays as one of size 1."""

    @abstractmethod
    def transpose(self, operand: str, dimensions: Sequence[int]) -> str:
        """Result dimension i is operand dimension dimensions[i]."""

    @abstractmethod
    def iota(self, element_type: ElementType, dims: Sequence[int], dimension: int) -> str: ...

    @abstractmethod
    def compare(self, direction: str, a: str, b: str) -> str:
        """direction: EQ NE LT LE GT GE."""

    @abstractmethod
    def select(self, predicate: str, on_true: str, on_false: str) -> str: ...

    @abstractmethod
    def join(self, *operands: str) -> str:
        """A tuple of the operands."""

    @abstractmethod
    def element(self, operand: str, index: int) -> str: ...

    @abstractmethod
    def scalar(self, opcode: str, element_type: ElementType) -> str:
        """A computation that applies a binary opcode to two scalars."""

    @abstractmethod
    def sum(self, operand: str, dimensions: Sequence[int]) -> str:
        """The sum along the dimensions, in the operand's element type."""

    @abstractmethod
    def loop(
        self,
        initial: Sequence[str],
        condition: Callable[[Build, Sequence[str]], str],
        body: Callable[[Build, Sequence[str]], Sequence[str]],
    ) -> tuple[str, ...]:
        """A while loop over several values; condition and body are given the values' names inside of it."""
