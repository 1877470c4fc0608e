"""A program that the owner has compiled, for the devices of this process."""

from __future__ import annotations

import pickle
import weakref
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from distxla.errors import ClusterError
from distxla.jax.partitioner.partitioned_bytes import pack_partitioned, unpack_partitioned
from distxla.jax.partitioner.partitioning import Partitioned, partition_module
from distxla.jax.private.names import CompileCounts, PartitionerOptions
from distxla.jax.processes.attached_streams import AttachedStreams
from distxla.jax.processes.callback_functions import described
from distxla.jax.processes.connection_to_owner import OwnersConnection
from distxla.jax.processes.facts import CompiledFacts, CompileRequest, LoadedFacts, PartitionRequest
from distxla.jax.processes.launches import AttachedProgram, Serving
from distxla.jax.processes.messages import (
    Compile,
    Compiled,
    Drop,
    Load,
    Loaded,
    Partition,
    pack_parts,
    unpack_json,
    unpack_parts,
)
from distxla.program.artifact import CompiledProgram
from distxla.runtime.arrays.executable import Devices, Executable

if TYPE_CHECKING:
    from distxla.ir.module import Module


Attached = tuple[OwnersConnection, AttachedStreams]


class AttachedExecutable(Executable):
    """launched: what calls are known by.  devices: those of this process, in the order of the program.

    is_native: whether each process issues its own part of calls, where it can.  areas, board: once it is loaded, where
    in the control block the offsets of arguments and results are, by device, and the board of its processes, 0 for one.
    """

    def __init__(
        self,
        cluster: Devices,
        connection: OwnersConnection,
        streams: AttachedStreams,
        program: CompiledProgram,
        devices: tuple[int, ...],
        facts: CompiledFacts,
        number: int,
        module: Module,
        unload: Callable[[Callable[[], object]], object],
    ) -> None:
        """number: the owner's of the program.  unload: does what it is given once no native call is in flight."""
        super().__init__(cluster, program, devices, facts.compile_s, facts.cached, module=module)
        self.launched = AttachedProgram(number, module.name, facts.set, facts.members)
        self.is_native = facts.native
        self.areas: tuple[int, ...] = ()
        self.board = 0
        self._connection, self._streams = connection, streams
        self._image_bytes = facts.image_bytes
        drop = Drop(number)
        let_go = weakref.finalize(self, unload, lambda: connection.post(lambda: connection.send_now(drop)))
        let_go.atexit = False

    @property
    def image_bytes(self) -> int:
        return self._image_bytes

    def load(self) -> None:
        """Have it loaded on its devices; blocks. Nothing happens where it is. Raises the owner's error."""
        if self.number is not None:
            return
        program = self.launched.program
        frame, payload = self._connection.ask(lambda request: Load(request, program), (), self._streams.stop_reason)
        assert isinstance(frame, Loaded)
        facts = LoadedFacts.of_json(unpack_json(payload))
        if facts.devices != self.devices:
            raise ClusterError(
                f"{self.program.name}: expected a program for devices {self.devices}, found {facts.devices}"
            )
        self._streams.load(frame.number, self.program, self.devices, facts.states)
        self.areas, self.board = facts.area, facts.board
        self.load_s, self.number = facts.load_s, frame.number

    def serving(self) -> AbstractContextManager[Serving]:
        """See launches.LaunchedExecutable."""
        return self._streams.during(self.devices, self.host_calls)


class OwnersCompiler:
    """See pjrt/compilers.py: Compiler. The owner compiles each program once for all processes."""

    def __init__(
        self,
        cluster: Devices,
        attached: Callable[[], Attached],
        mine: range,
        unload: Callable[[Callable[[], object]], object],
    ) -> None:
        """attached: the connection and the streams, once the devices serve.  mine: the devices of this process.
        unload: as of AttachedExecutable."""
        self._cluster, self._unload = cluster, unload
        self._attached = attached
        self._mine = mine

    def partition(self, code: bytes, found: CompileCounts, options: bytes) -> Partitioned:
        """See Compiler."""
        return partition_module(
            code,
            partitions=found.partitions,
            replicas=found.replicas,
            compile_options=options,
            calls_python=True,
            by=self._partitioned,
        )

    def _partitioned(self, data: bytes, options: PartitionerOptions, is_direct: bool) -> Partitioned:
        """By the owner's partitioner, which all processes share."""
        asked = PartitionRequest.made(options, is_direct).to_json()
        connection, _ = self._attached()
        _, answer = connection.ask(Partition, pack_parts(asked, data))
        return unpack_partitioned(answer)

    def compile(
        self,
        partitioned: Partitioned,
        rows: list[list[int]],
        donated: frozenset[int],
        module: Module,
        calls: Mapping[int, Callable[..., Any]],
        checks: frozenset[str],
    ) -> AttachedExecutable:
        """See Compiler."""
        given = tuple(map(tuple, rows)), tuple(sorted(donated)), tuple(calls), tuple(sorted(checks))
        (connection, streams), request = self._attached(), CompileRequest(*given, described(calls))
        payload = pack_parts(request.to_json(), pack_partitioned(partitioned))
        frame, answer = connection.ask(Compile, payload)
        assert isinstance(frame, Compiled)
        told, pickled = unpack_parts(answer)
        program, sites = pickle.loads(pickled)
        devices = tuple(device for row in rows for device in row if device in self._mine)
        facts = CompiledFacts.of_json(told)
        of_program = program, devices, facts, frame.program, module
        made = AttachedExecutable(self._cluster, connection, streams, *of_program, self._unload)
        made.host_calls = streams.bound(sites, calls, devices)
        return made


__all__ = ["AttachedExecutable", "OwnersCompiler"]
