"""The verifier's rules about shardings: each fits its value (`sharding.C1` to `C4`, ops/support/sharding_rules.py), and
where a value enters and leaves a called computation they agree (`sharding.C5`)."""

from __future__ import annotations

from collections.abc import Sequence

from distxla.errors import HloSyntaxError, VerificationError
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.op import RuleViolation
from distxla.ops.control_flow import While
from distxla.ops.domain import Domain
from distxla.ops.support.sharding_rules import check_sharding, meaning
from distxla.text.shardings import parse_domain


def verify_shardings(module: Module, partitions: int | None) -> None:
    """Raise VerificationError for the first sharding that breaks a rule.  partitions: None where unknown."""
    for computation in module.computations:
        for i in computation:
            try:
                if i.sharding is not None:
                    check_sharding(i.sharding, i.shape, partitions)
                if isinstance(i.op, Domain):
                    for sharding in parse_domain(i.op.domain):
                        check_sharding(sharding, i.shape, partitions, "domain")
            except RuleViolation as violation:
                raise VerificationError(violation.message, module.locate(i, violation.at)) from None
            except HloSyntaxError as error:
                raise VerificationError(f"domain.C1: {error.message}", module.locate(i, "domain")) from None
            if isinstance(i.op, While):
                body, condition = module[i.op.body], module[i.op.condition]
                parameters = [*body.parameters, *condition.parameters]
                _agree(module, i, [i, *parameters, body.root_instruction])
            elif i.op.role.is_conditional:
                _agree(module, i, [i, *(module[name].root_instruction for name in i.op.called_computations)])


def _agree(module: Module, caller: Instruction, values: Sequence[Instruction]) -> None:
    """C5: those of the values that have a sharding have the same one."""
    first: Instruction | None = None
    for i in values:
        if i.sharding is None:
            continue
        first = first or i
        assert first.sharding is not None
        if meaning(i.sharding, i.shape) != meaning(first.sharding, first.shape):
            text = f"sharding.C5: {first.name} is {first.sharding.text} and {i.name} {i.sharding.text}"
            raise VerificationError(
                f"{text}; both are a state or a result of {caller.name}", module.locate(i, "sharding")
            )
