"""The parts of a cluster that JAX's plugin uses, which a cluster of another process has as well."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from distxla.lazy_dataclass import dataclass
from distxla.machine.heap import Heap
from distxla.runtime.arrays.call_queue import CallQueue
from distxla.runtime.arrays.executable import Executable
from distxla.runtime.values.host import DeviceMemory

CallAreaWriter = Callable[[list[Executable]], list[Any]]


@dataclass(frozen=True)
class DirectPlace:
    """What a call of a program writes. records: addresses of the devices' records.  number: the program's.  rows: by
    device, the address where the offsets of arguments and results are written.  memory: in which that is.

    launch, program: where several processes take part, the address of the LaunchSet of these (launch_board.py), and the
    number that they know the program by; else 0.
    """

    records: tuple[int, ...]
    number: int
    rows: tuple[int, ...]
    memory: object
    launch: int = 0
    program: int = 0


@dataclass(frozen=True)
class DirectCall:
    """A call that native code has issued, and that is in flight. place: of its program.  devices: the process's own.
    sequence: of its command.  target: the count of done devices that ends it.

    turn, ordinal, arrival: where several processes may take part, its place among all calls of this process and among
    those of its processes, and what this one has found (Arrival, or HELD).
    """

    devices: tuple[int, ...]
    place: DirectPlace
    sequence: int
    target: int
    turn: int = 0
    ordinal: int = 0
    arrival: int = 0


class DirectCluster(Protocol):
    """Calls that native code issues. control: address of the header of this process's calls (control_block.py)."""

    control: int

    def use(self, gate: int, functions: Any, hold: Callable[[object], None]) -> None:
        """gate: address of the state of native calls.  functions: the native ones, of pjrt/native_functions.py.  hold:
        keeps a thing until the native call that is in flight is over."""

    def place(self, executable: Executable) -> DirectPlace | None:
        """Where calls of the executable are written; None where one takes more than a command to devices of this host,
        and before it is loaded, which its first call does."""

    def end(self, call: DirectCall, kept: Sequence[object]) -> None:
        """Wait for a call that is in flight; raises its failure. kept: memory that it may use."""

    def keep(self, kept: Sequence[object]) -> None:
        """Hold memory that devices may still use, if a call has failed in which some still compute."""


class DeviceCluster(Protocol):
    """A cluster, or the access to one that another process owns.

    heap: of the memories of this process's devices.
    """

    heap: Heap

    @property
    def direct(self) -> DirectCluster:
        """The calls that native code issues."""

    @property
    def devices(self) -> int:
        """How many there are, those of other processes included."""

    @property
    def queue(self) -> CallQueue:
        """The calls of this process that are under way."""

    def start(self) -> object:
        """Begin to start; does not block."""

    def wait_started(self) -> None:
        """Block until all devices serve; raises what kept them from it."""

    def close(self) -> None:
        """Blocks until what this process has started is gone."""

    def memory(self, device: int) -> DeviceMemory:
        """The memory of a device of this process."""

    def issue(self, given: list[Executable], place: CallAreaWriter) -> None:
        """Run executables at once; blocks until that is over. place: writes their call areas, once they are loaded,
        and returns what must live until then."""


__all__ = ["CallAreaWriter", "DeviceCluster", "DirectCall", "DirectCluster", "DirectPlace"]
