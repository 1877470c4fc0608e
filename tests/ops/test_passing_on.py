"""What runs or passes on other instructions' values: calls, fusions, maps, copies, domains, barriers, dependencies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ops.program_case import Array, compiled, evaluated, one_instruction

X = np.arange(6, dtype=np.float32).reshape(2, 3)
S = np.arange(4, dtype=np.int32)
DOMAIN = ', domain={kind="sharding", entry={replicated}, exit={maximal device=0}}'
PASSING = {"copy": "", "opt-barrier": "", "domain": DOMAIN}

ADD = "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = f32[] add(a, b)\n}\n"
MANY = """many {
  p = f32[2,3] parameter(0)
  zero = f32[] constant(0)
  sums = f32[2] reduce(p, zero), dimensions={1}, to_apply=add
  tangents = f32[2,3] tan(p)
  errors = f32[2,3] erf(p)
  products = f32[2,2] dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  ROOT t = (f32[2], f32[2,3], f32[2,3], f32[2,2]) tuple(sums, tangents, errors, products)
}
"""
NEGATIVE = "negative {\n  p = f32[2,3] parameter(0)\n  ROOT n = f32[2,3] negate(p)\n}\n"
SCALARS = """negative {
  p = f32[] parameter(0)
  ROOT n = f32[] negate(p)
}
difference {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  c = f32[] call(p), to_apply=negative
  ROOT d = f32[] subtract(c, q)
}
"""
NESTED = (
    NEGATIVE + "outer {\n  p = f32[2,3] parameter(0)\n  ROOT n = f32[2,3] fusion(p), kind=kLoop, calls=negative\n}\n"
)
TUPLES = """first {
  p = (f32[2,3], s32[4]) parameter(0)
  ROOT g = f32[2,3] get-tuple-element(p), index=0
}
"""
SECOND = "second {\n  p = f32[2,3] parameter(0)\n  ROOT q = f32[2,3] parameter(1)\n}\n"


def _entry(*lines: str, before: str = "") -> str:
    return f"HloModule m\n{before}ENTRY main {{\n" + "\n".join(f"  {line}" for line in lines) + "\n}\n"


def _of_tuple(opcode: str) -> str:
    shape = "(f32[2,3], (s32[4], f32[2,3]), token[])"
    return _entry(
        "x = f32[2,3] parameter(0)",
        "s = s32[4] parameter(1)",
        "k = token[] after-all()",
        "i = (s32[4], f32[2,3]) tuple(s, x)",
        f"t = {shape} tuple(x, i, k)",
        f"u = {shape} {opcode}(t){PASSING[opcode]}",
        "g = (s32[4], f32[2,3]) get-tuple-element(u), index=1",
        "h = s32[4] get-tuple-element(g), index=0",
        f"ROOT r = (s32[4], {shape}) tuple(h, u)",
    )


CASES: dict[str, tuple[str, list[Any], list[Any] | None]] = {
    **{
        f"{opcode} of an array": (one_instruction(f"f32[2,3] {opcode}(@){rest}", ["f32[2,3]"]), [X], [X])
        for opcode, rest in PASSING.items()
    },
    **{f"{opcode} of a tuple": (_of_tuple(opcode), [X, S], [S, X, S, X]) for opcode in PASSING},
    **{
        f"fusion of kind {kind}": (
            one_instruction(
                f"(f32[2], f32[2,3], f32[2,3], f32[2,2]) fusion(@), kind={kind}, calls=many", ["f32[2,3]"], ADD + MANY
            ),
            [X],
            None,
        )
        for kind in ("kLoop", "kInput", "kOutput", "kCustom")
    },
    "fusion with a fusion": (
        one_instruction("f32[2,3] fusion(@), kind=kInput, calls=outer", ["f32[2,3]"], NESTED),
        [X],
        [-X],
    ),
    "sharding group": (
        _entry(
            "x = f32[2,3] parameter(0)",
            'g = () custom-call(x), custom_call_target="xla.sdy.ShardingGroup", custom_call_has_side_effect=true',
            "ROOT n = f32[2,3] negate(x)",
        ),
        [X],
        [-X],
    ),
    "fusion for another compiler": (
        one_instruction(
            'f32[2,3] fusion(@), kind=kCustom, calls=negative, backend_config={"kind":"__triton"}',
            ["f32[2,3]"],
            NEGATIVE,
        ),
        [X],
        [-X],
    ),
    "composite call": (
        one_instruction(
            'f32[2,3] call(@), to_apply=negative, is_composite=true, frontend_attributes={composite.name="n"}',
            ["f32[2,3]"],
            NEGATIVE,
        ),
        [X],
        [-X],
    ),
    "call with a tuple": (
        one_instruction("f32[2,3] call(@), to_apply=first", ["(f32[2,3], s32[4])"], TUPLES),
        [X, S],
        [X],
    ),
    "call that gives an argument": (
        one_instruction("f32[2,3] call(@), to_apply=second", ["f32[2,3]", "f32[2,3]"], SECOND),
        [X, -X],
        [-X],
    ),
    "map with a call": (
        one_instruction("f32[2,3] map(@), dimensions={0,1}, to_apply=difference", ["f32[2,3]", "f32[2,3]"], SCALARS),
        [X, X + 1],
        [-2 * X - 1],
    ),
    "map to a constant": (
        one_instruction(
            "s32[2,3] map(@), dimensions={0,1}, to_apply=three",
            ["f32[2,3]"],
            "three {\n  p = f32[] parameter(0)\n  ROOT c = s32[] constant(3)\n}\n",
        ),
        [X],
        [np.full((2, 3), 3)],
    ),
    "add-dependency": (
        _entry(
            "x = f32[2,3] parameter(0)",
            "k = token[] after-all()",
            "t = (f32[2,3]) tuple(x)",
            "u = (f32[2,3]) add-dependency(t, k)",
            "y = f32[2,3] get-tuple-element(u), index=0",
            "ROOT r = f32[2,3] add-dependency(y, k)",
        ),
        [X],
        [X],
    ),
    "numbers of the device": (
        _entry("p = u32[] partition-id()", "q = u32[] replica-id()", "ROOT r = (u32[], u32[]) tuple(p, q)"),
        [],
        [0, 0],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    text, arguments, wanted = CASES[name]
    by_reference, by_code = evaluated(text, *arguments), compiled(text, *arguments)
    for got, same in zip(by_code, by_reference, strict=True):
        assert got.dtype == same.dtype
        np.testing.assert_allclose(got, same, rtol=1e-6)
    if wanted is not None:
        _assert_equal(by_reference, wanted)


def _assert_equal(got: list[Array], wanted: list[Any]) -> None:
    for ours, theirs in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs)
