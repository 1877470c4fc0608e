"""The parts of a cluster that JAX's plugin uses, which a cluster of another process has as well."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from distxla.lazy_dataclass import dataclass
from distxla.machine.heap import Heap
from distxla.runtime.arrays.call_queue import CallQueue
from distxla.runtime.arrays.executable import Executable
from distxla.runtime.values.host import DeviceMemory

CallAreaWriter = Callable[[list[Executable]], list[Any]]


@dataclass(frozen=True)
class DirectPlace:
    """What a call of a program writes. records: addresses of the devices' records.  number: the program's.  call_area:
    offsets of arguments and results by device."""

    records: tuple[int, ...]
    number: int
    call_area: NDArray[np.uint64]


class DirectCluster(Protocol):
    """Calls that native code issues. control: address of the control block."""

    control: int

    def place(self, executable: Executable) -> DirectPlace | None:
        """Where calls of the executable are written; None where one takes more than a command to devices of this host,
        and before it is loaded, which its first call does."""

    def end(self, devices: Sequence[int], sequence: int, target: int, kept: Sequence[object]) -> None:
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


__all__ = ["CallAreaWriter", "DeviceCluster", "DirectCluster", "DirectPlace"]
