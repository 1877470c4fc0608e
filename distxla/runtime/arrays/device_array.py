"""Arrays that live in a device's memory."""

from __future__ import annotations

import warnings
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distxla.errors import DistxlaError
from distxla.ir.shape import Shape
from distxla.machine.heap import Block
from distxla.machine.segments import Segment
from distxla.runtime.arrays.call_queue import PendingCall
from distxla.runtime.arrays.dlpack import CPU_DEVICE, Capsule, exported
from distxla.runtime.arrays.read_only_array import ReadOnlyArray
from distxla.runtime.values.host import DeviceMemory

_FETCHED_TO_SHOW = 1 << 16  # bytes of an array on another host that a repr may fetch


class _Bytes:
    """The object that NumPy keeps alive while a view of a device's memory exists: the mapping and the block."""

    __slots__ = ("__array_interface__", "_block", "_mapping")

    def __init__(self, segment: Segment, block: Block, offset: int, size: int, *, writable: bool) -> None:
        self._mapping, self._block = segment.bytes, block
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": (size,),
            "data": (segment.address + offset, not writable),
        }


class DeviceArray(ReadOnlyArray):
    """An array on one device, which is never written again. It can be used as a NumPy array that is read-only.

        outs = step(args)
        float(outs[0][0]), f"{outs[0][0]:.3f}"      # a scalar result
        outs[0][1][0] + 1                           # indexing, operators, NumPy's functions and methods
        torch.from_dlpack(outs[0][1])               # without a copy

    `np.asarray` fetches it, and so does all that NumPy computes with it: on the driver's host a read-only view of
    shared memory, no copy; from another host a copy each time, while the cluster is open. Results are NumPy arrays.
    Types that NumPy lacks are those of ml_dtypes. Views and DLPack capsules also stay valid after the array is deleted
    and the cluster is closed; the memory is used again once the array and all of them are gone.

    device: flattened id.  hlo_shape: element type and dimension sizes, of dynamic dimensions the bounds.  shape: the
    sizes that they have; `dimension sizes` is its deprecated name.  `copy` and `deepcopy` return the array itself.
    Pickle stores the values: unpickling gives a NumPy array.  A token has no elements: TypeError.
    """

    __slots__ = ("_block", "_memory", "_pending", "_sizes", "device", "hlo_shape", "offset")
    _KIND = "a DeviceArray"
    _INTERNAL = frozenset({"is_in", "offset", "place", "settle"})

    def __init__(
        self,
        memory: DeviceMemory,
        block: Block,
        offset: int,
        device: int,
        hlo_shape: Shape,
        sizes: tuple[tuple[int, int], ...] = (),
        pending: PendingCall | None = None,
    ) -> None:
        """sizes: (dimension, offset of its s32 size in the device's memory) of dynamic dimensions.  pending: the call
        under way that makes it."""
        self._sizes = sizes
        self._pending = pending
        self._memory = memory
        self._block = block
        self.offset = offset
        self.device = device
        self.hlo_shape = hlo_shape

    # --- its type and size

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.hlo_shape.dtype.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The array's dimension sizes; of a result once the call is over."""
        dimension_sizes = list(self.hlo_shape.dims)
        for dimension, offset in self._sizes:
            dimension_sizes[dimension] = int.from_bytes(bytes(self._memory.read(offset, 4)), "little")
        return tuple(dimension_sizes)

    @property
    def extents(self) -> tuple[int, ...]:
        """Deprecated: `shape`."""
        warnings.warn("DeviceArray.extents is now DeviceArray.shape", DeprecationWarning, stacklevel=2)
        return self.shape

    @property
    def ndim(self) -> int:
        return self.hlo_shape.rank

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def settle(self) -> None:
        """Block until the call is over that makes the array; raises its failure."""
        if self._pending is not None:
            self._pending.wait()
            self._pending = None

    def is_in(self, memory: DeviceMemory) -> bool:
        """Whether the array is in this device memory (an array of another cluster is not)."""
        return self._memory is memory

    def is_placed(self, memory: DeviceMemory, shape: Shape) -> bool:
        """Whether the array is in this device memory as one of this shape has to be. False of arrays with dynamic
        dimensions, which need a longer check."""
        own = self.hlo_shape
        return (
            self._memory is memory
            and not self._sizes
            and (own is shape or (own.dims == shape.dims and own.element_type is shape.element_type))
        )

    @property
    def place(self) -> tuple[Block, int]:
        """Its block, and its offset in the device's memory."""
        return self._block, self.offset

    # --- its values

    def _values(self, *, writable: bool = False) -> NDArray[Any]:
        """A view on the driver's host, else a copy.  writable: the flag alone, for a protocol that has no other."""
        if not self.hlo_shape.is_array:
            raise TypeError(f"{self.hlo_shape} has no elements")
        if self._pending is not None:
            self.settle()
        size = self.hlo_shape.byte_size
        if size == 0:
            found: NDArray[Any] = np.zeros(self.hlo_shape.dims, self.dtype)
            found.flags.writeable = writable
        else:
            if isinstance(self._memory, Segment):
                raw = np.asarray(_Bytes(self._memory, self._block, self.offset, size, writable=writable))
            else:
                raw = self._memory.read(self.offset, size)
                raw = raw.copy() if writable else raw
            found = raw.view(self.dtype).reshape(self.hlo_shape.dims)
        return found[tuple(slice(dimension_size) for dimension_size in self.shape)] if self._sizes else found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False and not isinstance(self._memory, Segment) and self.hlo_shape.byte_size:
            raise ValueError(
                f"{self.hlo_shape} on device {self.device}, on another host, cannot be seen without a copy"
            )
        found = self._values()
        if dtype is not None and np.dtype(dtype) != found.dtype:
            if copy is False:
                raise ValueError(f"{self.hlo_shape} cannot be seen as {np.dtype(dtype)} without a copy")
            return found.astype(dtype)
        return found.copy() if copy else found

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Capsule:
        """The array for another library; no copy on the driver's host, unless asked for one.

        For consumers of DLPack 1.0 and above it is marked read-only. The protocol before that has no such mark: a
        consumer that writes changes the array. BufferError for types and devices that DLPack lacks.
        """
        del stream  # memory of the host: results are there once the call is over
        if dl_device is not None and dl_device != CPU_DEVICE:
            raise BufferError(f"the array is on the CPU, device {CPU_DEVICE}; found dl_device={dl_device}")
        if copy is False and not isinstance(self._memory, Segment) and self.hlo_shape.byte_size:
            raise BufferError(f"device {self.device} is on another host: its arrays cannot be seen without a copy")
        versioned = max_version is not None and max_version[0] >= 1
        values = self._values().copy() if copy else self._values(writable=not versioned)
        return exported(values, self.hlo_shape.dtype, max_version)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU_DEVICE

    # --- as text

    def __format__(self, spec: str) -> str:
        return format(np.asarray(self) if self.hlo_shape.is_array else str(self), spec)

    def __str__(self) -> str:
        return str(np.asarray(self)) if self.hlo_shape.is_array else str(self.hlo_shape)

    def __repr__(self) -> str:
        """The values as NumPy shows them; without them where they would have to be fetched first and are large, or
        can't be fetched any more."""
        begin, where = "DeviceArray(", f"{self.hlo_shape}, device={self.device})"
        is_near = isinstance(self._memory, Segment) or self.hlo_shape.byte_size <= _FETCHED_TO_SHOW
        if not self.hlo_shape.is_array or not is_near:
            return begin + where
        try:
            found = np.asarray(self)
        except DistxlaError:
            return begin + where
        values = np.array2string(found, separator=", ", prefix=begin)
        last = len(values.rpartition("\n")[2]) + (0 if "\n" in values else len(begin))
        gap = " " if last + len(where) + 2 <= np.get_printoptions()["linewidth"] else "\n" + " " * len(begin)
        return f"{begin}{values},{gap}{where}"
