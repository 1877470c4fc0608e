"""Conversions before and behind instructions whose floats have several types; see mixed_precision.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from distxla.errors import UnsupportedOpError
from distxla.ir.computation import Computation
from distxla.ir.element_type import ElementType
from distxla.ir.instruction import Instruction
from distxla.ir.mixed_precision import Computed
from distxla.ir.module import Module
from distxla.ir.names import Names
from distxla.ir.op import RuleViolation
from distxla.ir.shape import ProgramShape, Shape
from distxla.ops.convert import Convert
from distxla.ops.support.collective import ReducingCollective
from distxla.ops.support.collective_start_done import single_collective
from distxla.ops.support.rewriter import Rewriter
from distxla.ops.tuple import GetTupleElement, Tuple
from distxla.rewrites.step import Pass


class ExplicitPrecision(Pass):
    """Let every instruction have floats of the types that its own rules ask for, by converts before and behind it.

    The result of an asynchronous start is converted behind its done: a collective that begins and ends stays one.
    Expects: a verified module.  Ensures: `Op.verify` holds without conversions.
    """

    name: ClassVar[str] = "explicit-precision"

    def run(self, module: Module) -> Module:
        return _Conversions(module).run()


class _Conversions:
    """One run over one module. done: the new computations."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.begun = {i.op.begun_computation for c in module.computations for i in c if i.op.start_done.starts_async}
        self.hoisted: dict[str, Computed] = {}  # called by an async-start, which converts instead
        self.names = Names(module.by_name)
        self.retyped: dict[tuple[str, ElementType], Computation] = {}

    def run(self) -> Module:
        done = [self.converted(computation) for computation in self.module.computations]
        return self.module.with_computations((*self.retyped.values(), *done))

    def program_shape(self, name: str) -> ProgramShape:
        return self.module[name].program_shape

    def converted(self, computation: Computation) -> Computation:
        if computation.name in self.begun and single_collective(computation) is not None:
            return self._hoisted(computation)
        rewriter = Rewriter(computation)
        pending: dict[str, Shape] = {}  # a start executed in another type -> the type that the text states
        for old in computation:
            operands = tuple(operand.shape for operand in computation.operands(old))
            instruction = self._of_kind(rewriter.current(old), operands)
            begun = old.op.begun_computation
            if begun is not None and begun in self.hoisted:
                found = self.hoisted[begun]
                _, result, *context = old.shape.elements or ()
                shape = Shape.tuple((Shape.tuple(found.operands), found.shape, *context))
                names = _converted_operands(rewriter, instruction, found.operands)
                rewriter.keep(instruction.replace(operands=names, shape=shape))
                pending[old.name] = result
            elif old.operands and old.operands[0] in pending:
                self._completed(rewriter, old, instruction, pending)
            elif (found_types := self._mixed(old, operands)) is not None:
                made = self._computed(rewriter, instruction, found_types)
                if old.op.start_done.starts_pair:
                    pending[old.name] = old.shape
                else:
                    _forward_converted(rewriter, made, old.shape)
            else:
                rewriter.keep(instruction)
        return rewriter.finish()

    def _of_kind(self, instruction: Instruction, operands: Sequence[Shape]) -> Instruction:
        """A reduction of members' elements by a computation of their own type, if its own is of another kind."""
        op = instruction.op
        if not isinstance(op, ReducingCollective) or not all(operand.is_array for operand in operands):
            return instruction
        reducer = self.module[op.reduction]
        stated = reducer.root_instruction.shape
        types = {operand.dtype for operand in operands}
        if all(t is stated.dtype or (t.is_float and stated.dtype.is_float) for t in types):
            return instruction
        where = self.module.locate(instruction, "to_apply")
        if len(types) > 1:
            raise UnsupportedOpError(
                f"{op.opcode} of operands of several types by {op.reduction}, which reduces {stated.dtype}", where
            )
        (element_type,) = types
        found = self.retyped.get((op.reduction, element_type))
        if found is None:
            found = self._retyped(reducer, element_type)
            if found is None:
                raise UnsupportedOpError(
                    f"{op.opcode} of {element_type} by {op.reduction}, which reduces {stated.dtype} by more than one "
                    f"operation that {element_type} has, too",
                    where,
                )
            self.retyped[op.reduction, element_type] = found
        return instruction.replace(op=op.rename_computations(lambda _: found.name))

    def _retyped(self, reducer: Computation, element_type: ElementType) -> Computation | None:
        """The same operation on scalars of another type; None where the computation is more than one operation."""
        *parameters, root = reducer
        scalar = Shape(element_type)
        taken = {p.name for p in parameters}
        if not all(p.op.role.is_parameter for p in parameters) or len(taken) != 2 or set(root.operands) != taken:
            return None
        try:
            if not (root.op.infer_shape([scalar, scalar], self.program_shape) or root.shape).compatible(scalar):
                return None
        except RuleViolation:
            return None
        instructions = (*(p.replace(shape=scalar) for p in parameters), root.replace(shape=scalar))
        return Computation(
            self.names.fresh(f"{reducer.name}.{element_type}"),
            instructions,
            root.name,
            reducer.execution_thread,
            reducer.span,
        )

    def _mixed(self, instruction: Instruction, operands: Sequence[Shape]) -> Computed | None:
        if not instruction.op.may_mix(instruction.shape, operands, self.program_shape):
            return None
        return instruction.op.verified(instruction.shape, operands, self.program_shape)

    def _hoisted(self, computation: Computation) -> Computation:
        root = computation.root_instruction
        operands = tuple(operand.shape for operand in computation.operands(root))
        found = self._mixed(root, operands)
        if found is None:
            return computation
        self.hoisted[computation.name] = found
        rewriter = Rewriter(computation)
        for instruction in computation:
            if instruction is root:
                rewriter.keep(root.replace(shape=found.shape))
            else:
                number: int = instruction.op.number  # type: ignore[attr-defined]
                rewriter.keep(instruction.replace(shape=found.operands[number]))
        return rewriter.finish()

    def _completed(
        self, rewriter: Rewriter, old: Instruction, instruction: Instruction, pending: dict[str, Shape]
    ) -> None:
        """An update or a done of an instruction that was begun in another type."""
        stated, begun = pending[old.operands[0]], rewriter[instruction.operands[0]].shape
        if old.op.start_done.updates_async:
            rewriter.keep(instruction.replace(shape=begun))
            pending[old.name] = stated
            return
        shape = (begun.elements or ())[1] if old.op.start_done.completes_async else begun
        made = instruction.replace(shape=shape)
        rewriter.keep(made)
        _forward_converted(rewriter, made, stated)

    def _computed(self, rewriter: Rewriter, instruction: Instruction, found: Computed) -> Instruction:
        """Add the instruction in the types in which it is computed."""
        names = _converted_operands(rewriter, instruction, found.operands)
        made = instruction.replace(operands=names, shape=found.shape)
        rewriter.keep(made)
        return made


def _converted_operands(rewriter: Rewriter, instruction: Instruction, wanted: Sequence[Shape]) -> tuple[str, ...]:
    pairs = zip(instruction.operands, wanted, strict=True)
    return tuple(_converted(rewriter, instruction, name, shape) for name, shape in pairs)


def _forward_converted(rewriter: Rewriter, made: Instruction, stated: Shape) -> None:
    """Let the users of an instruction read its result in the types that the text states."""
    name = _converted(rewriter, made, made.name, stated)
    if name != made.name:
        rewriter.forward(made.name, name)


def _converted(rewriter: Rewriter, origin: Instruction, name: str, wanted: Shape) -> str:
    """Add conversions of a value to other floats; the value itself where it has them."""
    have = rewriter[name].shape
    if _types(have) == _types(wanted):
        return name
    if wanted.elements is None:
        return rewriter.add(origin, Convert(), wanted, (name,)).name
    parts = []
    for k, part in enumerate(have.elements or ()):
        element = rewriter.add(origin, GetTupleElement(index=k), part, (name,)).name
        parts.append(_converted(rewriter, origin, element, wanted.elements[k]))
    return rewriter.add(origin, Tuple(), wanted, tuple(parts)).name


def _types(shape: Shape) -> list[ElementType]:
    return [leaf.dtype for leaf in shape.leaves()]
