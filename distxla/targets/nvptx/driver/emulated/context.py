"""The emulated GPU's context: its memory, queues and kernels."""

from __future__ import annotations

import ctypes
import itertools
import struct
import threading
from collections.abc import Callable
from typing import Any

from distxla.lazy_dataclass import dataclass, field
from distxla.targets.nvptx.driver.emulated.failure import Failure
from distxla.targets.nvptx.driver.emulated.memory import Memories
from distxla.targets.nvptx.driver.emulated.queues import Stream
from distxla.targets.nvptx.emulator import layout
from distxla.targets.nvptx.emulator.faults import KernelFaultError
from distxla.targets.nvptx.emulator.launch import NUMBERED, LoadedModule, Memory, Order
from distxla.targets.nvptx.emulator.prepared import PreparedKernel, PreparedModule
from distxla.targets.nvptx.interfaces import driver as interface

_handles = itertools.count(0x1000, 0x10)
_WORDS = {"float": "<f", "double": "<d"}
_FAULTS = {layout.OUT_OF_BOUNDS: interface.ILLEGAL_ADDRESS, layout.MISALIGNED: interface.MISALIGNED_ADDRESS}


@dataclass(eq=False)
class Function:
    module: LoadedModule
    kernel: PreparedKernel


@dataclass(eq=False)
class EmulatedContext:
    """order: of the threads of every launch.  lost: why, after a fault."""

    memories: Memories
    order: Order = NUMBERED
    lost: Failure | None = None
    held: dict[int, Any] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    # --- objects by their handles

    def add(self, one: Any) -> int:
        handle = next(_handles)
        self.held[handle] = one
        return handle

    def find(self, handle: int | None, kind: type[Any]) -> Any:
        found = self.held.get(handle or 0)
        if not isinstance(found, kind):
            raise Failure(interface.INVALID_HANDLE, f"no {kind.__name__.lower()} has the handle {handle or 0:#x}")
        return found

    def remove(self, handle: int | None, kind: type[Any]) -> Any:
        found = self.find(handle, kind)
        del self.held[handle or 0]
        return found

    def drop_functions(self, module: LoadedModule) -> None:
        """Forget the handles of a module's kernels."""
        for handle in [h for h, one in self.held.items() if isinstance(one, Function) and one.module is module]:
            del self.held[handle]

    # --- queues

    def synchronise(self, run: Callable[[], None] | None = None) -> None:
        """Let queues happen: all, or what `run` says. The first fault loses the context."""
        try:
            if run is not None:
                return run()
            for one in list(self.held.values()):
                if isinstance(one, Stream):
                    one.run()
        except Failure as failure:
            self.lost = failure
            raise

    # --- copies: ranges are looked up at once, bytes move later

    def copy_to_device(self, address: int, source: int, size: int, stream: Stream) -> None:
        if not size:
            return
        memory, offset = self.memories.find(address, size)
        stream.add(lambda: memory.write(offset, _host(source, size)))

    def copy_to_host(self, target: int, address: int, size: int, stream: Stream) -> None:
        if not size:
            return
        memory, offset = self.memories.find(address, size)
        stream.add(lambda: memory.read(offset, _host(target, size)))

    def copy(self, target: int, source: int, size: int, stream: Stream) -> None:
        if not size:
            return
        to, at = self.memories.find(target, size)
        memory, offset = self.memories.find(source, size)
        if to is memory and abs(at - offset) < size:
            raise Failure(interface.INVALID_VALUE, "the ranges of a copy overlap")

        def run() -> None:
            between = memoryview(bytearray(size))
            memory.read(offset, between)
            to.write(at, between)

        stream.add(run)

    def fill(self, address: int, pattern: bytes, count: int, stream: Stream) -> None:
        if not count:
            return
        if address % len(pattern):
            raise Failure(interface.INVALID_VALUE, f"{address:#x} is no multiple of {len(pattern)}")
        memory, offset = self.memories.find(address, count * len(pattern))
        stream.add(lambda: memory.write(offset, memoryview(pattern * count)))

    # --- kernels

    def launch(
        self, function: Function, grid: Any, block: Any, shared: int, stream: Stream, parameters: int | None
    ) -> None:
        kinds = function.kernel.parameters
        if kinds and not parameters:
            raise Failure(interface.INVALID_VALUE, "a launch without arguments")
        places = (ctypes.c_void_p * len(kinds)).from_address(parameters) if kinds and parameters else ()
        arguments = [_argument(kind, place or 0) for kind, place in zip(kinds, places, strict=True)]
        if 0 in (*grid, *block):
            raise Failure(interface.INVALID_VALUE, f"a grid of {grid} and a block of {block}")
        stream.add(lambda: self._run(function, grid, block, shared, arguments))

    def _run(self, function: Function, grid: Any, block: Any, shared: int, arguments: list[Any]) -> None:
        for kind, argument in zip(function.kernel.parameters, arguments):
            if kind.startswith("ptr") and argument and not self.memories.holds(argument):
                text = f"kernel {function.kernel.name} got {argument:#x}, which is in no memory of the GPU"
                raise Failure(interface.ILLEGAL_ADDRESS, text)
        try:
            with self.memories.accessible() as found:
                memory = [Memory(one.address, one.end) for one in found]
                function.module.launch(
                    function.kernel.name, grid, block, arguments, shared_bytes=shared, order=self.order, memory=memory
                )
        except KernelFaultError as error:
            raise Failure(_FAULTS.get(error.fault.kind, interface.LAUNCH_FAILED), str(error)) from error

    def load(self, prepared: PreparedModule) -> int:
        return self.add(LoadedModule(prepared))

    def close(self) -> None:
        for one in self.held.values():
            if isinstance(one, LoadedModule):
                one.close()
        self.held.clear()
        self.memories.close_all()


def _host(address: int, size: int) -> memoryview:
    return memoryview((ctypes.c_uint8 * size).from_address(address)).cast("B")


def _argument(kind: str, place: int) -> Any:
    """The value of a parameter at a host address."""
    if kind in _WORDS:
        return struct.unpack(_WORDS[kind], ctypes.string_at(place, struct.calcsize(_WORDS[kind])))[0]
    size = 8 if kind.startswith("ptr") else (int(kind[1:]) + 7) // 8
    return int.from_bytes(ctypes.string_at(place, size), "little")
