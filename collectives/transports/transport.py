"""The operations of a transport on a host: load and remove programs, wake devices on abort, start a new epoch.

A transport has two sides. Compiled code is the fast one: `collectives/transports/seam.py` is its interface for a
communicating instruction. This is the other one, called from Python while no device communicates, or to end that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from distxla.lazy_dataclass import dataclass
from distxla.program.artifact import CompiledProgram


@dataclass(frozen=True)
class Restart:
    """The state with which a host restarts after a failed call.

    epoch: counts up; messages still on their way from an earlier one are dropped.  areas: (offset, bytes) of the host's
    control block that are zeroed, and then words: (number, value) of u32 that are written.
    """

    epoch: int
    areas: Sequence[tuple[int, int]] = ()
    words: Sequence[tuple[int, int]] = ()


class Transport(Protocol):
    """One host's end of a transport: between the devices of the host, or from them to those of other hosts.

    Order of use: programs are loaded, then devices run them. After a failed call every host releases its waits while
    the abort flag is set, gets its devices back, and then resets its ends: the one to other hosts first, as it may
    still write into the memory of the others.
    """

    def load(self, number: int, program: CompiledProgram, communicators: Mapping[int, Sequence[int | None]]) -> None:
        """Devices of this host may run the program from now on; no device runs during the call.

        communicators: for each of them, the offset of its group's state in the control block by communicator.
        """

    def unload(self, number: int) -> None:
        """Remove a program that no device runs any more; blocks until its devices' messages have left."""

    def release(self) -> None:
        """Wake the devices that wait here: the abort flag is set, and they return Status.ABORTED.

        A device may be on its way into a wait, so this is called until all have come back.
        """

    def reset(self, restart: Restart) -> None:
        """Restart, when no device of the host runs. ClusterError if threads of the failed call remain."""

    def waits(self) -> list[str]:
        """One line for each long wait that no device record shows."""

    def close(self) -> None:
        """End all threads and connections. Twice is fine."""
