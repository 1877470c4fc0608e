"""The functions of the driver's C interface that are used, with their types, and the numbers that they take and give.

Each returns a CUresult. Names and types are those of cuda.h; the suffix is part of a symbol's name.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_ushort, c_void_p
from typing import Any, Protocol

IPC_HANDLE_BYTES = 64
IPC_LAZY_PEER_ACCESS = 1


class IpcHandle(ctypes.Structure):
    """CUipcMemHandle, which travels by value."""

    _fields_ = (("reserved", ctypes.c_char * IPC_HANDLE_BYTES),)


Address = c_uint64  # CUdeviceptr
Handle = c_void_p  # of a context, stream, module or function
Pointer = c_void_p  # to memory of this process

FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (Pointer,),
    "cuGetErrorName": (c_int, Pointer),
    "cuGetErrorString": (c_int, Pointer),
    "cuDeviceGetCount": (Pointer,),
    "cuDeviceGet": (Pointer, c_int),
    "cuDeviceGetName": (Pointer, c_int, c_int),
    "cuDeviceGetUuid_v2": (Pointer, c_int),
    "cuDeviceTotalMem_v2": (Pointer, c_int),
    "cuDeviceGetAttribute": (Pointer, c_int, c_int),
    "cuDeviceCanAccessPeer": (Pointer, c_int, c_int),
    "cuDevicePrimaryCtxRetain": (Pointer, c_int),
    "cuDevicePrimaryCtxRelease_v2": (c_int,),
    "cuCtxSetCurrent": (Handle,),
    "cuCtxSynchronize": (),
    "cuMemGetInfo_v2": (Pointer, Pointer),
    "cuMemAlloc_v2": (Pointer, c_size_t),
    "cuMemFree_v2": (Address,),
    "cuMemcpyHtoDAsync_v2": (Address, Pointer, c_size_t, Handle),
    "cuMemcpyDtoHAsync_v2": (Pointer, Address, c_size_t, Handle),
    "cuMemcpyDtoDAsync_v2": (Address, Address, c_size_t, Handle),
    "cuMemsetD8Async": (Address, c_ubyte, c_size_t, Handle),
    "cuMemsetD16Async": (Address, c_ushort, c_size_t, Handle),
    "cuMemsetD32Async": (Address, c_uint, c_size_t, Handle),
    "cuIpcGetMemHandle": (Pointer, Address),
    "cuIpcOpenMemHandle_v2": (Pointer, IpcHandle, c_uint),
    "cuIpcCloseMemHandle": (Address,),
    "cuStreamCreate": (Pointer, c_uint),
    "cuStreamDestroy_v2": (Handle,),
    "cuStreamSynchronize": (Handle,),
    "cuModuleLoadDataEx": (Pointer, Pointer, c_uint, Pointer, Pointer),
    "cuModuleUnload": (Handle,),
    "cuModuleGetFunction": (Pointer, Handle, c_char_p),
    # function, grid, block, bytes of dynamic shared memory, stream, pointers to the arguments, nothing
    "cuLaunchKernel": (Handle, *(c_uint,) * 6, c_uint, Handle, Pointer, Pointer),
}

# CUresult
SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED = 0, 1, 2, 3
NO_DEVICE, INVALID_DEVICE = 100, 101
INVALID_CONTEXT, MAP_FAILED, NO_BINARY, INVALID_PTX = 201, 205, 209, 218
INVALID_HANDLE, NOT_FOUND = 400, 500
ILLEGAL_ADDRESS, LAUNCH_FAILED, MISALIGNED_ADDRESS, UNKNOWN = 700, 719, 716, 999

# CUdevice_attribute
MAJOR, MINOR, COMPUTE_MODE, PCI_BUS = 75, 76, 20, 33
# CUcomputemode
SHARED_MODE, PROHIBITED, EXCLUSIVE = 0, 2, 3
# CUjit_option
ERROR_LOG, ERROR_LOG_BYTES = 5, 6
NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: not ordered with other streams


class Library(Protocol):
    """A library that has FUNCTIONS as attributes, C functions of ctypes with their argument types set."""

    def __getattr__(self, name: str) -> Any: ...


__all__ = ["FUNCTIONS", "IPC_HANDLE_BYTES", "Address", "Handle", "IpcHandle", "Library", "Pointer"]
