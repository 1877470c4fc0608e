"""Join the parts of a collective that a TPU schedule spreads over several fusions."""

from __future__ import annotations

from typing import ClassVar

from distxla.ir.module import Module
from distxla.rewrites.spread_collectives import with_spread_collectives
from distxla.rewrites.step import Pass


class JoinSpreadCollectives(Pass):
    """Let a collective of which several fusions hold a part begin in the first of them and end in the last.

    Ensures: between the two are only other instructions.
    """

    name: ClassVar[str] = "join-spread-collectives"

    def run(self, module: Module) -> Module:
        return with_spread_collectives(module)
