"""Marks sorts whose comparators, as written, have no keys, before simplification changes them."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from distxla.ir.module import Module
from distxla.ops.sort import Sort
from distxla.ops.sorting.comparator import sort_keys
from distxla.ops.support.rewriter import Rewriter
from distxla.rewrites.step import Pass


class SortsAsWritten(Pass):
    """Marks sorts whose comparators have no keys.

    Keys put NaNs last, merge sort leaves them where the comparisons put them. The reference evaluates the text, so a
    comparator whose keys show only when it has been simplified must not be sorted by them.
    Expects: the computations of the text.
    """

    name: ClassVar[str] = "sorts-as-written"

    def run(self, module: Module) -> Module:
        new = []
        for computation in module.computations:
            rewriter = Rewriter(computation)
            for instruction in computation:
                op = instruction.op
                if isinstance(op, Sort) and not op.has_no_keys and sort_keys(module[op.to_apply]) is None:
                    instruction = instruction.replace(op=dataclasses.replace(op, has_no_keys=True))
                rewriter.keep(instruction)
            new.append(rewriter.finish())
        return module.with_computations(new)
