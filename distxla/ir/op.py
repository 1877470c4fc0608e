"""`Op`: an opcode with its attributes, independent of how it is executed: declared properties, rules of shapes.

How it is executed: ops/support/executable.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, ClassVar, TypeVar

from distxla.errors import DistxlaError, UnsupportedOpError
from distxla.ir.attribute import AttributeSpec, attribute_specs, computation_attributes
from distxla.ir.dynamic_shape import (
    Agreement,
    is_dynamic,
    marked_where_different,
    same_positions,
    static_shape,
    with_dimension_sizes,
)
from distxla.ir.effects import Effects
from distxla.ir.element_type import ElementType
from distxla.ir.mixed_precision import Computed, float_types, in_one_type
from distxla.ir.op_traits import ElementRules, InPlaceKernel, OperandCount, OpRole, RoundRules, StartDone, TransferEnd
from distxla.ir.shape import Called, Shape
from distxla.ir.stream_key import StreamKey
from distxla.lazy_dataclass import dataclass, fields

T = TypeVar("T")
NO_MEMORY = -1


class RuleViolation(DistxlaError):
    """A constraint that does not hold; `at` names the attribute ("shape", "operands", "dimensions") to point at.

    Raised without a location: the caller knows the instruction and turns it into a VerificationError.
    """

    code = "verify"
    exit_status = 2

    def __init__(self, message: str, at: str | None = None) -> None:
        super().__init__(message)
        self.args = (message, at)
        self.at = at


class Lowering(Enum):
    """How an opcode becomes machine code; the compiler asks this, never the opcode.

    ELEMENT: `emit_element` computes one result element from operand elements; fuses.
    REDUCTION: a loop over elements that fuses with its producers (`reduce`).
    KERNEL: `emit_kernel` fills whole result buffers.
    ALIAS: no code; the result is made of its operands' buffers (tuple, get-tuple-element, parameter, after-all …).
    CONTROL: runs other computations (while, conditional). The op emits nothing: the compiler emits the loop, the
        branch or the call around the code of these computations.
    COMMUNICATION: a call through the context's table.
    HOST: a call through the context's table of a routine of the replica, in Python.
    CALL: replaced by the body of its computation before anything is emitted (call, fusion).
    EXPANSION: replaced by other instructions before anything is emitted; `expand` says by which.
    NONE: this version has no executor for it; running it raises UnsupportedOpError.
    """

    ELEMENT = "element"
    REDUCTION = "reduction"
    KERNEL = "kernel"
    ALIAS = "alias"
    CONTROL = "control"
    COMMUNICATION = "communication"
    HOST = "host"
    CALL = "call"
    EXPANSION = "expansion"
    NONE = "none"


_COMPUTING = {Lowering.ELEMENT, Lowering.REDUCTION, Lowering.KERNEL, Lowering.COMMUNICATION, Lowering.EXPANSION}


@dataclass(frozen=True, eq=False, repr=False)
class Op:
    """Base of every opcode's class. An instance holds the opcode's attributes.

    Class attributes: opcode; effects; lowering; operand_count; needs_shape (the text must state the result
    shape: it can't be inferred).
    """

    opcode: ClassVar[str]
    effects: ClassVar[Effects] = Effects.PURE
    lowering: ClassVar[Lowering] = Lowering.NONE
    operand_count: ClassVar[OperandCount] = OperandCount()
    needs_shape: ClassVar[bool] = False
    # What passes, scheduler and transports ask for instead of the class (ir/op_traits.py):
    role: ClassVar[OpRole] = OpRole()
    round: ClassVar[RoundRules] = RoundRules()
    transfer: ClassVar[TransferEnd] = TransferEnd()
    start_done: ClassVar[StartDone] = StartDone()
    elements: ClassVar[ElementRules] = ElementRules()
    in_place: ClassVar[InPlaceKernel] = InPlaceKernel()
    # groups of devices execute it together (CollectiveOp)
    is_collective: ClassVar[bool] = False
    # takes the device's random state and moves it on, so that the next run gives something else (ops/rng.py)
    advances_state: ClassVar[bool] = False
    # floats of several types may meet where one is asked for (ir/mixed_precision.py)
    mixes_precision: ClassVar[bool] = True
    # What an instance may answer:
    # while: the computation that it repeats; conditional: those of which it runs one
    loop_body: ClassVar[str | None] = None
    branches: ClassVar[tuple[str, ...]] = ()
    # async-start: the computation that it begins
    begun_computation: ClassVar[str | None] = None
    # get-tuple-element: the number of the element
    element_index: ClassVar[int | None] = None
    # constant: the value of an array (NumPy); None of a tuple, and where the text leaves it out
    constant_array: ClassVar[Any] = None
    # the name of the routine that a custom-call calls
    called_target: ClassVar[str] = ""
    # waits for others, and no instruction ever waits for it (ir/effects_order.py)
    only_waits: ClassVar[bool] = False
    # the result has dimension sizes that an operand's value gives at run time
    sets_dimension_sizes: ClassVar[bool] = False

    # Equality, hash and representation are the base's: a dataclass would generate and compile source text for each of
    # them, for a hundred classes of ops, whenever a command starts.

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, field.name) for field in fields(self))

    def __eq__(self, other: object) -> bool:
        """The same opcode with the same attributes."""
        return type(self) is type(other) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash((type(self), self._values()))

    def __repr__(self) -> str:
        attributes = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__dataclass_fields__)
        return f"{type(self).__name__}({attributes})"

    # --- text ---------------------------------------------------------------------------------------------------

    @classmethod
    def attributes(cls) -> tuple[AttributeSpec, ...]:
        """The opcode's own attributes in the order in which they are printed."""
        return attribute_specs(cls)

    @property
    def called_computations(self) -> tuple[str, ...]:
        """Names of the computations that the attributes refer to, in order."""
        names: list[str] = []
        for spec in computation_attributes(type(self)):
            value = getattr(self, spec.field)
            if spec.kind == "computation" and value is not None:
                names.append(value)
            elif spec.kind == "computation_list":
                names.extend(value or ())
        return tuple(names)

    def rename_computations(self, rename: Callable[[str], str]) -> Op:
        """The same op with every called computation's name mapped."""
        changes: dict[str, Any] = {}
        for spec in computation_attributes(type(self)):
            value = getattr(self, spec.field)
            if spec.kind == "computation" and value is not None:
                changes[spec.field] = rename(value)
            elif spec.kind == "computation_list" and value:
                changes[spec.field] = tuple(rename(v) for v in value)
        return dataclasses.replace(self, **changes) if changes else self

    # --- shapes and constraints ---------------------------------------------------------------------------------

    def require(self, condition: object, rule: str, message: str, at: str | None = None) -> None:
        """Raise RuleViolation `opcode.rule: message` unless `condition` holds."""
        if not condition:
            raise self.violation(rule, message, at)

    def violation(self, rule: str, message: str, at: str | None = None) -> RuleViolation:
        """RuleViolation `opcode.rule: message`: to raise where the message costs more than the condition."""
        return RuleViolation(f"{self.opcode}.{rule}: {message}", at)

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape | None:
        """The result shape without layout after checking the constraints; None if the text alone can give it.

        called: the program shape of a computation by name.
        """
        return None

    def verify(self, shape: Shape, operands: Sequence[Shape], called: Called) -> None:
        """Check the stated result shape and all constraints. The default compares with `infer_shape`."""
        inferred = self.infer_shape(operands, called)
        if inferred is not None and not inferred.compatible(shape):
            raise self.violation("shape", f"the result is {inferred}, the text says {shape}", at="shape")

    # --- mixed precision (see ir/mixed_precision.py) -------------------------------------------------------

    def computed_in(self, shape: Shape, operands: Sequence[Shape], called: Called) -> Computed | None:
        """In which types the instruction is computed where the types of its floats differ; None if in none."""
        return in_one_type(shape, operands)

    def verified(self, shape: Shape, operands: Sequence[Shape], called: Called) -> Computed | None:
        """`verify`, where floats of other types than the rules ask for are no error if XLA converts them.

        None where nothing is to be converted. Raises RuleViolation.
        """
        try:
            self.verify(shape, operands, called)
        except RuleViolation:
            found = self._converted(shape, operands, called)
            if found is None:
                raise
            return found
        return None

    def may_mix(self, shape: Shape, operands: Sequence[Shape], called: Called) -> bool:
        """False where `verified` has nothing to convert, whatever `verify` says."""
        if not self.mixes_precision or self.lowering not in _COMPUTING:
            return False
        types = float_types((shape, *operands))
        for name in self.called_computations:
            program = called(name)
            types |= float_types((*program.parameters, program.result))
        return len(types) > 1

    def _converted(self, shape: Shape, operands: Sequence[Shape], called: Called) -> Computed | None:
        """The change that makes an incorrect instruction correct; None if there is none."""
        found = self.computed_in(shape, operands, called) if self.may_mix(shape, operands, called) else None
        if found is None:
            return None
        try:
            self.verify(found.shape, found.operands, called)
        except RuleViolation:
            return None
        return found

    # --- dynamic dimensions (see ops/support/run_time_sizes.py) -----------------------------------------------------

    def agreeing_dimensions(self, operands: Sequence[Shape]) -> tuple[Agreement, ...]:
        """Which operand dimensions must have one size. By default all that element-wise ops walk through together."""
        return same_positions(operands) if self.elements.is_elementwise else ()

    def run_time_shape(self, shape: Shape, operands: Sequence[Shape], actual: Sequence[Shape], called: Called) -> Shape:
        """The result's shape at run time. shape, operands: as stated.  actual: the operands' with run-time sizes.

        By default the result of `infer_shape` with those dimension sizes; conversions, which infer nothing, keep them.
        """
        inferred = self.infer_shape(actual, called)
        if inferred is None and self.elements.is_elementwise:
            inferred = actual[0]
        return static_shape(shape) if inferred is None else with_dimension_sizes(shape, inferred)

    def inferred_result(self, operands: Sequence[Shape], called: Called) -> Shape | None:
        """`infer_shape` with the dimensions marked as dynamic that follow dynamic ones of the operands."""
        shape = self.infer_shape(operands, called)
        known = (Lowering.ALIAS, Lowering.CONTROL, Lowering.CALL)  # made of shapes that are marked already
        if shape is None or self.lowering in known or not any(operand.is_dynamic for operand in operands):
            return shape
        if any(operand.is_unbounded for operand in operands):
            return shape
        return self.dynamic_result(shape, operands, called)

    def dynamic_result(self, shape: Shape, operands: Sequence[Shape], called: Called) -> Shape:
        """`shape` with those dimensions marked as dynamic whose dimension sizes follow the dynamic ones of the
        operands.

        operands: with the dimensions marked whose dimension sizes are known at run time only, whatever the text states.
        """
        static = [static_shape(operand) for operand in operands]
        smallest = self.run_time_shape(static_shape(shape), static, self._emptied(operands), called)
        return marked_where_different(static_shape(shape), smallest)

    def _emptied(self, operands: Sequence[Shape]) -> list[Shape]:
        """The operands' shapes with no elements along dynamic dimensions and along those that agree with them."""
        dims = [list(operand.dims) for operand in operands]
        empty = {(k, d) for k, operand in enumerate(operands) for d in range(operand.rank) if is_dynamic(operand, d)}
        for agreement in self.agreeing_dimensions(operands):
            if any(place in empty for place in agreement):
                empty.update(agreement)
        for k, d in empty:
            dims[k][d] = 0
        return [o if o.is_tuple else Shape(o.element_type, tuple(n)) for o, n in zip(operands, dims, strict=True)]

    def neutral_value(self, element_type: ElementType) -> Any:
        """The scalar that the op combines with any other one to that one; None where none is known."""
        return None

    # --- memory and obstacles --------------------------------------------------------------------------------------

    def result_leaves(self, operands: Sequence[Shape], leaves: Sequence[Sequence[T]]) -> tuple[T, ...]:
        """ALIAS ops: the result's leaves, depth first, each one of the operands' leaves.

        T: any representation of a buffer. Parameters have no operands and are bound by the caller.
        """
        raise self.unsupported()

    def aliased_leaves(self, shape: Shape, operands: Sequence[Shape]) -> tuple[int | None, ...]:
        """COMMUNICATION ops: for each result leaf the operand leaf whose memory it is, None where it has its own,
        NO_MEMORY where it has no reader."""
        return (None,) * sum(1 for _ in shape.leaves())

    def is_view(self, shape: Shape, operands: Sequence[Shape]) -> bool:
        """True where the result's bytes are operand 0's bytes, so that both may be one buffer (reshape, copy …)."""
        return False

    def leading_dimensions(self, shape: Shape, operands: Sequence[Shape]) -> tuple[int, ...]:
        """ELEMENT and REDUCTION ops: for each operand, over how many leading dimensions it is walked with the result.

        k: result elements at (i_1, .., i_k, ..) are made of the operand's elements at (i_1, .., i_k, ..) alone.
        """
        return tuple(shape.rank if self.elements.is_elementwise and o.dims == shape.dims else 0 for o in operands)

    def obstacle(self, shape: Shape, operands: Sequence[Shape]) -> str | None:
        """The reason why this version can't execute the instruction, in a sentence; None if it can.

        Asked of every reachable instruction before anything starts. An override covers gaps of only some instructions
        of the opcode.
        """
        if self.lowering is Lowering.NONE:
            return f"this version cannot execute {self.opcode}"
        for value in (shape, *operands):
            if value.is_unbounded:
                return f"this version cannot execute {self.opcode} of the unbounded shape {value}: `?` needs a bound"
        return None

    @property
    def is_device_transfer(self) -> bool:
        """True for a send, a recv and their dones between devices; those with the host are feeds by another name."""
        return False

    @property
    def channel(self) -> int | None:
        """The `channel_id` of a collective, send, recv or their done, where the text states one."""
        return None

    @property
    def is_sliced(self) -> bool:
        """True for a collective-permute with `slice_sizes`, which writes slices into an operand of its target."""
        return False

    @property
    def round_opcode(self) -> str:
        """The opcode that members of a round must have in common: an asynchronous start meets the synchronous form."""
        return self.opcode

    @property
    def stream(self) -> StreamKey | None:
        """The stream between device and host that the instruction uses; None for most."""
        return None

    def stream_item(self, shape: Shape, operands: Sequence[Shape]) -> Shape | None:
        """The shape that the instruction gives to its stream, or takes from it, at a time; None if it does neither."""
        return None

    def unsupported(self) -> DistxlaError:
        return UnsupportedOpError(f"this version cannot execute {self.opcode}")


__all__ = ["NO_MEMORY", "Lowering", "Op", "RuleViolation"]
