"""The argument of rules: the module, the devices, arithmetic on relations, and how to run other computations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import Protocol

from distxla.ir.element_type import ElementType
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.proofs.relations.arithmetic import Arithmetic
from distxla.proofs.relations.combining import Label, Operation, combined, products
from distxla.proofs.relations.relation import Relation, Value
from distxla.proofs.relations.space import Doubt, Space

Given = Sequence[tuple[Relation, tuple[Label, ...]]]
Reshape = tuple[tuple[int, ...], tuple[int, ...]]  # dimension sizes of operand and result


class LoopRules(Protocol):
    """Loops, and what else depends on which side of a proof a program is."""

    def reshapes_like(self, relation: Relation, dims: tuple[int, ...]) -> Sequence[Reshape | None]:
        """What a reshape may be in the unsharded program, likely ones first; None: as on the device."""

    def loop(self, inference: Inference, instruction: Instruction, operand: Value) -> Value:
        """The value of a `while`."""


class Inference(ABC):
    """One side of a proof, as a rule sees it. path: the calls in which the present instruction is."""

    def __init__(self, space: Space, module: Module, loops: LoopRules) -> None:
        self.space, self.module, self.loops = space, module, loops
        self.arithmetic = Arithmetic(space, self.doubted)
        self.path: tuple[str, ...] = ()
        self.instruction: Instruction | None = None

    @abstractmethod
    def called(self, instruction: Instruction, name: str, arguments: Sequence[Value]) -> Value:
        """The value of a computation that the instruction calls."""

    @abstractmethod
    def run_elements(self, name: str, arguments: Sequence[Value], dims: tuple[int, ...]) -> Value:
        """The value of a computation of scalars, applied to arrays element by element."""

    def doubted(self, relation: Relation, why: str) -> Relation:
        """The relation of a part that is taken for the whole, under the doubt that it is not."""
        assert self.instruction is not None
        doubt = Doubt(self.instruction, why, self.path)
        self.space.doubts.append(doubt)
        number = len(self.space.doubts) - 1
        return relation.changed(parts=None, assumed=relation.assumed | {number})

    def whole(self, relation: Relation) -> Relation:
        """With scale 1 and without parts, for operations that can't go through sums."""
        assert self.instruction is not None
        return self.arithmetic.as_whole(relation, f"an operand of {self.instruction.opcode}")

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
        arithmetic = self.arithmetic
        factors = [arithmetic._summable(given[k][0]) for k in linear]
        operands = [
            (factors[linear.index(k)].changed(pieces=None) if k in linear else self.whole(relation), labels)
            for k, (relation, labels) in enumerate(given)
        ]
        operation = Operation(
            key, element_type, tuple(operands), result, dims, kind, frozenset(linear), whole, made or {}
        )
        made_of = combined(self.space, operation)
        relation = arithmetic.multiplied(made_of.relation, factors, "multiplied by another one")
        relation = relation.changed(scale=relation.scale * made_of.times)
        if made_of.columns == frozenset([self.space.ones]):
            return relation
        columns = products(self.space.columns(relation), made_of.columns)
        return self.space.with_columns(relation, kind or "add", columns)

    def opaque(
        self, key: Hashable, operands: Sequence[Relation], shapes: Sequence[tuple[ElementType, tuple[int, ...]]]
    ) -> tuple[Relation, ...]:
        """Results of an operation of which nothing is known but that it is a function of its operands: all devices must
        have all of them."""
        given: list[tuple[Relation, tuple[Label, ...]]] = []
        labels: list[Label] = []
        for k, operand in enumerate(operands):
            names: tuple[Label, ...] = tuple((k, d) for d in range(len(operand.dims)))
            labels += names
            given.append((operand, names))
        results = []
        for number, (element_type, dims) in enumerate(shapes):
            names = tuple(("result", d) for d in range(len(dims)))
            results.append(
                self.structured(
                    (key, number),
                    element_type,
                    given,
                    names,
                    dims,
                    whole=frozenset(labels),
                    made=dict(zip(names, dims, strict=True)),
                )
            )
        return tuple(results)
