"""One side of a proof: the relations of all values of a module, instruction by instruction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from distxla.ir.computation import Computation
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.lazy_dataclass import replace
from distxla.proofs.relations.inference import Inference, LoopRules
from distxla.proofs.relations.relation import Guarded, NoRule, Relation, Unknown, Value
from distxla.proofs.relations.space import Space
from distxla.proofs.rules.registry import rule_of


class Deduction(Inference):
    """Runs the rules."""

    def __init__(self, space: Space, module: Module, loops: LoopRules) -> None:
        super().__init__(space, module, loops)
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

    def values(self) -> Iterator[tuple[Instruction, Value]]:
        """Of all instructions, in the order of execution; of those of loops any iteration's."""
        anywhere = {i.name: i for c in self.module.computations for i in c}
        for path, value in self.found.items():
            caller = self.module[path[-2].rpartition("/")[2] if len(path) > 1 else self.module.entry]
            # those of computations of scalars have the path of the instruction that applies them
            yield caller.by_name.get(path[-1]) or anywhere[path[-1]], value

    def relations(self) -> Iterator[tuple[Instruction, Relation]]:
        """Of instructions with one array, as far as they are known, in the order of execution."""
        return ((instruction, value) for instruction, value in self.values() if isinstance(value, Relation))

    def called(self, instruction: Instruction, name: str, arguments: Sequence[Value]) -> Value:
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
        body = self.module[name]
        wide = [i.replace(shape=i.shape.with_dims(dims)) if i.shape.is_array else i for i in body]
        return self.run(replace(body, instructions=tuple(wide)), arguments)
