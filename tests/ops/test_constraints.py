"""One row for each numbered constraint: an instruction that breaks it, the rule named, the attribute pointed at."""

from __future__ import annotations

from typing import Any

import pytest

from distxla.ir.literal import Literal
from distxla.ir.op import RuleViolation
from distxla.ir.shape import Shape
from distxla.ir.window import PaddingDimension, SliceDimension
from distxla.ops.support.registry import op_class
from tests.ops.case import array

F23, F32, S3, S = array("f32", 2, 3), array("f32", 3, 2), array("s32", 3), array("s32")
ROWS = {
    "offset_dims": (1,),
    "collapsed_slice_dims": (0,),
    "start_index_map": (0,),
    "index_vector_dim": 1,
    "slice_sizes": (1, 3),
}
BATCHED = {
    "offset_dims": (),
    "collapsed_slice_dims": (1,),
    "start_index_map": (1,),
    "operand_batching_dims": (0,),
    "start_indices_batching_dims": (0,),
    "index_vector_dim": 1,
    "slice_sizes": (1, 1),
}
STARTS = array("s32", 5, 1)
BATCH_STARTS = array("s32", 2, 1)


def _row(
    opcode: str, rule: str, at: str, operands: tuple[Shape, ...], result: Shape | None = None, **attributes: Any
) -> Any:
    label = f"{opcode}.{rule}-{'-'.join(map(str, attributes.values()))[:40]}"
    return pytest.param(opcode, rule, at, operands, result, attributes, id=label)


VIOLATIONS = [
    _row("abs", "C1", "operands", (array("u8", 3),)),
    _row("floor", "C1", "operands", (S3,)),
    _row("not", "C1", "operands", (F23,)),
    _row("cbrt", "C1", "operands", (array("c64", 3),)),
    _row("exponential", "C1", "operands", (Shape.tuple([F23]),)),
    _row("exponential", "shape", "shape", (F23,), F32),
    _row("add", "C1", "operands", (F23, F32)),
    _row("add", "C1", "operands", (S3, array("u32", 3))),
    _row("subtract", "C2", "operands", (array("pred", 3), array("pred", 3))),
    _row("and", "C2", "operands", (F23, F23)),
    _row("complex", "C2", "operands", (array("f16"), array("f16"))),
    _row("compare", "C1", "operands", (S3, array("u32", 3)), direction="EQ"),
    _row("compare", "C2", "operands", (F23, F32), direction="EQ"),
    _row("compare", "C3", "type", (S3, S3), direction="EQ", comparison="FLOAT"),
    _row("compare", "C3", "type", (F23, F23), direction="EQ", comparison="SIGNED"),
    _row("compare", "C4", "direction", (F23, F23), direction="SAME"),
    _row("compare", "C4", "direction", (array("c64"), array("c64")), direction="LT"),
    _row("select", "C1", "operands", (array("pred", 3), F23, F23)),
    _row("select", "C1", "operands", (S, F23, F23)),
    _row("select", "C2", "operands", (array("pred"), F23, F32)),
    _row("clamp", "C1", "operands", (S3, F23, F23)),
    _row("clamp", "C2", "operands", (F23, F23, F32)),
    _row("clamp", "C3", "operands", (S, F23, array("f32"))),
    _row("convert", "C1", "shape", (F23,), array("s32", 3, 2)),
    _row("bitcast-convert", "C1", "shape", (F23,), array("u8", 2, 3)),
    _row("bitcast-convert", "C2", "shape", (array("f64"),), array("c64")),
    _row("reduce-precision", "C1", "operands", (S3,), exponent_bits=5, mantissa_bits=5),
    _row("reduce-precision", "C2", "exponent_bits", (F23,), exponent_bits=0, mantissa_bits=5),
    _row("reduce-precision", "C3", "mantissa_bits", (F23,), exponent_bits=5, mantissa_bits=-1),
    _row("stochastic-convert", "C1", "operands", (S3, S3), S3),
    _row("stochastic-convert", "C2", "operands", (F23, array("u16", 2, 3)), array("s8", 2, 3)),
    _row("stochastic-convert", "C3", "shape", (F23, array("u32", 2, 3)), F23),
    _row("iota", "C1", "iota_dimension", (), F23, iota_dimension=2),
    _row("iota", "C2", "shape", (), array("pred", 2), iota_dimension=0),
    _row("broadcast", "C1", "shape", (S,), F23, dimensions=()),
    _row("broadcast", "C2", "dimensions", (array("f32", 3),), F23, dimensions=()),
    _row("broadcast", "C3", "dimensions", (array("f32", 3),), F23, dimensions=(2,)),
    _row("broadcast", "C4", "dimensions", (array("f32", 3, 3),), F23, dimensions=(1, 1)),
    _row("broadcast", "C5", "dimensions", (array("f32", 3),), F23, dimensions=(0,)),
    _row("reshape", "C1", "shape", (F23,), array("s32", 6)),
    _row("reshape", "C2", "shape", (F23,), array("f32", 5)),
    _row("reshape", "C3", "inferred_dimension", (F23,), array("f32", 6), inferred_dimension=1),
    _row("dynamic-reshape", "C1", "shape", (F23, S), S3),
    _row("dynamic-reshape", "C3", "operands", (F23, S), F32),
    _row("dynamic-reshape", "C3", "operands", (F23, S3), array("f32", 6)),
    _row("bitcast", "C1", "shape", (F23,), array("f32", 5)),
    _row("bitcast", "C2", "shape", (array("s4", 4),), array("s8", 4)),
    _row("bitcast", "C2", "shape", (array("c64", 2),), array("f32", 4)),
    _row("copy-start", "C1", "operands", (Shape.tuple([F23]),)),
    _row("copy-done", "C1", "operands", (Shape.tuple([F23, F23]),)),
    _row("transpose", "C2", "dimensions", (F23,), dimensions=(0, 0)),
    _row("transpose", "C2", "dimensions", (F23,), dimensions=(0,)),
    _row("reverse", "C2", "dimensions", (F23,), dimensions=(1, 1)),
    _row("reverse", "C3", "dimensions", (F23,), dimensions=(2,)),
    _row("slice", "C2", "slice", (F23,), slice=(SliceDimension(0, 1),)),
    _row("slice", "C3", "slice", (S3,), slice=(SliceDimension(0, 4),)),
    _row("slice", "C3", "slice", (S3,), slice=(SliceDimension(2, 1),)),
    _row("slice", "C4", "slice", (S3,), slice=(SliceDimension(0, 1, 0),)),
    _row("dynamic-slice", "C2", "dynamic_slice_sizes", (F23, S, S), dynamic_slice_sizes=(1,)),
    _row("dynamic-slice", "C2", "operands", (F23, S), dynamic_slice_sizes=(1, 1)),
    _row("dynamic-slice", "C3", "operands", (F23, S, array("s64")), dynamic_slice_sizes=(1, 1)),
    _row("dynamic-slice", "C3", "operands", (S3, array("f32")), dynamic_slice_sizes=(1,)),
    _row("dynamic-slice", "C4", "dynamic_slice_sizes", (F23, S, S), dynamic_slice_sizes=(1, 4)),
    _row("dynamic-update-slice", "C2", "operands", (F23, array("s32", 1, 1), S, S)),
    _row("dynamic-update-slice", "C3", "operands", (F23, array("f32", 1), S, S)),
    _row("dynamic-update-slice", "C2", "operands", (F23, F23, S)),
    _row("dynamic-update-slice", "C6", "operands", (F23, F32, S, S)),
    _row("pad", "C1", "operands", (F23, S), padding=(PaddingDimension(0, 0),) * 2),
    _row("pad", "C2", "padding", (F23, array("f32")), padding=(PaddingDimension(0, 0),)),
    _row("pad", "C3", "padding", (S3, S), padding=(PaddingDimension(0, 0, -1),)),
    _row("pad", "C4", "padding", (S3, S), padding=(PaddingDimension(-2, -2),)),
    _row("concatenate", "C1", "operands", (S3, array("f32", 3)), dimensions=(0,)),
    _row("concatenate", "C2", "operands", (F23, F32), dimensions=(0,)),
    _row("concatenate", "C4", "dimensions", (F23, F23), dimensions=(2,)),
    _row("constant", "C1", "shape", (), S3, literal=Literal.of(1.0, array("f32"))),
    _row("parameter", "C1", "operands", (), S3, number=-1),
    _row("get-tuple-element", "C1", "index", (Shape.tuple([S3]),), index=1),
    _row("get-tuple-element", "C1", "operands", (S3,), index=0),
    *(
        _row("gather", rule, at, (F23, STARTS), **{**ROWS, **changes})
        for rule, at, changes in (
            ("C1", "offset_dims", {"offset_dims": (0, 1)}),
            ("C2", "index_vector_dim", {"index_vector_dim": 3}),
            ("C3", "start_index_map", {"start_index_map": (0, 1)}),
            ("C4", "offset_dims", {"offset_dims": (1, 0), "collapsed_slice_dims": ()}),
            ("C5", "offset_dims", {"offset_dims": (2,)}),
            ("C7", "collapsed_slice_dims", {"collapsed_slice_dims": (1, 0), "offset_dims": ()}),
            ("C8", "collapsed_slice_dims", {"collapsed_slice_dims": (2,)}),
            ("C9", "collapsed_slice_dims", {"slice_sizes": (2, 3)}),
            ("C19", "start_index_map", {"start_index_map": (2,)}),
            ("C20", "slice_sizes", {"slice_sizes": (1,)}),
            ("C21", "slice_sizes", {"slice_sizes": (1, 4)}),
        )
    ),
    *(
        _row("gather", rule, at, (F23, BATCH_STARTS), **{**BATCHED, **changes})
        for rule, at, changes in (
            ("C6", "collapsed_slice_dims", {"collapsed_slice_dims": (0,)}),
            ("C10", "operand_batching_dims", {"operand_batching_dims": (1, 0), "collapsed_slice_dims": ()}),
            ("C11", "operand_batching_dims", {"operand_batching_dims": (2,)}),
            ("C12", "operand_batching_dims", {"slice_sizes": (2, 1)}),
            ("C13", "start_indices_batching_dims", {"start_indices_batching_dims": (0, 0)}),
            ("C14", "start_indices_batching_dims", {"start_indices_batching_dims": (2,)}),
            ("C15", "start_indices_batching_dims", {"start_indices_batching_dims": (1,)}),
            ("C16", "start_indices_batching_dims", {"start_indices_batching_dims": ()}),
        )
    ),
    _row("gather", "C17", "start_indices_batching_dims", (F23, array("s32", 4, 1)), **BATCHED),
    _row("gather", "C18", "start_index_map", (F23, array("s32", 2, 2)), **{**BATCHED, "start_index_map": (1, 1)}),
    _row("gather", "C24", "operands", (F23, array("f32", 5, 1)), **ROWS),
]


@pytest.mark.parametrize(("opcode", "rule", "at", "operands", "result", "attributes"), VIOLATIONS)
def test_violation_is_named(
    opcode: str, rule: str, at: str, operands: tuple[Shape, ...], result: Shape | None, attributes: dict[str, Any]
) -> None:
    op = op_class(opcode)(**attributes)

    def called(name: str) -> Any:
        raise AssertionError(f"{opcode} asked for computation {name}")

    with pytest.raises(RuleViolation) as caught:
        op.verify(result or F23, operands, called)
    assert caught.value.message.startswith(f"{opcode}.{rule}: "), caught.value.message
    assert caught.value.at == at


def test_every_rule_in_the_documentation_is_tested() -> None:
    """Each `Cn` that the page of an op in this file names has a row (some name several rules for one condition)."""
    import re

    tested = {(row.values[0], row.values[1]) for row in VIOLATIONS}
    for opcode in {opcode for opcode, _ in tested}:
        errors = (op_class(opcode).__doc__ or "").partition("Errors:")[2]
        named = set(re.findall(r"\bC\d+\b", errors))
        missing = named - {rule for tested_opcode, rule in tested if tested_opcode == opcode}
        # The table ops share one check for all their rows; dynamic-update-slice reports C4 as C2.
        allowed = {"dynamic-update-slice": {"C4"}, "and": {"C1"}, "complex": {"C1"}, "subtract": {"C1"}, "add": {"C2"}}
        assert missing <= allowed.get(str(opcode), set()), f"{opcode}: no row breaks {sorted(missing)}"
