"""The machine under Linux; targets/target.py documents the functions. Needs neither LLVM nor NumPy."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from distxla.machine import futexes
from distxla.machine.mappings import PAGE, map_stacks
from distxla.machine.processes import kernel_text
from distxla.targets.native.traits import own_fields, own_traits

if TYPE_CHECKING:
    from distxla.targets.target import Atomics

address_bytes = own_traits().address_bytes

# --- waiting


def sleep_on(address: int, value: int, seconds: float) -> None:
    futexes.sleep_on(own_traits().futex, address, value, seconds)


def wake_all(address: int) -> int:
    return futexes.wake_all(own_traits().futex, address)


def atomics() -> Atomics:
    from distxla.targets.native.atomics import mapped_atomics

    return mapped_atomics()


def stack_tops(count: int, size: int) -> list[int]:
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


@cache
def processor() -> str:
    try:
        lines = kernel_text("cpuinfo").split("\n\n")[0].splitlines()
    except OSError:
        return " ".join(os.uname())
    return "\n".join(line for line in lines if line.partition("\t")[0].strip(" :") in own_traits().identity)


@cache
def instruction_sets() -> frozenset[str]:
    return own_traits().instruction_sets(own_fields())
