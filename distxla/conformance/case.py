"""A case: a program, what its devices are given, and what the reference says that they get."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import numpy as np

from distxla.conformance.values import Array, Values
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass
from distxla.oracle.lockstep import run_reference
from distxla.text.parser import parse_module


@dataclass(frozen=True)
class Case:
    """One program of the suite.

    name: stable, `all-reduce/subgroups/bf16/max`.  text: HLO, with the counts in its header.  operands: the shapes of
    the parameters.  values: what makes the arrays; the same in every process.  any_order: floats are summed or
    multiplied, and round, so that results depend on the order of the members: they are compared within a tolerance.
    All other results are compared bit for bit.
    """

    name: str
    text: str
    replicas: int
    partitions: int
    operands: tuple[Shape, ...]
    values: Values
    any_order: bool = False

    @property
    def devices(self) -> int:
        return self.replicas * self.partitions

    def module(self) -> Module:
        """The parsed program."""
        return parse_module(self.text, f"{self.name}.hlo")

    def arguments(self) -> list[list[Array]]:
        """args[d][k]: parameter k on the device with the flattened id d."""
        rng = np.random.default_rng(crc32(self.name.encode()))
        by_operand = [self.values(rng, shape, self.devices, k) for k, shape in enumerate(self.operands)]
        return [[arrays[device] for arrays in by_operand] for device in range(self.devices)]

    def expected(self) -> list[list[Array]]:
        """outs[d][k]: leaf k of the result on device d, by the reference. Blocks for some milliseconds."""
        outs = run_reference(self.module(), self.arguments(), Counts(self.replicas, self.partitions))
        return [[np.asarray(leaf) for leaf in row if leaf is not None] for row in outs]

    def result_shapes(self) -> list[Shape]:
        """The leaves of the result, as files number them."""
        shape: Any = self.module().entry_computation.root_instruction.shape
        return list(shape.elements) if shape.is_tuple else [shape]
