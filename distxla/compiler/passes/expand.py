"""Replace instructions by others that compute them, as their ops say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import ClassVar

from distxla.errors import InternalError
from distxla.ir.computation import Computation
from distxla.ir.effects_order import has_effects
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.names import Names
from distxla.ir.op import Lowering, Op
from distxla.ir.shape import ProgramShape, Shape
from distxla.ops.custom_calls.composed_build import ComposedBuild
from distxla.ops.parameter import Parameter
from distxla.ops.support.executable import executable
from distxla.ops.support.expansion import Build
from distxla.ops.support.rewriter import Rewriter
from distxla.ops.support.run_time_sizes import has_dynamic_dimensions
from distxla.rewrites.step import Pass


class Expand(Pass):
    """Replace every instruction whose lowering is EXPANSION by those of its op's `expand`.

    Ensures: no EXPANSION is left. New instructions have the place and the metadata of the one that they help to
    compute; one of them has its name; instructions before or behind it by control edges are before or behind all of
    them that have effects. Results agree as far as rounding goes: an op's `evaluate` may round elsewhere.
    """

    name: ClassVar[str] = "expand"

    def run(self, module: Module) -> Module:
        if not any(i.op.lowering is Lowering.EXPANSION for c in module.computations for i in c):
            return module
        return _Expansion(module).run()


class _Expansion:
    """One run over one module. done: the new computations; called ones precede their callers."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.names = Names(module.by_name)
        self.done: dict[str, Computation] = {}

    @cached_property
    def is_static(self) -> bool:
        return not has_dynamic_dimensions(self.module)

    def run(self) -> Module:
        for computation in self.module.computations:
            expanded = self.expanded(computation)
            self.done[computation.name] = expanded
        return self.module.replace(computations=tuple(self.done.values()))

    def program_shape(self, name: str) -> ProgramShape:
        return self.done[name].program_shape

    def has_effects(self, instruction: Instruction) -> bool:
        called = instruction.op.called_computations
        effectful = frozenset(name for name in called if any(map(self.has_effects, self.done[name])))
        return has_effects(instruction, effectful)

    def expanded(self, computation: Computation) -> Computation:
        if not any(i.op.lowering is Lowering.EXPANSION for i in computation):
            return computation
        rewriter = Rewriter(computation)
        waits_for: dict[str, tuple[str, ...]] = {}  # expanded instruction -> predecessors of a control successor
        for old in computation:
            instruction = rewriter.current(old)
            if any(p in waits_for for p in old.control_predecessors):
                before = (n for p in old.control_predecessors for n in waits_for.get(p, (rewriter.resolve(p),)))
                instruction = instruction.replace(control_predecessors=tuple(dict.fromkeys(before)))
            if instruction.op.lowering is not Lowering.EXPANSION:
                rewriter.keep(instruction)
                continue
            build = _Build(self, rewriter, instruction)
            result = build.finish(executable(instruction.op).expand(build, instruction))
            if result != old.name:
                rewriter.forward(old.name, result)
            last = [name for name in build.added if self.has_effects(rewriter[name])]
            if not build.added:
                last.extend(instruction.control_predecessors)
            waits_for[old.name] = tuple(dict.fromkeys((*last, result)))
        return rewriter.finish()


class _Build(ComposedBuild):
    """Adds to one computation. origin: the instruction that is expanded."""

    def __init__(self, expansion: _Expansion, rewriter: Rewriter, origin: Instruction, *, nested: bool = False) -> None:
        self.expansion, self.rewriter, self.origin, self.nested = expansion, rewriter, origin, nested
        self.added: list[str] = []

    @property
    def is_static(self) -> bool:
        return self.expansion.is_static

    def shape(self, name: str) -> Shape:
        return self.rewriter[name].shape.without_layout()

    def op(self, name: str) -> Op:
        return self.rewriter[name].op

    def add(self, op: Op, *operands: str, shape: Shape | None = None, name: str | None = None) -> str:
        if name is not None and (name != self.origin.name or self.nested or name in self.added):
            raise InternalError(f"{name} is no name that the expansion of {self.origin.name} may give")
        shape = shape or op.infer_shape([self.shape(o) for o in operands], self.expansion.program_shape)
        if shape is None:
            raise InternalError(f"expanding {self.origin.name}: the shape of {op.opcode} can't be inferred")
        made = Instruction(
            name or self.rewriter.names.fresh(f"{self.origin.name}.{op.opcode}"),
            shape,
            op,
            operands,
            () if self.nested else self.origin.control_predecessors,
            metadata=self.origin.metadata,
            span=self.origin.span,
            attribute_spans=self.origin.attribute_spans,
        )
        if op.lowering is Lowering.EXPANSION:
            inner = _Build(self.expansion, self.rewriter, made, nested=self.nested)
            result = inner.finish(executable(op).expand(inner, made))
            self.added += inner.added
            return result
        self.rewriter.keep(made)
        self.added.append(made.name)
        return made.name

    def computation(self, parameters: Sequence[Shape], body: Callable[[Build, Sequence[str]], str]) -> str:
        name = self.expansion.names.fresh(f"{self.origin.name}.computation")
        inner = _Build(self.expansion, Rewriter(Computation(name, (), "")), self.origin, nested=True)
        taken = [inner.add(Parameter(number=k), shape=shape) for k, shape in enumerate(parameters)]
        root = body(inner, taken)
        self.expansion.done[name] = Computation(name, tuple(inner.rewriter.instructions.values()), root)
        return name

    def called(self, computation: str) -> Computation:
        return self.expansion.done[computation]

    def finish(self, result: str) -> str:
        """The name of the instruction that holds the result; it gets the origin's name unless that is taken."""
        self.rewriter.changed = True
        if self.origin.name in self.added or result not in self.added:
            return result
        instructions = self.rewriter.instructions
        if any(result in instructions[name].operands for name in self.added):
            return result
        made = instructions.pop(result)
        self.added[self.added.index(result)] = self.origin.name
        self.rewriter.keep(made.replace(name=self.origin.name))
        return self.origin.name
