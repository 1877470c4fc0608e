"""From what JAX compiles to a program of the cluster."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Final

from distxla import clock
from distxla.compiler import timings
from distxla.errors import ArgumentError, UnsupportedOpError
from distxla.jax.partitioner.array_placements import placements_of_arrays
from distxla.jax.partitioner.host_callbacks import by_number
from distxla.jax.partitioner.partitioning import Partitioned
from distxla.jax.partitioner.protobuf import device_ids
from distxla.jax.pjrt.devices import MEMORY_KINDS
from distxla.jax.pjrt.host_callbacks import HOST_CALLBACKS
from distxla.jax.private.names import read_compile_options
from distxla.lazy_dataclass import dataclass
from distxla.runtime.arrays.executable import Executable
from distxla.time_limit import phase, timed_phases

if TYPE_CHECKING:
    from distxla.ir.module import Module
    from distxla.jax.pjrt.client import Client

TIMINGS: Final = "DISTXLA_TIMINGS"  # environment: not 0, and each program's times are printed
_MEMORY: Final = re.compile(r"S\((\d+)\)")
_KINDS: Final = {
    number: list(MEMORY_KINDS).index(name) for number, name in ((0, "device"), (5, "pinned_host"), (6, "unpinned_host"))
}
_PARAMETERS: Final = re.compile(r"\((\d+), \{")


@dataclass(frozen=True)
class Program:
    """A program for some of a client's devices.

    ids: of the devices, [replica][partition].  options: xla.CompileOptionsProto, as the caller gave it.  donated:
    numbers of parameters whose memory the caller gives up.
    """

    executable: Executable
    partitioned: Partitioned
    ids: list[list[int]]
    options: bytes
    donated: frozenset[int]

    @property
    def parameter_kinds(self) -> list[int]:
        """The memory of each parameter, by number in MEMORY_KINDS."""
        return [_memory_kind(shape) for shape in self.partitioned.parameter_shapes]

    @property
    def result_kinds(self) -> list[int]:
        """As `parameter_kinds`, of the result's leaves."""
        return [_memory_kind(shape) for shape in self.partitioned.output_shapes]

    @property
    def replicas(self) -> int:
        return len(self.ids)

    @property
    def partitions(self) -> int:
        return len(self.ids[0])

    @property
    def devices(self) -> list[int]:
        """In the order of arguments and results."""
        return [device for row in self.ids for device in row]


def _memory_kind(shape: str) -> int:
    """That of a shape as HLO text has it, with XLA's number of its memory: f32[8]{0:S(5)}."""
    found = _MEMORY.search(shape)
    number = int(found[1]) if found else 0
    if number not in _KINDS:
        raise UnsupportedOpError(f"{shape}: expected memory {', '.join(map(str, _KINDS))}, found {number}")
    return _KINDS[number]


def compile_program(client: Client, code: bytes, form: str, options: bytes) -> Program:
    """Partition and compile a module for the devices that the options name; blocks.

    form: "mlir" or "hlo", what the code is. Raises the partitioner's, the verifier's and the compiler's errors.
    """
    if form not in ("mlir", "hlo"):
        raise UnsupportedOpError(f"a program in format {form!r}: distxla compiles mlir and hlo")
    client.require_owner()
    begin = clock.now()
    with timed_phases() as phases:
        found = read_compile_options(options)
        with phase("lowering"):
            partitioned = client.compiler.partition(code, found, options)
        program = loaded_program(client, partitioned, devices_of_options(options), options)
    if os.environ.get(TIMINGS, "0") not in ("", "0"):
        executable = program.executable
        stages = {} if executable.cached else executable.program.debug.timings
        took = clock.now() - begin
        print(f"distxla: {timings.line(executable.program.name, took, phases, stages)}", file=sys.stderr)
    return program


def devices_of_options(options: bytes) -> list[list[int]]:
    """The ids of devices, [replica][partition], that an xla.CompileOptionsProto names; the first ones by default."""
    found = read_compile_options(options)
    rows = device_ids(found.device_assignment) if found.device_assignment else []
    return rows or [[r * found.partitions + p for p in range(found.partitions)] for r in range(found.replicas)]


def loaded_program(client: Client, partitioned: Partitioned, rows: list[list[int]], options: bytes) -> Program:
    """Compile what the partitioner made, for these devices, and load it; blocks."""
    client.require_owner()
    with phase("reading HLO text"):
        module = partitioned.module()
    donated = _donated(module)
    flat, count = [device for row in rows for device in row], len(client.devices)
    if any(not 0 <= device < count for device in flat):
        raise ArgumentError(f"devices {flat}: the cluster has devices 0 to {count - 1}")
    calls = by_number(HOST_CALLBACKS.being_compiled)
    compiled = client.compiler.compile(partitioned, rows, donated, module, calls, client.checks)
    if client.checks:
        compiled.placements = placements_of_arrays(partitioned)
    return Program(compiled, partitioned, rows, options, donated)


def _donated(module: Module) -> frozenset[int]:
    """Parameters that results may alias, or that the caller gives up, by the header of the module."""
    header = dict(module.header)
    texts = (header.get(name, "") for name in ("input_output_alias", "buffer_donor"))
    return frozenset(int(number) for text in texts for number in _PARAMETERS.findall(text))


__all__ = ["Program", "compile_program", "devices_of_options", "loaded_program"]
