"""How an op declares its attributes: each dataclass field names the kind of text it is written in.

`dimensions: tuple[int, ...] = attribute("int_list")` says that the HLO text has `dimensions={1,0}`. The text package
holds one reader and one writer for every kind; ops know none of them.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any, Final

from distxla.lazy_dataclass import dataclass

REQUIRED: Final = dataclasses.MISSING

# kind -> Python type of the field's value
KINDS: dict[str, str] = {
    "int": "int",  # index=3
    "float": "float",  # epsilon=0.001
    "bool": "bool",  # is_stable=true
    "string": "str, from a quoted string",  # custom_call_target="f"
    "word": "str, from a bare word",  # direction=LT, kind=kLoop, fft_type=RFFT
    "int_list": "tuple[int, ...]",  # dimensions={1,0}
    "computation": "str, a computation's name",  # to_apply=%add
    "computation_list": "tuple[str, ...]",  # branch_computations={%a, %b}; calls={%f}
    "window": "ir.window.Window",
    "dim_labels": "ir.window.ConvolutionDimensions",
    "padding": "tuple[PaddingDimension, ...]",  # padding=0_1_0x2_2
    "slice": "tuple[SliceDimension, ...]",  # slice={[0:2], [1:9:2]}
    "replica_groups": "ir.replica_groups.ReplicaGroups",
    "group_mode": "ir.replica_groups.GroupMode",  # mode=cross_replica
    "pairs": "tuple[tuple[int, int], ...]",  # source_target_pairs={{0,1},{1,0}}
    "int_list_list": "tuple[tuple[int, ...], ...]",  # slice_sizes={{1,2},{3}}
    "precision": "tuple[str, ...]",  # operand_precision={highest,default}
    "aliasing": "tuple of (output index, operand, operand index)",  # output_to_operand_aliasing={{0}: (1, {})}
    "shape_list": "tuple[Shape, ...]",  # operand_layout_constraints={f32[2]{0}, ...}
    "comparison": "str",  # type=TOTALORDER
    "order": "str",  # order=TOTAL: newer text for a comparison
    "domain": "str, raw text in braces",  # domain={kind="sharding", entry={...}, exit={...}}
    "raw": "str, the balanced text, unchanged",
    # written between the parentheses instead of operands
    "number": "int",  # parameter(0)
    "literal": "ir.literal.Literal",  # constant({1, 2})
}


def attribute(
    kind: str, *, default: Any = REQUIRED, text: str | None = None, also: tuple[str, str] | None = None
) -> Any:
    """Declare an op's field as an HLO attribute.

    kind: a key of KINDS.  default: the meaning of an absent attribute (which is not printed); REQUIRED where XLA
    requires it.  text: the attribute's name in HLO text where it differs from the field's.  also: another name that it
    has in texts of other versions of XLA, and the kind of its value; it is read, not written.
    """
    if kind not in KINDS:
        raise KeyError(f"no attribute kind {kind!r}")
    metadata = {"kind": kind, "text": text, "also": also}
    if default is REQUIRED:
        return dataclasses.field(metadata=metadata, kw_only=True)
    return dataclasses.field(default=default, metadata=metadata, kw_only=True)


@dataclass(frozen=True, slots=True)
class AttributeSpec:
    """One attribute of an op class: field name, name in the text, kind, default, other name and its kind."""

    field: str
    text: str
    kind: str
    default: Any
    also: tuple[str, str] | None = None

    @property
    def required(self) -> bool:
        return self.default is REQUIRED


def attribute_specs(op_class: type) -> tuple[AttributeSpec, ...]:
    """The attributes of an op class, in declaration order."""
    return _specs(op_class)


def computation_attributes(op_class: type) -> tuple[AttributeSpec, ...]:
    """Those that name computations."""
    return _computation_specs(op_class)


# Passes ask for them once for every instruction, the dataclass for its fields only once.


@cache
def _specs(op_class: type) -> tuple[AttributeSpec, ...]:
    return tuple(
        AttributeSpec(f.name, f.metadata["text"] or f.name, f.metadata["kind"], f.default, f.metadata["also"])
        for f in dataclasses.fields(op_class)
        if "kind" in f.metadata
    )


@cache
def _computation_specs(op_class: type) -> tuple[AttributeSpec, ...]:
    return tuple(spec for spec in _specs(op_class) if spec.kind in ("computation", "computation_list"))
