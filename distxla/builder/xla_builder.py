"""`XlaBuilder`: HLO programs, one method for every operation of the Operation Semantics pages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from distxla.builder.accepted_values import (
    ConstantLike,
    ElementTypeLike,
    as_element_type,
    as_integer,
    as_integers,
    as_literal,
    as_word,
)
from distxla.builder.blame import broken_rule
from distxla.builder.collectives import Collectives
from distxla.builder.contractions import Contractions
from distxla.builder.control_flow import ControlFlow
from distxla.builder.numerics import Numerics
from distxla.builder.reductions import Reductions
from distxla.builder.transfers import Transfers
from distxla.builder.xla_op import XlaOp
from distxla.ir.element_type import ElementType
from distxla.ir.instruction import Instruction
from distxla.ir.literal import Literal
from distxla.ir.public_names import PublicNames
from distxla.ir.shape import ProgramShape, Shape


class XlaBuilder(PublicNames, Numerics, Contractions, Reductions, Collectives, ControlFlow, Transfers):
    """Records a computation, instruction by instruction, and makes it a module.

        b = XlaBuilder("mean")
        x = b.parameter(0, "f32[1024]", "x")
        b.all_reduce(b.reduce(x, 0, lambda a, b: a + b, [0]), lambda a, b: a + b) / 4096
        module = b.build()                      # of the last value; runs, and prints as HLO text

    Every call checks shapes, types and attributes: an error is a VerificationError that points at the caller's own
    line and names the argument. The lines travel along as metadata, so later reports name them, too.

    Operands are values of this builder, or numbers, lists and arrays of NumPy, which become constants. A shape is
    `"f32[2,3]"`, `("f32", (2, 3))`, a Shape, an array, or a tuple of shapes. A computation is a module, another
    builder, or a Python function, which is run once on parameters of the shapes that the operation asks for.

    replica_count, num_partitions: the counts in the module's header; with both known, groups are checked against them.
    """

    def _result(self, instruction: Instruction) -> XlaOp:
        return XlaOp(self, instruction)

    # --- constants --------------------------------------------------------------------------------------------------

    def constant(self, value: ConstantLike | Literal, element_type: ElementTypeLike | None = None) -> XlaOp:
        """A constant of any element type.

        Arrays and scalars of NumPy keep their type; other numbers become s32, f32, c64 or pred unless it is given.
        """
        if isinstance(value, Literal):
            return self._constant(value)
        wanted = None if element_type is None else as_element_type(element_type, "element_type")
        return self._constant(as_literal(value, wanted))

    def constant_literal(self, literal: ConstantLike | Literal) -> XlaOp:
        """`constant` under the name of the pages' examples."""
        return self.constant(literal)

    def zero(self, element_type: ElementTypeLike) -> XlaOp:
        """The scalar 0."""
        return self.constant(False, element_type)

    def one(self, element_type: ElementTypeLike) -> XlaOp:
        """The scalar 1."""
        return self.constant(True, element_type)

    def min_value(self, element_type: ElementTypeLike) -> XlaOp:
        """The lowest scalar of a type, -inf where it has that: the identity of max."""
        return self._constant(_extreme(as_element_type(element_type, "element_type"), -1))

    def max_value(self, element_type: ElementTypeLike) -> XlaOp:
        """The highest scalar of a type, inf where it has that: the identity of min."""
        return self._constant(_extreme(as_element_type(element_type, "element_type"), 1))

    # --- the module -------------------------------------------------------------------------------------------------

    def get_shape(self, operand: XlaOp) -> Shape:
        """The operand's shape."""
        self._check_own(operand)
        return operand.shape

    def get_program_shape(self, root: XlaOp | None = None) -> ProgramShape:
        """Parameters and result of the computation that `build` would give."""
        return self._computation_of(root).program_shape

    def set_up_alias(
        self,
        output_index: Sequence[int],
        param_number: int,
        param_index: Sequence[int] = (),
        kind: str = "may-alias",
    ) -> None:
        """The entry's result at `output_index` takes over a parameter's memory.  kind: may-alias or must-alias."""
        if as_word(kind, "kind") not in ("may-alias", "must-alias"):
            raise broken_rule(f"alias.kind: {kind!r} is neither may-alias nor must-alias", "kind")
        output = _braced(output_index, "output_index")
        self._aliases = (*self._aliases, f"{output}: ({_entry(param_number, param_index)}, {kind})")

    def add_buffer_donor(self, param_number: int, param_index: Sequence[int] = ()) -> None:
        """A parameter's memory may be used for results."""
        self._donors = (*self._donors, f"({_entry(param_number, param_index)})")


def _entry(param_number: int, param_index: Sequence[int]) -> str:
    """`0, {1}`."""
    number = as_integer(param_number, "param_number")
    if number < 0:
        raise broken_rule(f"alias.parameter: there is no parameter {number}", "param_number")
    return f"{number}, {_braced(param_index, 'param_index')}"


def _braced(index: Sequence[int], argument: str) -> str:
    return "{" + ",".join(map(str, as_integers(index, argument))) + "}"


def _extreme(element_type: ElementType, sign: int) -> Literal:
    try:
        value = element_type.highest if sign > 0 else element_type.lowest
    except TypeError:
        message = f"constant: {element_type} has no lowest and no highest value"
        raise broken_rule(message, "element_type") from None
    return Literal(Shape(element_type), np.array(value, element_type.dtype))
