"""`XlaOp`: the result of an instruction, with Python's operators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import EllipsisType
from typing import Any, NoReturn, Protocol, TypeAlias

import numpy as np

from distxla.builder.accepted_values import ConstantLike
from distxla.builder.blame import broken_rule
from distxla.ir.element_type import ElementType
from distxla.ir.instruction import Instruction
from distxla.ir.public_names import PublicNames
from distxla.ir.shape import Shape

IndexItem: TypeAlias = "int | slice | EllipsisType | None"
# An operand: a value of the builder, or a constant.
OperandLike: TypeAlias = "XlaOp | ConstantLike"
# Numbers of dimensions, where they are stated.
Dimensions: TypeAlias = "Sequence[int] | None"


class Operations(Protocol):
    """The methods of `XlaBuilder` behind operators and indexing."""

    @property
    def name(self) -> str:
        """The name of the computation that it builds."""

    def add(self, lhs: OperandLike, rhs: OperandLike, /) -> XlaOp: ...
    def sub(self, lhs: OperandLike, rhs: OperandLike, /) -> XlaOp: ...
    def mul(self, lhs: OperandLike, rhs: OperandLike, /) -> XlaOp: ...
    def div(self, lhs: OperandLike, rhs: OperandLike, /) -> XlaOp: ...
    def floor_div(self, lhs: OperandLike, rhs: OperandLike, /) -> XlaOp: ...
    def rem(self, lhs: OperandLike, rhs: OperandLike, /) -> XlaOp: ...
    def pow(self, lhs: OperandLike, rhs: OperandLike, /) -> XlaOp: ...
    def matmul(self, lhs: OperandLike, rhs: OperandLike, /) -> XlaOp: ...
    def and_(self, lhs: OperandLike, rhs: OperandLike, /) -> XlaOp: ...
    def or_(self, lhs: OperandLike, rhs: OperandLike, /) -> XlaOp: ...
    def xor(self, lhs: OperandLike, rhs: OperandLike, /) -> XlaOp: ...
    def shift_left(self, lhs: OperandLike, rhs: OperandLike, /) -> XlaOp: ...
    def shift_right_arithmetic(self, lhs: OperandLike, rhs: OperandLike, /) -> XlaOp: ...
    def shift_right_logical(self, lhs: OperandLike, rhs: OperandLike, /) -> XlaOp: ...
    def eq(self, lhs: OperandLike, rhs: OperandLike, /) -> XlaOp: ...
    def ne(self, lhs: OperandLike, rhs: OperandLike, /) -> XlaOp: ...
    def lt(self, lhs: OperandLike, rhs: OperandLike, /) -> XlaOp: ...
    def le(self, lhs: OperandLike, rhs: OperandLike, /) -> XlaOp: ...
    def gt(self, lhs: OperandLike, rhs: OperandLike, /) -> XlaOp: ...
    def ge(self, lhs: OperandLike, rhs: OperandLike, /) -> XlaOp: ...
    def neg(self, operand: OperandLike, /) -> XlaOp: ...
    def not_(self, operand: OperandLike, /) -> XlaOp: ...
    def abs(self, operand: OperandLike, /) -> XlaOp: ...
    def basic_index(self, operand: OperandLike, key: Any, /) -> XlaOp: ...
    def get_tuple_element(self, tuple: XlaOp, index: int, /) -> XlaOp: ...


class XlaOp(PublicNames):
    """A value of `XlaBuilder`'s methods: a value of `shape` that is computed when the program runs.

    Operators are the operations of that name: `+` Add, `-` Sub, `*` Mul, `/` Div, `%` Rem, `**` Pow, `& | ^ ~` And, Or,
    Xor, Not, `<<` ShiftLeft, `>>` ShiftRightArithmetic of signed and ShiftRightLogical of unsigned integers, `@` the
    product of matrices. So `/` and `%` of integers go towards zero, as in XLA's own operators; `//` rounds down, as
    Python's does. A number, a list of numbers or an array of NumPy may be on either side; numbers of Python take the
    operand's element type.

    Comparisons, `==` and `!=` included, give pred arrays, as NumPy's do; an XlaOp has no truth value, and its hash is
    its identity. Indexing with integers, slices, `...` and `None` is NumPy's; of a tuple, an integer gives the element.
    """

    __slots__ = ("_builder", "_instruction")
    # NumPy leaves operators with an array on the left to this class, and does not take it for a sequence.
    __array_ufunc__ = None

    def __init__(self, builder: Operations, instruction: Instruction) -> None:
        self._builder = builder
        self._instruction = instruction

    @property
    def builder(self) -> Operations:
        """The XlaBuilder that made it; its other operands are of the same builder."""
        return self._builder

    @property
    def name(self) -> str:
        """The instruction's name in the HLO text."""
        return self._instruction.name

    @property
    def instruction(self) -> Instruction:
        """Its instruction in the module."""
        return self._instruction

    @property
    def shape(self) -> Shape:
        """Array, tuple or token; `shape.dims` are the dimension sizes."""
        return self._instruction.shape

    @property
    def dtype(self) -> ElementType:
        """The element type of an array."""
        if not self.shape.is_array:
            raise broken_rule(f"operand: {self.name} is {self.shape}, not an array")
        return self.shape.dtype

    @property
    def rank(self) -> int:
        """The number of dimensions of an array."""
        return self.shape.rank

    def __repr__(self) -> str:
        return f"XlaOp({self.name}: {self.shape})"

    # --- arithmetic -------------------------------------------------------------------------------------------------

    def __add__(self, other: OperandLike) -> XlaOp:
        return self._builder.add(self, other)

    def __radd__(self, other: OperandLike) -> XlaOp:
        return self._builder.add(other, self)

    def __sub__(self, other: OperandLike) -> XlaOp:
        return self._builder.sub(self, other)

    def __rsub__(self, other: OperandLike) -> XlaOp:
        return self._builder.sub(other, self)

    def __mul__(self, other: OperandLike) -> XlaOp:
        return self._builder.mul(self, other)

    def __rmul__(self, other: OperandLike) -> XlaOp:
        return self._builder.mul(other, self)

    def __truediv__(self, other: OperandLike) -> XlaOp:
        return self._builder.div(self, other)

    def __rtruediv__(self, other: OperandLike) -> XlaOp:
        return self._builder.div(other, self)

    def __floordiv__(self, other: OperandLike) -> XlaOp:
        return self._builder.floor_div(self, other)

    def __rfloordiv__(self, other: OperandLike) -> XlaOp:
        return self._builder.floor_div(other, self)

    def __mod__(self, other: OperandLike) -> XlaOp:
        return self._builder.rem(self, other)

    def __rmod__(self, other: OperandLike) -> XlaOp:
        return self._builder.rem(other, self)

    def __pow__(self, other: OperandLike) -> XlaOp:
        return self._builder.pow(self, other)

    def __rpow__(self, other: OperandLike) -> XlaOp:
        return self._builder.pow(other, self)

    def __matmul__(self, other: OperandLike) -> XlaOp:
        return self._builder.matmul(self, other)

    def __rmatmul__(self, other: OperandLike) -> XlaOp:
        return self._builder.matmul(other, self)

    def __and__(self, other: OperandLike) -> XlaOp:
        return self._builder.and_(self, other)

    def __rand__(self, other: OperandLike) -> XlaOp:
        return self._builder.and_(other, self)

    def __or__(self, other: OperandLike) -> XlaOp:
        return self._builder.or_(self, other)

    def __ror__(self, other: OperandLike) -> XlaOp:
        return self._builder.or_(other, self)

    def __xor__(self, other: OperandLike) -> XlaOp:
        return self._builder.xor(self, other)

    def __rxor__(self, other: OperandLike) -> XlaOp:
        return self._builder.xor(other, self)

    def __lshift__(self, other: OperandLike) -> XlaOp:
        return self._builder.shift_left(self, other)

    def __rlshift__(self, other: OperandLike) -> XlaOp:
        return self._builder.shift_left(other, self)

    def __rshift__(self, other: OperandLike) -> XlaOp:
        return self._shift_right(self, other)

    def __rrshift__(self, other: OperandLike) -> XlaOp:
        return self._shift_right(other, self)

    def _shift_right(self, lhs: OperandLike, rhs: OperandLike) -> XlaOp:
        builder = self._builder
        return (builder.shift_right_arithmetic if self.dtype.is_signed else builder.shift_right_logical)(lhs, rhs)

    def __neg__(self) -> XlaOp:
        return self._builder.neg(self)

    def __pos__(self) -> XlaOp:
        return self

    def __invert__(self) -> XlaOp:
        return self._builder.not_(self)

    def __abs__(self) -> XlaOp:
        return self._builder.abs(self)

    # --- comparisons ------------------------------------------------------------------------------------------------

    def __eq__(self, other: OperandLike) -> XlaOp:  # type: ignore[override]
        return self._builder.eq(self, other)

    def __ne__(self, other: OperandLike) -> XlaOp:  # type: ignore[override]
        return self._builder.ne(self, other)

    def __lt__(self, other: OperandLike) -> XlaOp:
        return self._builder.lt(self, other)

    def __le__(self, other: OperandLike) -> XlaOp:
        return self._builder.le(self, other)

    def __gt__(self, other: OperandLike) -> XlaOp:
        return self._builder.gt(self, other)

    def __ge__(self, other: OperandLike) -> XlaOp:
        return self._builder.ge(self, other)

    def __hash__(self) -> int:
        return id(self)

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} has no truth value: it is computed when the program runs. Use select, conditional or while_ for "
            "a choice, & | ~ for and, or, not, `is` to compare operands, and an identity set for membership"
        )

    def __array__(self, *arguments: Any, **keywords: Any) -> NoReturn:
        raise TypeError(f"{self!r} has no value: it is computed when the program runs")

    # --- parts ------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Elements of a tuple; the size of an array's first dimension."""
        if self.shape.elements is not None:
            return len(self.shape.elements)
        if not self.rank:
            raise TypeError(f"{self!r} has no length")
        return self.shape.dims[0]

    def __iter__(self) -> Iterator[XlaOp]:
        """The elements of a tuple; an array's parts along its first dimension."""
        return (self[k] for k in range(len(self)))

    def __getitem__(self, key: IndexItem | tuple[IndexItem, ...]) -> XlaOp:
        if not self.shape.is_tuple:
            return self._builder.basic_index(self, key)
        if not isinstance(key, (int, np.integer)):
            raise broken_rule(f"get-tuple-element.index: {key!r} is no number of an element of {self.shape}")
        count = len(self)
        if not -count <= key < count:
            raise IndexError(f"{self.name} is {self.shape}, which has no element {key}")
        return self._builder.get_tuple_element(self, int(key) % count)
