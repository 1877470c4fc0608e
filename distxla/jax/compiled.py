"""A lowered JAX program on a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from distxla.compiler.passes.placements import Placements, declared_values
from distxla.compiler.verify.aliases import in_place_pairs
from distxla.errors import ArgumentError
from distxla.ir.counts import Counts
from distxla.ir.public_names import PublicNames
from distxla.jax.array import Array
from distxla.jax.lowering import LoweredProgram, lowered_program
from distxla.jax.partitioner.host_callbacks import host_calls_of
from distxla.jax.values import chosen_devices, put_parameter, put_shards, whole_value
from distxla.oracle.lockstep import run_reference
from distxla.runtime.arrays.columns import Column, ColumnCalls, put_column
from distxla.runtime.cluster import Cluster
from distxla.scheduler.communication_order import order_communication
from distxla.scheduler.communication_table import communication_table
from distxla.scheduler.deadlocks import examine
from distxla.scheduler.replication import unsure_results

if TYPE_CHECKING:
    from distxla.ir.module import Module
    from distxla.runtime.arrays.executable import Executable
    from distxla.scheduler.replication import UnsureResult
    from distxla.scheduler.verdict import Verdict


class Compiled(PublicNames):
    """A program for a cluster, as `distxla.jax.compile` gives it. Call it as the jitted function, without static
    arguments: arrays, or pytrees of them, in; pytrees of `distxla.jax.Array` out.

    executable: what runs it.  in_tree, out_tree: of arguments and results.
    """

    _INTERNAL = frozenset({"call_leaves", "program"})

    def __init__(
        self,
        lowered: jax.stages.Lowered,
        cluster: Cluster,
        *,
        devices: Sequence[int] | None = None,
        trace: bool = False,
        check: str | Iterable[str] = (),
    ) -> None:
        self.program: LoweredProgram = lowered_program(lowered)
        self.in_tree, self.out_tree = lowered.in_tree, lowered.out_tree
        self._cluster = cluster
        partitioned = self.program.partitioned
        chosen = chosen_devices(self.program.name, partitioned.partitions, devices, cluster)
        module = partitioned.module(f"<{self.program.name}>")
        everywhere = cluster.replicas == 1 and chosen == list(range(cluster.partitions))
        table = None if everywhere else [chosen]
        self._fixed = self.program.tokens + len(self.program.constants)
        self._donated = [self._fixed + k for k, parameter in enumerate(self.program.parameters) if parameter.is_donated]
        options: dict[str, Any] = {"trace": trace, "check": check, "host_calls": host_calls_of(lowered)}
        self.executable: Executable = cluster.compile(module, device_assignment=table, donated=self._donated, **options)
        parameters = (*(c.shards for c in self.program.constants), *(p.shards for p in self.program.parameters))
        tokens = (None,) * self.program.tokens
        self.executable.placements = Placements(
            (*tokens, *parameters), (*tokens, *(result.shards for result in self.program.results))
        )
        # parameters in whose memory a result may be computed: by number, without tokens and constants
        self._given_up = frozenset(k - self._fixed for _, k in in_place_pairs(module, self._donated))
        self._calls = ColumnCalls(cluster, self.executable)
        self._before: list[Column] | None = None  # tokens and constants

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it behind all calls under way; results are there once they are read. Blocks while arguments are copied,
        and while too many calls are under way.

        An Array that is cut as the parameter is used where it is; anything else is copied to the devices. Donated
        Arrays are gone afterwards. ArgumentError for arguments that do not fit; failures are raised at the results.
        """
        leaves, tree = jax.tree.flatten((args, kwargs))
        if tree != self.in_tree:
            raise ArgumentError(f"{self.program.name}: expected arguments of structure {self.in_tree}, found {tree}")
        return jax.tree.unflatten(self.out_tree, self.call_leaves(leaves))

    def call_leaves(self, leaves: Sequence[Any]) -> list[Array]:
        """The same of the leaves of arguments and results."""
        cluster, executable = self._cluster, self.executable
        cluster.wait_started()
        columns = list(self._fixed_columns())
        devices = executable.devices
        for parameter in self.program.parameters:
            leaf = leaves[parameter.leaf]
            if type(leaf) is Array and leaf.column.is_deleted:
                raise ArgumentError(f"{parameter.path}: the array was deleted, or donated to a call")
            if (
                type(leaf) is Array
                and leaf.shards_of_whole is parameter.shards
                and leaf.column.is_of(cluster, devices)
                and leaf.shape == parameter.signature.shape
                and leaf.dtype == parameter.signature.dtype
            ):
                columns.append(leaf.column)
            else:
                k = len(columns)
                columns.append(put_parameter(cluster, devices, leaf, parameter, executable.parameters[k], k))
        if self._given_up:
            self._require_single_use(leaves)
        found = self._calls.submit(columns, self._donated)
        for k in self._donated:  # also those that were copied: the caller has given them up
            leaf = leaves[self.program.parameters[k - self._fixed].leaf]
            if type(leaf) is Array:
                leaf.delete()
        return [
            Array(column, result.signature, result.shards)
            for column, result in zip(found[self.program.tokens :], self.program.results)
        ]

    def _require_single_use(self, leaves: Sequence[Any]) -> None:
        """ArgumentError where an Array is donated and given once more."""
        seen: dict[Column, int] = {}
        for k, parameter in enumerate(self.program.parameters):
            leaf = leaves[parameter.leaf]
            if type(leaf) is not Array:
                continue
            first = seen.setdefault(leaf.column, k)
            if first != k and not self._given_up.isdisjoint((first, k)):
                paths = [self.program.parameters[number].path for number in (first, k)]
                donated = paths[0 if first in self._given_up else 1]
                raise ArgumentError(
                    f"{' and '.join(paths)} are the same array, and {donated} is donated: expected an array of its own"
                )

    def _fixed_columns(self) -> list[Column]:
        """Tokens and constants, which are copied to the devices once."""
        if self._before is None:
            executable, tokens = self.executable, self.program.tokens
            made = [
                put_column(self._cluster, executable.devices, executable.parameters[k], [None], k)
                for k in range(tokens)
            ]
            for k, constant in enumerate(self.program.constants, tokens):
                whole, shape = np.asarray(constant.value), executable.parameters[k]
                made.append(put_shards(self._cluster, executable.devices, whole, constant.shards, shape, k))
            self._before = made
        return self._before

    # --- what is known about it

    def as_text(self) -> str:
        """HLO text of one partition's program."""
        return self.program.partitioned.text

    @property
    def input_shardings(self) -> Any:
        """NamedShardings of all arguments, as (args, kwargs); None for those that are not used, and for those that
        none describes."""
        found: list[Any] = [None] * len(self.program.arguments)
        for parameter in self.program.parameters:
            found[parameter.leaf] = parameter.signature.sharding
        return jax.tree.unflatten(self.in_tree, found)

    @property
    def output_shardings(self) -> Any:
        """NamedShardings of the results; None for those that none describes."""
        return jax.tree.unflatten(self.out_tree, [result.signature.sharding for result in self.program.results])

    def check(self) -> Verdict:
        """Whether its devices can wait for each other for ever, before any call: `outcome`, `text` and `diagnosis`.
        Blocks; runs nothing."""
        partitioned = self.program.partitioned
        program = range(partitioned.partitions), self._executed_module()
        return examine([program], Counts(partitioned.replicas, partitioned.partitions))

    @cached_property
    def communication(self) -> tuple[dict[str, Any], ...]:
        """What communicates, as `distxla.CheckResult.communication`: for each instruction its kind, the groups or
        pairs, the bytes that a device gives and all give, trip counts, and the line of the user's program."""
        partitioned = self.program.partitioned
        program = range(partitioned.partitions), self._executed_module()
        rows = communication_table([program], Counts(partitioned.replicas, partitioned.partitions))
        return tuple({"program": self.program.name, **row.as_json()} for row in rows)

    def unsure_results(self) -> list[UnsureResult]:
        """Results, and values inside of the program, that are declared the same on several devices, and aren't surely:
        `text`, `location`, `frame` of each. Blocks; runs nothing."""
        placements, partitioned = self.executable.placements, self.program.partitioned
        assert placements is not None
        counts = Counts(partitioned.replicas, partitioned.partitions)
        module = self._executed_module()
        values = declared_values(module, counts.partitions, placements.results)
        return unsure_results(module, counts, placements.parameters, placements.results, values)

    def reference(self, *args: Any, **kwargs: Any) -> Any:
        """The results of the reference, which computes all devices in lock step in NumPy: pytrees of NumPy arrays.

        Slow. Raises as calling it does, DeadlockError among them. For programs without effects.
        """
        leaves, tree = jax.tree.flatten((args, kwargs))
        if tree != self.in_tree:
            raise ArgumentError(f"{self.program.name}: expected arguments of structure {self.in_tree}, found {tree}")
        program, partitions = self.program, self.program.partitioned.partitions
        wholes: list[tuple[Any, Any]] = [(np.asarray(c.value), c.shards) for c in program.constants]
        wholes += [(whole_value(leaves[p.leaf], p), p.shards) for p in program.parameters]
        rows = [
            [None] * program.tokens + [shards.split(whole, device) for whole, shards in wholes]
            for device in range(partitions)
        ]
        outs = run_reference(self._executed_module(), rows, Counts(1, partitions))
        joined = [
            result.shards.join([row[k] for row in outs]) for k, result in enumerate(program.results, program.tokens)
        ]
        return jax.tree.unflatten(self.out_tree, joined)

    def _executed_module(self) -> Module:
        """With its communication in the order that a call executes."""
        partitioned, module = self.program.partitioned, self.executable.module
        assert module is not None
        counts = Counts(partitioned.replicas, partitioned.partitions)
        return order_communication([(range(partitioned.partitions), module)], counts).modules[0]

    def __repr__(self) -> str:
        return f"Compiled({self.program.name} for {self.program.partitioned.partitions} devices)"


def compile(
    lowered: jax.stages.Lowered,
    *,
    cluster: Cluster,
    devices: Sequence[int] | None = None,
    trace: bool = False,
    check: str | Iterable[str] = (),
) -> Compiled:
    """Compile what JAX has lowered, `jax.jit(f).lower(...)` or `.trace(...).lower(lowering_platforms=("cpu",))`, for a
    cluster. Blocks.

    devices: of the cluster, in the order of the mesh; the first ones by default.
    trace: traces show each step that the program computes.  check: "nan", "replication" or both, of each call
    (docs/guide/checked_runs.md). Raises JaxError and PartitioningError, the verifier's and
    the compiler's errors, and ArgumentError where the cluster has too few devices.
    """
    if not isinstance(lowered, jax.stages.Lowered):
        raise ArgumentError(f"compile takes a jax.stages.Lowered, found {type(lowered).__name__}")
    return Compiled(lowered, cluster, devices=devices, trace=trace, check=check)
