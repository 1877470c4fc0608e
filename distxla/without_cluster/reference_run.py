"""A run of the reference: all devices in this process, in NumPy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from distxla.compiler.passes.whole_arguments import given_whole
from distxla.errors import ArgumentError
from distxla.ir.element_type import held_number
from distxla.ir.shape import Shape
from distxla.oracle.lockstep import run_programs
from distxla.rewrites.executed_form import executed_form
from distxla.time_limit import phase, seconds_left
from distxla.time_limit import time_limit as within
from distxla.without_cluster.given_programs import ModuleOrPrograms, given_programs
from distxla.without_cluster.watch import Watch
from distxla.without_cluster.whole_limit import whole_limit

if TYPE_CHECKING:
    from distxla.oracle.evaluation import Watch as AnyWatch
    from distxla.without_cluster.programs import DeviceProgram, RunPrograms

Array = np.ndarray[Any, Any]


class Results(list[list[Array | None]]):
    """What `distxla.reference` returns: outs[d][k], leaf k of the result on device d; None for a token."""

    def __init__(self, programs: RunPrograms, outs: Mapping[int, list[Array | None]]) -> None:
        super().__init__(outs.get(device, []) for device in range(programs.device_count))
        self._programs = programs

    def join(self, replica: int = 0) -> list[Array]:
        """The results of a global module as whole arrays, by leaf, as its shardings say. ArgumentError for a module
        that is not global, and for a replica that there isn't."""
        (program, *others), partitions = self._programs.programs, self._programs.counts.partitions
        if others or program.whole is None:
            raise ArgumentError(f"{program.module.name} is no global module: its results are no parts of others")
        if not 0 <= replica < self._programs.counts.replicas:
            raise ArgumentError(f"there is no replica {replica} among {self._programs.counts.replicas}")
        rows = self[replica * partitions : (replica + 1) * partitions]
        return [placed.shards.join([row[k] for row in rows]) for k, placed in enumerate(program.whole.results)]


def reference(
    module: ModuleOrPrograms,
    args: Sequence[Any] = (),
    *,
    replicas: int | None = None,
    partitions: int | None = None,
    time_limit: float | None = None,
    watch: Watch | AnyWatch | None = None,
) -> Results:
    """Run all devices in this process, in NumPy and in lock step: no cluster, no Ray, nothing is compiled. The oracle:
    each instruction is computed by its definition, slowly.

        outs = distxla.reference(module, args)             # args[d][k], outs[d][k]

    module: a Module, also a global one, which is partitioned; or for several programs a list of (devices, module).
    args: args[d][k] for leaf k of the parameters on device d (inner lists or tuples), or one flat sequence that is the
    same for all devices; an array of a global module may be given whole. Anything that np.asarray takes, of the
    parameter's type; Python numbers take it. Devices without a program take and return [].
    replicas, partitions: where no header says them; one is assumed of each.  time_limit: seconds.
    watch: a `distxla.Watch`, which keeps the values of chosen instructions.

    Infeeds have ended before the run, and what outfeeds give is dropped. Blocks. Raises ArgumentError, the verifier's
    errors, UnsupportedOpError for what the reference can't compute, DeadlockError and CollectiveMismatchError where
    devices can't go on, StreamEndError, ExecutionError, TimeLimitError.
    """
    with within(time_limit):
        programs = given_programs(module, replicas, partitions).settled()
        with phase("reading arguments"):
            rows = _rows(programs, args)
            if isinstance(watch, Watch):
                watch.require_matches((executed_form(p.module) for p in programs.programs), programs.device_count)
        with phase("evaluating"), whole_limit():
            outs = run_programs(
                {device: program.module for device, program in programs.program_of.items()},
                rows,
                programs.counts,
                time_limit=seconds_left(),
                watch=watch,
            )
    return Results(programs, outs)


def _rows(programs: RunPrograms, args: Sequence[Any]) -> dict[int, list[Any]]:
    """By device the leaves of its parameters."""
    if not isinstance(args, Iterable) or isinstance(args, str | bytes | Mapping | np.ndarray):
        raise ArgumentError(f"args: expected a sequence of arrays, found {type(args).__name__}")
    given, count = list(args), programs.device_count
    if any(isinstance(row, list | tuple) for row in given):
        if len(given) != count or not all(isinstance(row, list | tuple) for row in given):
            raise ArgumentError(f"args: expected {count} lists, one a device, or one flat sequence of arrays")
    else:
        given = [given] * count
    return {device: _row(programs, program, device, given[device]) for device, program in programs.program_of.items()}


def _row(programs: RunPrograms, program: DeviceProgram, device: int, row: Sequence[Any]) -> list[Any]:
    shapes = [leaf for p in program.module.entry_computation.parameters for leaf in p.shape.leaves()]
    if len(row) != len(shapes):
        name = program.module.name
        raise ArgumentError(f"args: {name} takes {len(shapes)} arguments, device {device} got {len(row)}")
    return [_leaf(programs, program, device, k, value, shapes[k]) for k, value in enumerate(row)]


def _leaf(programs: RunPrograms, program: DeviceProgram, device: int, k: int, value: Any, shape: Shape) -> Any:
    """The device's value, or its part of one that is given whole."""
    if not shape.is_array:
        return None
    try:
        is_number = isinstance(value, bool | int | float | complex)
        array = held_number(value, shape.dtype) if is_number else np.asarray(value)
    except ValueError as error:
        raise ArgumentError(f"args[{device}][{k}]: expected {shape}: {error}") from None
    array = programs.shard("arg", k, device, array)
    if array.dtype == shape.dtype.dtype and shape.holds(array.shape):
        return array
    found = f"{array.dtype}[{','.join(map(str, array.shape))}]"
    refused = ArgumentError(f"args[{device}][{k}]: expected {shape}, found {found}")
    hint = given_whole(program.module, programs.counts.partitions, k, array.shape, lambda d: f"args[{d}][{k}]")
    if hint is not None and array.dtype == shape.dtype.dtype:
        refused.add_note(f"hint: {hint}")
    raise refused


__all__ = ["Results", "reference"]
