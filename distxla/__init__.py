"""Run XLA HLO programs on all their replicas and partitions, as real processes.

    module = distxla.load("step.hlo")
    with distxla.Cluster(partitions=8) as cluster:
        step = cluster.compile(module)
        outs = step(args)                       # args[d][k], outs[d][k]

Names are imported when they are used: parsing needs neither Ray nor LLVM, and `distxla run` starts processes first.
(PYTEST_DONT_REWRITE: pytest, which loads distxla.testing, does not parse it again.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from distxla.lazy_names import lazy_names

if TYPE_CHECKING:
    from distxla.builder.windows import DotDimensionNumbers
    from distxla.builder.xla_builder import XlaBuilder
    from distxla.builder.xla_op import XlaOp
    from distxla.errors import (
        ArgumentError,
        ClusterError,
        CollectiveMismatchError,
        CompileError,
        DamagedMessageError,
        DeadlockError,
        DistxlaError,
        DistxlaWarning,
        ExecutionError,
        HloSyntaxError,
        InternalError,
        JaxError,
        NonFiniteError,
        OutOfMemoryError,
        PartitioningError,
        ReplicaLostError,
        ReplicationError,
        StreamEndError,
        TimeLimitError,
        UnsupportedOpError,
        VerificationError,
    )
    from distxla.ir.layout import Layout
    from distxla.ir.module import Module
    from distxla.ir.shape import Shape
    from distxla.jax.partitioner.loading import load_module as load
    from distxla.location import Location
    from distxla.ops.custom_calls.user import register_custom_call, unregister_custom_call
    from distxla.runtime.arrays.device_array import DeviceArray
    from distxla.runtime.arrays.executable import Executable
    from distxla.runtime.cluster import Cluster
    from distxla.text.parser import parse_module as parse
    from distxla.without_cluster.check import CheckResult, check
    from distxla.without_cluster.reference_run import reference
    from distxla.without_cluster.watch import Watch, WatchedValue

__getattr__, __dir__ = lazy_names(
    globals(),
    {
        "ArgumentError": "distxla.errors",
        "CheckResult": "distxla.without_cluster.check",
        "Cluster": "distxla.runtime.cluster",
        "ClusterError": "distxla.errors",
        "CollectiveMismatchError": "distxla.errors",
        "CompileError": "distxla.errors",
        "DamagedMessageError": "distxla.errors",
        "DeadlockError": "distxla.errors",
        "DeviceArray": "distxla.runtime.arrays.device_array",
        "DistxlaError": "distxla.errors",
        "DistxlaWarning": "distxla.errors",
        "DotDimensionNumbers": "distxla.builder.windows",
        "Executable": "distxla.runtime.arrays.executable",
        "ExecutionError": "distxla.errors",
        "HloSyntaxError": "distxla.errors",
        "InternalError": "distxla.errors",
        "JaxError": "distxla.errors",
        "Layout": "distxla.ir.layout",
        "Location": "distxla.location",
        "Module": "distxla.ir.module",
        "NonFiniteError": "distxla.errors",
        "OutOfMemoryError": "distxla.errors",
        "PartitioningError": "distxla.errors",
        "ReplicaLostError": "distxla.errors",
        "ReplicationError": "distxla.errors",
        "Shape": "distxla.ir.shape",
        "StreamEndError": "distxla.errors",
        "TimeLimitError": "distxla.errors",
        "UnsupportedOpError": "distxla.errors",
        "VerificationError": "distxla.errors",
        "Watch": "distxla.without_cluster.watch",
        "WatchedValue": "distxla.without_cluster.watch",
        "XlaBuilder": "distxla.builder.xla_builder",
        "XlaOp": "distxla.builder.xla_op",
        "check": "distxla.without_cluster.check",
        "load": "distxla.jax.partitioner.loading:load_module",
        "parse": "distxla.text.parser:parse_module",
        "reference": "distxla.without_cluster.reference_run",
        "register_custom_call": "distxla.ops.custom_calls.user",
        "unregister_custom_call": "distxla.ops.custom_calls.user",
    },
)

__all__ = [
    "ArgumentError",
    "CheckResult",
    "Cluster",
    "ClusterError",
    "CollectiveMismatchError",
    "CompileError",
    "DamagedMessageError",
    "DeadlockError",
    "DeviceArray",
    "DistxlaError",
    "DistxlaWarning",
    "DotDimensionNumbers",
    "Executable",
    "ExecutionError",
    "HloSyntaxError",
    "InternalError",
    "JaxError",
    "Layout",
    "Location",
    "Module",
    "NonFiniteError",
    "OutOfMemoryError",
    "PartitioningError",
    "ReplicaLostError",
    "ReplicationError",
    "Shape",
    "StreamEndError",
    "TimeLimitError",
    "UnsupportedOpError",
    "VerificationError",
    "Watch",
    "WatchedValue",
    "XlaBuilder",
    "XlaOp",
    "check",
    "load",
    "parse",
    "reference",
    "register_custom_call",
    "unregister_custom_call",
]
