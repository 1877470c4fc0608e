"""Programs in this process whose kernels run on a GPU, or on the emulated one."""

from __future__ import annotations

import ctypes
import traceback
from collections.abc import Callable
from functools import cache
from typing import Any

from distxla.compiler.abi import Status
from distxla.compiler.artifact import CompiledProgram, ImportedKernel
from distxla.errors import InternalError
from distxla.targets.nvptx.device_code import DeviceCode
from distxla.targets.nvptx.driver.choice import driver_named
from distxla.targets.nvptx.staging import ProcessGpu, StagedKernels
from distxla.targets.registry import native_target
from distxla.targets.target import KernelErrorHandler, LoadedImage

GPU = 0  # its number


class LaunchingImage:
    """An image, the kernels that it launches, and the functions that it calls for that."""

    def __init__(self, image: LoadedImage, kernels: StagedKernels, functions: dict[str, Any]) -> None:
        self.program = image.program
        self._image, self._kernels, self._functions = image, kernels, functions

    def address_of(self, symbol: str) -> int:
        return self._image.address_of(symbol)

    def close(self) -> None:
        """Twice is fine."""
        self._image.close()
        self._kernels.close()


def load_image(
    program: CompiledProgram,
    resolve: Callable[[str], int] | None = None,
    file: tuple[int, int] | None = None,
    report: KernelErrorHandler | None = None,
) -> LaunchingImage:
    """See `targets.target.Loader`. All processes of this machine use its first GPU; DriverError where that can't be."""
    code = program.device_code
    if not isinstance(code, DeviceCode):
        raise InternalError(f"{program.name} has no kernels for a GPU")
    kernels = StagedKernels(_gpu(code.driver), code)
    functions = {kernel.symbol: _launcher(kernels, kernel, report) for kernel in program.kernels}
    others = resolve or resolve_import

    def address(name: str) -> int:
        if name in functions:
            return ctypes.cast(functions[name], ctypes.c_void_p).value or 0
        return others(name)

    try:
        image = native_target().loader.load_image(program, address, file)
    except BaseException:
        kernels.close()
        raise
    return LaunchingImage(image, kernels, functions)


def resolve_import(name: str) -> int:
    """As this processor's: kernels are known to their image only."""
    return native_target().loader.resolve_import(name)


@cache
def _gpu(driver: str) -> ProcessGpu:
    """For all programs of this process, until it ends: making a context takes a good part of a second."""
    return ProcessGpu(driver_named(driver).context(GPU))


def _launcher(kernels: StagedKernels, kernel: ImportedKernel, report: KernelErrorHandler | None) -> Any:
    """i32 (Context*, operand leaves …, result leaves …, scratch): makes the kernel's launches; a Status."""
    operands, results = (
        [leaf.byte_size for shape in shapes for leaf in shape.leaves() if leaf.is_array]
        for shapes in (kernel.operands, (kernel.instruction.shape,))
    )
    sizes = operands + results

    def call(*pointers: int) -> int:
        try:
            kernels.call(kernel, sizes, len(results), [pointer or 0 for pointer in pointers])
        except BaseException as error:  # nothing may pass through native frames
            if report is not None:
                why = traceback.format_exception_only(error)[-1].strip()
                frames = "".join(traceback.format_exception(error)).rstrip()
                report(f"running {kernel.instruction.name} ({kernel.instruction.opcode}): {why}", frames)
            return Status.ROUTINE_FAILED
        return Status.OK

    return ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * (len(sizes) + 2))(call)


__all__ = ["LaunchingImage", "load_image", "resolve_import"]
