"""Programs in this process whose kernels the emulator runs."""

from __future__ import annotations

import ctypes
import traceback
from collections.abc import Callable
from typing import Any

from distxla.compiler.abi import Status
from distxla.compiler.artifact import CompiledProgram, ImportedKernel
from distxla.errors import InternalError
from distxla.targets.nvptx.emulator.launch import LoadedModule
from distxla.targets.nvptx.emulator.prepared import PreparedModule
from distxla.targets.registry import native_target
from distxla.targets.target import KernelErrorHandler, LoadedImage


class LaunchingImage:
    """An image, the kernels that it launches, and the functions that it calls for that."""

    def __init__(self, image: LoadedImage, kernels: LoadedModule, functions: dict[str, Any]) -> None:
        self.program = image.program
        self._image, self._kernels, self._functions = image, kernels, functions

    def address_of(self, symbol: str) -> int:
        return self._image.address_of(symbol)

    def close(self) -> None:
        self._image.close()
        self._kernels.close()


def load_image(
    program: CompiledProgram,
    resolve: Callable[[str], int] | None = None,
    file: tuple[int, int] | None = None,
    report: KernelErrorHandler | None = None,
) -> LaunchingImage:
    """See `targets.target.Loader`."""
    if not isinstance(program.device_code, PreparedModule):
        raise InternalError(f"{program.name} has no kernels for the emulator")
    kernels = LoadedModule(program.device_code)
    functions = {kernel.symbol: _launcher(kernels, kernel, report) for kernel in program.kernels}
    others = resolve or resolve_import

    def address(name: str) -> int:
        if name in functions:
            return ctypes.cast(functions[name], ctypes.c_void_p).value or 0
        return others(name)

    return LaunchingImage(native_target().loader.load_image(program, address, file), kernels, functions)


def resolve_import(name: str) -> int:
    """As this processor's: kernels are known to their image only."""
    return native_target().loader.resolve_import(name)


def _launcher(kernels: LoadedModule, kernel: ImportedKernel, report: KernelErrorHandler | None) -> Any:
    """i32 (Context*, operand leaves …, result leaves …, scratch): makes the kernel's launches; a Status."""
    leaves = [leaf for shape in (*kernel.operands, kernel.instruction.shape) for leaf in shape.leaves()]
    count = sum(leaf.is_array for leaf in leaves)

    def call(context: int, *pointers: int) -> int:
        try:
            arguments = [pointer or 0 for pointer in (context, *pointers)]
            for launch in kernel.launches:
                kernels.launch(launch.symbol, (launch.blocks, 1, 1), (launch.threads, 1, 1), arguments)
        except BaseException as error:  # nothing may pass through native frames
            if report is not None:
                why = traceback.format_exception_only(error)[-1].strip()
                frames = "".join(traceback.format_exception(error)).rstrip()
                report(f"running {kernel.instruction.name} ({kernel.instruction.opcode}): {why}", frames)
            return Status.ROUTINE_FAILED
        return Status.OK

    return ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * (count + 2))(call)


__all__ = ["LaunchingImage", "load_image", "resolve_import"]
