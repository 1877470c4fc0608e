"""What partitions and compiles the programs of a client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from distxla.compiler.server_share import start_server
from distxla.jax.partitioner.partitioning import Partitioned, partition_module
from distxla.jax.private.names import CompileCounts
from distxla.runtime.arrays.executable import Executable
from distxla.runtime.cluster import Cluster

if TYPE_CHECKING:
    from distxla.ir.module import Module


class Compiler(Protocol):
    """Makes programs for a client's devices. Both methods block, and raise what `programs.compile_program` does."""

    def partition(self, code: bytes, found: CompileCounts, options: bytes) -> Partitioned:
        """A module's program of one partition. options: an xla.CompileOptionsProto, of which `found` is a part."""

    def compile(
        self,
        partitioned: Partitioned,
        rows: list[list[int]],
        donated: frozenset[int],
        module: Module,
        calls: Mapping[int, Callable[..., Any]],
        checks: frozenset[str],
    ) -> Executable:
        """The program for these devices, [replica][partition]. module: that of `partitioned`.  calls: functions of
        this process, by number.  checks: of each call."""


class LocalCompiler:
    """See Compiler; in processes that this one starts, for a cluster of this one."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def partition(self, code: bytes, found: CompileCounts, options: bytes) -> Partitioned:
        """See Compiler."""
        return partition_module(
            code,
            partitions=found.partitions,
            replicas=found.replicas,
            compile_options=options,
            calls_python=True,
            begin=start_server,  # meanwhile
        )

    def compile(
        self,
        partitioned: Partitioned,
        rows: list[list[int]],
        donated: frozenset[int],
        module: Module,
        calls: Mapping[int, Callable[..., Any]],
        checks: frozenset[str],
    ) -> Executable:
        """See Compiler."""
        options: dict[str, Any] = {"host_calls": calls, "check": checks}
        return self._cluster.compile(module, device_assignment=rows, donated=donated, **options)


__all__ = ["Compiler", "LocalCompiler"]
