"""`ExpandedTarget`: a target whose custom-calls are executed as other instructions, in a computation of their own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from distxla.errors import InternalError
from distxla.ir.computation import Computation
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.op import Op, RuleViolation
from distxla.ir.shape import ProgramShape, Shape
from distxla.ops.custom_calls.composed_build import ComposedBuild
from distxla.ops.custom_calls.ffi.config import ConfigError
from distxla.ops.custom_calls.registry import call_obstacle
from distxla.ops.custom_calls.target import Call, CustomCallTarget
from distxla.ops.parameter import Parameter
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.expansion import Build
from distxla.ops.support.registry import op_class

Names = Callable[[str], str]  # from the wanted name to one that is unused


class ExpandedTarget(CustomCallTarget):
    """Says by which instructions its calls are computed; both executors run those.

    The instructions are checked as they are written down: shapes and attributes that don't fit each other are an
    obstacle, so `expand` itself looks only at errors that no instruction of its own would have.
    """

    @abstractmethod
    def expand(self, call: Call, build: CallBuild, *operands: str) -> str:
        """Add instructions that compute the call; the name of the one that has its result.

        Raises ConfigError for features that this version doesn't execute, naming the field.
        """

    def obstacle(self, call: Call) -> str | None:
        try:
            self.expansion(call, _numbered())
        except (ConfigError, RuleViolation) as error:
            return f'custom-call of "{call.name}": {error.args[0]}'
        return None

    def evaluate(self, call: Call, run: Evaluation, *operands: Any) -> Any:
        computations = self.expansion(call, _numbered())
        return run.run_module(Module(call.name, computations, computations[-1].name), *operands)

    def expansion(self, call: Call, fresh: Names) -> tuple[Computation, ...]:
        """The computations to call instead, called ones first; the last one takes the operands and gives the result."""
        if call.op.called_computations:
            raise ConfigError(f"calls computations ({', '.join(call.op.called_computations)}), which it can't be given")
        done: dict[str, Computation] = {}
        build = CallBuild(f"{call.instruction.name}.expanded", call.instruction, done, fresh)
        operands = build.parameters(call.operands)
        root = self.expand(call, build, *operands)
        result = build.shape(root)
        if not result.compatible(call.shape):
            raise ConfigError(f"the result is {result}, the text says {call.shape}")
        build.finish(root)
        return tuple(done.values())


def _numbered() -> Names:
    numbers: Iterator[int] = iter(range(1 << 62))
    return lambda wanted: f"{wanted}.{next(numbers)}"


class CallBuild(ComposedBuild):
    """A `Build` of a new computation that may call targets, too. done: the finished computations, which it may call."""

    def __init__(self, name: str, origin: Instruction, done: dict[str, Computation], fresh: Names) -> None:
        self.name, self.origin, self.done, self.fresh = fresh(name), origin, done, fresh
        self.instructions: dict[str, Instruction] = {}

    @property
    def is_static(self) -> bool:
        return True

    def shape(self, name: str) -> Shape:
        return self.instructions[name].shape

    def op(self, name: str) -> Op:
        return self.instructions[name].op

    def program_shape(self, name: str) -> ProgramShape:
        return self.done[name].program_shape

    def parameters(self, shapes: Sequence[Shape]) -> list[str]:
        return [self.add(Parameter(number=k), shape=shape.without_layout()) for k, shape in enumerate(shapes)]

    def add(self, op: Op, *operands: str, shape: Shape | None = None, name: str | None = None) -> str:
        shapes = [self.shape(operand) for operand in operands]
        if shape is None:
            shape = op.infer_shape(shapes, self.program_shape)
        else:
            op.verify(shape, shapes, self.program_shape)
        if shape is None:
            raise InternalError(f"expanding {self.origin.name}: the shape of {op.opcode} can't be inferred")
        return self._append(op, operands, shape)

    def custom_call(self, target_name: str, config: str, shape: Shape, *operands: str) -> str:
        """Append a call of another target; ConfigError where that can't execute it."""
        custom_call: Any = op_class("custom-call")  # its class asks for targets, so it is in a higher layer
        name = self._append(custom_call(custom_call_target=target_name), operands, shape, config)
        why = call_obstacle(Call(self.instructions[name], tuple(self.shape(operand) for operand in operands)))
        if why is not None:
            raise ConfigError(f"as {why}")
        return name

    def _append(self, op: Op, operands: tuple[str, ...], shape: Shape, config: str | None = None) -> str:
        name = f"{self.origin.name}.{op.opcode}.{len(self.instructions)}"
        self.instructions[name] = Instruction(
            name,
            shape,
            op,
            operands,
            metadata=self.origin.metadata,
            backend_config=config,
            span=self.origin.span,
            attribute_spans=self.origin.attribute_spans,
        )
        return name

    def computation(self, parameters: Sequence[Shape], body: Callable[[Build, Sequence[str]], str]) -> str:
        inner = CallBuild(f"{self.origin.name}.computation", self.origin, self.done, self.fresh)
        return inner.finish(body(inner, inner.parameters(parameters)))

    def called(self, computation: str) -> Computation:
        return self.done[computation]

    def finish(self, root: str) -> str:
        """The computation's name."""
        self.done[self.name] = Computation(self.name, tuple(self.instructions.values()), root)
        return self.name
