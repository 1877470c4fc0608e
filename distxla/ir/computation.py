"""A computation: instructions in an order that defines before it uses."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from distxla.ir.instruction import Instruction, Span
from distxla.ir.shape import ProgramShape
from distxla.lazy_dataclass import dataclass, field


@dataclass(frozen=True)
class Computation:
    """instructions: text order, operands before users; it is the schedule where the module says is_scheduled.

    root: name of the result's instruction. Parameters are the instructions whose op is `parameter`.
    execution_thread: of `}, execution_thread="..."`, None for the main thread.
    """

    name: str
    instructions: tuple[Instruction, ...]
    root: str
    execution_thread: str | None = None
    span: Span | None = field(default=None, compare=False)

    def __iter__(self) -> Iterator[Instruction]:
        return iter(self.instructions)

    def __getitem__(self, name: str) -> Instruction:
        return self.by_name[name]

    @cached_property
    def by_name(self) -> dict[str, Instruction]:
        return {i.name: i for i in self.instructions}

    @cached_property
    def root_instruction(self) -> Instruction:
        return self.by_name[self.root]

    @cached_property
    def parameters(self) -> tuple[Instruction, ...]:
        """In order of their numbers."""
        found = [i for i in self.instructions if i.op.role.is_parameter]
        return tuple(sorted(found, key=lambda i: i.op.number))  # type: ignore[attr-defined]

    @cached_property
    def users(self) -> dict[str, tuple[str, ...]]:
        """name -> names of the instructions that have it as an operand, in order, each once."""
        users: dict[str, dict[str, None]] = {i.name: {} for i in self.instructions}
        for instruction in self.instructions:
            for operand in instruction.operands:
                users[operand][instruction.name] = None
        return {name: tuple(found) for name, found in users.items()}

    @cached_property
    def program_shape(self) -> ProgramShape:
        return ProgramShape(tuple(p.shape for p in self.parameters), self.root_instruction.shape)

    def operands(self, instruction: Instruction) -> tuple[Instruction, ...]:
        return tuple(self.by_name[o] for o in instruction.operands)
