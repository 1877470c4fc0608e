"""Arrays of the generated code: in memory, row-major, or computed on demand by the fused producers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from llvmlite import ir

from distxla.compiler.lower.index import IndexExpression
from distxla.compiler.lower.scalar_code import ScalarCode
from distxla.compiler.lower.scalar_value import ScalarValue
from distxla.ir.shape import Shape

Index = Sequence[IndexExpression | int]


def linear_index(emit: ScalarCode, dims: Sequence[int], index: Index) -> IndexExpression:
    """The row-major position of `index` in an array of dimension sizes `dims`."""
    total = emit.index(0)
    stride = 1
    for size, position in zip(reversed(dims), reversed(index), strict=True):
        if size != 1:
            total = total + (position * stride if isinstance(position, IndexExpression) else int(position) * stride)
        stride *= size
    return total


class StoreWatch(Protocol):
    """Looks at the elements that are stored."""

    def see(self, value: ScalarValue) -> None:
        """`value` is stored."""

    def copy(self, target: ir.Value, source: ir.Value, size: int) -> None:
        """Copy the array's bytes from elsewhere."""


class MemoryArray:
    """An array at `pointer`, 64-byte aligned unless it is a view, optionally from element `offset` on.

    watch: sees what is stored by `store`; not what is written by views and other addresses.
    """

    watch: StoreWatch | None = None

    def __init__(self, emit: ScalarCode, pointer: ir.Value, shape: Shape, offset: IndexExpression | int = 0) -> None:
        self.emit = emit
        self.pointer = pointer
        self.shape = shape
        self.offset = offset

    def position(self, index: Index) -> IndexExpression:
        """The linear index of an element behind `pointer`."""
        return linear_index(self.emit, self.shape.dims, index) + self.offset

    def load(self, index: Index) -> ScalarValue:
        return self.emit.load(self.pointer, self.position(index), self.shape.dtype)

    def store(self, index: Index, value: ScalarValue) -> None:
        self.emit.store(self.pointer, self.position(index), value)
        if self.watch is not None:
            self.watch.see(value)

    def address(self) -> ir.Value:
        """Where the first element is."""
        return self.emit.element_pointer(self.pointer, self.offset, self.shape.dtype) if self.offset else self.pointer


class ComputedArray:
    """An array whose elements `compute` makes, each once per index and region of dominance.

    memory: the address of the very array, if it is in memory.
    """

    def __init__(
        self,
        emit: ScalarCode,
        shape: Shape,
        compute: Callable[[Index], ScalarValue],
        memory: MemoryArray | None = None,
    ) -> None:
        self.emit = emit
        self.shape = shape
        self.memory = memory
        self._compute = compute

    def load(self, index: Index) -> ScalarValue:
        key = (self, *((i.terms, i.offset) if isinstance(i, IndexExpression) else ((), i) for i in index))
        return self.emit.indices.remembered(key, lambda: self._compute(index))
