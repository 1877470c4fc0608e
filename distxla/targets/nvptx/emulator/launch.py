"""Loading a prepared module into this process, and launching its kernels. Needs neither LLVM nor NumPy."""

from __future__ import annotations

import ctypes
import random
import struct
import threading
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from math import gcd, prod

from distxla.errors import ArgumentError
from distxla.ir.counts import Counts
from distxla.lazy_dataclass import dataclass
from distxla.program.artifact import CompiledProgram
from distxla.targets.nvptx.emulator import layout
from distxla.targets.nvptx.emulator.faults import FAULTS, Fault, KernelFaultError
from distxla.targets.nvptx.emulator.layout import Exchange, Fiber, Range, SharedRange, State, ThreadPlace
from distxla.targets.nvptx.emulator.prepared import PreparedKernel, PreparedModule
from distxla.targets.registry import host, target_named

Dimensions = tuple[int, int, int]
MOST_BLOCK = (1024, 1024, 64)
MOST_GRID = ((1 << 31) - 1, 65535, 65535)
STACK_BYTES = 576 << 10  # the 512 KiB that a GPU gives a thread at most, and what this processor's code needs
STACK_COLOURS, LINE = 32, 128  # fibers' stacks begin in different lines of the cache
_RUNNING = threading.Lock()  # the fibers' stacks belong to one launch at a time


@dataclass(frozen=True)
class Order:
    """In which order the blocks of a launch and the threads of a block run. A launch's result must not depend on it.

    kind: "numbered", "reverse" or "shuffled", which is another order in every block and behind every barrier.
    """

    kind: str = "numbered"
    seed: int = 0


NUMBERED, REVERSE = Order(), Order("reverse")


def shuffled(seed: int) -> Order:
    """Another order for each seed."""
    return Order("shuffled", seed)


ORDERS = (NUMBERED, REVERSE, shuffled(1), shuffled(2), shuffled(3))  # that find most mistakes


@dataclass(frozen=True)
class Memory:
    """Bytes that a launch may access, from `start` to before `end`."""

    start: int
    end: int
    writable: bool = True


class LoadedModule:
    """A prepared module in this process. Its variables live as long as it; `close` unmaps it."""

    def __init__(self, prepared: PreparedModule) -> None:
        self.prepared = prepared
        self._image = target_named(prepared.target).loader.load_image(_program(prepared))
        self._state = State.from_address(self._image.address_of(layout.STATE_SYMBOL))
        self._launchers = {
            name: ctypes.CFUNCTYPE(None)(self._image.address_of(layout.LAUNCH_PREFIX + name))
            for name in prepared.kernels
        }
        self._own = [
            Memory(address := self._image.address_of(one.symbol), address + one.bytes, one.writable)
            for one in prepared.constants
        ]
        self._shared = (SharedRange * max(1, len(prepared.shared)))()
        self._shadows = []
        for place, array in zip(self._shared, prepared.shared):
            place.start = self._image.address_of(array.symbol)
            if prepared.granule:
                shadow = (ctypes.c_uint64 * (2 * (array.bytes // prepared.granule + 2)))()
                self._shadows.append(shadow)
                place.shadow = ctypes.addressof(shadow)

    def address_of(self, symbol: str) -> int:
        """Of a variable of the module; KeyError if it has none of that name."""
        return self._image.address_of(symbol)

    def close(self) -> None:
        """Unmap; twice is fine."""
        self._launchers = {}
        self._image.close()

    def launch(
        self,
        kernel: str,
        grid: Dimensions,
        block: Dimensions,
        arguments: Sequence[int],
        *,
        shared_bytes: int = 0,
        order: Order = NUMBERED,
        memory: Iterable[Memory] = (),
        fill: int = 0xFF,
    ) -> None:
        """Run a kernel for all threads of a grid, and return when all have ended. One launch at a time in a process.

        arguments: addresses and integers.  shared_bytes: of the dynamic shared array.  memory: what a checked module
        may access besides its own variables; ranges must not overlap.  fill: the byte that shared memory is filled with
        before each block; 0xFF is no number in every float type.
        Raises ArgumentError for what no GPU takes, KernelFaultError for what the kernel does wrong.
        """
        known = self._known(kernel, grid, block, arguments, shared_bytes)
        ranges = sorted([*self._own, *memory], key=lambda one: one.start)
        table = (Range * max(1, len(ranges)))(*(Range(one.start, one.end, one.writable) for one in ranges))
        last_ranges = (ctypes.c_uint32 * max(1, len(self.prepared.sites)))()
        words = (ctypes.c_char * max(8, 8 * len(arguments))).from_buffer_copy(_packed(known, arguments) or bytes(8))
        with _RUNNING:
            threads, state = prod(block), self._state
            order_table = (ThreadPlace * threads).from_buffer_copy(_places(block, order.kind == "reverse"))
            state.grid[:], state.block_shape[:] = grid, block
            state.threads, state.blocks, state.fill = threads, prod(grid), fill
            state.first_block, state.block_step, state.seed = _steps(order, prod(grid))
            state.exchanges = ctypes.addressof(_exchange_table())
            state.arguments, state.order = ctypes.addressof(words), ctypes.addressof(order_table)
            state.fibers, state.stack_bytes = _fibers(threads if known.waits else 1), STACK_BYTES
            state.ranges, state.range_count = ctypes.addressof(table), len(ranges)
            state.last_ranges = ctypes.addressof(last_ranges)
            state.shared, state.shared_count = ctypes.addressof(self._shared), len(self.prepared.shared)
            for place, array in zip(self._shared, self.prepared.shared):
                place.bytes = shared_bytes if array.dynamic else array.bytes
            state.fault = 0
            self._launchers[kernel]()
            if state.fault:
                raise self._fault(kernel)

    def _known(
        self, kernel: str, grid: Dimensions, block: Dimensions, arguments: Sequence[int], shared_bytes: int
    ) -> PreparedKernel:
        known = self.prepared.kernels.get(kernel)
        if known is None:
            raise ArgumentError(f"no kernel {kernel}; there are {', '.join(self.prepared.kernels) or 'none'}")
        for what, dimensions, most in (("grid", grid, MOST_GRID), ("block", block, MOST_BLOCK)):
            if any(not 1 <= size <= limit for size, limit in zip(dimensions, most)):
                raise ArgumentError(f"kernel {kernel}: a {what} of {dimensions}; the limits are {most}")
        if prod(block) > layout.MOST_THREADS:
            raise ArgumentError(f"kernel {kernel}: {prod(block)} threads a block; at most {layout.MOST_THREADS}")
        if len(arguments) != len(known.parameters):
            raise ArgumentError(f"kernel {kernel} takes {len(known.parameters)} arguments, not {len(arguments)}")
        if not 0 <= shared_bytes <= layout.DYNAMIC_SHARED_BYTES:
            raise ArgumentError(f"kernel {kernel}: {shared_bytes} bytes of shared memory")
        return known

    def _fault(self, kernel: str) -> KernelFaultError:
        state, shape = self._state, tuple(self._state.block_shape)
        function, instruction = self.prepared.sites[state.fault_site]
        other, other_state = self._other()
        return FAULTS[state.fault](
            Fault(
                kind=state.fault,
                kernel=kernel,
                block=_split(state.block, tuple(state.grid)),
                thread=_split(state.fault_thread, shape),
                function=function,
                instruction=instruction,
                address=state.fault_address,
                bytes=state.fault_bytes,
                access=state.fault_access,
                other=other,
                other_state=other_state,
            )
        )

    def _other(self) -> tuple[Dimensions | None, str]:
        """The other thread that is part of a fault, and what it does."""
        state, number = self._state, self._state.other_thread
        exists = number < state.threads
        place = _split(number, tuple(state.block_shape)) if exists else None
        if state.fault == layout.RACE:
            return place, f"thread {place}" if exists else "several threads"
        if state.fault not in (layout.DIVERGENT, layout.MISSING_LANES):
            return None, ""
        if not exists:
            return None, f"its block has no thread {number}"
        if number == state.fault_thread:
            return place, "is not among them itself"
        fiber = Fiber.from_address(state.fibers + number * ctypes.sizeof(Fiber))
        if fiber.status == layout.ENDED:
            return place, f"thread {place} has ended"
        function, instruction = self.prepared.sites[fiber.site]
        return place, f"thread {place} waits in {function}: {instruction} (mask or barrier {fiber.mask:#x})"


def load(prepared: PreparedModule) -> LoadedModule:
    """Map a prepared module; OSError where memory or permission is missing."""
    return LoadedModule(prepared)


@lru_cache(maxsize=32)
def _places(block: Dimensions, reverse: bool) -> bytes:
    """The order in which a block's threads begin, as a table of ThreadPlace."""
    numbers = range(prod(block))[:: -1 if reverse else 1]
    return b"".join(bytes(ThreadPlace(number, *_split(number, block))) for number in numbers)


def _steps(order: Order, blocks: int) -> tuple[int, int, int]:
    """The first block, the step from one to the next, and the seed of the threads' order."""
    if order.kind == "numbered":
        return 0, 1 % blocks, 0
    if order.kind == "reverse":
        return blocks - 1, blocks - 1, 0
    if order.kind != "shuffled":
        raise ArgumentError(f"no order {order.kind!r}; there are numbered, reverse and shuffled")
    source = random.Random(order.seed)
    step = source.randrange(blocks)
    while gcd(step, blocks) != 1:
        step = source.randrange(blocks)
    return source.randrange(blocks), step, source.randrange(1, 1 << 64)


def _split(number: int, extents: Sequence[int]) -> Dimensions:
    x, y, _ = extents
    return number % x, number // x % y, number // (x * y)


def _packed(kernel: PreparedKernel, arguments: Sequence[int]) -> bytes:
    """8 bytes each."""
    packed = b""
    for parameter, argument in zip(kernel.parameters, arguments):
        if parameter in ("float", "double"):
            packed += struct.pack("<f4x" if parameter == "float" else "<d", argument)
        else:
            packed += struct.pack("<Q", argument & 0xFFFFFFFFFFFFFFFF)
    return packed


@cache
def _fiber_table() -> ctypes.Array[Fiber]:
    return (Fiber * layout.MOST_THREADS)()


@cache
def _exchange_table() -> ctypes.Array[Exchange]:
    return (Exchange * layout.MOST_THREADS)()


def _fibers(count: int) -> int:
    """The address of the table of fibers, of which at least `count` have stacks."""
    table = _fiber_table()
    missing = [k for k in range(count) if not table[k].stack_top]
    if missing:
        tops = host().stack_tops(len(missing), STACK_BYTES)
        for k, top in zip(missing, tops):
            table[k].stack_top = top - k % STACK_COLOURS * LINE
    return ctypes.addressof(table)


def _program(prepared: PreparedModule) -> CompiledProgram:
    """As the loader takes images."""
    image = prepared.image
    return CompiledProgram(
        name="kernels in the emulator",
        image=image,
        counts=Counts(1, 1),
        target=prepared.target,
    )
