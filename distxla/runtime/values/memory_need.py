"""Memory that a program needs on a device and on its host, and checks of the limits before anything starts."""

from __future__ import annotations

from collections.abc import Sequence

from distxla.collectives.transports.control_block_view import CONTROL_BYTES
from distxla.errors import OutOfMemoryError
from distxla.ir.module import Module
from distxla.lazy_dataclass import dataclass
from distxla.machine.byte_counts import amount
from distxla.machine.memory_limits import Limit, address_space, mapped_bytes, most_memory
from distxla.machine.segments import HUGE_PAGE
from distxla.program.artifact import CompiledProgram
from distxla.targets.registry import host

LARGEST_MEMORY = 64 << 30
LEAST_MEMORY = 16 << 20  # of a device whose size the user did not state
# Mapped by Ray, threads' stacks and libraries in a process besides, with two arenas of malloc's: 0.6 to 1.1 GiB on
# 2 cores, more on more
RESERVED_ADDRESSES = 2 << 30


@dataclass(frozen=True)
class Room:
    """A host's memory for the memories of devices. most: for all of them together.  addresses: address space of one
    process.  others: bytes of it that everything else takes."""

    most: Limit
    addresses: Limit
    others: int

    @staticmethod
    def here() -> Room:
        """The room of this host, as this process sees it now."""
        space = address_space() or Limit(host().address_bytes, "the processor")
        return Room(most_memory(), space, mapped_bytes() + CONTROL_BYTES + RESERVED_ADDRESSES)

    def device_memory(self, devices: int, wanted: int | None = None, parts: int = 1) -> Limit:
        """The size of each device's memory with `devices` devices on this host: `wanted` bytes, if stated.

        Every process maps the memories of all devices of its host, each followed by a shared part of the same size.
        parts: of that size in each memory, and in the shared one (see Budget).
        OutOfMemoryError if that exceeds its address space.
        """
        maps = parts * (2 * devices + 1)
        share = max(0, (self.addresses.bytes - self.others) // maps // HUGE_PAGE - 1) * HUGE_PAGE
        least = LEAST_MEMORY if wanted is None else wanted
        if share < segment_bytes(least):
            whose = f"{devices} device{'' if devices == 1 else 's'} with memories of {amount(least)}"
            raise OutOfMemoryError(
                f"{whose} need {amount(self.others + maps * (segment_bytes(least) + HUGE_PAGE))} of address space in "
                f"every process; {self.addresses.source} allows {amount(self.addresses.bytes)}"
            )
        if wanted is not None:
            return Limit(wanted, "--device-memory")
        divided = Limit(share, f"of the address space that {self.addresses.source} allows")
        machine = Limit(self.most.bytes // HUGE_PAGE * HUGE_PAGE, self.most.source)
        return min(machine, divided, Limit(LARGEST_MEMORY, ""), key=lambda limit: limit.bytes)


def segment_bytes(memory: int) -> int:
    """Bytes of the segment that holds `memory` bytes: whole huge pages."""
    return -(-memory // HUGE_PAGE) * HUGE_PAGE


@dataclass(frozen=True)
class Need:
    """Memory that a program needs on each of its devices. temporaries: a device's working memory.  common: memory that
    groups of devices share, on each host. Both are known after planning only."""

    module: Module
    temporaries: int = 0
    common: int = 0

    @staticmethod
    def of(module: Module, program: CompiledProgram) -> Need:
        """The need of a compiled program."""
        return Need(module, program.arena_bytes, sum(arena.bytes * len(arena.groups) for arena in program.shared))

    @property
    def arguments(self) -> int:
        return sum(parameter.shape.byte_size for parameter in self.module.entry_computation.parameters)

    @property
    def results(self) -> int:
        return self.module.entry_computation.root_instruction.shape.byte_size

    @property
    def bytes(self) -> int:
        """Sum of arguments, results and temporaries, which are needed at once."""
        return self.arguments + self.results + self.temporaries

    def refused(self, limits: str) -> OutOfMemoryError:
        """The error, which points at the largest argument or result. limits: in words."""
        module, entry = self.module, self.module.entry_computation
        largest = max((*entry.parameters, entry.root_instruction), key=lambda i: i.shape.byte_size)
        parts = {"arguments": self.arguments, "results": self.results, "temporaries": self.temporaries}
        held = ", ".join(f"{amount(size)} of {name}" for name, size in parts.items() if size)
        return OutOfMemoryError(
            f"{module.name} needs {amount(self.bytes)} on each device ({held}); {limits}",
            module.locate(largest) if self.temporaries <= largest.shape.byte_size else None,
        )


def require_memory(need: Need, limit: Limit) -> None:
    """OutOfMemoryError if one device can't hold the program's arguments, results and temporaries at once.

    limit: of a device's memory.
    """
    if need.bytes > limit.bytes:
        why = "" if limit.source in ("", "this machine") else f" ({limit.source})"
        raise need.refused(f"a device has {amount(limit.bytes)}{why}")


def require_host_memory(needs: Sequence[tuple[Need, int]], free: Limit, name: str = "this host") -> None:
    """OutOfMemoryError if a host can't hold the memory that its devices need at once.

    needs: of each program, with the number of the host's devices that run it.  free: the host's memory for all of them.
    """
    total = sum(need.bytes * devices + need.common for need, devices in needs)
    if total <= free.bytes:
        return
    need, devices = max(needs, key=lambda item: item[0].bytes * item[1])
    also = "" if len(needs) == 1 else " and the other programs'"
    why = "" if free.source == "this machine" else f" ({free.source})"
    verb = "needs" if devices == 1 and not also else "need"
    raise need.refused(
        f"its {devices} device{'' if devices == 1 else 's'}{also} on {name} {verb} {amount(total)}; "
        f"{name} has {amount(free.bytes)} left{why}"
    )
