"""Arrays that live in a device's memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from distxla.ir.shape import Shape
from distxla.runtime.hosts.host import DeviceMemory
from distxla.runtime.memory import Block, Segment


class _Bytes:
    """What NumPy keeps alive while somebody looks at a device's memory: the mapping and the block."""

    __slots__ = ("__array_interface__", "_block", "_mapping")

    def __init__(self, segment: Segment, block: Block, offset: int, size: int) -> None:
        self._mapping, self._block = segment.bytes, block
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": (size,),
            "data": (segment.address + offset, True),
        }


class DeviceArray:
    """An array on one device. `np.asarray` fetches it: on the driver's host a read-only view of shared memory, no copy;
    from another host a copy, while the cluster is open.

    It is never written again, so views stay what they are; they also stay valid after the cluster is closed. The memory
    is used again once the array and its views are deleted.  device: flattened id.  shape: element type and extents, of
    dynamic dimensions the bounds; `extents` are what they have.
    """

    __slots__ = ("_block", "_memory", "_sizes", "device", "offset", "shape")

    def __init__(
        self,
        memory: DeviceMemory,
        block: Block,
        offset: int,
        device: int,
        shape: Shape,
        sizes: tuple[tuple[int, int], ...] = (),
    ) -> None:
        """sizes: (dimension, where its s32 extent stands in the device's memory) of dynamic dimensions."""
        self._sizes = sizes
        self._memory = memory
        self._block = block
        self.offset = offset
        self.device = device
        self.shape = shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.shape.dtype.dtype

    @property
    def nbytes(self) -> int:
        return self.shape.byte_size

    @property
    def extents(self) -> tuple[int, ...]:
        """The array's extents; of a result once the call is over."""
        extents = list(self.shape.dims)
        for dimension, offset in self._sizes:
            extents[dimension] = int.from_bytes(bytes(self._memory.read(offset, 4)), "little")
        return tuple(extents)

    def is_in(self, memory: DeviceMemory) -> bool:
        """Whether the array lies in this device memory (an array of another cluster does not)."""
        return self._memory is memory

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if not self.shape.is_array:
            raise TypeError(f"{self.shape} has no elements")
        size = self.shape.byte_size
        if size == 0:
            found: NDArray[Any] = np.empty(self.shape.dims, self.dtype)
        else:
            if isinstance(self._memory, Segment):
                raw = np.asarray(_Bytes(self._memory, self._block, self.offset, size))
            else:
                raw = self._memory.read(self.offset, size)
            found = raw.view(self.dtype).reshape(self.shape.dims)
        if self._sizes:
            found = found[tuple(slice(extent) for extent in self.extents)]
        if dtype is not None and np.dtype(dtype) != found.dtype:
            if copy is False:
                raise ValueError(f"{self.shape} cannot be seen as {np.dtype(dtype)} without a copy")
            return found.astype(dtype)
        return found.copy() if copy else found

    def __repr__(self) -> str:
        return f"DeviceArray({self.shape}, device={self.device})"
