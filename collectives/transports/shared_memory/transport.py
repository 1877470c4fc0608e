"""The devices of one host, or of a slice of them, seen from Python.

LLVM is not loaded here: agents and drivers import this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from distxla import clock
from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.transports.control_block_view import ControlBlock
from distxla.collectives.transports.shared_words import SharedWords
from distxla.collectives.transports.transport import Restart, Transport
from distxla.program.artifact import CompiledProgram
from distxla.targets.registry import wake_all

SWEEP_S = 0.05  # of a release, in which devices that are about to sleep are met, too
BETWEEN_SWEEPS_S = 0.0002


class SharedMemory(Transport):
    """Compiled code exchanges everything by itself, over memory that all devices of the host map.

    So a program needs nothing to be loaded here, waits are in the devices' records, and there is nothing to close: the
    memories belong to the host.
    """

    def __init__(self, block: ControlBlock, devices: range, call: int = 0) -> None:
        """devices: of a slice.  call: where its header is in the control block."""
        self._block, self._devices, self._call = block, devices, call

    def load(self, number: int, program: CompiledProgram, communicators: Mapping[int, Sequence[int | None]]) -> None:
        """See Transport."""

    def unload(self, number: int) -> None:
        """See Transport."""

    def release(self) -> None:
        """See Transport. Blocks for SWEEP_S at most."""
        release_waits(self._block, self._devices, self._call, seconds=SWEEP_S)

    def reset(self, restart: Restart) -> None:
        """See Transport."""
        for offset, size in restart.areas:
            self._block.segment.bytes[offset : offset + size] = 0
        for word, value in restart.words:
            self._block.configure(4 * word, value)

    def waits(self) -> list[str]:
        """See Transport."""
        return []

    def close(self) -> None:
        """See Transport."""


def release_waits(
    block: SharedWords, devices: Sequence[int] | None = None, call: int = 0, *, seconds: float = 10.0
) -> list[int]:
    """Wake until no device waits; those that still do after `seconds`. The abort flag is set (transports/abort.py).

    block: the whole control block.  devices: those of the slice whose header is at the offset `call`; None: all. Every
    wait of theirs that is in flight or begins later returns Status.ABORTED until the abort flag is cleared. Afterwards
    the communicators' state must be zeroed before another run.
    """
    wake_all(
        block.address + call + control_words.H_DONE
    )  # a full fence: a device asleep that hasn't read the status is seen below
    end = clock.now() + seconds
    while True:
        waiting = []
        for device in range(block.load(control_words.H_DEVICES)) if devices is None else devices:
            record = control_words.record_offset(device)
            if block.load(control_words.R_STATE, record) != control_words.ReplicaState.WAITING:
                continue
            waiting.append(device)  # also where the place is not to be seen yet
            place = block.load(control_words.R_WAIT_WORD, record)
            if 0 < place <= block.size - 4:
                wake_all(block.address + place)
        if not waiting or clock.now() > end:
            return waiting
        clock.sleep(BETWEEN_SWEEPS_S)


__all__ = ["SharedMemory", "release_waits"]
