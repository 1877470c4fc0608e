"""Class of op -> rule. A class without a rule has that of the nearest class that it derives from."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable

from distxla.ir.instruction import Instruction
from distxla.ir.op import Op
from distxla.lazy_dataclass import dataclass
from distxla.proofs.relations.inference import Inference
from distxla.proofs.relations.relation import NoRule, Value

Infer = Callable[[Inference, Instruction, list[Value]], Value]


@dataclass(frozen=True)
class Rule:
    """infer: the value of an instruction from its operands' values; NoRule where it can't be inferred.

    takes_unknown: whether operands may be Unknown, as those of a tuple.  takes_guarded: whether they may be Guarded.
    """

    infer: Infer
    takes_unknown: bool = False
    takes_guarded: bool = False


_RULES: dict[type[Op], Rule] = {}
_loaded: list[bool] = []


def rule(*classes: type[Op], takes_unknown: bool = False, takes_guarded: bool = False) -> Callable[[Infer], Infer]:
    """Decorator: the function is the rule of these classes of ops."""

    def declared(infer: Infer) -> Infer:
        for op_class in classes:
            assert op_class not in _RULES, op_class
            _RULES[op_class] = Rule(infer, takes_unknown, takes_guarded)
        return infer

    return declared


def rule_of(op_class: type[Op]) -> Rule:
    """The rule of a class of ops; for those without one, a rule that says so."""
    if not _loaded:
        import distxla.proofs.rules as package

        for found in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{found.name}")
        _loaded.append(True)
    for ancestor in op_class.__mro__:
        if ancestor in _RULES:
            return _RULES[ancestor]
    return _NONE


def _none(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    raise NoRule(f"there is no rule for {instruction.opcode}")


_NONE = Rule(_none)


__all__ = ["Rule", "rule", "rule_of"]
