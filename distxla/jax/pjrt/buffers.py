"""Buffers: arrays on a device, in memory that this process shares with the device's."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from distxla.errors import ArgumentError, UnsupportedOpError
from distxla.ir.shape import Shape
from distxla.jax.pjrt import handles, late
from distxla.jax.pjrt.devices import Device, Memory
from distxla.jax.pjrt.element_types import element_type_of_number
from distxla.jax.pjrt.errors import Interrupted
from distxla.jax.pjrt.events import READY, TAKING, Pending, pending_event, wait_for
from distxla.jax.pjrt.handles import Once, integers
from distxla.jax.pjrt.native_functions import native_functions
from distxla.jax.pjrt.plans import NativeBlock
from distxla.jax.pjrt.shape_constants import Constants, constants_at, constants_of
from distxla.jax.pjrt.table import RECORDS, STRUCTURES
from distxla.machine.heap import ALIGNMENT, Block
from distxla.machine.segments import Segment
from distxla.runtime.arrays.device_array import DeviceArray

_TILED, _STRIDED = 0, 1  # PJRT_Buffer_MemoryLayout_Type
_RECORD: Final = RECORDS["Buffer"]


class Buffer:
    """An array on a device.  array: None once it was deleted or donated.  pending: the call that makes it; None once it
    is there.  failure: of that call."""

    __slots__ = (
        "_external",
        "_held",
        "_is_taken",
        "_pending",
        "array",
        "device",
        "handle",
        "is_destroyed",
        "record",
        "shape",
    )

    def __init__(
        self,
        array: DeviceArray,
        device: Device,
        pending: Pending | None = None,
        constants: Constants | None = None,
        record: ctypes.Structure | None = None,
        memory: Memory | None = None,
    ) -> None:
        """constants: of the array's shape.  record: that of native code, which this takes over: `adopt` has to
        follow.  memory: of the device's; its first by default."""
        self._is_taken = False  # nor is there a record to free, where an interrupt ends this
        constants = constants or constants_of(array.hlo_shape)
        self.array: DeviceArray | None = array
        self.device = device
        self.shape = constants.shape
        self.is_destroyed = False  # C++ has given it up
        self._external = 0
        self._held: DeviceArray | None = None  # what external references still see of a deleted buffer
        self.record: Any = record or _record(array, memory or device.memories[0], constants)
        self._pending = pending
        self.record.is_pending = pending is not None
        self.handle = ctypes.addressof(self.record)
        if record is None:
            handles.bind(self, self.record)

    def adopt(self, block: NativeBlock) -> None:
        """Take the record of native code over, and the memory: in one statement, amid which no handler runs."""
        objects, owned, has_memory = handles.objects, (self, self.record), not self.record.is_deleted
        objects[self.handle], self._is_taken, block.is_taken = owned, True, has_memory

    @property
    def pending(self) -> Pending | None:
        return self._pending

    @pending.setter
    def pending(self, call: Pending | None) -> None:
        self._pending = call
        self.record.is_pending = call is not None

    def __del__(self, free: Any = handles.free) -> None:
        if getattr(self, "_is_taken", False):  # an interrupt may come before everything else
            self._is_taken = False
            free(self.handle)

    def delete(self) -> None:
        """Give the memory up; external references keep it."""
        if self.array is not None:
            self._held = self.array if self._external else None
            self.device.client.direct().hold(self.array)
            self.array = None
            self.record.is_deleted = True

    def settle(self) -> Pending | None:
        """The call that makes the array, unless it has ended well."""
        if self._pending is not None and self._pending.is_over and self._pending.error is None:
            self.pending = None
        return self._pending

    def wait(self) -> None:
        """Block until the array is there; raise the failure of the call that makes it. Interrupted by Ctrl-C."""
        if self.pending is not None:
            wait_for(self.pending)
            if late.is_late():
                raise Interrupted
            self.pending.wait()  # raises the failure
            self.pending = None

    def live(self) -> DeviceArray:
        """The array, which may be pending. ArgumentError once it was deleted."""
        if self.array is None:
            raise ArgumentError("the buffer has been deleted or donated")
        return self.array

    def values(self) -> NDArray[Any]:
        """The elements; blocks until they are there."""
        array = self.live()
        self.wait()
        return np.asarray(array)

    def refer(self, once: Once) -> None:
        """Something outside of PJRT uses the memory."""
        if not once.is_done:
            self.live()
            self._external, once.is_done = self._external + 1, True

    def unrefer(self, once: Once) -> None:
        if not once.is_done:
            self._external, once.is_done = self._external - 1, True
        if not self._external:
            self.device.client.direct().hold(self._held)
            self._held = None

    @property
    def is_referred(self) -> bool:
        return self._external > 0

    @property
    def is_foreign(self) -> bool:
        """Whether the memory is another's, who lets this plugin read it."""
        return isinstance(self.live().place[0], _Foreign)


def _record(array: DeviceArray, memory: Memory, constants: Constants) -> ctypes.Structure:
    base = memory.device.address()
    found = _RECORD(
        type=constants.number,
        is_on_cpu=base is not None,
        offset=array.offset,
        dims=constants.dims.address,
        num_dims=constants.dims.size,
        size=constants.size,
        device=memory.device.handle,
        memory=memory.handle,
        pointer=None if base is None else base + array.offset,
    )
    assert isinstance(found, ctypes.Structure)
    return found


def of(handle: int) -> Buffer:
    """The buffer of a handle; one of native code is Python's from then on."""
    found = handles.find(handle)
    if found is None:
        record: Any = _RECORD.from_address(handle)
        handles.of(record.device).client.direct().end_native(record.call)
        with TAKING:
            found = handles.find(handle) or _taken(handle)
    assert isinstance(found, Buffer)
    return found


def _taken(handle: int) -> Buffer:
    record: Any = _RECORD.from_address(handle)
    constants = constants_at(record.dims)
    device = handles.of(record.device)
    assert isinstance(device, Device)
    client = device.client
    pending = client.direct().pending(record.call)
    native_functions().buffer_take(handle)
    block = NativeBlock(client.direct().gate, record.block, constants.size)
    memory = client.cluster.memory(device.id)
    array = DeviceArray(memory, cast(Block, block), record.offset, device.id, constants.shape)
    found = Buffer(array, device, pending, constants, record)
    if record.is_deleted:
        found.array = None
    found.adopt(block)
    return found


def put(values: NDArray[Any], shape: Shape, place: Memory) -> Buffer:
    """A buffer of these bytes: `values` has the shape's sizes and element width, of any type and strides."""
    device = place.device
    cluster = device.client.started()
    block = cluster.heap.allocate(shape.byte_size, (device.id,))
    memory = cluster.memory(device.id)
    if isinstance(memory, Segment):
        begin = block.offset
        there = memory.bytes[begin : begin + shape.byte_size].view(values.dtype).reshape(shape.dims)
        np.copyto(there, values)
    else:
        memory.write(block.offset, np.ascontiguousarray(values).reshape(-1).view(np.uint8))
    return Buffer(DeviceArray(memory, block, block.offset, device.id, shape), device, memory=place)


class _Memory:
    """Memory of the caller's as NumPy reads it."""

    def __init__(self, address: int, shape: Shape, strides: Sequence[int] | None) -> None:
        width = shape.dtype.byte_size
        self.__array_interface__ = {
            "version": 3,
            "typestr": f"|V{width}" if width not in (1, 2, 4, 8) else f"<u{width}",
            "shape": tuple(shape.dims),
            "strides": None if strides is None else tuple(strides),
            "data": (address, True),
        }


def _zeros(shape: Shape) -> NDArray[Any]:
    return np.zeros(shape.dims, np.dtype(f"V{max(1, shape.dtype.byte_size)}"))


def seen(address: int | None, shape: Shape, strides: Sequence[int] | None = None) -> NDArray[Any]:
    """The caller's array, by bits; not copied."""
    if not address or not shape.byte_size:
        return _zeros(shape)
    return np.asarray(_Memory(address, shape, strides))


def _place(args: Any) -> Memory:
    found = handles.of(args.memory) if args.memory else handles.of(args.device).memories[0]
    assert isinstance(found, Memory)
    return found


def _array_shape(number: int, dims: int | None, count: int) -> Shape:
    return Shape(element_type_of_number(number), tuple(integers(dims, count)))


def from_host(args: Any) -> None:
    """Client_BufferFromHostBuffer: copied before it returns, whatever the semantics."""
    shape = _array_shape(args.type, args.dims, args.num_dims)
    strides = integers(args.byte_strides, args.num_byte_strides) or None
    args.buffer = put(seen(args.data, shape, strides), shape, _place(args)).handle
    args.done_with_host_buffer = READY.handle


def uninitialized(args: Any) -> None:
    """Client_CreateUninitializedBuffer."""
    shape = _array_shape(args.shape_element_type, args.shape_dims, args.shape_num_dims)
    args.buffer = put(_zeros(shape), shape, _place(args)).handle


def view_of_device_buffer(args: Any) -> None:
    """Client_CreateViewOfDeviceBuffer: an array of a device's memory where it lies, any other by a copy."""
    shape = _array_shape(args.element_type, args.dims, args.num_dims)
    strides = _other_strides(args.layout, shape) if args.layout else None
    place, address = _place(args), args.device_buffer_ptr or 0
    device = place.device
    foreign = _Foreign(args.on_delete_callback, address, args.on_delete_callback_arg)
    memory = device.client.started().memory(device.id)
    if strides is None and isinstance(memory, Segment) and _is_inside(memory, address):
        array = DeviceArray(memory, cast(Block, foreign), address - memory.address, device.id, shape)
        args.buffer = Buffer(array, device, memory=place).handle
    else:
        args.buffer = put(seen(address, shape, strides), shape, place).handle


def _is_inside(memory: Segment, address: int) -> bool:
    """Whether a program can take an array there where it lies."""
    return 0 <= address - memory.address < memory.size and address % ALIGNMENT == 0


class _Foreign:
    """Memory that is another's: told when it is not used any more."""

    __slots__ = ("_arguments", "_callback", "_told")

    def __init__(self, callback: int | None, *arguments: int | None) -> None:
        self._told = _ON_DELETE  # which is there longer than the module
        self._callback = callback
        self._arguments = arguments

    def __del__(self) -> None:
        if self._callback:
            self._told(self._callback)(*self._arguments)


_ON_DELETE: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


def _other_strides(layout: int, shape: Shape) -> list[int] | None:
    """The strides of dense memory in a layout, in bytes; None for row-major order."""
    order = _minor_to_major(layout, shape)
    if order in (None, list(reversed(range(len(shape.dims))))):
        return None
    strides, stride = [0] * len(shape.dims), max(1, shape.dtype.byte_size)
    for dimension in order:
        strides[dimension] = stride
        stride *= shape.dims[dimension]
    return strides


def _minor_to_major(layout: int, shape: Shape) -> list[int] | None:
    """The order of dimensions of a layout; None where it gives strides that are those of row-major order."""
    found = STRUCTURES["MemoryLayout"].from_address(layout)
    if found.type == _TILED:
        if found.num_tiles:
            raise UnsupportedOpError(f"{shape}: tiled layouts are not supported")
        return integers(found.minor_to_major, found.minor_to_major_size)
    strided = STRUCTURES["StridedLayout"].from_address(layout)
    strides = integers(strided.byte_strides, strided.num_byte_strides)
    return sorted(range(len(strides)), key=lambda d: (strides[d], -d))


def to_host(args: Any) -> None:
    """Buffer_ToHostBuffer: copied before it returns."""
    buffer = of(args.src)
    size = buffer.shape.byte_size
    if not args.dst:
        args.dst_size = size
        return
    if args.dst_size < size:
        raise ArgumentError(f"{buffer.shape} has {size} bytes; there is place for {args.dst_size}")
    args.event = READY.handle
    values = buffer.values()
    order = _minor_to_major(args.host_layout, buffer.shape) if args.host_layout else None
    if order is not None:
        values = values.transpose(order[::-1])
    if size:
        data = np.ascontiguousarray(values)
        ctypes.memmove(args.dst, data.ctypes.data, size)


def raw_to_host(args: Any) -> None:
    """Buffer_CopyRawToHost."""
    args.event = READY.handle
    values = np.ascontiguousarray(of(args.buffer).values()).reshape(-1).view(np.uint8)
    if args.offset < 0 or args.transfer_size < 0 or args.offset + args.transfer_size > values.size:
        raise ArgumentError(f"{args.transfer_size} bytes from {args.offset}: the buffer has {values.size}")
    if args.transfer_size:
        ctypes.memmove(args.dst, values.ctypes.data + args.offset, args.transfer_size)


def _copied(buffer: Buffer, place: Memory) -> int:
    try:
        values = buffer.values()
    except Interrupted:
        values = _zeros(buffer.shape)  # nobody sees it
    return put(values, buffer.shape, place).handle


def copy_to_device(args: Any) -> None:
    args.dst_buffer = _copied(of(args.buffer), handles.of(args.dst_device).memories[0])


def copy_to_memory(args: Any) -> None:
    args.dst_buffer = _copied(of(args.buffer), handles.of(args.dst_memory))


def destroy(args: Any) -> None:
    buffer = handles.find(args.buffer)
    if buffer is not None:
        buffer.delete()
        buffer.is_destroyed = True
        if not buffer.is_referred:
            handles.release(args.buffer)


def delete(args: Any) -> None:
    of(args.buffer).delete()


def ready_event(args: Any) -> None:
    args.event = pending_event(of(args.buffer).pending, waits=True)


def pointer(args: Any) -> None:
    buffer = of(args.buffer)
    args.buffer_pointer = _pointer(buffer)
    buffer.wait()


def opaque_pointer(args: Any) -> None:
    buffer = of(args.buffer)
    args.device_memory_ptr = _pointer(buffer)
    buffer.wait()


def _pointer(buffer: Buffer) -> int:
    """Where the array lies, which may be pending."""
    buffer.live()
    found = buffer.record.pointer
    if found is None:
        raise UnsupportedOpError(f"device {buffer.device.id} is on another host: its memory has no address here")
    return int(found)


def increase(args: Any, once: Once) -> None:
    of(args.buffer).refer(once)


def decrease(args: Any, once: Once) -> None:
    buffer = handles.find(args.buffer)
    if buffer is not None:
        buffer.unrefer(once)
        if buffer.is_destroyed and not buffer.is_referred:
            handles.release(args.buffer)


def dynamic_dimensions(args: Any) -> None:
    args.dynamic_dim_indices, args.num_dynamic_dims = None, 0


def memory_layout(args: Any) -> None:
    order = constants_of(of(args.buffer).shape).minor_to_major
    args.layout_type, args.num_tiles, args.tile_dims, args.tile_dim_sizes = _TILED, 0, None, None
    args.minor_to_major, args.minor_to_major_size = order.address, order.size


ONCE: Final = {
    "Buffer_DecreaseExternalReferenceCount": decrease,
    "Buffer_IncreaseExternalReferenceCount": increase,
}
ENTRIES: Final = {
    "Buffer_CopyRawToHost": raw_to_host,
    "Buffer_CopyToDevice": copy_to_device,
    "Buffer_CopyToMemory": copy_to_memory,
    "Buffer_Delete": delete,
    "Buffer_Destroy": destroy,
    "Buffer_DynamicDimensionIndices": dynamic_dimensions,
    "Buffer_GetMemoryLayout": memory_layout,
    "Buffer_OpaqueDeviceMemoryDataPointer": opaque_pointer,
    "Buffer_ReadyEvent": ready_event,
    "Buffer_ToHostBuffer": to_host,
    "Buffer_UnsafePointer": pointer,
    "Client_BufferFromHostBuffer": from_host,
    "Client_CreateUninitializedBuffer": uninitialized,
    "Client_CreateViewOfDeviceBuffer": view_of_device_buffer,
}

__all__ = ["ENTRIES", "ONCE", "Buffer", "of", "put"]
