"""What the owner and a JAX process tell each other as JSON."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from distxla.errors import ClusterError
from distxla.jax.private.names import PartitionerOptions
from distxla.jax.processes.fields import from_json
from distxla.lazy_dataclass import dataclass

_T = TypeVar("_T", bound="Facts")


class Facts:
    """A dataclass that goes as JSON."""

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)  # type: ignore[call-overload, no-any-return]

    @classmethod
    def of_json(cls: type[_T], found: Any) -> _T:
        """ClusterError where it is none."""
        return from_json(cls, found)


@dataclass(frozen=True)
class AttachedMemory(Facts):
    """The memories of the host of a JAX process: descriptors of the process `owner`, to be opened in /proc.

    is_owner_here: whether that is the owner of all devices; else it is that of this host alone.  owner_host: where the
    owner of all is, "" where all are on one host.
    memories: of the devices of this host, whose flattened ids begin with `first`.  common: the memory that follows
    each device's.  memory_bytes: of each of these segments.  device_bytes: S. The owner allocates in [0, S) of each
    device, the device's JAX process in [S, 2S).  control: the control block, of `devices` devices.  promised: offset
    there of what all heaps promise.  slices: by process, the offset there of the header of its
    slice (control_block.py).  logs: the same of its log (launch_board.py); nothing where the owner issues all calls.
    """

    owner: int
    control: int
    memories: tuple[int, ...]
    common: int
    memory_bytes: int
    device_bytes: int
    devices: int
    promised: int
    slices: tuple[int, ...]
    logs: tuple[int, ...] = ()
    is_owner_here: bool = True
    owner_host: str = ""
    first: int = 0


@dataclass(frozen=True)
class PartitionRequest(Facts):
    """The fields of PartitionerOptions, and whether the module may be lowered without the partitioner. serialized: in
    hexadecimal digits."""

    partitions: int
    replicas: int
    use_shardy: bool
    propagate_to_parameters: tuple[bool, ...]
    propagate_to_outputs: tuple[bool, ...]
    serialized: str | None
    is_direct: bool

    @staticmethod
    def made(options: PartitionerOptions, is_direct: bool) -> PartitionRequest:
        return PartitionRequest(
            options.partitions,
            options.replicas,
            options.use_shardy,
            options.propagate_to_parameters,
            options.propagate_to_outputs,
            None if options.serialized is None else options.serialized.hex(),
            is_direct,
        )

    @property
    def options(self) -> PartitionerOptions:
        """ClusterError where `serialized` is none."""
        try:
            serialized = None if self.serialized is None else bytes.fromhex(self.serialized)
        except ValueError:
            raise ClusterError("PartitionRequest.serialized: expected hexadecimal digits") from None
        propagates = self.propagate_to_parameters, self.propagate_to_outputs
        return PartitionerOptions(self.partitions, self.replicas, self.use_shardy, *propagates, serialized)


@dataclass(frozen=True)
class CompileRequest(Facts):
    """rows: ids of devices, [replica][partition].  donated: numbers of parameters.  calls: numbers of functions of the
    process that the program calls.  checks: names.  functions: those of `calls`, see callback_functions.py."""

    rows: tuple[tuple[int, ...], ...]
    donated: tuple[int, ...] = ()
    calls: tuple[int, ...] = ()
    checks: tuple[str, ...] = ()
    functions: tuple[tuple[int, str, str], ...] = ()


@dataclass(frozen=True)
class CompiledFacts(Facts):
    """fingerprint: equal for equal programs.  cached: whether the disk had it.  members: the processes that have
    devices of it.  set: the owner's number for them, the same for all programs of these processes.  native: whether
    each process issues its own part of calls, where it has a log."""

    fingerprint: str
    cached: bool
    compile_s: float
    image_bytes: int
    set: int
    members: tuple[int, ...]
    native: bool = False


@dataclass(frozen=True)
class LoadedFacts(Facts):
    """Where a loaded program finds things of the devices of the process that asks.

    devices: of this process, in the order of the program.  area: offset in the control block of the row of each of
    them: offsets of arguments and results, u64 each.  states: (device, key, offset in the control block) of each
    stream's state; a key as `stream_key` has it.  board: offset in the control block of the board of the program's
    processes, 0 for one process.
    """

    number: int
    devices: tuple[int, ...]
    area: tuple[int, ...]
    load_s: float = 0.0
    states: tuple[tuple[int, str, int], ...] = ()
    board: int = 0


__all__ = ["AttachedMemory", "CompileRequest", "CompiledFacts", "Facts", "LoadedFacts", "PartitionRequest"]
