"""Global modules through XLA's partitioner."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING, Any

from distxla.compiler.passes import partitioning
from distxla.compiler.passes.manual_partitions import PerDevice
from distxla.compiler.verify.aliases import donated_leaves
from distxla.errors import ArgumentError, JaxError, PartitioningError, UnsupportedOpError
from distxla.ir.module import Module
from distxla.jax.partitioner.loading import AS_HLO, read_module, with_file_name
from distxla.jax.private.names import EXTRA, is_jaxlib_there
from distxla.location import printable
from distxla.ops.constant import Constant
from distxla.time_limit import at

if TYPE_CHECKING:
    from distxla.jax.partitioner.partitioning import Partitioned

LOGGER = logging.getLogger("distxla")


def partitioned_by_xla(module: Module, partitions: int, replicas: int, refused: UnsupportedOpError) -> PerDevice:
    """A partitioner for compiler/partitioners.py. Blocks; the logger `distxla` says what was done.

    Raises `refused` where there is no jaxlib, or XLA refuses the module; TimeLimitError.
    """
    if not is_jaxlib_there():
        refused.add_note(f"hint: with {EXTRA} distxla partitions it by XLA's own partitioner")
        raise refused
    _require_values(module)
    try:
        made = partition_hlo(module, partitions, replicas)
        whole = per_device(made, module)
    except (PartitioningError, JaxError, UnsupportedOpError) as error:
        refused.add_note(f"XLA's partitioner was tried for {partitions} partitions: {error.message}")
        raise refused from error
    LOGGER.warning("%s", printable(f"distxla: {_name(module)}: {described(made)}"))
    return whole


def _require_values(module: Module) -> None:
    """UnsupportedOpError for a constant that the text leaves out as {...}: XLA's parser takes the bits 0, 1, 2, ..."""
    for computation in module.reached():
        for i in computation:
            if isinstance(i.op, Constant) and (why := i.op.obstacle(i.shape, ())) is not None:
                raise UnsupportedOpError(why, module.locate(i, "opcode"))


def described(made: Partitioned) -> str:
    """What was done, for one line of output."""
    how = "from the cache" if made.is_cached else f"{made.seconds:.3g} s"
    return f"partitioned for {made.partitions} partitions by XLA's partitioner (jaxlib {made.jaxlib}, {how})"


def partition_hlo(module: Module, partitions: int, replicas: int = 1) -> Partitioned:
    """Partition a module that has been parsed or built. Blocks; raises the errors of partition_module."""
    from distxla.jax.partitioner.partitioner_input import (
        partitioner_input,  # jaxlib's part of a start that often needs none of it
    )
    from distxla.jax.partitioner.partitioning import partition_module

    _require_values(module)
    at(_name(module))
    given = partitioner_input(module)
    return partition_module(given.module, partitions=partitions, replicas=replicas, use_shardy=given.use_shardy)


def partition(module: Any, partitions: int | None = None, replicas: int = 1) -> Module:
    """The program of each partition of a global module, as XLA's partitioner makes it; blocks.

    module: a `jax.stages.Lowered`, a Module, or the content of a file that load_module reads.  partitions: by default
    what the module says. Its arguments and results are shards. Raises the errors of partition_module and of
    load_module; ArgumentError where nothing says the number of partitions, or where the module has been partitioned
    already.
    """
    if isinstance(module, str | bytes):
        module = read_module(module.encode() if isinstance(module, str) else module, "<module>")
        if partitions is module.num_partitions is None and partitioning.partition_count(module) == 1:
            raise ArgumentError(
                "partitions: expected their number, which the module does not say and nothing in it shows"
            )
    if isinstance(module, Module):
        if partitioning.is_partitioned(module):
            raise ArgumentError(f"{_name(module)} has been partitioned already: its entry is {module.entry}")
        count = _agreed(module.num_partitions, partitions, partitioning.partition_count(module, partitions))
        return per_device(partition_hlo(module, count, module.replica_count or replicas), module).module
    from distxla.jax.partitioner.partitioning import partition_module
    from distxla.jax.private.names import counts_of_lowered, stablehlo_of_lowered

    stated, _ = counts_of_lowered(module)
    count, text = _agreed(stated, partitions, stated), stablehlo_of_lowered(module)
    made = partition_module(text, partitions=count, replicas=replicas, calls_python=True)
    return made.module("<partitioned>")


def _agreed(stated: int | None, given: int | None, count: int) -> int:
    """The number of partitions; ArgumentError where two are given that differ."""
    if None not in (stated, given) and stated != given:
        raise ArgumentError(f"the module is for {stated} partitions, {given} are asked for")
    return count


def per_device(made: Partitioned, module: Module) -> PerDevice:
    """The program of every partition and its global arrays.  module: the global one, for its name and its donation."""
    if module.stablehlo is not None and module.source is not None:
        named = with_file_name(made.short_text, module.source.file.removesuffix(AS_HLO))
        made = dataclasses.replace(made, short_text=named)
    program = made.module(f"{_name(module)} (partitioned)")
    return PerDevice(_with_donors(program, module), made.parameters, made.results)


def _with_donors(program: Module, module: Module) -> Module:
    """With the global module's buffer_donor, which XLA's importer of HLO drops. Its parameters are flat now."""
    donors = donated_leaves(module)
    if not donors or any(name == "buffer_donor" for name, _ in program.header):
        return program
    text = "{ " + ", ".join(f"({leaf}, {{}})" for leaf in donors) + " }"
    return program.replace(header=(*program.header, ("buffer_donor", text)))


def _name(module: Module) -> str:
    return module.source.file if module.source is not None else module.name


__all__ = ["described", "partition", "partition_hlo", "partitioned_by_xla", "per_device"]
