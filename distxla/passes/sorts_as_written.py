"""Whether the comparators of sorts have keys is decided by the program's text."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ops.comparator import sort_keys
from distxla.ops.sort import Sort
from distxla.passes.module_pass import Pass


class SortsAsWritten(Pass):
    """Marks sorts whose comparators have no keys.

    Keys put NaNs last, merging leaves them where comparisons have it. The reference evaluates the text, so a comparator
    whose keys show only when it has been simplified must not be sorted by them. Expects: the computations of the text.
    """

    name: ClassVar[str] = "sorts-as-written"

    def run(self, module: Module) -> Module:
        def marked(instruction: Instruction) -> Instruction:
            op = instruction.op
            if not isinstance(op, Sort) or sort_keys(module[op.to_apply]) is not None:
                return instruction
            return instruction.replace(op=dataclasses.replace(op, has_no_keys=True))

        if not any(isinstance(i.op, Sort) for c in module.computations for i in c):
            return module
        computations = [dataclasses.replace(c, instructions=tuple(map(marked, c))) for c in module.computations]
        return module.replace(computations=tuple(computations))
