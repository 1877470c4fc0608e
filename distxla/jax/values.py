"""Arguments of JAX programs as columns on the devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from distxla.errors import ArgumentError
from distxla.ir.element_type import element_type_of
from distxla.ir.shape import Shape
from distxla.ir.shards import Shards
from distxla.jax.array import Array, signature
from distxla.jax.lowering import Parameter
from distxla.jax.shardings import interned, is_key, named_sharding, shards_of_sharding
from distxla.runtime.arrays.columns import Column, ColumnDevices, put_column
from distxla.runtime.cluster import Cluster

_NARROWED = {"float64": "float32", "int64": "int32", "uint64": "uint32", "complex128": "complex64"}


def whole_value(value: Any, parameter: Parameter) -> NDArray[Any]:
    """The whole array of an argument, of the parameter's type, as devices hold it. ArgumentError where it is another;
    types of 64 bits become narrower, as in JAX without x64 mode."""
    expected, dtype = parameter.signature, parameter.signature.dtype
    if isinstance(value, jax.core.Tracer):
        raise ArgumentError(
            f"{parameter.path}: jax.jit, jax.grad and the like cannot trace a function that runs on a cluster: apply "
            "them to the function that is given to distxla.jax.jit"
        )
    if is_key(dtype):
        return _key_values(value, parameter)
    if isinstance(value, bool | int | float | complex):
        found: NDArray[Any] = _number(value, parameter)
    else:
        found = np.asarray(value)
        if found.dtype != dtype and _NARROWED.get(found.dtype.name) == dtype.name:
            found = found.astype(dtype)
    if found.dtype != dtype or found.shape != expected.shape:
        raise ArgumentError(
            f"{parameter.path}: expected {_type(expected.shape, dtype)}, found {_type(found.shape, found.dtype)}"
        )
    return found


def put_parameter(
    cluster: ColumnDevices, devices: tuple[int, ...], value: Any, parameter: Parameter, shape: Shape, k: int
) -> Column:
    """Copy an argument's shards to the devices. shape: of a shard.  Waits where it is an Array that is pending."""
    return put_shards(cluster, devices, whole_value(value, parameter), parameter.shards, shape, k)


def put_shards(
    cluster: ColumnDevices, devices: tuple[int, ...], whole: NDArray[Any], shards: Shards, shape: Shape, k: int
) -> Column:
    """Copy each partition's shard of an array to its device."""
    values = [whole] if shards.is_whole else [shards.split(whole, number) for number in range(len(devices))]
    return put_column(cluster, devices, shape, values, k)


def chosen_devices(what: str, count: int, devices: Sequence[int] | None, cluster: Cluster) -> list[int]:
    """The devices of a cluster that hold `count` shards, the first ones by default; ArgumentError for other counts.

    what: needs them, for messages.
    """
    if devices is not None and len(devices) != count:
        raise ArgumentError(f"{what} is for {count} devices, devices names {len(devices)}")
    if count > cluster.devices:
        raise ArgumentError(f"{what} is for {count} devices, the cluster has {cluster.devices}")
    return list(range(count)) if devices is None else list(devices)


def device_put(value: Any, sharding: Any, *, cluster: Cluster, devices: Sequence[int] | None = None) -> Any:
    """Copy arrays to a cluster's devices: pytrees of arrays in, pytrees of `distxla.jax.Array` out.

    sharding: a NamedSharding for all leaves, or a pytree of them that is a prefix of the values'.  devices: of the
    cluster, in the order of its mesh; the first ones by default. Blocks until the values are copied. ArgumentError
    where they cannot be cut evenly, for shardings of another structure, and for devices that the cluster lacks.
    """
    cluster.wait_started()
    leaves, tree = jax.tree.flatten(value)
    shardings = _one_for_each(sharding, value)
    return tree.unflatten(_put_leaf(leaf, s, cluster, devices) for leaf, s in zip(leaves, shardings, strict=True))


def _one_for_each(sharding: Any, value: Any) -> list[Any]:
    """Of a prefix of a pytree, what it has for each of the pytree's leaves."""
    found: list[Any] = []
    try:
        jax.tree.map(
            lambda one, part: found.extend([one] * len(jax.tree.leaves(part))),
            sharding,
            value,
            is_leaf=lambda node: node is None,
        )
    except ValueError as error:
        raise ArgumentError(f"expected shardings of the values' structure, or of its prefix: {error}") from None
    return found


def _put_leaf(leaf: Any, sharding: Any, cluster: Cluster, devices: Sequence[int] | None) -> Array:
    dtype = getattr(leaf, "dtype", None)
    if dtype is not None and is_key(dtype):
        array, dims = np.asarray(jax.random.key_data(leaf.to_jax() if isinstance(leaf, Array) else leaf)), leaf.shape
    else:
        try:
            array = array_of(leaf)
        except TypeError:
            raise ArgumentError(f"expected arrays, found {leaf!r:.80}") from None
        array = array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)
        dtype, dims = array.dtype, array.shape
    logical = shards_of_sharding(sharding, dims)
    chosen = tuple(chosen_devices("the sharding", len(logical.places), devices, cluster))
    if unknown := [device for device in chosen if device not in range(cluster.devices)]:
        raise ArgumentError(f"device {unknown[0]}: the cluster has devices 0 to {cluster.devices - 1}")
    whole = (0,) * (array.ndim - len(dims))  # the dimensions of a key's integers
    shards = interned(Shards(logical.tiles + (1,) * len(whole), tuple(place + whole for place in logical.places)))
    shape = Shape(element_type_of(array.dtype), shards.shard_dims(array.shape))
    column = put_shards(cluster, chosen, array, shards, shape, 0)
    return Array(column, signature(dims, dtype, False, named_sharding(logical, sharding.mesh)), shards)


def array_of(value: Any) -> NDArray[Any]:
    """What NumPy makes of a value; TypeError where that has a type that no program computes with."""
    found: NDArray[Any] = np.asarray(value)
    if found.dtype.kind not in "biufcV":
        raise TypeError
    return found


def _number(value: Any, parameter: Parameter) -> NDArray[Any]:
    try:
        found = np.asarray(value, parameter.signature.dtype)
    except (OverflowError, TypeError) as error:
        raise ArgumentError(f"{parameter.path}: {error}") from None
    return found


def _key_values(value: Any, parameter: Parameter) -> NDArray[Any]:
    if isinstance(value, Array):
        value = value.to_jax()
    found = getattr(value, "dtype", type(value).__name__)
    if found != parameter.signature.dtype or value.shape != parameter.signature.shape:
        expected = _type(parameter.signature.shape, parameter.signature.dtype)
        raise ArgumentError(f"{parameter.path}: expected {expected}, found {_type(np.shape(value), found)}")
    return np.asarray(jax.random.key_data(value))


def _type(dims: tuple[int, ...], dtype: Any) -> str:
    return f"{dtype}[{','.join(map(str, dims))}]"
