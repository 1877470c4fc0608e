"""Arrays of JAX programs that live on a cluster's devices."""

from __future__ import annotations

from contextlib import AbstractContextManager
from math import prod
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from distxla.ir.shards import Shards
from distxla.jax.private.names import key_implementation
from distxla.jax.shardings import index_of, is_key
from distxla.lazy_dataclass import dataclass
from distxla.runtime.arrays.columns import Column
from distxla.runtime.arrays.device_array import DeviceArray
from distxla.runtime.arrays.dlpack import CPU_DEVICE, Capsule, exported
from distxla.runtime.arrays.read_only_array import ReadOnlyArray


@dataclass(frozen=True, eq=False)
class Signature:
    """The type of an array, as a trace sees it; one object for all equal ones.

    sharding: a NamedSharding; None where there is none that says how the array is cut.
    """

    shape: tuple[int, ...]
    dtype: Any
    weak_type: bool = False
    sharding: Any = None

    def abstract(self) -> jax.ShapeDtypeStruct:
        """For `trace`."""
        return jax.ShapeDtypeStruct(self.shape, self.dtype, weak_type=self.weak_type, sharding=self.sharding)


def x64_mode() -> AbstractContextManager[Any]:
    """Within, JAX keeps the types of 64 bits."""
    enable = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64
    mode: AbstractContextManager[Any] = enable(True)
    return mode


_signatures: dict[tuple[Any, ...], Signature] = {}


def signature(shape: tuple[int, ...], dtype: Any, weak_type: bool = False, sharding: Any = None) -> Signature:
    """The one object of all equal ones."""
    key = (shape, dtype, weak_type, sharding)
    found = _signatures.get(key)
    if found is None:
        found = _signatures[key] = Signature(*key)
    return found


@dataclass(frozen=True)
class Shard:
    """The part of an array that a device of the cluster holds.

    device: the cluster's number of it.  index: the part's place in the whole array.  data: the part.
    """

    device: int
    index: tuple[slice, ...]
    data: DeviceArray


class Array(ReadOnlyArray):
    """A global array whose shards lie on the devices of a cluster: an argument or a result of `distxla.jax.jit`.

        params, loss = step(params, batch)      # returns before the devices are done
        params, loss = step(params, batch)      # takes the arrays as they are, without waiting
        float(loss), np.asarray(params["w"])    # waits, and gives the whole array

    It is a promise until the call that makes it is over: reading its values waits, and raises the call's failure.
    NumPy's functions and operators compute on the driver and give NumPy arrays; JAX's functions want `to_jax()`.
    On the driver's host an array that is not cut is a read-only view of the first device's memory, others are copies.

    sharding: a NamedSharding, None where none says how the array is cut.  weak_type: as JAX has it.
    """

    __slots__ = ("_value", "column", "shards_of_whole", "signature")
    _KIND = "a distxla.jax.Array"
    _INTERNAL = frozenset({"column", "shards_of_whole", "signature"})

    def __init__(self, column: Column, signature: Signature, shards: Shards) -> None:
        """shards: how the whole is cut."""
        self.column = column
        self.shards_of_whole = shards
        self.signature = signature
        self._value: NDArray[Any] | None = None

    # --- its type

    @property
    def shape(self) -> tuple[int, ...]:
        return self.signature.shape

    @property
    def dtype(self) -> Any:
        return self.signature.dtype

    @property
    def weak_type(self) -> bool:
        return self.signature.weak_type

    @property
    def sharding(self) -> Any:
        return self.signature.sharding

    @property
    def ndim(self) -> int:
        return len(self.signature.shape)

    @property
    def size(self) -> int:
        return prod(self.signature.shape)

    @property
    def nbytes(self) -> int:
        """Of the whole array, once."""
        return self.size * int(self.dtype.itemsize)

    # --- its shards

    @property
    def shards(self) -> tuple[Shard, ...]:
        """The parts on the devices, in the order of the mesh; does not block. ArgumentError once it was donated."""
        dims = self._physical_dims()
        return tuple(
            Shard(array.device, index_of(self.shards_of_whole, k, dims), array)
            for k, array in enumerate(self.column.arrays)
        )

    def is_deleted(self) -> bool:
        """Whether its memory was given up: `delete`, or a call to which it was donated."""
        return self.column.is_deleted

    def delete(self) -> None:
        """Give its memory up now; calls under way may still use it."""
        self.column.delete()

    def block_until_ready(self) -> Array:
        """Wait until the call that makes it is over; raises its failure."""
        self.column.settle()
        return self

    def is_ready(self) -> bool:
        """Whether reading it would not wait."""
        return self.column.call is None or self.column.call.is_over

    def _physical_dims(self) -> tuple[int, ...]:
        """The dimension sizes of the whole as the devices hold it: those of a key's integers, too."""
        return tuple(size * count for size, count in zip(self.column.shape.dims, self.shards_of_whole.tiles))

    # --- its values

    def _whole(self) -> NDArray[Any]:
        """The whole array of the elements that the devices hold, read-only."""
        if self._value is None:
            if self.shards_of_whole.is_whole:
                return np.asarray(self.column.array(0))
            arrays = [np.asarray(array) for array in self.column.arrays]
            self._value = np.asarray(self.shards_of_whole.join(arrays))
            self._value.flags.writeable = False
        elif self.column.is_deleted:
            self.column.array(0)  # raises
        return self._value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if is_key(self.dtype):
            raise TypeError(f"an array of {self.dtype} has no NumPy values: see jax.random.key_data(array.to_jax())")
        found = self._whole()
        if dtype is not None and np.dtype(dtype) != found.dtype:
            if copy is False:
                raise ValueError(f"an array of {found.dtype} cannot be seen as {np.dtype(dtype)} without a copy")
            return found.astype(dtype)
        return found.copy() if copy else found

    def to_jax(self) -> jax.Array:
        """The whole array as a jax.Array on JAX's default device. Waits. Copies."""
        whole = self._whole()
        if is_key(self.dtype):
            return jax.random.wrap_key_data(jax.numpy.array(whole), impl=key_implementation(self.dtype))
        with x64_mode():  # an array of 64-bit elements keeps them
            return jax.numpy.array(whole)

    def __jax_array__(self) -> jax.Array:
        return self.to_jax()

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Capsule:
        """The whole array for another library: without a copy where it is not cut. Waits.

        For consumers of DLPack 1.0 and above it is marked read-only.
        """
        if self.shards_of_whole.is_whole:
            return self.column.array(0).__dlpack__(
                stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
            )
        if dl_device is not None and dl_device != CPU_DEVICE:
            raise BufferError(f"the array is on the CPU, device {CPU_DEVICE}; found dl_device={dl_device}")
        if copy is False:
            raise BufferError("the array is cut into shards: it cannot be seen whole without a copy")
        return exported(self._whole().copy(), self.column.shape.dtype, max_version)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU_DEVICE

    # --- as text

    def __format__(self, spec: str) -> str:
        return format(np.asarray(self), spec)

    def __repr__(self) -> str:
        """Its type; the values only where they are there, so that a debugger that shows it does not wait."""
        kind = f"{self.dtype}[{','.join(map(str, self.shape))}]"
        where = f"{kind} on {len(self.column.devices)} device{'' if len(self.column.devices) == 1 else 's'}"
        if self.is_deleted():
            return f"Array({where}, deleted)"
        if not self.is_ready():
            return f"Array({where}, pending)"
        if is_key(self.dtype) or (self.column.call is not None and self.column.call.error is not None):
            return f"Array({where})"
        return f"Array({np.array2string(np.asarray(self), separator=', ', prefix='Array(')}, {where})"


__all__ = ["Array", "Shard", "Signature", "signature"]
