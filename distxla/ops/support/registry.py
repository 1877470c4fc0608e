"""opcode -> op class. Every file of `distxla/ops/` registers its classes when it is imported."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TypeVar, dataclass_transform

from distxla.ir.attribute import attribute
from distxla.lazy_dataclass import dataclass
from distxla.ops.support.executable import ExecutableOp
from distxla.similar_words import did_you_mean, nearest

_Error = TypeVar("_Error", bound=Exception)

_OPS: dict[str, type[ExecutableOp]] = {}
_loaded = False
_OPS_FOLDER = "distxla.ops"
_CUSTOM_CALL = "distxla.ops.custom_calls.custom_call"  # the one op that lies with its targets
T = TypeVar("T", bound=type[ExecutableOp])


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(attribute,))
def register(op_class: T) -> T:
    """Class decorator: make it a frozen dataclass and enter it under its opcode."""
    if _has_fields_of_its_own(op_class):
        op_class = dataclass(frozen=True, eq=False, repr=False)(op_class)  # type: ignore[assignment]
    if op_class.opcode in _OPS:
        raise ValueError(f"opcode {op_class.opcode} is registered twice")
    _OPS[op_class.opcode] = op_class
    return op_class


def _has_fields_of_its_own(op_class: type[ExecutableOp]) -> bool:
    """Making a dataclass takes half a millisecond; most opcodes add nothing to the one that they derive from."""
    for ancestor in op_class.__mro__:
        if "__dataclass_params__" in vars(ancestor):
            return False
        if "__annotations__" in vars(ancestor):
            return True
    return True


def op_classes() -> dict[str, type[ExecutableOp]]:
    """All opcodes in alphabetical order."""
    global _loaded
    if not _loaded:
        for found in pkgutil.iter_modules(importlib.import_module(_OPS_FOLDER).__path__):
            importlib.import_module(f"{_OPS_FOLDER}.{found.name}")
        importlib.import_module(_CUSTOM_CALL)
        _loaded = True
    return dict(sorted(_OPS.items()))


def op_class(opcode: str) -> type[ExecutableOp]:
    """The class of an opcode; KeyError if HLO has none."""
    if opcode not in _OPS:
        return op_classes()[opcode]
    return _OPS[opcode]


def with_similar_opcode(error: _Error, opcode: str) -> _Error:
    """The error about an opcode that HLO lacks, with a note that proposes the nearest one, if any is near."""
    if (near := nearest(opcode, op_classes())) is not None:
        error.add_note(did_you_mean(near))
    return error
