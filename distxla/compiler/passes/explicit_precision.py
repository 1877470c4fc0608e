"""Write conversions where an instruction's floats have several types."""

from __future__ import annotations

from typing import ClassVar

from distxla.ir.module import Module
from distxla.rewrites.explicit_precision import with_explicit_precision
from distxla.rewrites.step import Pass


class ExplicitPrecision(Pass):
    """Let every instruction have floats of the types that its own rules ask for, by converts before and behind it.

    Expects: a verified module.  Ensures: `Op.verify` holds without conversions.
    """

    name: ClassVar[str] = "explicit-precision"

    def run(self, module: Module) -> Module:
        return with_explicit_precision(module)
