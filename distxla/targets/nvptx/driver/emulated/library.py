"""The emulated driver as C functions, which ctypes and compiled code call as they call libcuda.so.1."""

from __future__ import annotations

import ctypes
import threading
import traceback
from collections.abc import Callable, Sequence
from functools import cache
from itertools import takewhile
from typing import Any

from distxla.lazy_dataclass import dataclass
from distxla.targets.nvptx.driver.emulated.context import EmulatedContext, Function
from distxla.targets.nvptx.driver.emulated.failure import Failure
from distxla.targets.nvptx.driver.emulated.kernels import unpacked
from distxla.targets.nvptx.driver.emulated.memory import Memories
from distxla.targets.nvptx.driver.emulated.queues import Stream
from distxla.targets.nvptx.emulator.launch import LoadedModule
from distxla.targets.nvptx.interfaces import driver as interface
from distxla.targets.nvptx.interfaces.driver import FUNCTIONS, IpcHandle

_KNOWN = (
    *("INVALID_VALUE", "OUT_OF_MEMORY", "NOT_INITIALIZED", "NO_DEVICE", "INVALID_DEVICE", "INVALID_CONTEXT"),
    *("MAP_FAILED", "INVALID_PTX", "INVALID_HANDLE", "NOT_FOUND", "ILLEGAL_ADDRESS", "LAUNCH_FAILED"),
    *("MISALIGNED_ADDRESS", "UNKNOWN"),
)
_NAMES = {getattr(interface, name): f"CUDA_ERROR_{name}" for name in _KNOWN}


@dataclass(frozen=True)
class EmulatedGpu:
    """What the driver says of a GPU. Its memory costs what is written to it.  number: among all of the machine."""

    name: str = "an emulated GPU"
    architecture: tuple[int, int] = (9, 0)
    memory_bytes: int = 1 << 42
    mode: int = interface.SHARED_MODE
    has_peers: bool = True
    number: int = 0


BEFORE_INIT = (
    "cuInit",
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
)  # work before cuInit, or without it


class EmulatedLibrary:
    """`interface.Library`. Its functions are attributes, made of the methods of the same names without `cu`."""

    def __init__(self, gpus: Sequence[EmulatedGpu] = (EmulatedGpu(),), version: int = 12080) -> None:
        """version: as cuDriverGetVersion gives it."""
        self._gpus, self._version = tuple(gpus), version
        self.contexts: dict[int, EmulatedContext] = {}
        self._of_device: dict[int, tuple[int, int]] = {}  # the primary context's handle, and how often it is retained
        self._thread = threading.local()
        self._detail: dict[int, str] = {}
        self._is_initialised = False
        self._texts: dict[bytes, ctypes.Array[ctypes.c_char]] = {}
        for name, types in FUNCTIONS.items():
            setattr(self, name, self._exported(name, types))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def _exported(self, name: str, types: tuple[Any, ...]) -> Any:
        method: Callable[..., None] = getattr(self, "_" + name.removeprefix("cu").partition("_v2")[0].lower())

        def call(*arguments: Any) -> int:
            try:
                if not self._is_initialised and name not in BEFORE_INIT:
                    raise Failure(interface.NOT_INITIALIZED, "cuInit was not called")
                method(*arguments)
            except Failure as failure:
                self._detail[failure.number] = failure.detail
                return failure.number
            except BaseException as error:  # nothing may pass through native frames
                self._detail[interface.UNKNOWN] = "".join(traceback.format_exception(error)).rstrip()
                return interface.UNKNOWN
            return interface.SUCCESS

        return ctypes.CFUNCTYPE(ctypes.c_int, *types)(call)

    # --- the driver

    def _init(self, flags: int) -> None:
        if not self._gpus:
            raise Failure(interface.NO_DEVICE, "there is no GPU")
        self._is_initialised = True

    def _drivergetversion(self, place: int) -> None:
        ctypes.c_int.from_address(place).value = self._version

    def _geterrorname(self, number: int, place: int) -> None:
        self._text(_NAMES.get(number, "CUDA_ERROR_UNKNOWN"), place)

    def _geterrorstring(self, number: int, place: int) -> None:
        self._text(self._detail.get(number, "no detail is known"), place)

    def _text(self, text: str, place: int) -> None:
        data = text.encode()
        held = self._texts.setdefault(data, ctypes.create_string_buffer(data))
        ctypes.c_void_p.from_address(place).value = ctypes.addressof(held)

    # --- devices

    def _gpu(self, device: int) -> EmulatedGpu:
        if not 0 <= device < len(self._gpus):
            raise Failure(interface.INVALID_DEVICE, f"no device {device} of {len(self._gpus)}")
        return self._gpus[device]

    def _devicegetcount(self, place: int) -> None:
        ctypes.c_int.from_address(place).value = len(self._gpus)

    def _deviceget(self, place: int, ordinal: int) -> None:
        self._gpu(ordinal)
        ctypes.c_int.from_address(place).value = ordinal

    def _devicegetname(self, place: int, size: int, device: int) -> None:
        name = self._gpu(device).name.encode()[: size - 1] + b"\0"
        ctypes.memmove(place, name, len(name))

    def _devicegetuuid(self, place: int, device: int) -> None:
        ctypes.memmove(place, self._gpu(device).number.to_bytes(16, "big"), 16)

    def _devicetotalmem(self, place: int, device: int) -> None:
        ctypes.c_size_t.from_address(place).value = self._gpu(device).memory_bytes

    def _devicegetattribute(self, place: int, attribute: int, device: int) -> None:
        gpu = self._gpu(device)
        known = {
            interface.MAJOR: gpu.architecture[0],
            interface.MINOR: gpu.architecture[1],
            interface.COMPUTE_MODE: gpu.mode,
            interface.PCI_BUS: device,
        }
        if attribute not in known:
            raise Failure(interface.INVALID_VALUE, f"attribute {attribute}")
        ctypes.c_int.from_address(place).value = known[attribute]

    def _devicecanaccesspeer(self, place: int, device: int, peer: int) -> None:
        ctypes.c_int.from_address(place).value = int(self._gpu(device).has_peers and self._gpu(peer).has_peers)

    # --- contexts

    def _deviceprimaryctxretain(self, place: int, device: int) -> None:
        gpu = self._gpu(device)
        handle, count = self._of_device.get(device, (0, 0))
        if not count:
            handle = 0x100 * (len(self.contexts) + 1)
            while handle in self.contexts:
                handle += 0x100
            self.contexts[handle] = EmulatedContext(Memories(gpu.memory_bytes))
        self._of_device[device] = handle, count + 1
        ctypes.c_void_p.from_address(place).value = handle

    def _deviceprimaryctxrelease(self, device: int) -> None:
        handle, count = self._of_device.get(device, (0, 0))
        if not count:
            raise Failure(interface.INVALID_CONTEXT, f"the context of device {device} is not retained")
        self._of_device[device] = handle, count - 1
        if count == 1:
            self.contexts.pop(handle).close()

    def _ctxsetcurrent(self, handle: int | None) -> None:
        if handle is not None and handle not in self.contexts:
            raise Failure(interface.INVALID_CONTEXT, f"no context has the handle {handle:#x}")
        self._thread.handle = handle

    def current(self) -> EmulatedContext:
        """The thread's context; Failure where it has none, or that was lost."""
        found = self.contexts.get(getattr(self._thread, "handle", None) or 0)
        if found is None:
            raise Failure(interface.INVALID_CONTEXT, "the thread has no context")
        if found.lost is not None:
            raise found.lost
        return found

    def _ctxsynchronize(self) -> None:
        context = self.current()
        with context.lock:
            context.synchronise()

    # --- memory

    def _memgetinfo(self, free: int, total: int) -> None:
        ctypes.c_size_t.from_address(free).value = self.current().memories.free_bytes
        handle = self._thread.handle
        device = next(device for device, (one, _) in self._of_device.items() if one == handle)
        ctypes.c_size_t.from_address(total).value = self._gpu(device).memory_bytes

    def _memalloc(self, place: int, size: int) -> None:
        context = self.current()
        with context.lock:
            ctypes.c_uint64.from_address(place).value = context.memories.allocate(size)

    def _memfree(self, address: int) -> None:
        self._close(address, own=True)

    def _ipcclosememhandle(self, address: int) -> None:
        self._close(address, own=False)

    def _close(self, address: int, *, own: bool) -> None:
        context = self.current()
        with context.lock:
            context.synchronise()
            context.memories.close(address, own=own)

    def _ipcgetmemhandle(self, place: int, address: int) -> None:
        handle = self.current().memories.export(address)
        ctypes.memmove(place, handle, len(handle))

    def _ipcopenmemhandle(self, place: int, handle: IpcHandle, flags: int) -> None:
        if flags != interface.IPC_LAZY_PEER_ACCESS:
            raise Failure(interface.INVALID_VALUE, f"flags {flags}")
        context = self.current()
        with context.lock:
            ctypes.c_uint64.from_address(place).value = context.memories.open(bytes(handle))

    def queue(self, handle: int | None) -> tuple[EmulatedContext, Stream]:
        """The context of the calling thread, and its stream of a handle; Failure where there is none."""
        context = self.current()
        return context, context.find(handle, Stream)

    def _memcpyhtodasync(self, address: int, source: int, size: int, handle: int) -> None:
        context, stream = self.queue(handle)
        with context.lock:
            context.copy_to_device(address, source, size, stream)

    def _memcpydtohasync(self, target: int, address: int, size: int, handle: int) -> None:
        context, stream = self.queue(handle)
        with context.lock:
            context.copy_to_host(target, address, size, stream)

    def _memcpydtodasync(self, target: int, source: int, size: int, handle: int) -> None:
        context, stream = self.queue(handle)
        with context.lock:
            context.copy(target, source, size, stream)

    def _memsetd8async(self, address: int, value: int, count: int, handle: int) -> None:
        self._fill(address, value.to_bytes(1, "little"), count, handle)

    def _memsetd16async(self, address: int, value: int, count: int, handle: int) -> None:
        self._fill(address, value.to_bytes(2, "little"), count, handle)

    def _memsetd32async(self, address: int, value: int, count: int, handle: int) -> None:
        self._fill(address, value.to_bytes(4, "little"), count, handle)

    def _fill(self, address: int, pattern: bytes, count: int, handle: int) -> None:
        context, stream = self.queue(handle)
        with context.lock:
            context.fill(address, pattern, count, stream)

    # --- order

    def _streamcreate(self, place: int, flags: int) -> None:
        if flags != interface.NON_BLOCKING:
            raise Failure(interface.INVALID_VALUE, "only streams that no other one waits for")
        ctypes.c_void_p.from_address(place).value = self.current().add(Stream())

    def _streamdestroy(self, handle: int) -> None:
        context, stream = self.queue(handle)
        with context.lock:
            context.synchronise(stream.run)
            context.remove(handle, Stream)

    def _streamsynchronize(self, handle: int) -> None:
        context, stream = self.queue(handle)
        with context.lock:
            context.synchronise(stream.run)

    # --- kernels

    def _moduleloaddataex(self, place: int, image: int, count: int, options: int, values: int) -> None:
        prepared = unpacked(image)
        if prepared is None:
            raise Failure(interface.INVALID_PTX, "the emulator takes kernels that were compiled for it, and no PTX")
        ctypes.c_void_p.from_address(place).value = self.current().load(prepared)

    def _moduleunload(self, handle: int) -> None:
        context = self.current()
        with context.lock:
            context.synchronise()
            module = context.remove(handle, LoadedModule)
            context.drop_functions(module)
            module.close()

    def _modulegetfunction(self, place: int, handle: int, name: bytes) -> None:
        context = self.current()
        module = context.find(handle, LoadedModule)
        kernel = module.prepared.kernels.get(name.decode())
        if kernel is None:
            raise Failure(interface.NOT_FOUND, f"no kernel {name.decode()}")
        ctypes.c_void_p.from_address(place).value = context.add(Function(module, kernel))

    def _launchkernel(self, handle: int, *arguments: Any) -> None:
        *sizes, shared, stream_handle, parameters, extra = arguments
        if extra:
            raise Failure(interface.INVALID_VALUE, "arguments in a buffer")
        context, stream = self.queue(stream_handle)
        with context.lock:
            function = context.find(handle, Function)
            context.launch(function, tuple(sizes[:3]), tuple(sizes[3:]), shared, stream, parameters)


@cache
def emulated_library(gpus: int, visible: str | None) -> EmulatedLibrary:
    """The one of this process.  gpus: of the machine.  visible: CUDA_VISIBLE_DEVICES, which chooses among them."""
    return EmulatedLibrary([EmulatedGpu(number=number) for number in visible_numbers(gpus, visible)])


def visible_numbers(gpus: int, visible: str | None) -> list[int]:
    """The GPUs that CUDA_VISIBLE_DEVICES lets a process see, in its order: those before the first that isn't there."""
    if visible is None:
        return list(range(gpus))
    there = takewhile(lambda word: word.isdecimal() and int(word) < gpus, map(str.strip, visible.split(",")))
    return list(map(int, there))


__all__ = ["EmulatedGpu", "EmulatedLibrary", "emulated_library", "visible_numbers"]
