"""Programs in this process whose kernels are calls of Python."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from distxla.program.artifact import CompiledProgram
from distxla.targets.interpreted.kernels import Kernels
from distxla.targets.local_rank import ALONE, LocalRank
from distxla.targets.registry import native_target, resolve_import
from distxla.targets.target import KernelErrorHandler, LoadedImage


class InterpretedImage:
    """An image, and the functions that it calls for its kernels."""

    def __init__(self, image: LoadedImage, functions: dict[str, Any]) -> None:
        self.program = image.program
        self._image, self._functions = image, functions

    def address_of(self, symbol: str) -> int:
        return self._image.address_of(symbol)

    def close(self) -> None:
        self._image.close()


def load_image(
    program: CompiledProgram,
    resolve: Callable[[str], int] | None = None,
    file: tuple[int, int] | None = None,
    report: KernelErrorHandler | None = None,
    local: LocalRank = ALONE,
) -> InterpretedImage:
    """See `targets.target.Loader`. The kernels of one image share a random state, which starts from its initial one."""
    kernels = Kernels(program, report)
    functions = {kernel.symbol: kernels.function(kernel) for kernel in program.kernels}
    others = resolve or resolve_import

    def address(name: str) -> int:
        if name in functions:
            return ctypes.cast(functions[name], ctypes.c_void_p).value or 0
        return others(name)

    return InterpretedImage(native_target().loader.load_image(program, address, file), functions)


__all__ = ["InterpretedImage", "load_image", "resolve_import"]  # kernels are known to their image only
