"""What differs between two processes' programs, in the user's words."""

from __future__ import annotations

from typing import Any

import pytest

from distxla.jax.processes.differences import differences
from distxla.lazy_dataclass import replace
from tests.jax.processes.program_cases import SCALED, edited, program

ONE = program()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            edited(("constant(2)", "constant(3)")),
            "constant multiply.2 (w2.py:12): process 0 has 2, process 1 has 3",
        ),
        (
            edited(("constant(2)", "constant(3)"), ("line=12", "line=17")),
            "constant multiply.2: process 0 has 2 (w2.py:12), process 1 has 3 (w2.py:17)",
        ),
        (
            edited(("multiply(", "add(")),
            "instruction multiply.2 (w2.py:12): process 0 has %multiply.2 = f32[4]{0} multiply(%param, %broadcast.1), "
            "process 1 has %multiply.2 = f32[4]{0} add(%param, %broadcast.1)",
        ),
        (
            edited(("%sum = f32[] add(", "%sum = f32[] maximum(")),
            "instruction sum (w2.py:13): process 0 has %sum = f32[] add(%a, %b), "
            "process 1 has %sum = f32[] maximum(%a, %b)",
        ),
        (
            edited(("replica_groups={{0,1}}", "replica_groups={{1,0}}")),
            "instruction all-reduce.4 (w2.py:13): process 0 has %all-reduce.4 = f32[] all-reduce(%reduce.3), "
            "channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=%region, process 1 has "
            "%all-reduce.4 = f32[] all-reduce(%reduce.3), channel_id=1, replica_groups={{1,0}}, "
            "use_global_device_ids=true, to_apply=%region",
        ),
        (edited(("jit_scaled", "jit_total")), "function: process 0 has scaled, process 1 has total"),
    ],
)
def test_of_texts(text: str, wanted: str) -> None:
    assert list(map(str, differences(ONE, program(text)))) == [wanted]


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        (
            {"parameter_shapes": ("f32[16]{0}",)},
            "shape of argument 0 (x): process 0 has f32[8], process 1 has f32[16]",
        ),
        ({"output_shapes": ("s32[]",)}, "shape of result 0: process 0 has f32[], process 1 has s32[]"),
        (
            {"parameter_shapes": ("f32[8]{0}", "s32[]")},
            "shape of argument 1: process 0 has none, process 1 has s32[]",
        ),
        (
            {"output_shapes": ("f32[]{:T(8)}",)},
            "layout of result 0: process 0 has f32[], process 1 has f32[]{:T(8)}",
        ),
        (
            {"parameter_shardings": ("{replicated}",)},
            "sharding of argument 0 (x): process 0 has {devices=[2]<=[2]}, process 1 has {replicated}",
        ),
        ({"rows": [[1, 0]]}, "devices: process 0 has [0, 1], process 1 has [1, 0]"),
        ({"rows": [[0], [1]]}, "devices: process 0 has [0, 1], process 1 has [[0], [1]]"),
        ({"donated": frozenset([0])}, "donation: process 0 has none, process 1 has argument 0"),
        ({"checks": frozenset(["nan"])}, "checks: process 0 has none, process 1 has nan"),
        (
            {"callbacks": ((3, "other (w2.py:9)", "b"),)},
            "callback: process 0 has told (w2.py:8), process 1 has other (w2.py:9)",
        ),
        (
            {"callbacks": ((3, "told (w2.py:8)", "b"),)},
            "callback: process 0 has told (w2.py:8) with code a, process 1 has told (w2.py:8) with code b",
        ),
    ],
)
def test_of_signatures(changes: dict[str, Any], wanted: str) -> None:
    one = replace(ONE, callbacks=((3, "told (w2.py:8)", "a"),)) if "callbacks" in changes else ONE
    assert list(map(str, differences(one, program(**changes)))) == [wanted]


def test_equal_programs() -> None:
    assert differences(ONE, program()) == []


def test_names_and_lines_are_no_difference() -> None:
    assert (
        differences(ONE, program(edited(("multiply.2", "mul.7"), ("%region", "%adder"), ("line=12", "line=99")))) == []
    )


def test_a_collective_is_told_before_others() -> None:
    """And the entry before the computations that it calls, of which one program may have more."""
    gather = edited(
        ("%multiply.2 = f32[4]{0} multiply(%param", "%multiply.2 = f32[4]{0} add(%param"),
        (" all-reduce(%reduce.3), channel_id=1", " all-reduce(%reduce.3), channel_id=2"),
    )
    (found,) = differences(ONE, program(gather))
    assert (found.what, found.where) == ("instruction", "all-reduce.4")
    assert ("channel_id=1" in found.one, "channel_id=2" in found.other) == (True, True)


def test_a_collective_that_the_other_has_not() -> None:
    local = SCALED[: SCALED.index("  ROOT %all-reduce.4")].replace("  %reduce.3", "  ROOT %reduce.3") + "}\n"
    (found,) = differences(ONE, program(local))
    assert (found.where, found.other) == ("all-reduce.4", "")
    assert str(found).endswith("process 1 has none")


def test_a_large_constant() -> None:
    def of(last: str) -> str:
        values = ", ".join(["1"] * 15 + [last])
        return edited(
            ("%constant.0 = f32[] constant(2)", f"%constant.0 = f32[16]{{0}} constant({{{values}}})"),
            ("broadcast(%constant.0), dimensions={}", "slice(%constant.0), slice={[0:4]}"),
        )

    (found,) = differences(program(of("1")), program(of("7")))
    assert str(found) == "constant multiply.2 (w2.py:12): process 0 has 1.0 at [15], process 1 has 7.0 at [15]"


def test_which_processes() -> None:
    (found,) = differences(ONE, program(rows=[[1, 0]]), (2, 5))
    assert str(found).startswith("devices: process 2 has [0, 1], process 5 has")


def test_of_two_functions_the_shapes_are_told_too() -> None:
    found = differences(ONE, program(edited(("jit_scaled", "jit_gather")), output_shapes=("f32[8]{0}",)))
    assert [each.what for each in found] == ["function", "shape"]
