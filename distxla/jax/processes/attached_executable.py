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
    """launched: what calls are known by.  devices: those of this process, in the order of the program."""

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
    ) -> None:
        """number: the owner's of the program."""
        super().__init__(cluster, program, devices, facts.compile_s, facts.cached, module=module)
        self.launched = AttachedProgram(number, module.name, facts.set, facts.members)
        self._connection, self._streams = connection, streams
        self._image_bytes = facts.image_bytes
        drop = Drop(number)
        let_go = weakref.finalize(self, connection.post, lambda: connection.send_now(drop))
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
        self.load_s, self.number = facts.load_s, frame.number

    def serving(self) -> AbstractContextManager[Serving]:
        """See launches.LaunchedExecutable."""
        return self._streams.during(self.devices, self.host_calls)


class OwnersCompiler:
    """See pjrt/compilers.py: Compiler. The owner compiles each program once for all processes."""

    def __init__(self, cluster: Devices, attached: Callable[[], Attached], mine: range) -> None:
        """attached: the connection and the streams, once the devices serve.  mine: the devices of this process."""
        self._cluster = cluster
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
        made = AttachedExecutable(self._cluster, connection, streams, program, devices, facts, frame.program, module)
        made.host_calls = streams.bound(sites, calls, devices)
        return made


__all__ = ["AttachedExecutable", "OwnersCompiler"]
