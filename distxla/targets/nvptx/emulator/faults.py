"""The errors of emulated kernels, such as a read out of bounds."""

from __future__ import annotations

from typing import ClassVar

from distxla.errors import DistxlaError
from distxla.lazy_dataclass import dataclass
from distxla.targets.nvptx.emulator import layout


@dataclass(frozen=True)
class Fault:
    """kind: of layout.py.  block, thread: blockIdx and threadIdx.  function, instruction: where.

    address, bytes, access: of memory.  other: another thread that is part of it, if one is known.  other_state: what
    that one does, as a sentence.
    """

    kind: int
    kernel: str
    block: tuple[int, int, int]
    thread: tuple[int, int, int]
    function: str
    instruction: str
    address: int = 0
    bytes: int = 0
    access: int = layout.READ
    other: tuple[int, int, int] | None = None
    other_state: str = ""


class KernelFaultError(DistxlaError):
    """A kernel did what a GPU forbids, or leaves undefined. The message names the kernel, the block and the thread.

    What the launch wrote before stays written.
    """

    code = "kernel"
    sentence: ClassVar[str] = ""

    def __init__(self, fault: Fault) -> None:
        super().__init__(_text(fault, self.sentence))
        self.args = (fault,)
        self.fault = fault


class OutOfBoundsError(KernelFaultError):
    """An access to memory that the kernel was not given."""

    sentence = "{access} of {bytes} bytes at {address:#x}, outside of the memory that it may access"


class MisalignedAccessError(KernelFaultError):
    """An access at an address that is no multiple of the alignment that the instruction promises."""

    sentence = "{access} of {bytes} bytes at {address:#x}, which is less aligned than the instruction says"


class DivergentBarrierError(KernelFaultError):
    """Threads of a block that wait at a barrier to which others never come."""

    sentence = "waits at a barrier, but {other_state}"


class MissingLanesError(KernelFaultError):
    """An operation of a warp whose mask has lanes that don't take part in it."""

    sentence = "waits for the lanes of its mask, but {other_state}"


class SharedRaceError(KernelFaultError):
    """Two threads access the same shared memory, no barrier orders them, and one of them writes."""

    sentence = "{access} of {bytes} shared bytes at {address:#x}, which {other_state} accessed since the last barrier"


class TrapError(KernelFaultError):
    """The kernel ended itself."""

    sentence = "reached a trap"


FAULTS: dict[int, type[KernelFaultError]] = {
    layout.OUT_OF_BOUNDS: OutOfBoundsError,
    layout.MISALIGNED: MisalignedAccessError,
    layout.DIVERGENT: DivergentBarrierError,
    layout.MISSING_LANES: MissingLanesError,
    layout.RACE: SharedRaceError,
    layout.TRAP: TrapError,
}


def _text(fault: Fault, sentence: str) -> str:
    access = {layout.READ: "a read", layout.WRITE: "a write", layout.ATOMIC: "an atomic access"}[fault.access]
    what = sentence.format(
        access=access, bytes=fault.bytes, address=fault.address, other=fault.other, other_state=fault.other_state
    )
    return (
        f"kernel {fault.kernel}, block {fault.block}, thread {fault.thread}: {what}; "
        f"in {fault.function}: {fault.instruction}"
    )
