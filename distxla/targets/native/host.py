"""The machine under Linux on x86-64; targets/target.py documents the functions. Needs neither LLVM nor NumPy."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distxla.targets.target import Atomics

address_bytes = 1 << 47

# --- waiting

_SYS_FUTEX, _FUTEX_WAIT, _FUTEX_WAKE, _ALL_SLEEPERS = 202, 0, 1, 0x7FFFFFFF
_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.argtypes = (
    ctypes.c_long,
    ctypes.c_void_p,
    ctypes.c_int,
    ctypes.c_uint32,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_int,
)
_syscall.restype = ctypes.c_long


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_int64), ("nanoseconds", ctypes.c_int64))


def sleep_on(address: int, value: int, seconds: float) -> None:
    limit = _Timespec(int(seconds), int(seconds % 1 * 1e9))
    _syscall(_SYS_FUTEX, address, _FUTEX_WAIT, value, ctypes.addressof(limit), None, 0)


def wake_all(address: int) -> int:
    return int(_syscall(_SYS_FUTEX, address, _FUTEX_WAKE, _ALL_SLEEPERS, None, None, 0))


def atomics() -> Atomics:
    from distxla.targets.native.atomics import mapped_atomics

    return mapped_atomics(os.uname().machine)


def stack_tops(count: int, size: int) -> list[int]:
    from distxla.targets.native.load import PAGE, map_stacks

    base = map_stacks(count, size)
    return [base + (number + 1) * (size + PAGE) for number in range(count)]


# --- libraries

thread_variables = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")  # in OpenBLAS's order


def set_library_threads(count: int) -> None:
    import numpy

    for library in Path(numpy.__file__).parent.with_name("numpy.libs").glob("*openblas*"):
        ctypes.CDLL(str(library)).scipy_openblas_set_num_threads64_(count)


def libraries() -> tuple[str, ...]:
    return ("scipy-openblas32",)


# --- the processor

# features of a CPU that compiled code may use, by the names of /proc/cpuinfo
_INSTRUCTIONS = ("sse", "ssse", "avx", "amx", "bmi", "fma", "f16c", "abm", "popcnt", "movbe", "adx", "gfni", "vaes")
_MORE_INSTRUCTIONS = ("aes", "pclmulqdq", "vpclmulqdq", "sha_ni", "rtm", "xsave", "cx16", "lahf_lm", "fxsr")


@cache
def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return " ".join(os.uname())
    wanted = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags")
    return "\n".join(line for line in lines if line.partition("\t")[0].strip(" :") in wanted)


@cache
def instruction_sets() -> frozenset[str]:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return frozenset()
    line = next((line for line in text.splitlines() if line.startswith("flags")), "")
    flags = line.partition(":")[2].split()
    return frozenset(f for f in flags if f.startswith(_INSTRUCTIONS) or f in _MORE_INSTRUCTIONS)
