"""A program that is compared, and its devices' parts of whole arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distxla.errors import ArgumentError
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.ir.shards import GlobalArray
from distxla.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Program:
    """module: of each device.  parameters, results: how the whole arrays are cut; None where that is not known, and of
    a program of one device.  arguments: a name for each parameter, equal for those of both programs that are the same
    argument; their numbers where it is empty.  text: of its StableHLO, for the names of its mesh.  paths: of each
    result in what the function returns, as `[1]['b1']`; empty where that is not known."""

    module: Module
    counts: Counts = Counts(1, 1)
    parameters: tuple[GlobalArray, ...] | None = None
    results: tuple[GlobalArray, ...] | None = None
    arguments: tuple[int, ...] = ()
    text: str = ""
    paths: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        return self.counts.devices

    def result(self, leaf: int) -> str:
        """`out2`, `out2 ([1]['b1'])`."""
        path = self.paths[leaf] if self.paths else ""
        return f"out{leaf} ({path})" if path else f"out{leaf}"


def cut(program: Program, wholes: Sequence[Any]) -> list[list[Any]]:
    """Each device's arguments of whole arrays."""
    if program.parameters is None:
        return [list(wholes)] * program.count
    if len(wholes) != len(program.parameters):
        raise ArgumentError(f"the program takes {len(program.parameters)} arguments, found {len(wholes)}")
    return [
        [
            np.ascontiguousarray(placed.shards.split(np.asarray(whole), d % program.counts.partitions)).reshape(
                placed.shards.shard_dims(np.shape(whole))
            )
            for whole, placed in zip(wholes, program.parameters, strict=True)
        ]
        for d in range(program.count)
    ]


__all__ = ["Program", "cut"]
