"""Properties that ops declare and others ask for, held against the ops' own answers."""

from __future__ import annotations

import re
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distxla
from distxla.ir.element_type import DATA_TYPES, F32, ElementType
from distxla.ir.op import Op
from distxla.ops.all_to_all import AllToAll
from distxla.ops.channel import Send
from distxla.ops.collective_permute import CollectivePermute
from distxla.ops.elementwise_binary import ROWS, Row
from distxla.ops.support.conversion import converted, widened
from distxla.ops.support.registry import op_class, op_classes

NEUTRAL = {row.opcode: row for row in ROWS if any(row.neutral(t) is not None for t in DATA_TYPES)}


def _values(element_type: ElementType) -> Any:
    if element_type.bits <= 8:
        return np.arange(2**element_type.bits, dtype=np.uint8).view(element_type.dtype)
    numbers = [1.0, 0.0, 3.0, 127.0]
    if element_type.is_float:  # those that a careless neutral value changes
        numbers += [-0.0, -1.0, np.inf, -np.inf, np.nan]
    return np.array(numbers).astype(element_type.dtype)


@pytest.mark.parametrize("opcode", NEUTRAL)
def test_a_neutral_value_changes_nothing(opcode: str) -> None:
    for element_type in DATA_TYPES:
        if NEUTRAL[opcode].neutral(element_type) is not None:
            _check_neutral(NEUTRAL[opcode], element_type)


def _check_neutral(row: Row, element_type: ElementType) -> None:
    values = _values(element_type)
    neutral = np.full(values.shape, row.neutral(element_type)).astype(values.dtype)
    for pair in ((neutral, values), (values, neutral)):
        with np.errstate(invalid="ignore"):
            found = converted(np.asarray(row.function(*map(widened, pair), element_type)), element_type)
        is_nan = np.isnan(values.astype(np.complex128))
        assert found[~is_nan].tobytes() == values[~is_nan].tobytes(), element_type
        assert np.isnan(found.astype(np.complex128)).tolist() == is_nan.tolist(), element_type


def test_four_ops_have_neutral_values() -> None:
    assert set(NEUTRAL) == {"add", "multiply", "maximum", "minimum"}


@pytest.mark.parametrize(
    ("name", "opcodes"),
    [
        ("role.given_by_caller", {"parameter", "infeed"}),
        ("elements.is_sum", {"add"}),
        ("transfer.sends", {"send", "send-done"}),
        ("transfer.receives", {"recv", "recv-done"}),
        (
            "round.same_for_all",
            {"all-gather", "all-gather-start", "all-reduce", "all-reduce-start", "collective-broadcast"},
        ),
    ],
)
def test_ops_that_declare_a_property(name: str, opcodes: set[str]) -> None:
    assert {opcode for opcode, op in op_classes().items() if attrgetter(name)(op)} == opcodes


@pytest.mark.parametrize(
    ("name", "attribute"), [("channel", "channel_id"), ("is_sliced", "slice_sizes"), ("round_opcode", None)]
)
def test_ops_that_answer_by_themselves(name: str, attribute: str | None) -> None:
    answer = {opcode for opcode, op in op_classes().items() if getattr(op, name) is not getattr(Op, name)}
    stated = {opcode for opcode, op in op_classes().items() if attribute in {spec.field for spec in op.attributes()}}
    if attribute is None:  # the starts of collectives
        stated = {"all-gather-start", "all-reduce-start", "collective-permute-start"}
    assert answer == stated - {"gather"}  # whose slice_sizes are of no round


@pytest.mark.parametrize("opcode", ["all-gather-start", "all-reduce-start", "collective-permute-start"])
def test_a_start_meets_its_synchronous_form(opcode: str) -> None:
    op = object.__new__(op_class(opcode))
    assert op.round_opcode == opcode.removesuffix("-start")


def test_an_instance_says_its_channel_and_slices() -> None:
    permute = CollectivePermute(channel_id=7, source_target_pairs=((0, 1),))
    assert (permute.channel, permute.is_sliced) == (7, False)
    sliced = CollectivePermute(source_target_pairs=((0, 1),), slice_sizes=((2,),))
    assert (sliced.channel, sliced.is_sliced) == (None, True)
    assert Send(channel_id=3).channel == AllToAll(channel_id=3).channel == 3


def test_an_op_completes_another_where_its_name_says_so() -> None:
    """`all-reduce-done` completes `all-reduce-start`: XLA names all of them so."""
    ends = {opcode for opcode in op_classes() if opcode.endswith(("-done", "-update"))}
    assert {opcode for opcode, op in op_classes().items() if op.start_done.completes} == ends


def test_the_larger_and_the_smaller_operand() -> None:
    answers = {opcode: op.elements.keeps_larger for opcode, op in op_classes().items()}
    kept = {opcode: larger for opcode, larger in answers.items() if larger is not None}
    assert kept == {"maximum": True, "minimum": False}
    for opcode, larger in kept.items():
        function = op_class(opcode).function  # type: ignore[attr-defined]
        assert function(np.float32(1), np.float32(2), F32) == (2 if larger else 1)


COMPARED = re.compile(r"""\.opcode\s*(==|!=|(not\s+)?in)\s*[(\[{]?["']|\.opcode\.(starts|ends)with""")


def test_the_pattern_of_a_comparison() -> None:
    assert COMPARED.search('if i.opcode == "send":')
    assert COMPARED.search("x.opcode not in ('a', 'b')")
    assert COMPARED.search('i.opcode.endswith("-done")')
    assert not COMPARED.search("start.opcode in op.completes")


def test_no_file_outside_ops_compares_an_opcode_with_a_string() -> None:
    """Where this fails: declare a property (ir/op.py, ir/op_traits.py), and let the op's class say it."""
    package = Path(distxla.__file__).parent
    folders = (package, (package / "scheduler").resolve(), (package / "collectives").resolve())
    found = {path.resolve() for folder in folders for path in folder.rglob("*.py")}
    outside = [path for path in sorted(found) if package.resolve() / "ops" not in path.parents]
    assert len(outside) > 350
    assert [str(path) for path in outside if COMPARED.search(path.read_text())] == []
