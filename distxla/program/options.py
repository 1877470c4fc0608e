"""How a module is compiled, decided once: what the compiler, its process and the cache's key go by."""

from __future__ import annotations

import os

from distxla.ir.unwritten import is_filled
from distxla.lazy_dataclass import dataclass, field

VERIFY = "DISTXLA_VERIFY_PASSES"  # environment: not 0, and the module is verified after each step that changed it

InPlace = tuple[tuple[int, int], ...]  # (leaf of the result, leaf of the parameters) that may have the same memory


def verifies_passes() -> bool:
    """Whether the environment asks for it."""
    return os.environ.get(VERIFY, "0") not in ("", "0")


@dataclass(frozen=True)
class CompileOptions:
    """Equal modules, counts and options give equal programs.

    target: by name, by default this processor's.  traced: steps record when they ran.  points: names of instructions at
    which faults can be injected (compiler/entry/injection.py).  in_place: (result leaf, parameter leaf) that may have
    the same memory in a call.  apart: other devices of its groups run programs that are
    compiled apart.  through_host: collectives exchange arrays through the hosts' memory, whatever memory the
    kernels have.  watched: steps note where NaN and Inf come from (program/watch_report.py); in_place is empty then.
    filled: memory is filled before it is used (ir/unwritten.py).  verified: each pass's module is verified, which
    changes no program.  These two are as the environment says where the options are made.
    """

    target: str | None = None
    traced: bool = False
    points: tuple[str, ...] = ()
    in_place: InPlace = ()
    apart: bool = False
    through_host: bool = False
    watched: bool = False
    filled: bool = field(default_factory=is_filled)
    verified: bool = field(default_factory=verifies_passes, compare=False, repr=False)
