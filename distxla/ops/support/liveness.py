"""Which instructions of a computation share values, and where each value is read last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cached_property

from distxla.errors import CompileError
from distxla.ir.computation import Computation
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.op import NO_MEMORY, Lowering
from distxla.lazy_dataclass import dataclass, field

Value = int | None  # a number within the computation; None for a token, which has no memory
FOREVER = 1 << 60
LOOP_BODY = 1  # of the computations that a loop calls: its condition, its body


@dataclass
class Values:
    """leaves: for each instruction the values of its result's leaves; aliases of one another have the same ones.

    producer: value -> instruction and leaf that computes it (parameters included).  defined: value -> position of
    that instruction.  last_use: value -> position of the last instruction that reads it, FOREVER for the root's.
    """

    leaves: dict[str, tuple[Value, ...]] = field(default_factory=dict)
    producer: list[tuple[Instruction, int]] = field(default_factory=list)
    defined: list[int] = field(default_factory=list)
    last_use: list[int] = field(default_factory=list)
    parameters: tuple[tuple[Value, ...], ...] = ()
    root: tuple[Value, ...] = ()
    _counted: tuple[Instruction, tuple[Value, ...], Counter[Value]] | None = None

    @property
    def invariant(self) -> frozenset[int]:
        """Of a computation whose one parameter has its result's shape: leaves that it passes on as they are."""
        return frozenset(
            k
            for k, (root, given) in enumerate(zip(self.root, self.parameters[0], strict=True))
            if root is not None and root == given
        )

    def operands(self, instruction: Instruction) -> tuple[Value, ...]:
        """The operands' leaves, one after the other."""
        return tuple(value for operand in instruction.operands for value in self.leaves[operand])

    def counted_operands(self, instruction: Instruction) -> tuple[tuple[Value, ...], Counter[Value]]:
        """The same, and how often each value is among them; cached, since callers ask for one leaf after the other."""
        if self._counted is None or self._counted[0] is not instruction:
            operands = self.operands(instruction)
            self._counted = instruction, operands, Counter(operands)
        return self._counted[1:]

    @cached_property
    def root_counts(self) -> Counter[Value]:
        """How often each value is a leaf of the result."""
        return Counter(self.root)


def is_alias(computation: Computation, instruction: Instruction) -> bool:
    """Whether the instruction runs no code: its result is its operands' memory."""
    op = instruction.op
    if op.lowering is Lowering.ALIAS:
        return True
    if op.lowering is not Lowering.ELEMENT or not instruction.operands:
        return False
    return op.is_view(instruction.shape, tuple(o.shape for o in computation.operands(instruction)))


def analyse(module: Module, computation: Computation, of: Callable[[str], Values]) -> Values:
    """Number the values of a computation; of: the values of a computation by name.

    A leaf of a loop's state that its body passes on unchanged is the initial value itself.
    """
    values = Values()

    def new(instruction: Instruction, position: int) -> tuple[Value, ...]:
        made: list[Value] = []
        for leaf, shape in enumerate(instruction.shape.leaves()):
            if not shape.is_array:
                made.append(None)
                continue
            made.append(len(values.producer))
            values.producer.append((instruction, leaf))
            values.defined.append(position)
            values.last_use.append(position)
        return tuple(made)

    for position, instruction in enumerate(computation):
        op = instruction.op
        if op.role.is_parameter:
            leaves = new(instruction, -1)
        elif all(not leaf.is_array for leaf in instruction.shape.leaves()):
            leaves = (None,) * instruction.shape.leaf_count
        elif op.lowering is Lowering.ALIAS:
            operands = computation.operands(instruction)
            shapes = tuple(o.shape for o in operands)
            leaves = op.result_leaves(shapes, tuple(values.leaves[o.name] for o in operands))
            _check_leaves(module, instruction, leaves)
        elif is_alias(computation, instruction):
            leaves = values.leaves[instruction.operands[0]]
        else:
            leaves = new(instruction, position)
            if op.role.is_loop:
                initial = values.leaves[instruction.operands[0]]
                unchanged = of(op.called_computations[LOOP_BODY]).invariant
                leaves = tuple(initial[k] if k in unchanged else leaf for k, leaf in enumerate(leaves))
            elif op.lowering is Lowering.COMMUNICATION:
                given = values.operands(instruction)
                shapes = tuple(o.shape for o in computation.operands(instruction))
                aliased = op.aliased_leaves(instruction.shape, shapes)
                leaves = tuple(
                    leaf if k is None else None if k == NO_MEMORY else given[k]
                    for leaf, k in zip(leaves, aliased, strict=True)
                )
        values.leaves[instruction.name] = leaves
        if not is_alias(computation, instruction):
            for value in values.operands(instruction):
                if value is not None:
                    values.last_use[value] = position
    values.parameters = tuple(values.leaves[p.name] for p in computation.parameters)
    values.root = values.leaves[computation.root]
    for value in values.root:
        if value is not None:
            values.last_use[value] = FOREVER
    return values


def overwritable(values: Values, instruction: Instruction, leaf: int) -> Value:
    """The operand value whose memory result leaf `leaf` could take over if it has no later reader, or None."""
    if instruction.op.role.is_loop:
        number = leaf
    elif (in_place := instruction.op.in_place.operand) is not None:
        number = sum(len(values.leaves[o]) for o in instruction.operands[:in_place]) + leaf
    else:
        return None
    operands, times = values.counted_operands(instruction)
    if number >= len(operands):
        return None
    value = operands[number]
    if value is None or times[value] > 1:
        return None
    producer, producer_leaf = values.producer[value]
    fits = producer.shape.leaf(producer_leaf).byte_size == instruction.shape.leaf(leaf).byte_size
    return value if fits else None


def _check_leaves(module: Module, instruction: Instruction, leaves: tuple[Value, ...]) -> None:
    expected = instruction.shape.leaf_count
    if len(leaves) != expected:
        raise CompileError(
            f"{instruction.name}: {instruction.opcode} has {expected} leaves, its rule gives {len(leaves)}",
            module.locate(instruction),
        )
