"""One side of a proof: the relations of all values of a module, instruction by instruction."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from distxla.ir.computation import Computation
from distxla.ir.element_type import ElementType
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.lazy_dataclass import replace
from distxla.proofs.loops import FollowingLoops, ReferenceLoops
from distxla.proofs.relations.arithmetic import Arithmetic
from distxla.proofs.relations.combining import Label, Operation, combined, products
from distxla.proofs.relations.inference import Given
from distxla.proofs.relations.relation import Guarded, NoRule, Relation, Unknown, Value
from distxla.proofs.relations.space import Doubt, Space
from distxla.proofs.rules.registry import rule_of


class Deduction:
    """Rules get this: the module, the devices, arithmetic on relations, and how to run other computations."""

    def __init__(self, space: Space, module: Module, loops: ReferenceLoops | FollowingLoops) -> None:
        self.space, self.module, self.loops = space, module, loops
        self.arithmetic = Arithmetic(space, self.doubted)
        self.path: tuple[str, ...] = ()
        self.instruction: Instruction | None = None
        self.found: dict[tuple[str, ...], Value] = {}  # of the last run, by path and name of the instruction

    def run(self, computation: Computation, arguments: Sequence[Value]) -> Value:
        """The value of the root, from those of the parameters."""
        values: dict[str, Value] = {}
        for instruction in computation:
            if instruction.op.role.is_parameter:
                value = arguments[instruction.op.number]  # type: ignore[attr-defined]
            else:
                value = self.value(instruction, [values[o] for o in instruction.operands])
            values[instruction.name] = value
            self.found[(*self.path, instruction.name)] = value
        return values[computation.root]

    def called(self, instruction: Instruction, name: str, arguments: Sequence[Value]) -> Value:
        """The value of a computation that the instruction calls."""
        before = self.path
        self.path = (*before, f"{instruction.name}/{name}")
        try:
            return self.run(self.module[name], arguments)
        finally:
            self.path = before

    def value(self, instruction: Instruction, operands: Sequence[Value]) -> Value:
        """The value of one instruction; Unknown where there is no rule for it, or for what it is made of."""
        rule = rule_of(type(instruction.op))
        if not rule.takes_unknown:
            for operand in operands:
                if isinstance(operand, Unknown):
                    return operand
                if isinstance(operand, Guarded) and not rule.takes_guarded:
                    return Unknown(
                        instruction, "it takes elements of an array by positions outside of the device's part"
                    )
        if any(leaf.dynamic and any(leaf.dynamic) for leaf in instruction.shape.leaves() if leaf.is_array):
            return Unknown(instruction, "dimension sizes that are known at run time only")
        before, self.instruction = self.instruction, instruction
        try:
            return rule.infer(self, instruction, list(operands))
        except NoRule as error:
            return Unknown(instruction, str(error))
        finally:
            self.instruction = before

    def run_elements(self, name: str, arguments: Sequence[Value], dims: tuple[int, ...]) -> Value:
        """The value of a computation of scalars, applied to arrays element by element."""
        body = self.module[name]
        wide = [i.replace(shape=i.shape.with_dims(dims)) if i.shape.is_array else i for i in body]
        return self.run(replace(body, instructions=tuple(wide)), arguments)

    # --- for rules -----------------------------------------------------------------------------------------------

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


__all__ = ["Deduction"]
