"""The interface for rules of dynamic dimensions: an instruction, its padded operands, their run-time sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from distxla.errors import InternalError, UnsupportedOpError
from distxla.ir.computation import Computation
from distxla.ir.dynamic_shape import static_shape
from distxla.ir.element_type import S32, ElementType
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.names import Names
from distxla.ir.op import Op
from distxla.ir.shape import ProgramShape, Shape
from distxla.ir.window import SliceDimension
from distxla.location import Location
from distxla.ops.custom_calls.composed_build import ComposedBuild
from distxla.ops.parameter import Parameter
from distxla.ops.slice import Slice
from distxla.ops.support.expansion import Build
from distxla.ops.support.rewriter import Rewriter

DimensionSize = (
    int | str
)  # the bound of a static dimension, or the name of an s32[] instruction that has the size at run time
DimensionSizes = tuple[DimensionSize, ...]  # of one array, by dimension
Sizes = tuple[DimensionSizes, ...]  # of a value, by leaf


class Refused(UnsupportedOpError):
    """An instruction for which there is no way with dynamic dimensions; its operands are those of the rewritten one."""

    def __init__(self, message: str, location: Location | None = None, instruction: Instruction | None = None) -> None:
        super().__init__(message, location)
        self.args = (message, location, instruction)
        self.instruction = instruction


class RewrittenModule(Protocol):
    """The module that is being rewritten."""

    @property
    def module(self) -> Module: ...

    @property
    def names(self) -> Names: ...

    @property
    def done(self) -> list[Computation]:
        """The new computations so far."""

    def computation(self, name: str) -> Computation:
        """A new computation, or one of the module's that is as it was."""

    def program_shape(self, name: str) -> ProgramShape: ...


def bounds(shape: Shape) -> Sizes:
    """The sizes of a value that has all dimensions at their bounds."""
    return tuple(leaf.dims for leaf in shape.leaves())


def is_static(sizes: Iterable[DimensionSizes]) -> bool:
    return not any(isinstance(size, str) for dimension_sizes in sizes for size in dimension_sizes)


class DynamicSite(ComposedBuild):
    """instruction: with its operands as they are called in the new computation.  dimension_sizes: by operand and leaf.

    Every array is padded to its bounds; elements beyond the run-time sizes are arbitrary.  After `agree`, sizes of
    dimensions that must be equal are.
    """

    def __init__(
        self, program: RewrittenModule, rewriter: Rewriter, instruction: Instruction, operand_sizes: Sequence[Sizes]
    ) -> None:
        self.program, self.rewriter, self.instruction = program, rewriter, instruction
        self.operands = list(instruction.operands)
        self.sizes = list(operand_sizes)

    # --- Build --------------------------------------------------------------------------------------------------

    @property
    def is_static(self) -> bool:
        return False

    def shape(self, name: str) -> Shape:
        return self.rewriter[name].shape.without_layout()

    def op(self, name: str) -> Op:
        return self.rewriter[name].op

    def add(self, op: Op, *operands: str, shape: Shape | None = None, name: str | None = None) -> str:
        if shape is None:
            shape = op.infer_shape([self.shape(o) for o in operands], self.program.program_shape)
            if shape is None:
                raise InternalError(f"padding {self.instruction.name}: the shape of {op.opcode} can't be inferred")
        return self.rewriter.add(self.instruction, op, shape, operands).name

    def computation(self, parameters: Sequence[Shape], body: Callable[[Build, Sequence[str]], str]) -> str:
        name = self.program.names.fresh(f"{self.instruction.name}.computation")
        rewriter = Rewriter(Computation(name, (), ""))
        inner = DynamicSite(self.program, rewriter, self.instruction.replace(name=name, operands=()), ())
        taken = [inner.add(Parameter(number=k), shape=shape) for k, shape in enumerate(parameters)]
        root = body(inner, taken)
        self.program.done.append(Computation(name, tuple(rewriter.instructions.values()), root))
        return name

    def called(self, computation: str) -> Computation:
        return self.program.computation(computation)

    # --- the instruction ------------------------------------------------------------------------------------------

    @property
    def result(self) -> Shape:
        """The padded result's shape."""
        return static_shape(self.instruction.shape)

    def dimension_sizes(self, operand: int = 0) -> DimensionSizes:
        """Of an array operand."""
        (found,) = self.sizes[operand]
        return found

    def is_dynamic(self, operand: int, dimension: int) -> bool:
        return isinstance(self.dimension_sizes(operand)[dimension], str)

    def keep(self, *, op: Op | None = None) -> str:
        """The instruction itself on the padded operands."""
        self.rewriter.keep(
            self.instruction.replace(op=op or self.instruction.op, operands=tuple(self.operands), shape=self.result)
        )
        return self.instruction.name

    def refuse(self, why: str = "") -> Refused:
        """The error for an unsupported use of dynamic dimensions."""
        shapes = ", ".join(map(str, self.stated))
        text = f"this version cannot execute {self.instruction.opcode} of dynamic dimensions{why and ': '}{why}"
        where = self.program.module.locate(self.instruction, "opcode")
        return Refused(f"{text} (operands {shapes})", where, self.instruction)

    @property
    def stated(self) -> list[Shape]:
        """The operands' shapes with the dimensions marked that are dynamic."""
        return [dynamic_shape(self.shape(o), s) for o, s in zip(self.operands, self.sizes, strict=True)]

    def agree(self) -> None:
        """Give dimensions that must agree one size: the smallest dynamic one.

        Operands of element-wise ops whose size is 1 are repeated up to the others'.
        """
        op = self.instruction.op
        for agreement in op.agreeing_dimensions(self.stated):
            found = dict.fromkeys(self.dimension_sizes(k)[d] for k, d in agreement if self.is_dynamic(k, d))
            if not found:
                continue
            common, *others = found
            for other in others:
                common = self._repeated_size(common, other) if op.elements.is_elementwise else self.least(common, other)
            for k, d in agreement:
                if (
                    op.elements.is_elementwise
                    and others
                    and self.is_dynamic(k, d)
                    and self.shape(self.operands[k]).dims[d] > 1
                ):
                    self._repeat(k, d)
                dimension_sizes = list(self.dimension_sizes(k))
                dimension_sizes[d] = common
                self.sizes[k] = (tuple(dimension_sizes),)

    def _repeated_size(self, a: DimensionSize, b: DimensionSize) -> DimensionSize:
        one, a, b = self.number(1), self.number(a), self.number(b)
        smallest = self.compute("minimum", a, b)
        without_b = self.select(self.compare("EQ", b, one), a, smallest)
        return self.select(self.compare("EQ", a, one), b, without_b)

    def _repeat(self, operand: int, dimension: int) -> None:
        """Let every element along the dimension be the first one where the size is 1."""
        array = self.operands[operand]
        dims = self.shape(array).dims
        ranges = tuple(SliceDimension(0, 1 if d == dimension else n) for d, n in enumerate(dims))
        first = self.reshape(self.add(Slice(slice=ranges), array), dims[:dimension] + dims[dimension + 1 :])
        kept = [d for d in range(len(dims)) if d != dimension]
        alone = self.compare("EQ", self.number(self.dimension_sizes(operand)[dimension]), self.number(1))
        self.operands[operand] = self.select(self.broadcast(alone, dims), self.broadcast(first, dims, kept), array)

    # --- dimension sizes
    # --------------------------------------------------------------------------------------------------

    def number(self, size: DimensionSize) -> str:
        """The s32[] instruction that has the size."""
        return size if isinstance(size, str) else self.constant(size, S32)

    def _compute(
        self, opcode: str, known: Callable[[int, int], int], a: DimensionSize, b: DimensionSize
    ) -> DimensionSize:
        if isinstance(a, int) and isinstance(b, int):
            return known(a, b)
        return self.compute(opcode, self.number(a), self.number(b))

    def plus(self, a: DimensionSize, b: DimensionSize) -> DimensionSize:
        return b if a == 0 else a if b == 0 else self._compute("add", lambda x, y: x + y, a, b)

    def minus(self, a: DimensionSize, b: DimensionSize) -> DimensionSize:
        return a if b == 0 else self._compute("subtract", lambda x, y: x - y, a, b)

    def times(self, a: DimensionSize, b: DimensionSize) -> DimensionSize:
        return b if a == 1 else a if b == 1 else self._compute("multiply", lambda x, y: x * y, a, b)

    def over(self, a: DimensionSize, b: int) -> DimensionSize:
        """Floor of a non-negative size over a positive number."""
        return a if b == 1 else self._compute("divide", lambda x, y: x // y, a, b)

    def least(self, a: DimensionSize, b: DimensionSize) -> DimensionSize:
        return a if a == b else self._compute("minimum", min, a, b)

    def most(self, a: DimensionSize, b: DimensionSize) -> DimensionSize:
        return a if a == b else self._compute("maximum", max, a, b)

    def product(self, dimension_sizes: Iterable[DimensionSize]) -> DimensionSize:
        result: DimensionSize = 1
        for size in dimension_sizes:
            result = self.times(result, size)
        return result

    def clamped(self, size: str, bound: int) -> DimensionSize:
        """A size that the program computes, within 0 and the bound; a number only where it is the bound."""
        known = self.rewriter[size].op.constant_array
        if known is not None and int(known) >= bound:
            return bound
        return self.least(self.most(size, 0), bound)

    # --- elements -------------------------------------------------------------------------------------------------

    def zero(self, element_type: ElementType) -> str:
        return self.constant(0, element_type)

    def inside(
        self, dims: Sequence[int], dimension_sizes: DimensionSizes, dimensions: Iterable[int] | None = None
    ) -> str | None:
        """pred[dims]: which elements are within the dimension sizes; None where all are.  dimensions: the ones looked
        at."""
        chosen = range(len(dims)) if dimensions is None else sorted(set(dimensions))
        result: str | None = None
        for d in chosen:
            size = dimension_sizes[d]
            if isinstance(size, int):
                continue
            places = self.iota(S32, (dims[d],), 0)
            within = self.compare("LT", places, self.broadcast(size, (dims[d],)))
            here = self.broadcast(within, dims, (d,))
            result = here if result is None else self.compute("and", result, here)
        return result

    def masked(
        self,
        array: str,
        dimension_sizes: DimensionSizes,
        value: str | None = None,
        dimensions: Iterable[int] | None = None,
    ) -> str:
        """The array with `value` (a scalar; zero) for the elements beyond its dimension sizes along the dimensions
        (all)."""
        shape = self.shape(array)
        within = self.inside(shape.dims, dimension_sizes, dimensions)
        if within is None:
            return array
        return self.select(within, array, self.broadcast(value or self.zero(shape.dtype), shape.dims))

    def mask(self, operand: int, value: str | None = None, dimensions: Iterable[int] | None = None) -> None:
        """Replace an operand by `masked` of it."""
        self.operands[operand] = self.masked(self.operands[operand], self.dimension_sizes(operand), value, dimensions)


def dynamic_shape(shape: Shape, sizes: Sizes) -> Shape:
    """The padded shape with those dimensions marked as dynamic whose dimension sizes are known at run time only."""
    remaining = iter(sizes)

    def marked(part: Shape) -> Shape:
        if part.elements is not None:
            return Shape.tuple(tuple(marked(e) for e in part.elements))
        return Shape(part.element_type, part.dims, tuple(isinstance(e, str) for e in next(remaining)))

    return marked(shape)


DynamicRule = Callable[[Any, DynamicSite], tuple[str, Sizes]]
RULES: dict[type[Op], DynamicRule] = {}


def dynamic_rule(*op_classes: type[Op]) -> Callable[[DynamicRule], DynamicRule]:
    """Enter the rule for instructions of these op classes with an operand of dynamic dimensions.

    It adds instructions on padded arrays and gives the name of the one with the padded result, and the result's sizes.
    """

    def enter(function: DynamicRule) -> DynamicRule:
        for op_class in op_classes:
            RULES[op_class] = function
        return function

    return enter
