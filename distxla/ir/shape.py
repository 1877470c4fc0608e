"""Shapes: element type, dimension sizes, layout; tuples of them. Spec page "Shapes and Layout"."""

from __future__ import annotations

import builtins
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from math import prod

from distxla.ir.element_type import OPAQUE, TOKEN, ElementType
from distxla.ir.layout import Layout
from distxla.lazy_dataclass import dataclass, field, replace

UNBOUNDED = -1


@dataclass(frozen=True, slots=True)
class Shape:
    """An array shape, a tuple of shapes, `token[]`, `opaque[]`, or a buffer: an array that is changed in place.

    dims: dimension sizes; for a dynamic dimension its upper bound, or UNBOUNDED.  dynamic: one flag a dimension, () if
    none is.
    layout: None where the text gives none.  elements: the shapes of a tuple, None for everything else (then
    element_type is set).  is_buffer: of an array, `b(f32[2])`.
    """

    element_type: ElementType | None
    dims: tuple[int, ...] = ()
    dynamic: tuple[bool, ...] = ()
    layout: Layout | None = None
    elements: tuple[Shape, ...] | None = None
    is_buffer: bool = False
    _tuple_facts: _TupleFacts | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.dynamic and not any(self.dynamic):
            object.__setattr__(self, "dynamic", ())

    @staticmethod
    def tuple(elements: builtins.tuple[Shape, ...] | list[Shape]) -> Shape:
        return Shape(None, elements=tuple(elements))

    @staticmethod
    def one_or_tuple(shapes: Sequence[Shape]) -> Shape:
        """The shape itself of one, the tuple of several."""
        return shapes[0] if len(shapes) == 1 else Shape.tuple(tuple(shapes))

    @staticmethod
    def token() -> Shape:
        return Shape(TOKEN)

    @property
    def is_tuple(self) -> bool:
        return self.elements is not None

    @property
    def is_token(self) -> bool:
        return self.element_type is TOKEN

    @property
    def is_opaque(self) -> bool:
        return self.element_type is OPAQUE

    @property
    def is_array(self) -> bool:
        return self.elements is None and self.element_type is not None and self.element_type.is_data

    @property
    def dtype(self) -> ElementType:
        """The element type of a non-tuple shape."""
        if self.element_type is None:
            raise TypeError(f"{self} is a tuple")
        return self.element_type

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def size(self) -> int:
        """Number of elements (bounds for dynamic dimensions)."""
        return prod(self.dims)

    @property
    def true_rank(self) -> int:
        """How many dimensions have a size above 1."""
        return sum(dimension_size > 1 for dimension_size in self.dims)

    @property
    def byte_size(self) -> int:
        """Bytes of an array in an arena; the sum over the leaves for a tuple; 0 for tokens."""
        if self.elements is not None:
            return self._facts.byte_size
        return self.size * self.dtype.byte_size

    @property
    def is_dynamic(self) -> bool:
        return bool(self.dynamic) if self.elements is None else self._facts.is_dynamic

    @property
    def is_unbounded(self) -> bool:
        """Whether a dimension is `?`, without a bound."""
        return UNBOUNDED in self.dims if self.elements is None else self._facts.is_unbounded

    @property
    def has_buffers(self) -> bool:
        return self.is_buffer if self.elements is None else self._facts.has_buffers

    @property
    def has_layouts(self) -> bool:
        """Whether the shape, or a part of it, states a layout."""
        return self.layout is not None if self.elements is None else self._facts.has_layouts

    @property
    def leaf_count(self) -> int:
        return 1 if self.elements is None else self._facts.offsets[-1]

    def leaf(self, number: int) -> Shape:
        """The same as `list(shape.leaves())[number]`."""
        if self.elements is None:
            return self
        offsets = self._facts.offsets
        index = bisect_right(offsets, number) - 1
        return self.elements[index].leaf(number - offsets[index])

    def leaves_of(self, index: int) -> slice:
        """Where the leaves of a tuple's element are among those of the tuple."""
        offsets = self._facts.offsets
        return slice(offsets[index], offsets[index + 1])

    @property
    def _facts(self) -> _TupleFacts:
        """Results of walks through a tuple, which many instructions ask for of one and the same large tuple."""
        facts = self._tuple_facts
        if facts is None:
            facts = _facts_of(self.elements or ())
            object.__setattr__(self, "_tuple_facts", facts)
        return facts

    @property
    def contents(self) -> Shape:
        """The shape with the arrays that its buffers hold."""
        if not self.has_buffers:
            return self
        if self.elements is not None:
            return Shape.tuple(tuple(e.contents for e in self.elements))
        return replace(self, is_buffer=False)

    def holds(
        self,
        dimension_sizes: builtins.tuple[int, ...] | None = None,
        *,
        extents: builtins.tuple[int, ...] | None = None,
    ) -> bool:
        """Whether an array of these dimension sizes is of this array shape: a dynamic dimension has any up to its
        bound.

        extents: the former name of `dimension_sizes`; deprecated.
        """
        if extents is not None:
            warnings.warn("Shape.holds: extents is now dimension_sizes", DeprecationWarning, stacklevel=2)
            dimension_sizes = extents
        if dimension_sizes is None:
            raise TypeError("Shape.holds needs dimension_sizes")
        if len(dimension_sizes) != self.rank:
            return False
        dynamic = self.dynamic or (False,) * self.rank
        return all(n == m or (flag and n < m) for n, m, flag in zip(dimension_sizes, self.dims, dynamic, strict=True))

    def leaves(self) -> Iterator[Shape]:
        """The array, token and opaque shapes in depth-first order; a non-tuple is its own leaf."""
        if self.elements is None:
            yield self
        else:
            for element in self.elements:
                yield from element.leaves()

    def with_dtype(self, element_type: ElementType) -> Shape:
        return replace(self, element_type=element_type)

    def with_dims(self, dims: builtins.tuple[int, ...]) -> Shape:
        """Same element type with other dimension sizes; no layout, no dynamic dimension."""
        return Shape(self.element_type, tuple(dims))

    def without_layout(self) -> Shape:
        """Recursively without layouts: equal for compatible shapes."""
        if not self.has_layouts:
            return self
        if self.elements is not None:
            return Shape.tuple(tuple(e.without_layout() for e in self.elements))
        return replace(self, layout=None) if self.layout is not None else self

    def compatible(self, other: Shape) -> bool:
        """Equal but for layouts and for which dimensions are dynamic: sizes follow the values at run time."""
        if self is other:
            return True
        if self.elements is not None or other.elements is not None:
            mine, theirs = self.elements, other.elements
            return (
                mine is not None
                and theirs is not None
                and len(mine) == len(theirs)
                and all(a.compatible(b) for a, b in zip(mine, theirs, strict=True))
            )
        same_kind = self.element_type is other.element_type and self.is_buffer == other.is_buffer
        return same_kind and self.dims == other.dims

    def minor_to_major(self) -> builtins.tuple[int, ...]:
        """The layout's order, row-major where there is no layout."""
        return self.layout.minor_to_major if self.layout else Layout.default(self.rank).minor_to_major

    def major_to_minor(self) -> builtins.tuple[int, ...]:
        """The dimensions in memory order, slowest first."""
        return tuple(reversed(self.minor_to_major()))

    def __str__(self) -> str:
        """HLO text without layouts: `f32[2,<=3]`, `(s32[], token[])`, `b(f32[2])`."""
        if self.is_buffer:
            return f"b({self.contents})"
        if self.elements is not None:
            return "(" + ", ".join(map(str, self.elements)) + ")"
        dynamic = self.dynamic or (False,) * len(self.dims)
        dims = ",".join(
            ("?" if d == UNBOUNDED else f"<={d}") if dyn else str(d) for d, dyn in zip(self.dims, dynamic, strict=True)
        )
        return f"{self.dtype.name}[{dims}]"


@dataclass(frozen=True, slots=True)
class _TupleFacts:
    """offsets: number of the first leaf of each element, and the number of leaves."""

    offsets: tuple[int, ...]
    byte_size: int
    is_dynamic: bool
    is_unbounded: bool
    has_buffers: bool
    has_layouts: bool


def _facts_of(elements: tuple[Shape, ...]) -> _TupleFacts:
    return _TupleFacts(
        offsets=tuple(accumulate((e.leaf_count for e in elements), initial=0)),
        byte_size=sum(e.byte_size for e in elements),
        is_dynamic=any(e.is_dynamic for e in elements),
        is_unbounded=any(e.is_unbounded for e in elements),
        has_buffers=any(e.has_buffers for e in elements),
        has_layouts=any(e.has_layouts for e in elements),
    )


@dataclass(frozen=True, slots=True)
class ProgramShape:
    """Parameters and result of a computation."""

    parameters: tuple[Shape, ...]
    result: Shape


Called = Callable[[str], ProgramShape]
"""The program shapes of the computations that an instruction calls, by their names."""

__all__ = ["UNBOUNDED", "Called", "Layout", "ProgramShape", "Shape"]
