"""The inputs and outputs of a program that JAX has lowered, and its module for each partition."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from distxla.compiler.server_share import start_server
from distxla.errors import ArgumentError
from distxla.ir.shards import GlobalArray, Shards
from distxla.jax.array import Signature, signature
from distxla.jax.partitioner.partitioning import Partitioned, partition_module
from distxla.jax.private.names import lowering_facts
from distxla.jax.shardings import interned, is_key, mesh_of, most_devices, named_sharding
from distxla.lazy_dataclass import dataclass

_COUNT = re.compile(r"mhlo\.(num_partitions|num_replicas) = (\d+)")
_NAME = re.compile(r"^module @(\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Parameter:
    """A parameter of the module that is an argument of the function.

    leaf: which of the arguments' leaves.  path: how the user's text would name it.  signature: its type.
    dims: dimension sizes of the whole as devices hold it.  shards: how that is cut.  is_donated: whether the caller
    gives it up.
    """

    leaf: int
    path: str
    signature: Signature
    dims: tuple[int, ...]
    shards: Shards
    is_donated: bool


@dataclass(frozen=True)
class Result:
    """A result of the module that is one of the function's: its type, and how it is cut."""

    signature: Signature
    shards: Shards


@dataclass(frozen=True)
class Constant:
    """An array that the function has closed over, and that is a parameter of the module."""

    value: Any
    shards: Shards


@dataclass(frozen=True)
class LoweredProgram:
    """tokens: how many parameters and results before all others are tokens of ordered effects. Constants follow, then
    parameters."""

    name: str
    partitioned: Partitioned
    tokens: int
    constants: tuple[Constant, ...]
    parameters: tuple[Parameter, ...]
    results: tuple[Result, ...]
    arguments: tuple[Signature, ...]  # of all leaves, also unused ones


def lowered_program(lowered: jax.stages.Lowered) -> LoweredProgram:
    """Partition what JAX has lowered; blocks. Raises the errors of `partition_module`; ArgumentError for a module of
    several replicas and partitions, as `pmap` within sharded programs would give it."""
    text = lowered.as_text(debug_info=True)
    counts = {name: int(count) for name, count in _COUNT.findall(text[:4096])}
    partitions, replicas = max(counts.get("num_partitions", 1), most_devices(text)), counts.get("num_replicas", 1)
    if replicas > 1:
        raise ArgumentError(f"a program of {replicas} replicas, as `pmap` makes it: use shard_map, or shardings")
    if '"_platform_index"' in text[: text.find("{", text.find("@main")) + 4096]:
        raise ArgumentError('a program for several platforms: lower it by lowering_platforms=("cpu",)')
    partitioned = partition_module(text, partitions=partitions, calls_python=True, begin=start_server)
    facts = lowering_facts(lowered)
    mesh = mesh_of(text, _axis_types((*facts.parameter_types, *facts.result_types)))
    arrays = partitioned.parameters[facts.tokens :]
    count = len(facts.constants)
    kept = [index for index in facts.kept if index < count]
    constants = tuple(
        Constant(_plain(facts.constants[index]), interned(array.shards)) for index, array in zip(kept, arrays)
    )
    infos = jax.tree_util.tree_flatten_with_path(lowered.args_info)[0]
    leaves = [index - count for index in facts.kept if index >= count]
    parameters = tuple(
        _parameter(leaf, infos[leaf], array, mesh) for leaf, array in zip(leaves, arrays[len(kept) :], strict=True)
    )
    outs = jax.tree.leaves(lowered.out_info)
    results = tuple(
        Result(
            signature(
                tuple(out.shape), out.dtype, _is_weak(aval), named_sharding(_logical(array, len(out.shape)), mesh)
            ),
            interned(array.shards),
        )
        for out, aval, array in zip(outs, facts.result_types, partitioned.results[facts.tokens :], strict=True)
    )
    name = found.group(1) if (found := _NAME.search(text)) else "jit"
    arguments = tuple(signature(tuple(info.shape), info.dtype) for _, info in infos)
    return LoweredProgram(name, partitioned, facts.tokens, constants, parameters, results, arguments)


def _parameter(leaf: int, known: tuple[Any, Any], array: GlobalArray, mesh: Any) -> Parameter:
    path, info = known
    shape = tuple(info.shape)
    sharding = named_sharding(_logical(array, len(shape)), mesh)
    return Parameter(
        leaf,
        path_of(path),
        signature(shape, info.dtype, False, sharding),
        array.shape.dims,
        interned(array.shards),
        bool(info.donated),
    )


def _is_weak(aval: Any) -> bool:
    return bool(getattr(aval, "weak_type", False))


def _axis_types(avals: Sequence[Any]) -> dict[str, Any]:
    """The types of the axes by which arrays are cut explicitly, which the module does not state."""
    meshes = [getattr(getattr(aval, "sharding", None), "mesh", None) for aval in avals]
    return {name: kind for mesh in meshes if mesh is not None for name, kind in zip(mesh.axis_names, mesh.axis_types)}


def _logical(array: GlobalArray, rank: int) -> Shards:
    """Without the dimensions of a key's integers."""
    shards = array.shards
    if len(shards.tiles) == rank:
        return shards
    return Shards(shards.tiles[:rank], tuple(place[:rank] for place in shards.places))


def _plain(value: Any) -> Any:
    """An array as devices hold it."""
    return np.asarray(jax.random.key_data(value) if is_key(value.dtype) else value)


def path_of(path: Any) -> str:
    """`args[0]['w']` of the path of a leaf in (args, kwargs)."""
    first, rest = path[0], path[1:]
    return ("args" if first.idx == 0 else "kwargs") + str(jax.tree_util.keystr(tuple(rest)))
