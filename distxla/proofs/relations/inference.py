"""The argument of rules: the module, the devices, arithmetic on relations, and how to run other computations."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Protocol

from distxla.ir.element_type import ElementType
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.proofs.relations.arithmetic import Arithmetic
from distxla.proofs.relations.combining import Label
from distxla.proofs.relations.relation import Relation, Value
from distxla.proofs.relations.space import Space

Given = Sequence[tuple[Relation, tuple[Label, ...]]]
Reshape = tuple[tuple[int, ...], tuple[int, ...]]  # dimension sizes of operand and result


class LoopRules(Protocol):
    """Loops, and what else depends on which side of a proof a program is."""

    def reshapes_like(self, relation: Relation, dims: tuple[int, ...]) -> Sequence[Reshape | None]:
        """What a reshape may be in the unsharded program, likely ones first; None: as on the device."""

    def loop(self, inference: Inference, instruction: Instruction, operand: Value) -> Value:
        """The value of a `while`."""


class Inference(Protocol):
    """One side of a proof, as a rule sees it."""

    @property
    def space(self) -> Space: ...

    @property
    def module(self) -> Module: ...

    @property
    def loops(self) -> LoopRules: ...

    @property
    def arithmetic(self) -> Arithmetic: ...

    @property
    def path(self) -> tuple[str, ...]:
        """The calls in which the present instruction is."""

    def called(self, instruction: Instruction, name: str, arguments: Sequence[Value]) -> Value:
        """The value of a computation that the instruction calls."""

    def run_elements(self, name: str, arguments: Sequence[Value], dims: tuple[int, ...]) -> Value:
        """The value of a computation of scalars, applied to arrays element by element."""

    def doubted(self, relation: Relation, why: str) -> Relation:
        """The relation of a part that is taken for the whole, under the doubt that it is not."""

    def whole(self, relation: Relation) -> Relation:
        """With scale 1 and without parts, for operations that can't go through sums."""

    def structured(
        self,
        key: Hashable,
        element_type: ElementType,
        given: Given,
        result: tuple[Label, ...],
        dims: tuple[int, ...],
        *,
        linear: Sequence[int] = (),
        kind: str | None = None,
        whole: frozenset[Label] = frozenset(),
        made: Mapping[Label, int] | None = None,
    ) -> Relation:
        """The result of an operation on labelled dimensions (combining.py) that is linear in each of the operands
        `linear`; the others must be whole."""

    def opaque(
        self, key: Hashable, operands: Sequence[Relation], shapes: Sequence[tuple[ElementType, tuple[int, ...]]]
    ) -> tuple[Relation, ...]:
        """Results of an operation of which nothing is known but that it is a function of its operands: all devices must
        have all of them."""


__all__ = ["Given", "Inference", "LoopRules", "Reshape"]
