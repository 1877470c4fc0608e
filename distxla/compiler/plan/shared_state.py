"""The state that the planners of one program share."""

from __future__ import annotations

from distxla.compiler.plan.buffers import Buffer, Routine
from distxla.ir.literal import Literal
from distxla.lazy_dataclass import dataclass, field
from distxla.ops.support.liveness import Values


@dataclass
class SharedState:
    """State that the planners of the entry and of all routines share."""

    constants: list[Literal] = field(default_factory=list)
    by_literal: dict[Literal, Buffer] = field(default_factory=dict)
    values: dict[str, Values] = field(default_factory=dict)
    routines: list[Routine] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)  # of routines, by computation
