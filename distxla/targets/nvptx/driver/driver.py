"""A driver of GPUs, as this process uses it, over a library that has the functions of the driver's C interface.

Addresses are those of a GPU's memory, unless they are called host addresses; sizes are in bytes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from distxla.errors import OutOfMemoryError
from distxla.lazy_dataclass import dataclass
from distxla.machine.byte_counts import amount
from distxla.targets.nvptx.driver.errors import DriverCallError, DriverError, chosen_by_environment
from distxla.targets.nvptx.interfaces import driver as interface
from distxla.targets.nvptx.interfaces.driver import IpcHandle, Library

LOG_BYTES = 16 << 10
LEAST_ARCHITECTURE = (7, 5)
# the version of CUDA whose driver knows the PTX that kernels for an architecture are written in (nvptx/code.py)
LEAST_VERSIONS = {(7, 5): (10, 0), (8, 0): (11, 0), (9, 0): (11, 8), (10, 0): (12, 7)}
NAME_BYTES, UUID_BYTES = 256, 16
ALLOW_SEVERAL = "`nvidia-smi -c DEFAULT` allows several processes"
Dimensions = tuple[int, int, int]


@dataclass(frozen=True)
class Gpu:
    """A GPU as the driver lists it. architecture: (9, 0) for sm_90.  uuid: 16 bytes in hexadecimal digits.
    exclusive: whether one process at a time may use it."""

    ordinal: int
    name: str
    architecture: tuple[int, int]
    memory_bytes: int
    uuid: str
    exclusive: bool = False

    def __str__(self) -> str:
        return f"GPU {self.ordinal} ({self.name})"


class Driver:
    """The GPUs of this machine that this process may use. version: of CUDA that the driver supports."""

    def __init__(self, library: Library) -> None:
        """DriverError where the library can't be initialised."""
        self._library = library
        self._is_empty = False  # without a GPU NVIDIA's can't be initialised
        try:
            self.call("cuInit", 0)
        except DriverCallError as error:
            if error.number != interface.NO_DEVICE:
                raise
            self._is_empty = True
        number = self.value(ctypes.c_int, "cuDriverGetVersion")
        self.version: tuple[int, int] = (number // 1000, number % 1000 // 10)

    def call(self, function: str, *arguments: Any) -> None:
        """Call a function of the library; DriverCallError if it fails."""
        number = getattr(self._library, function)(*arguments)
        if number != interface.SUCCESS:
            raise self.error(function, number)

    def value(self, kind: type[Any], function: str, *arguments: Any) -> Any:
        """The value that a function stores at its first argument."""
        place = kind()
        self.call(function, ctypes.addressof(place), *arguments)
        return place.value

    def error(self, function: str, number: int) -> DriverCallError:
        """Of a call that returned this CUresult."""
        return DriverCallError(function, number, *self._described(number))

    def address_of(self, function: str) -> int:
        return ctypes.cast(getattr(self._library, function), ctypes.c_void_p).value or 0

    def _described(self, number: int) -> tuple[str, str]:
        found = []
        for function in ("cuGetErrorName", "cuGetErrorString"):
            text = ctypes.c_char_p()
            known = getattr(self._library, function)(number, ctypes.addressof(text)) == interface.SUCCESS
            found.append(text.value.decode(errors="replace") if known and text.value else "unknown error")
        return found[0], found[1]

    def gpus(self) -> list[Gpu]:
        """By ordinal; may be empty."""
        if self._is_empty:
            return []
        try:
            count = self.value(ctypes.c_int, "cuDeviceGetCount")
        except DriverCallError as error:
            if error.number == interface.NO_DEVICE:
                return []
            raise
        return [self._gpu(ordinal) for ordinal in range(count)]

    def _gpu(self, ordinal: int) -> Gpu:
        device = self.value(ctypes.c_int, "cuDeviceGet", ordinal)
        name, uuid = ctypes.create_string_buffer(NAME_BYTES), ctypes.create_string_buffer(UUID_BYTES)
        self.call("cuDeviceGetName", ctypes.addressof(name), NAME_BYTES, device)
        self.call("cuDeviceGetUuid_v2", ctypes.addressof(uuid), device)
        return Gpu(
            ordinal,
            name.value.decode(errors="replace"),
            (self._attribute(interface.MAJOR, device), self._attribute(interface.MINOR, device)),
            self.value(ctypes.c_size_t, "cuDeviceTotalMem_v2", device),
            uuid.raw.hex(),
            self._attribute(interface.COMPUTE_MODE, device) == interface.EXCLUSIVE,
        )

    def _attribute(self, number: int, device: int) -> int:
        return int(self.value(ctypes.c_int, "cuDeviceGetAttribute", number, device))

    def can_access(self, gpu: int, peer: int) -> bool:
        """Whether kernels of one GPU may access another one's memory."""
        if gpu == peer:
            return True
        devices = [self.value(ctypes.c_int, "cuDeviceGet", ordinal) for ordinal in (gpu, peer)]
        return bool(self.value(ctypes.c_int, "cuDeviceCanAccessPeer", *devices))

    def context(self, ordinal: int, processes: int = 1) -> Context:
        """A GPU for use by this process. processes: that are to use the GPU at the same time.

        DriverError for what this version can't run on: a GPU below sm_75, a driver too old for kernels of the GPU,
        exclusive mode with several processes.
        """
        gpus = self.gpus()
        if not 0 <= ordinal < len(gpus):
            raise DriverError(f"no GPU {ordinal}: the driver lists {len(gpus)}{chosen_by_environment()}")
        gpu = gpus[ordinal]
        if gpu.architecture < LEAST_ARCHITECTURE:
            raise DriverError(
                f"{gpu} is {_named(gpu.architecture)}; kernels are made for {_named(LEAST_ARCHITECTURE)} on"
            )
        known = max(architecture for architecture in LEAST_VERSIONS if architecture <= gpu.architecture)
        if self.version < LEAST_VERSIONS[known]:
            least, found = (".".join(map(str, version)) for version in (LEAST_VERSIONS[known], self.version))
            raise DriverError(
                f"the driver supports CUDA {found}; kernels for {gpu} ({_named(known)}) need a driver for CUDA {least}"
            )
        if gpu.exclusive and processes > 1:
            raise DriverError(
                f"{gpu} is in exclusive mode, which allows one process, and {processes} are to use it; {ALLOW_SEVERAL}"
            )
        return Context(self, gpu)


class Context:
    """A GPU as this process uses it: its primary context. Methods may be called from any thread.

    What has a `stream` is put into that stream's queue and happens in the order of the queue, at any time until
    `synchronise` returns: until then, host memory that takes part must stay as it is. Errors of what is in a queue are
    raised by `synchronise`, or by any method after it happened; after one, the context is of no use any more.
    All methods raise DriverError.

    handle: for `cuCtxSetCurrent`, which code of this process calls before any function of the driver; 0 once closed.
    """

    def __init__(self, driver: Driver, gpu: Gpu) -> None:
        self._driver, self.gpu = driver, gpu
        self._device = driver.value(ctypes.c_int, "cuDeviceGet", gpu.ordinal)
        try:
            self.handle: int = driver.value(ctypes.c_void_p, "cuDevicePrimaryCtxRetain", self._device)
        except DriverCallError as error:
            if not gpu.exclusive:
                raise
            raise DriverError(f"{gpu} is in exclusive mode, and can't be had: {error.name}; {ALLOW_SEVERAL}") from error

    def address_of(self, function: str) -> int:
        """The host address of a function of the driver's C interface (interface.py)."""
        return self._driver.address_of(function)

    def error(self, function: str, number: int) -> DriverCallError:
        """Of a call of this function that returned this number, a CUresult."""
        return self._driver.error(function, number)

    def _call(self, function: str, *arguments: Any) -> None:
        self._enter()
        self._driver.call(function, *arguments)

    def _value(self, kind: type[Any], function: str, *arguments: Any) -> int:
        self._enter()
        return int(self._driver.value(kind, function, *arguments))

    def _enter(self) -> None:
        """The driver's functions are about the context of the thread."""
        if not self.handle:
            raise DriverError(f"the context of {self.gpu} is closed")
        self._driver.call("cuCtxSetCurrent", self.handle)

    # --- memory

    def free_bytes(self) -> int:
        """Memory that can still be allocated."""
        total = ctypes.c_size_t()
        place = ctypes.c_size_t()
        self._call("cuMemGetInfo_v2", ctypes.addressof(place), ctypes.addressof(total))
        return place.value

    def allocate(self, size: int) -> int:
        """Memory, at a multiple of 256, uninitialised. OutOfMemoryError with the need and what is free."""
        free = self.free_bytes()
        if size > free:
            raise self._full(size, free)
        try:
            return self._value(ctypes.c_uint64, "cuMemAlloc_v2", size)
        except DriverCallError as error:
            if error.number == interface.OUT_OF_MEMORY:
                raise self._full(size, free) from error
            raise

    def _full(self, size: int, free: int) -> OutOfMemoryError:
        total = amount(self.gpu.memory_bytes)
        return OutOfMemoryError(f"{amount(size)} are needed on {self.gpu}, which has {amount(free)} of {total} free")

    def free(self, address: int) -> None:
        """Free what `allocate` gave. Waits for all queues. No other process may have it open, nor use it later."""
        self._call("cuMemFree_v2", address)

    def export(self, address: int) -> bytes:
        """A handle with which other processes of this machine open the memory that `allocate` gave at the address."""
        handle = IpcHandle()
        self._call("cuIpcGetMemHandle", ctypes.addressof(handle), address)
        return bytes(handle)

    def open_peer(self, handle: bytes) -> int:
        """The address, in this context, of memory that another process allocated on this machine and exported."""
        given = IpcHandle.from_buffer_copy(handle)
        return self._value(ctypes.c_uint64, "cuIpcOpenMemHandle_v2", given, interface.IPC_LAZY_PEER_ACCESS)

    def close_peer(self, address: int) -> None:
        """Close what `open_peer` gave; waits for all queues."""
        self._call("cuIpcCloseMemHandle", address)

    def copy_to_device(self, address: int, source: int, size: int, stream: int) -> None:
        """Copy from a host address."""
        self._call("cuMemcpyHtoDAsync_v2", address, source, size, stream)

    def copy_to_host(self, target: int, address: int, size: int, stream: int) -> None:
        """Copy to a host address."""
        self._call("cuMemcpyDtoHAsync_v2", target, address, size, stream)

    def copy(self, target: int, source: int, size: int, stream: int) -> None:
        """Copy within devices' memories; the ranges must not overlap."""
        self._call("cuMemcpyDtoDAsync_v2", target, source, size, stream)

    def fill(self, address: int, value: int, count: int, stream: int) -> None:
        """Set bytes; `value` is taken at once."""
        self._call("cuMemsetD8Async", address, value, count, stream)

    # --- order

    def create_stream(self) -> int:
        """A queue, which no other one waits for by itself."""
        return self._value(ctypes.c_void_p, "cuStreamCreate", interface.NON_BLOCKING)

    def destroy_stream(self, stream: int) -> None:
        """What is in it still happens."""
        self._call("cuStreamDestroy_v2", stream)

    def synchronise(self, stream: int | None = None) -> None:
        """Block until all that is in a queue has happened; None: in all queues of the context."""
        if stream is None:
            self._call("cuCtxSynchronize")
        else:
            self._call("cuStreamSynchronize", stream)

    # --- kernels

    def load(self, code: bytes) -> Module:
        """Kernels, from PTX or a cubin (of the emulator: emulated/kernels.py). DriverError with the log of the
        assembler."""
        log = ctypes.create_string_buffer(LOG_BYTES)
        image = ctypes.create_string_buffer(code)  # the driver's assembler wants a zero behind PTX
        options = (ctypes.c_int * 2)(interface.ERROR_LOG, interface.ERROR_LOG_BYTES)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), LOG_BYTES)
        try:
            handle = self._value(
                ctypes.c_void_p,
                "cuModuleLoadDataEx",
                ctypes.addressof(image),
                len(options),
                ctypes.addressof(options),
                ctypes.addressof(values),
            )
        except DriverCallError as error:
            text = log.value.decode(errors="replace").strip()
            raise DriverError(
                f"{self.gpu} can't load the kernels: {error.message}{f': {text}' if text else ''}"
            ) from error
        return Module(self, handle)

    def launch(
        self, function: int, grid: Dimensions, block: Dimensions, addresses: Sequence[int], stream: int, shared: int = 0
    ) -> None:
        """Run a kernel whose arguments are addresses, taken at once. shared: bytes of dynamic shared memory."""
        held = (ctypes.c_uint64 * max(1, len(addresses)))(*addresses)
        begin, size = ctypes.addressof(held), ctypes.sizeof(ctypes.c_uint64)
        pointers = (ctypes.c_void_p * max(1, len(addresses)))(*(begin + size * k for k in range(len(addresses))))
        self._call("cuLaunchKernel", function, *grid, *block, shared, stream, ctypes.addressof(pointers), None)

    # --- the end

    def close(self) -> None:
        """Release the context, its memory, streams and modules; twice is fine."""
        if self.handle:
            self.handle = 0
            self._driver.call("cuDevicePrimaryCtxRelease_v2", self._device)

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Module:
    """Kernels in a context."""

    def __init__(self, context: Context, handle: int) -> None:
        self._context, self._handle = context, handle

    def function(self, name: str) -> int:
        """The handle of a kernel, for launches; DriverError if the module has none of that name."""
        return self._context._value(ctypes.c_void_p, "cuModuleGetFunction", self._handle, name.encode())

    def unload(self) -> None:
        """Remove the kernels, none of which may be in a queue; twice is fine."""
        if self._handle:
            handle, self._handle = self._handle, 0
            self._context._call("cuModuleUnload", handle)


def _named(architecture: tuple[int, int]) -> str:
    return f"sm_{architecture[0]}{architecture[1]}"


__all__ = ["LEAST_VERSIONS", "Context", "Dimensions", "Driver", "Gpu", "Module"]
