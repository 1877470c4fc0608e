"""What a running program keeps about the GPU. One description for ctypes and for LLVM; light.

Emitted code calls the functions of the driver by import, as `cuda.cuLaunchKernel`, four of program_memory.py, and
cuBLAS's function where this process has it.
"""

from __future__ import annotations

import ctypes

from distxla.targets.nvptx.interfaces.cublas import GEMM

BEGIN = "distxla.gpu.begin"  # (Context*, u32 constants)
CONSTANT = "distxla.gpu.constant"  # (Context*, u32 number, place, u64 bytes)
OPEN = "distxla.gpu.open"  # (Context*, u32 device, u32 number): a block of the device's that it has posted
FAILED = "distxla.gpu.failed"  # (Context*, u32 function, i32 result): the number of a function in CALLED, and its error
DRIVER = "cuda."  # begins the name of an import from the driver
CALLED = (
    "cuLaunchKernel",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemsetD8Async",
    "cuStreamSynchronize",
    GEMM,
)
STAGING_BYTES = 1 << 16
STAGED_BYTES = 1 << 12  # what is smaller is uploaded from a copy, for which nobody waits
STAGED_ALIGNMENT = 16


class CallState(ctypes.Structure):
    """Of one device's calls of a program. Addresses are the GPU's; emitted code writes `staged` and `last`."""

    _fields_ = (
        ("stream", ctypes.c_void_p),
        ("functions", ctypes.c_void_p),  # void*[]: by number of a launch
        ("context", ctypes.c_uint64),  # address of a copy of the program's Context
        ("scratch", ctypes.c_uint64),
        ("arena", ctypes.c_uint64),
        ("parameters", ctypes.c_void_p),  # u64[]: addresses
        ("results", ctypes.c_void_p),
        ("shared", ctypes.c_void_p),
        ("constants", ctypes.c_void_p),  # 0 before the first use
        ("staging", ctypes.c_void_p),  # STAGING_BYTES of the host's memory, from which queued copies read
        ("staged", ctypes.c_uint64),  # bytes of it that are in use
        ("export", ctypes.c_uint64),  # added to an address gives what other devices understand (exported_blocks.py)
        ("opened", ctypes.c_void_p),  # u64[device * BLOCKS + number]: addresses of others' blocks; 0: not opened
        ("multiply", ctypes.c_void_p),  # cublasGemmStridedBatchedEx; 0: kernels multiply
        ("cublas", ctypes.c_void_p),  # its handle, whose stream is `stream`
        ("is_one_of_several", ctypes.c_uint32),  # 1 where devices of this host use other GPUs, too
        ("last", ctypes.c_uint32),  # 1 + the number of the step that launched kernels last; 0 before the first
    )


__all__ = ["BEGIN", "CALLED", "CONSTANT", "DRIVER", "FAILED", "OPEN", "STAGED_BYTES", "STAGING_BYTES", "CallState"]
