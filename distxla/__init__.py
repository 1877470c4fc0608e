"""Run XLA HLO programs on all their replicas and partitions, as real processes.

    module = distxla.load("step.hlo")
    with distxla.Cluster(partitions=8) as cluster:
        step = cluster.compile(module)
        outs = step(args)                       # args[d][k], outs[d][k]

Names are imported when they are used: parsing needs neither Ray nor LLVM.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from distxla.errors import (
    ArgumentError,
    ClusterError,
    CollectiveMismatchError,
    CompileError,
    DeadlockError,
    DistxlaError,
    ExecutionError,
    HloSyntaxError,
    InternalError,
    Location,
    ReplicaLostError,
    TimeLimitError,
    UnsupportedOpError,
    VerificationError,
)

if TYPE_CHECKING:
    from distxla.ir.module import Module
    from distxla.runtime.cluster import Cluster
    from distxla.runtime.device_array import DeviceArray
    from distxla.runtime.executable import Executable
    from distxla.text.files import load_module as load
    from distxla.text.parser import parse_module as parse

_PLACES = {
    "Cluster": ("distxla.runtime.cluster", "Cluster"),
    "DeviceArray": ("distxla.runtime.device_array", "DeviceArray"),
    "Executable": ("distxla.runtime.executable", "Executable"),
    "Module": ("distxla.ir.module", "Module"),
    "load": ("distxla.text.files", "load_module"),
    "parse": ("distxla.text.parser", "parse_module"),
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'distxla' has no attribute {name!r}")
    module, attribute = _PLACES[name]
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


__all__ = [
    "ArgumentError",
    "Cluster",
    "ClusterError",
    "CollectiveMismatchError",
    "CompileError",
    "DeadlockError",
    "DeviceArray",
    "DistxlaError",
    "Executable",
    "ExecutionError",
    "HloSyntaxError",
    "InternalError",
    "Location",
    "Module",
    "ReplicaLostError",
    "TimeLimitError",
    "UnsupportedOpError",
    "VerificationError",
    "load",
    "parse",
]
