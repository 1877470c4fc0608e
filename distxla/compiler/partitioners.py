"""Global modules on their way to the devices: by distxla's rewrite of manual regions, else by another partitioner."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from distxla.compiler.passes import partitioning
from distxla.compiler.passes.manual_partitions import PerDevice
from distxla.errors import UnsupportedOpError
from distxla.ir.module import Module

Partitioner = Callable[[Module, int, int, UnsupportedOpError], PerDevice]
"""Takes a global module, the number of partitions and of replicas, and the error to raise where it can't partition: it
adds a note that says why. May block."""

PARTITIONERS = ["distxla.jax.partitioner.global_modules:partitioned_by_xla"]
"""`module:function`, of which the first is asked, and imported when a module needs it. Another partitioner takes the
place of XLA's with `PARTITIONERS.insert(0, "its.module:function")`."""


def device_program(
    module: Module, partitions: int | None = None, replicas: int | None = None, *, available: int | None = None
) -> PerDevice | None:
    """The per-device form of a global module; None for a module that each device runs as it is. Blocks.

    partitions, replicas: how many the run has, where that is given; the header's counts go before them.  available: how
    many partitions the run has, given or not: a module for others is refused. What needs a partitioner is partitioned
    by XLA's where jaxlib is installed, and the logger `distxla` says so.
    Raises UnsupportedOpError, located at the first annotation, where there is no jaxlib, or XLA refuses the module;
    VerificationError where a global module breaks a rule; TimeLimitError.
    """
    try:
        return partitioning.device_program(module, partitions)
    except UnsupportedOpError as error:
        count = partitioning.partition_count(module, partitions)
        if available not in (None, count):
            error.add_note(f"it is for {count} partitions, the cluster has {available}")
            raise
        return _partitioner()(module, count, module.replica_count or replicas or 1, error)


def _partitioner() -> Partitioner:
    name, _, function = PARTITIONERS[0].partition(":")
    found: Partitioner = getattr(importlib.import_module(name), function)
    return found
