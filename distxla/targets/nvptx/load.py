"""Programs in this process whose kernels run on a GPU, or on the emulated one."""

from __future__ import annotations

import ctypes
import traceback
from collections.abc import Callable
from functools import cache
from typing import Any

from distxla.errors import InternalError, raised
from distxla.program.abi import Status
from distxla.program.artifact import CompiledProgram
from distxla.targets.local_rank import ALONE, LocalRank
from distxla.targets.nvptx.call_state import BEGIN, CONSTANT, DRIVER, FAILED, OPEN
from distxla.targets.nvptx.device_code import DeviceCode
from distxla.targets.nvptx.driver.choice import driver_named
from distxla.targets.nvptx.driver.errors import DriverError
from distxla.targets.nvptx.process_gpu import ProcessGpu
from distxla.targets.nvptx.program_memory import ProgramOnGpu
from distxla.targets.registry import native_target, resolve_import
from distxla.targets.target import KernelErrorHandler, LoadedImage


class LaunchingImage:
    """An image, its part on the GPU, and the functions that it calls for that."""

    def __init__(self, image: LoadedImage, on_gpu: ProgramOnGpu, functions: dict[str, Any]) -> None:
        self.program = image.program
        self._image, self._on_gpu, self._functions = image, on_gpu, functions

    def address_of(self, symbol: str) -> int:
        return self._image.address_of(symbol)

    def close(self) -> None:
        """Twice is fine."""
        self._image.close()
        self._on_gpu.close()


def load_image(
    program: CompiledProgram,
    resolve: Callable[[str], int] | None = None,
    file: tuple[int, int] | None = None,
    report: KernelErrorHandler | None = None,
    local: LocalRank = ALONE,
) -> LaunchingImage:
    """See `targets.target.Loader`. DriverError where the device's GPU can't be used."""
    code = program.grid.device_code
    if not isinstance(code, DeviceCode):
        raise InternalError(f"{program.name} has no kernels for a GPU")
    on_gpu = ProgramOnGpu(gpu_of(code.driver, local), program, code)
    functions = _functions(on_gpu, report)
    others = resolve or resolve_import

    def address(name: str) -> int:
        if name in functions:
            return ctypes.cast(functions[name], ctypes.c_void_p).value or 0
        if name.startswith(DRIVER):
            return on_gpu.driver_function(name.removeprefix(DRIVER))
        return others(name)

    try:
        image = native_target().loader.load_image(program, address, file)
    except BaseException:
        on_gpu.close()
        raise
    return LaunchingImage(image, on_gpu, functions)


@cache
def gpu_of(driver: str, local: LocalRank) -> ProcessGpu:
    """For all programs of this process, until it ends: making a context takes a good part of a second."""
    gpus = driver_named(driver)
    of_devices = ordinals(local, len(gpus.gpus()))
    mine = of_devices[local.rank]
    sharing = local.per_gpu if local.given and local.per_gpu else of_devices.count(mine)
    several = local.given or len(set(of_devices)) > 1
    return ProcessGpu(gpus.context(mine, sharing), driver, gpus.version, is_one_of_several=several)


def _functions(on_gpu: ProgramOnGpu, report: KernelErrorHandler | None) -> dict[str, Any]:
    """What programs call in this process, by name (call_state.py)."""
    context, number, size = ctypes.c_size_t, ctypes.c_uint32, ctypes.c_uint64
    methods = (
        (BEGIN, on_gpu.begin, [context, number], "beginning to use the GPU"),
        (CONSTANT, on_gpu.constant, [context, number, ctypes.c_size_t, size], "copying a constant to the GPU"),
        (OPEN, on_gpu.open, [context, number, number], "opening another device's memory"),
        (FAILED, on_gpu.failed, [context, number, ctypes.c_int32], "running kernels"),
    )
    return {name: _native(method, arguments, doing, report) for name, method, arguments, doing in methods}


def _native(
    function: Callable[..., None], arguments: list[type[Any]], doing: str, report: KernelErrorHandler | None
) -> Any:
    """A function of C that returns a Status, and reports an error."""

    def call(*values: int) -> int:
        try:
            function(*values)
        except BaseException as error:  # nothing may pass through native frames
            if report is not None:
                why = raised(error)
                report(f"{doing}: {why}", "".join(traceback.format_exception(error)).rstrip())
            return Status.ROUTINE_FAILED
        return Status.OK

    return ctypes.CFUNCTYPE(ctypes.c_int32, *arguments)(call)


def ordinals(local: LocalRank, gpus: int) -> list[int]:
    """The GPU of each of the machine's devices, of so many that the process sees. One each if there are enough.

    DriverError where there are too few for `per_gpu`.
    """
    size = local.size
    if local.given or gpus == 0:
        return [0] * size
    if local.per_gpu is None:
        return list(range(size)) if size <= gpus else [rank * gpus // size for rank in range(size)]
    if size > local.per_gpu * gpus:
        found = "1 GPU" if gpus == 1 else f"{gpus} GPUs"
        raise DriverError(f"{size} devices are on this machine, which has {found}, and devices_per_gpu={local.per_gpu}")
    return [rank // local.per_gpu for rank in range(size)]


__all__ = ["LaunchingImage", "load_image", "resolve_import"]  # kernels are known to their image only
