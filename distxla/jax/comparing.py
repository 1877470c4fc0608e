"""`distxla.jax.compare`: a sharded JAX function beside its unsharded form, value by value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from distxla.differ.comparison import MEMORY, Program, compare_programs, cut
from distxla.differ.report import Comparison
from distxla.errors import ArgumentError
from distxla.ir.counts import Counts
from distxla.jax.lowering import LoweredProgram, lowered_program
from distxla.jax.partitioner.loading import read_module
from distxla.jax.private.lowering import lower_for_distxla
from distxla.jax.values import whole_value

_MANUAL = ("manual_computation", "SPMDFullToShardShape")


def compare(
    sharded: Callable[..., Any] | jax.stages.Lowered,
    unsharded: Callable[..., Any] | jax.stages.Lowered | None,
    *args: Any,
    tolerance: float | None = None,
    memory: int = MEMORY,
    proof: bool = True,
) -> Comparison:
    """Find where a sharded program's values first leave those of its unsharded form: prove that they don't, or run both
    on the reference.

        found = distxla.jax.compare(sharded_step, step, params, batch)
        assert found.same, found

    sharded, unsharded: functions of the same arguments with results of one structure, or what `jax.jit(f).lower` gives.
    unsharded: None for a program with automatic shardings, whose unpartitioned module is its twin; for a `shard_map`
    name the function on a mesh of one device, or one without shardings.  args: whole arrays, as of the unsharded
    function; each device gets its part.  tolerance: relative to the largest element of each value; by default how far
    rounding alone moves each value, which is measured.  memory: bytes of values held at a time; the others are in a
    temporary file.  proof: False to run both programs also where they are proved to be equal for all inputs; so does a
    tolerance.

    Blocks; the reference is slow. Raises ArgumentError, JaxError, PartitioningError, and the errors of a run.
    """
    lowered = _lowered(sharded, args)
    program = lowered_program(lowered)
    if unsharded is None:
        whole = _unpartitioned(lowered, program)
    else:
        twin = lowered_program(_lowered(unsharded, args))
        whole = _program(twin, "")
    leaves = jax.tree.leaves((args, {}))
    rows = [_wholes(each, leaves) for each in (program, program if unsharded is None else twin)]
    ours = _program(program, lowered.as_text(), _paths(lowered))
    if unsharded is not None:
        _require_one_structure(program, twin)
    parts = cut(ours, rows[0]), cut(whole, rows[1])
    return compare_programs(ours, whole, *parts, tolerance=tolerance, memory=memory, proof=proof)


def _lowered(function: Any, args: Sequence[Any]) -> jax.stages.Lowered:
    if isinstance(function, jax.stages.Lowered):
        return function
    if not callable(function):
        raise ArgumentError(f"compare takes functions and jax.stages.Lowered, found {type(function).__name__}")
    traced = function if hasattr(function, "trace") else jax.jit(function)
    lowered: jax.stages.Lowered = lower_for_distxla(traced.trace(*args))
    return lowered


def _paths(lowered: jax.stages.Lowered) -> tuple[str, ...]:
    """Of the results in what the function returns; "" for the elements of a flat tuple, whose numbers say as much."""
    found = jax.tree_util.tree_flatten_with_path(lowered.out_info)[0]
    if all(len(path) == 1 and isinstance(path[0], jax.tree_util.SequenceKey) for path, _ in found):
        return ("",) * len(found)
    return tuple(jax.tree_util.keystr(path) for path, _ in found)


def _program(lowered: LoweredProgram, text: str, paths: tuple[str, ...] = ()) -> Program:
    if lowered.tokens:
        raise ArgumentError(f"{lowered.name} has ordered effects, which are not compared")
    made = lowered.partitioned
    is_cut = made.partitions > 1
    return Program(
        made.module(f"{lowered.name} (partitioned)"),
        Counts(1, made.partitions),
        made.parameters if is_cut else None,
        made.results if is_cut else None,
        _names(lowered),
        text,
        paths,
    )


def _unpartitioned(lowered: jax.stages.Lowered, program: LoweredProgram) -> Program:
    """The module that the partitioner was given, on one device."""
    text = lowered.as_text(debug_info=True)
    if any(word in text for word in _MANUAL):
        raise ArgumentError(
            "the program has a shard_map, whose function computes with shards: name the unsharded function, "
            "or the same one on a mesh of one device"
        )
    module = read_module(text.encode(), program.name)
    return Program(module.replace(num_partitions=1), arguments=_names(program))


def _names(lowered: LoweredProgram) -> tuple[int, ...]:
    """Of parameters: an argument's leaf; constants, which are the first parameters, count down from -1."""
    return (*(-1 - k for k in range(len(lowered.constants))), *(p.leaf for p in lowered.parameters))


def _wholes(lowered: LoweredProgram, leaves: Sequence[Any]) -> list[Any]:
    if len(leaves) != len(lowered.arguments):
        raise ArgumentError(f"{lowered.name}: expected {len(lowered.arguments)} arrays, found {len(leaves)}")
    values = [whole_value(leaves[p.leaf], p) for p in lowered.parameters]
    return [*(np.asarray(constant.value) for constant in lowered.constants), *values]


def _require_one_structure(sharded: LoweredProgram, whole: LoweredProgram) -> None:
    if len(sharded.results) != len(whole.results):
        raise ArgumentError(
            f"expected results of one structure, found {len(sharded.results)} arrays of {sharded.name} "
            f"and {len(whole.results)} of {whole.name}"
        )
