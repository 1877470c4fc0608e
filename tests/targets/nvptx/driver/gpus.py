"""Drivers for tests, and host memory at an address."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from distxla.targets.nvptx.architectures import newest_for
from distxla.targets.nvptx.code import code_for
from distxla.targets.nvptx.driver.choice import load_cuda
from distxla.targets.nvptx.driver.driver import Context, Driver
from distxla.targets.nvptx.driver.emulated.kernels import packed
from distxla.targets.nvptx.driver.emulated.library import EmulatedGpu, EmulatedLibrary
from distxla.targets.nvptx.driver.errors import DriverError
from distxla.targets.nvptx.emulator.prepare import prepare

DRIVERS = ("emulated", "cuda")
AXPY = """
target triple = "nvptx64-nvidia-cuda"
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
define ptx_kernel void @add_one(ptr %x) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %p = getelementptr float, ptr %x, i32 %t
  %v = load float, ptr %p, align 4
  %s = fadd float %v, 1.0
  store float %s, ptr %p, align 4
  ret void
}
define ptx_kernel void @copy(ptr %to, ptr %from) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %p = getelementptr float, ptr %from, i32 %t
  %q = getelementptr float, ptr %to, i32 %t
  %v = load float, ptr %p, align 4
  store float %v, ptr %q, align 4
  ret void
}
"""


def driver_named(name: str) -> Driver:
    """A driver of its own; skips the test where there is no GPU for NVIDIA's."""
    if name == "emulated":
        return Driver(EmulatedLibrary())
    try:
        driver = Driver(load_cuda())
        if not driver.gpus():
            pytest.skip("no GPU: the driver lists none")
    except DriverError as error:
        pytest.skip(f"no GPU: {error.message}")
    return driver


def emulated(*gpus: EmulatedGpu, version: int = 12080) -> Driver:
    return Driver(EmulatedLibrary(gpus or (EmulatedGpu(),), version))


def kernels_for(name: str, context: Context, text: str = AXPY) -> bytes:
    """Kernels as that driver loads them; of the emulator such that check their accesses."""
    if name == "emulated":
        return packed(prepare(text, checked=True))
    code = code_for(newest_for(context.gpu.architecture))
    parsed = code.parse(text)
    code.optimise(parsed)
    return code.emit_assembly(parsed).encode()


def at(array: np.ndarray[Any, Any]) -> int:
    return int(array.ctypes.data)


def place_of(kind: Any) -> tuple[Any, int]:
    """A value that a C function is to store."""
    place = kind()
    return place, ctypes.addressof(place)
