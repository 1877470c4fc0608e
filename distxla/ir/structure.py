"""Equality of computations up to names."""

from __future__ import annotations

from collections.abc import Hashable

from distxla.ir.computation import Computation
from distxla.ir.module import Module


class Structure:
    """Numbers the computations of a module so that two have the same number exactly if they differ in names only.

    Layouts, metadata and spans don't count: nothing that is executed depends on them once bitcasts are gone.
    """

    def __init__(self, module: Module) -> None:
        self.module = module
        self._numbers: dict[str, int] = {}
        self._seen: dict[Hashable, int] = {}

    def number(self, computation: str) -> int:
        """The class of the computation named so."""
        found = self._numbers.get(computation)
        if found is None:
            key = self.key(self.module[computation])
            found = self._numbers[computation] = self._seen.setdefault(key, len(self._seen))
        return found

    def key(self, computation: Computation) -> Hashable:
        """Equal for two computations that differ in names only."""
        position = {instruction.name: i for i, instruction in enumerate(computation)}
        rows = tuple(
            (
                instruction.op.rename_computations(lambda name: f"#{self.number(name)}"),
                instruction.shape.without_layout(),
                tuple(position[o] for o in instruction.operands),
                tuple(sorted(position[o] for o in instruction.control_predecessors)),
            )
            for instruction in computation
        )
        return rows, position[computation.root]
