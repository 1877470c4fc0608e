"""What the owner keeps of a compiled program, to tell how two of them differ."""

from __future__ import annotations

from distxla.ir.module import Module
from distxla.jax.partitioner.partitioning import Partitioned
from distxla.jax.processes.callback_functions import CallbackFunction
from distxla.lazy_dataclass import dataclass


@dataclass(frozen=True, eq=False)
class ProgramText:
    """program: the owner's number.  name: the module's.  module: one partition's program.  rows: the ids of devices,
    [replica][partition].  donated: numbers of parameters that results may alias.  checks: that are compiled into it.
    callbacks: the functions from which it takes values, see callback_functions.py."""

    program: int
    name: str
    module: Module
    rows: list[list[int]]
    donated: frozenset[int]
    partitioned: Partitioned
    checks: frozenset[str] = frozenset()
    callbacks: tuple[CallbackFunction, ...] = ()


__all__ = ["ProgramText"]
