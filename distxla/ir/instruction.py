"""One instruction of a computation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from distxla.ir.op import Op
from distxla.ir.shape import Shape
from distxla.ir.sharding import Sharding
from distxla.lazy_dataclass import dataclass, field, replace


class Span(NamedTuple):  # which takes a third of a dataclass's time: there is one for each instruction
    """The place of a piece of text: line and columns from 1, end_column exclusive."""

    line: int
    column: int
    end_column: int


@dataclass(frozen=True, slots=True)
class Metadata:
    """`metadata={...}`: `fields` keeps every key in order with its parsed value (str, int or tuple), for printing."""

    fields: tuple[tuple[str, Any], ...] = ()

    def get(self, key: str, default: Any = None) -> Any:
        return dict(self.fields).get(key, default)

    @property
    def op_name(self) -> str:
        return str(self.get("op_name", ""))


@dataclass(frozen=True, slots=True)
class Instruction:
    """`name = shape opcode(operands), attributes`.

    op: the opcode with its own attributes.  operands: names of earlier instructions of the same computation.
    The attributes that any instruction may carry are fields here. frontend_attributes: (key, value) in order;
    backend_config: the raw text (a JSON dict keeps its text); other: further generic attributes (statistics, origin,
    parameter_replication …) as (name, raw text). span and attribute_spans point into the module's text ("shape" and
    "operands" are keys, too) and don't count for equality.
    """

    name: str
    shape: Shape
    op: Op
    operands: tuple[str, ...] = ()
    control_predecessors: tuple[str, ...] = ()
    sharding: Sharding | None = None
    metadata: Metadata | None = None
    frontend_attributes: tuple[tuple[str, str], ...] = ()
    backend_config: str | None = None
    other: tuple[tuple[str, str], ...] = ()
    span: Span | None = field(default=None, compare=False)
    attribute_spans: Mapping[str, Span] = field(default_factory=dict, compare=False)

    @property
    def opcode(self) -> str:
        """For printing and messages; decisions are made by `op`'s own methods and declared properties."""
        return self.op.opcode

    def frontend_attribute(self, key: str) -> str | None:
        return dict(self.frontend_attributes).get(key)

    def replace(self, **changes: Any) -> Instruction:
        return replace(self, **changes)
