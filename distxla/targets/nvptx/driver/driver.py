"""The interface of a driver of GPUs, as this process uses it. Addresses are those of a GPU's memory, unless they are
called host addresses; sizes are in bytes."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Protocol

from distxla.lazy_dataclass import dataclass
from distxla.targets.nvptx.driver.errors import DriverCallError

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


class Module(Protocol):
    """Kernels in a context."""

    def function(self, name: str) -> int:
        """The handle of a kernel, for launches; DriverError if the module has none of that name."""

    def unload(self) -> None:
        """Remove the kernels, none of which may be in a queue; twice is fine."""


class Context(Protocol):
    """A GPU as this process uses it. Methods may be called from any thread.

    What has a `stream` is put into that stream's queue and happens in the order of the queue, at any time until
    `synchronise` returns: until then, host memory that takes part must stay as it is. Errors of what is in a queue are
    raised by `synchronise`, or by any method after it happened; after one, the context is of no use any more.
    All methods raise DriverError.
    """

    gpu: Gpu

    @property
    def handle(self) -> int:
        """For `cuCtxSetCurrent`, which code of this process calls before any function of the driver."""

    def address_of(self, function: str) -> int:
        """The host address of a function of the driver's C interface (interface.py)."""

    def error(self, function: str, number: int) -> DriverCallError:
        """Of a call of this function that returned this number, a CUresult."""

    # --- memory

    def free_bytes(self) -> int:
        """Memory that can still be allocated."""

    def allocate(self, size: int) -> int:
        """Memory, at a multiple of 256, uninitialised. OutOfMemoryError with the need and what is free."""

    def free(self, address: int) -> None:
        """Free what `allocate` gave. Waits for all queues. No other process may have it open, nor use it later."""

    def export(self, address: int) -> bytes:
        """A handle with which other processes of this machine open the memory that `allocate` gave at the address."""

    def open_peer(self, handle: bytes) -> int:
        """The address, in this context, of memory that another process allocated on this machine and exported."""

    def close_peer(self, address: int) -> None:
        """Close what `open_peer` gave; waits for all queues."""

    def copy_to_device(self, address: int, source: int, size: int, stream: int) -> None:
        """Copy from a host address."""

    def copy_to_host(self, target: int, address: int, size: int, stream: int) -> None:
        """Copy to a host address."""

    def copy(self, target: int, source: int, size: int, stream: int) -> None:
        """Copy within devices' memories; the ranges must not overlap."""

    def fill(self, address: int, value: int, count: int, stream: int) -> None:
        """Set bytes; `value` is taken at once."""

    # --- order

    def create_stream(self) -> int:
        """A queue, which no other one waits for by itself."""

    def destroy_stream(self, stream: int) -> None:
        """What is in it still happens."""

    def synchronise(self, stream: int | None = None) -> None:
        """Block until all that is in a queue has happened; None: in all queues of the context."""

    # --- kernels

    def load(self, code: bytes) -> Module:
        """Kernels, from PTX or a cubin (of the emulator: emulated/kernels.py). DriverError with the log of the
        assembler."""

    def launch(
        self, function: int, grid: Dimensions, block: Dimensions, addresses: Sequence[int], stream: int, shared: int = 0
    ) -> None:
        """Run a kernel whose arguments are addresses, taken at once. shared: bytes of dynamic shared memory."""

    # --- the end

    def close(self) -> None:
        """Release the context, its memory, streams and modules; twice is fine."""

    def __enter__(self) -> Context: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


class Driver(Protocol):
    """The GPUs of this machine that this process may use."""

    @property
    def version(self) -> tuple[int, int]:
        """The version of CUDA that the driver supports."""

    def gpus(self) -> list[Gpu]:
        """By ordinal; may be empty."""

    def can_access(self, gpu: int, peer: int) -> bool:
        """Whether kernels of one GPU may access another one's memory."""

    def context(self, ordinal: int, processes: int = 1) -> Context:
        """A GPU for use by this process. processes: that are to use the GPU at the same time.

        DriverError for what this version can't run on: a GPU below sm_75, a driver too old for kernels of the GPU,
        exclusive mode with several processes.
        """


__all__ = ["Context", "Dimensions", "Driver", "Gpu", "Module"]
