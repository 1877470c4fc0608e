"""Rebuild a computation while walking it in order: the tool that passes and other rewriting code share."""

from __future__ import annotations

from distxla.ir.computation import Computation
from distxla.ir.instruction import Instruction
from distxla.ir.names import Names
from distxla.ir.op import Op
from distxla.ir.shape import Shape


class Rewriter:
    """Collects the instructions of the computation's new version.

    Walk the old instructions in order; `current` gives each with its operands already replaced. Then either `keep` it,
    or `forward` its name to another instruction. `add` puts helper instructions before it.
    """

    def __init__(self, computation: Computation) -> None:
        self.computation = computation
        self.names = Names(computation.by_name)
        self.instructions: dict[str, Instruction] = {}
        self._forward: dict[str, str] = {}
        self.changed = False

    def __getitem__(self, name: str) -> Instruction:
        """A new instruction by its name."""
        return self.instructions[name]

    def resolve(self, name: str) -> str:
        """The current name of an old name's value."""
        while (target := self._forward.get(name)) is not None:
            name = target
        return name

    def current(self, instruction: Instruction) -> Instruction:
        """An old instruction with its operands and control predecessors as they are called now."""
        operands = tuple(self.resolve(o) for o in instruction.operands)
        predecessors = instruction.control_predecessors
        if predecessors:
            predecessors = tuple(dict.fromkeys(self.resolve(p) for p in predecessors))
        if operands == instruction.operands and predecessors == instruction.control_predecessors:
            return instruction
        return instruction.replace(operands=operands, control_predecessors=predecessors)

    def keep(self, instruction: Instruction) -> None:
        """Append; a name that the old computation has now refers to the new instruction."""
        self.instructions[instruction.name] = instruction

    def add(self, origin: Instruction, op: Op, shape: Shape, operands: tuple[str, ...], name: str = "") -> Instruction:
        """Append a new instruction that helps to express `origin`, whose place in the source it shares."""
        made = Instruction(
            self.names.fresh(name or f"{origin.name}.{op.opcode}"),
            shape,
            op,
            operands,
            metadata=origin.metadata,
            span=origin.span,
        )
        self.instructions[made.name] = made
        self.changed = True
        return made

    def forward(self, name: str, target: str) -> None:
        """Let users of `name` read `target`."""
        self._forward[name] = target
        self.changed = True

    def finish(self) -> Computation:
        """The new computation; the old object when all instructions are the old ones."""
        old = self.computation.instructions
        if (
            not self.changed
            and len(self.instructions) == len(old)
            and all(a is b for a, b in zip(self.instructions.values(), old, strict=True))
        ):
            return self.computation
        return Computation(
            self.computation.name,
            tuple(self.instructions.values()),
            self.resolve(self.computation.root),
            self.computation.execution_thread,
            self.computation.span,
        )
