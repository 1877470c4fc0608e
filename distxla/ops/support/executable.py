"""`ExecutableOp`: the base of every opcode's class, with the methods that both executors call."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from distxla.ir.counts import Counts
from distxla.ir.dynamic_shape import static_shape
from distxla.ir.effects import Effects
from distxla.ir.instruction import Instruction
from distxla.ir.op import Lowering, Op, T
from distxla.ir.op_traits import OperandCount, exactly
from distxla.ir.replica_groups import GroupMode
from distxla.ir.shape import Called, Shape
from distxla.lazy_dataclass import dataclass
from distxla.ops.support.emit import ArrayRef, Buffer, Emitter, Index, KernelEmitter, Value
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.expansion import Build


@dataclass(frozen=True, eq=False, repr=False)
class ExecutableOp(Op):
    """A subclass is decorated with `@register` (ops/support/registry.py), which makes it a frozen dataclass."""

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        """The result by NumPy: an array (or a tuple of results) from operand arrays (or tuples). The oracle.

        Clarity is the only aim. Operands must not be modified. `run` gives shapes and called computations.
        """
        raise self.unsupported()

    def emit_element(self, emit: Emitter, shape: Shape, index: Index, *operands: ArrayRef) -> Value:
        """ELEMENT ops: the value of the element at `index` (one i64 per dimension) of the result of `shape`."""
        raise self.unsupported()

    def emit_kernel(self, emit: KernelEmitter, results: tuple[Buffer, ...], *operands: Buffer) -> None:
        """KERNEL ops: fill the result buffers (one a leaf of the result shape)."""
        raise self.unsupported()

    def expand(self, build: Build, instruction: Instruction) -> str:
        """EXPANSION ops: add instructions that compute `instruction`; the name of the one that has its result."""
        raise self.unsupported()

    def shows_stores(self, shape: Shape, operands: Sequence[Shape]) -> bool:
        """Whether a checked program sees NaN and Inf as the kernel stores them; else it looks through results later.

        All that the kernel writes, or all that it does not copy, must go through the `store` of its results' arrays.
        """
        return self.lowering in (Lowering.ELEMENT, Lowering.CALL) or self.in_place.writes_only_a_part

    # --- the instruction's annotations -----------------------------------------------------------------------------

    def verify_annotations(self, instruction: Instruction) -> None:
        """Check the instruction's annotations; most ops have no rules for them."""

    def instruction_obstacle(self, instruction: Instruction, operands: Sequence[Shape]) -> str | None:
        """`obstacle`, for ops that have to look at the instruction's annotations, too."""
        return self.obstacle(instruction.shape, operands)

    def evaluation_obstacle(self, instruction: Instruction, operands: Sequence[Shape]) -> str | None:
        """The reason why the reference can't evaluate the instruction, in a sentence; None if it can."""
        if type(self).evaluate is not ExecutableOp.evaluate or self.role.is_parameter:
            return None
        return self.obstacle(instruction.shape, operands) or f"this version cannot evaluate {self.opcode}"

    def code_annotations(self, instruction: Instruction) -> Any:
        """Those of the instruction's annotations that its code depends on, hashable; None for none."""
        return None


@dataclass(frozen=True, eq=False, repr=False)
class FirstOperand(ExecutableOp):
    """Common to the ops whose result is their first operand, in its place."""

    lowering: ClassVar[Lowering] = Lowering.ALIAS
    operand_count: ClassVar[OperandCount] = exactly(1)

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        return operands[0].without_layout()

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        return operands[0]

    def result_leaves(self, operands: Sequence[Shape], leaves: Sequence[Sequence[T]]) -> tuple[T, ...]:
        return tuple(leaves[0])


def executable(op: Op) -> ExecutableOp:
    """The op of an instruction, to be executed: every opcode that is registered is one."""
    assert isinstance(op, ExecutableOp)
    return op


@dataclass(frozen=True, eq=False, repr=False)
class CollectiveOp(ExecutableOp):
    """Common to the ops whose groups of devices act together."""

    is_collective: ClassVar[bool] = True
    effects: ClassVar[Effects] = Effects.COLLECTIVE
    lowering: ClassVar[Lowering] = Lowering.COMMUNICATION
    needs_shape: ClassVar[bool] = True
    # whether groups that are written out must hold every id; devices of the others get zeros
    covers_all: ClassVar[bool] = True

    @property
    @abstractmethod
    def group_mode(self) -> GroupMode:
        """The meaning of the ids in the groups for this instruction."""

    @abstractmethod
    def device_groups(self, counts: Counts) -> tuple[tuple[int, ...], ...]:
        """Ordered flattened device ids of every group; each device is in exactly one."""

    def device_pairs(self, counts: Counts) -> tuple[tuple[int, int], ...]:
        """Flattened (source, target) of every pair; none where whole groups exchange."""
        return ()

    def silent_devices(self, counts: Counts) -> tuple[int, ...]:
        """Flattened ids of the devices in no group: they receive nothing, and get zeros."""
        return ()

    def check_size(self, shape: Shape, operands: Sequence[Shape], size: int) -> None:
        """RuleViolation where the stated result does not fit groups of `size`."""

    @abstractmethod
    def evaluate_group(
        self, members: tuple[int, ...], operands: Sequence[tuple[Any, ...]], run: Evaluation
    ) -> Sequence[Any]:
        """The results of all members of one group from all their operands, both in group order. The oracle."""

    def dynamic_result(self, shape: Shape, operands: Sequence[Shape], called: Called) -> Shape:
        """Each result keeps the dynamic dimensions of the operand that it is shaped like."""
        leaves = [
            operand if operand.dims == leaf.dims else static_shape(leaf)
            for leaf, operand in zip(shape.leaves(), operands)
        ]
        return Shape.tuple(tuple(leaves)) if shape.is_tuple else leaves[0]

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        return run.join(operands)
