"""What the code for Linux has to know about a processor: a target's folder says it, in its file `traits.py`."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from functools import cache

from distxla.lazy_dataclass import dataclass
from distxla.machine.processes import table_of


@dataclass(frozen=True)
class Traits:
    """Of a processor under Linux. Needs neither LLVM nor NumPy.

    llvm_features: by their names, on or off whatever LLVM finds.  address_bytes: that one process can address.
    sched_yield, futex, clock_gettime: the numbers of these system calls.  atomics: machine code of the functions of
    `targets.target.Atomics`, of at most 16 bytes each.  trap: a byte that fills the room between functions.
    identity: the fields of the kernel's `cpuinfo` that compiled code may depend on.  instruction_sets: of these fields,
    what `targets.target.Host.instruction_sets` says.  openblas_core: of these fields, the value for OPENBLAS_CORETYPE;
    None: let the library choose.
    """

    llvm_features: Mapping[str, bool]
    address_bytes: int
    sched_yield: int
    futex: int
    clock_gettime: int
    atomics: Mapping[str, bytes]
    trap: bytes
    identity: tuple[str, ...]
    instruction_sets: Callable[[Mapping[str, str]], frozenset[str]]
    openblas_core: Callable[[Mapping[str, str]], str | None]


@cache
def own_traits() -> Traits:
    """Those of this machine's processor."""
    found: Traits = importlib.import_module(f"distxla.targets.{os.uname().machine}.traits").TRAITS
    return found


def own_fields() -> dict[str, str]:
    """What the kernel says about one processor of this machine; nothing where it doesn't say."""
    try:
        return table_of("cpuinfo")
    except OSError:
        return {}
